package probe

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/azcmagent/standin"
)

// nobody is a user without rights.
const nobody = 65534

// newSuite returns a Suite that finds nothing: its places are in an empty folder, and there is no systemd. A test puts there what it is
// about. The Suite is closed at the end.
func newSuite(t testing.TB) (s *Suite, dir string) {
	t.Helper()
	dir = t.TempDir()
	s = New(nil, "test")
	s.settings = settings{
		hostName: "n1", userAgent: "test", searchPath: filepath.Join(dir, "bin"), criSocket: filepath.Join(dir, "cri.sock"),
		kubeletConfig: filepath.Join(dir, "config.yaml"), kubeconfigs: []string{filepath.Join(dir, "kubeconfig")},
		arcPaths: []string{filepath.Join(dir, "bin/azcmagent")},
		disk:     diskPlaces{state: filepath.Join(dir, "lib"), kubelet: filepath.Join(dir, "kubelet"), containerd: filepath.Join(dir, "containerd")},
	}
	s.units.look = func(context.Context, time.Time) observe.Observation[units] {
		return observe.CannotTell[units]("NoSystemd", "there are no units in this test")
	}
	t.Cleanup(s.Close)
	return s, dir
}

// hasUnits makes systemd say this to a Suite.
func hasUnits(s *Suite, u units) {
	s.units.look = func(context.Context, time.Time) observe.Observation[units] {
		return observe.See(u, observe.Healthy, "Seen", "systemd answered")
	}
}

// running is a unit that does its work with a main process.
func running(name string, pid int, execStart ...string) observe.Unit {
	return observe.Unit{Name: name, LoadState: "loaded", ActiveState: "active", SubState: "running", MainPID: pid, ExecStart: execStart}
}

// wantSeen holds an observation to its health and reason, and to the words that its message holds.
func wantSeen[T any](t *testing.T, got observe.Observation[T], health observe.Health, reason string, words ...string) {
	t.Helper()
	if got.Health != health || got.Reason != reason {
		t.Errorf("got %s %s (%s), want %s %s; value %+v", got.Health, got.Reason, got.Message, health, reason, got.Value)
	}
	for _, w := range words {
		if !strings.Contains(got.Message, w) {
			t.Errorf("got message %q, want it to say %q", got.Message, w)
		}
	}
}

func needsRoot(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: " + why)
	}
}

// ofNobody is set, to a value of the test's own, in a process in which one test runs as a user without rights.
const ofNobody = "PROBE_TEST_NOBODY"

// asNobody runs the present test once more as a user without rights. By way of /proc, since that user may not enter the folder in which
// this program lies.
func asNobody(t *testing.T, value string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ofNobody+"="+value, "GORACE=atexit_sleep_ms=0")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")) {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
}

// programs are built once, kept in memory, and written where a test wants them.
var (
	daemonProgram = sync.OnceValues(func() ([]byte, error) {
		return build(func(path string) error {
			out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./testdata/daemon").CombinedOutput()
			if err != nil {
				return fmt.Errorf("build testdata/daemon: %w\n%s", err, out)
			}
			return nil
		})
	})
	arcProgram = sync.OnceValues(func() ([]byte, error) {
		return build(func(path string) error { return standin.Build(context.Background(), path) }) // it serves all tests
	})
)

func build(at func(path string) error) ([]byte, error) {
	dir, err := os.MkdirTemp("", "probe-test-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "program")
	if err := at(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// putDaemon puts a program at path that prints says when it is asked for its version. What was there goes on where it runs.
func putDaemon(t testing.TB, path, says string) string {
	t.Helper()
	program, err := daemonProgram()
	if err != nil {
		t.Fatal(err)
	}
	return putFile(t, path, append(slices.Clip(program), "\n--says--\n"+says...), 0o755)
}

// putArc puts the stand-in for azcmagent at path and chooses what it plays.
func putArc(t testing.TB, path, scenario string) string {
	t.Helper()
	program, err := arcProgram()
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, path, program, 0o755)
	if err := standin.Play(path, scenario); err != nil {
		t.Fatal(err)
	}
	return path
}

// putScript puts a shell script at path that adds a line to path.runs each time it runs.
func putScript(t testing.TB, path, body string) string {
	t.Helper()
	return putFile(t, path, []byte("#!/bin/sh\necho run >>"+path+".runs\n"+body+"\n"), 0o755)
}

// runsOf says how often a script ran.
func runsOf(t testing.TB, path string) int {
	t.Helper()
	b, err := os.ReadFile(path + ".runs")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// putFile replaces a file as package managers do: the old one stays what it was for whoever has it open.
func putFile(t testing.TB, path string, content []byte, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".next", content, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path+".next", mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// startDaemon runs a program that putDaemon wrote, until the end of the test or until stop.
func startDaemon(t testing.TB, path string, args ...string) (pid int, stop func()) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)
	stdin, stdinEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = stdin
	err = cmd.Start()
	stdin.Close()
	if err != nil {
		stdinEnd.Close()
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		stdinEnd.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	eventually(t, path+" runs", func() bool { // the kernel lets us go on before /proc says with what it was started
		line, _ := host.CommandLine(cmd.Process.Pid)
		env, _ := host.Environ(cmd.Process.Pid)
		return len(line) > 0 && len(env) > 0
	})
	return cmd.Process.Pid, stop
}

// processesOf returns the processes that run the file at path.
func processesOf(path string) []string {
	var pids []string
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.TrimSuffix(exe, " (deleted)") == path {
			pids = append(pids, filepath.Base(filepath.Dir(link)))
		}
	}
	return pids
}

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited 30 s in vain: %s", what)
		}
	}
}
