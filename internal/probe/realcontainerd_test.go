package probe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/golden"
)

// realContainerd is this machine's containerd with folders and a socket of its own, as a plain process.
type realContainerd struct {
	t      testing.TB
	path   string // of the program
	dir    string
	socket string
	env    []string
	cmd    *exec.Cmd
}

// newContainerd prepares one, with more lines for its CRI plugin's section and for the sections after it. It is killed at the end.
func newContainerd(t testing.TB, section, more string) *realContainerd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: containerd does")
	}
	path, err := exec.LookPath("containerd")
	if err != nil {
		t.Skip("needs containerd: ", err)
	}
	dir, err := os.MkdirTemp("", "containerd-") // short: a socket's path has room for 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	c := &realContainerd{t: t, path: path, dir: dir, socket: filepath.Join(dir, "c.sock"), env: os.Environ()}
	t.Cleanup(func() {
		c.kill()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil { // as /run/containerd is
		t.Fatal(err)
	}
	putFile(t, filepath.Join(dir, "config.toml"), fmt.Appendf(nil, `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
%[3]s
[grpc]
  address = "%[1]s/c.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/opt"
[plugins."io.containerd.grpc.v1.cri"]
  disable_cgroup = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "%[1]s/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      %[2]s
`, dir, section, more), 0o644)
	return c
}

// start runs it and returns when it answers.
func (c *realContainerd) start() *realContainerd {
	c.t.Helper()
	log, err := os.Create(filepath.Join(c.dir, "log"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	c.cmd = exec.CommandContext(context.WithoutCancel(c.t.Context()), c.path, "--config", filepath.Join(c.dir, "config.toml"))
	c.cmd.Env, c.cmd.Stdout, c.cmd.Stderr = c.env, log, log
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "containerd has booted", func() bool {
		b, _ := os.ReadFile(log.Name())
		return strings.Contains(string(b), "containerd successfully booted")
	})
	var client criClient
	defer client.close()
	eventually(c.t, "its CRI plugin has booted too", func() bool {
		_, err := client.ask(c.t.Context(), c.socket)
		return status.Code(err) != codes.Unavailable && !strings.Contains(status.Convert(err).Message(), "not initialized yet") // containerd gives that no code
	})
	return c
}

func (c *realContainerd) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// freeze stops it and returns when all its threads have stopped.
func (c *realContainerd) freeze() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	eventually(c.t, "all threads have stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", c.cmd.Process.Pid))
		return err == nil && !slices.ContainsFunc(threads, func(path string) bool {
			b, err := os.ReadFile(path)
			return err == nil && !strings.Contains(string(b), "State:\tT")
		})
	})
}

// kill ends it as a crash does: its socket's file stays.
func (c *realContainerd) kill() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill() // it may have ended
	_ = c.cmd.Wait()
	c.cmd = nil
}

// suite returns a Suite that looks at it and at this machine's programs.
func (c *realContainerd) suite() *Suite {
	s, _ := newSuite(c.t)
	s.settings.criSocket, s.settings.searchPath = c.socket, os.Getenv("PATH")
	return s
}

// unit is what systemd would say of it.
func (c *realContainerd) unit() observe.Unit {
	return running("containerd.service", c.cmd.Process.Pid, c.path)
}

// lookAt looks with as much time as a look at something that hangs needs to be sure.
func lookAt(t testing.TB, s *Suite) observe.Observation[observe.Runtime] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Second)
	defer cancel()
	return s.lookAtContainerd(ctx, time.Now())
}

func TestRealContainerdThroughItsTroubles(t *testing.T) {
	c := newContainerd(t, "", "").start()
	s := c.suite()
	hasUnits(s, units{containerd: c.unit()})
	file, err := s.versions.get(t.Context(), c.path, containerdVersion)
	if err != nil {
		t.Fatal(err)
	}
	healthy := func(t *testing.T) {
		t.Helper()
		got := lookAt(t, s)
		wantSeen(t, got, observe.Healthy, "NetworkNotReady", "cni") // no network is configured for it
		want := observe.Runtime{Program: file, Socket: c.socket, Answers: true, RuntimeReady: true}
		want.Path, want.FileVersion = c.path, file.Version
		if got.Value != want {
			t.Errorf("got %+v, want %+v", got.Value, want)
		}
	}
	t.Run("up", healthy)
	t.Run("frozen", func(t *testing.T) {
		c.freeze()
		wantSeen(t, lookAt(t, s), observe.Unhealthy, "NotResponding", "it hangs")
		wantSeen(t, lookAt(t, s), observe.Unhealthy, "NotResponding")
		wantSeen(t, lookAt(t, c.suite()), observe.Unhealthy, "NotResponding") // one that begins only now
	})
	t.Run("thawed", func(t *testing.T) {
		c.signal(syscall.SIGCONT)
		healthy(t)
	})
	t.Run("killed", func(t *testing.T) {
		c.kill()
		hasUnits(s, units{containerd: observe.Unit{Name: "containerd.service", LoadState: "loaded", ActiveState: "failed", ExecStart: []string{c.path}}})
		got := lookAt(t, s)
		wantSeen(t, got, observe.Unhealthy, "NotRunning", c.socket)
		if got.Value.Version != file.Version || got.Value.Answers {
			t.Errorf("got %+v, want no answer and the version of the file", got.Value)
		}
	})
	t.Run("restarted", func(t *testing.T) {
		c.start()
		hasUnits(s, units{containerd: c.unit()})
		healthy(t)
	})
	t.Run("killed and restarted between two looks", func(t *testing.T) {
		c.kill()
		c.start()
		hasUnits(s, units{containerd: c.unit()})
		healthy(t)
	})
	t.Run("with its socket removed", func(t *testing.T) {
		if err := os.Remove(c.socket); err != nil {
			t.Fatal(err)
		}
		wantSeen(t, lookAt(t, s), observe.Unhealthy, "SocketMissing", c.socket)
	})
	t.Run("stopped", func(t *testing.T) {
		c.signal(syscall.SIGTERM)
		_ = c.cmd.Wait()
		c.cmd = nil
		hasUnits(s, units{containerd: observe.Unit{Name: "containerd.service", LoadState: "loaded", ActiveState: "inactive", ExecStart: []string{c.path}}})
		wantSeen(t, lookAt(t, s), observe.Unhealthy, "NotRunning")
	})
}

func TestRealContainerdMayNotBeAskedByEverybody(t *testing.T) {
	if socket := os.Getenv(ofNobody); socket != "" {
		s, _ := newSuite(t)
		s.settings.criSocket, s.settings.searchPath = socket, os.Getenv("PATH")
		got := s.lookAtContainerd(t.Context(), time.Now()) // with all the time that the file needs to say its version
		wantSeen(t, got, observe.Unknown, observe.ReasonPermissionDenied, "run as root")
		if got.Value.Version == "" {
			t.Errorf("got %+v, want the version of the file at least", got.Value)
		}
		return
	}
	c := newContainerd(t, "", "").start()
	asNobody(t, c.socket)
}

func TestRealContainerdWithoutItsCRIPlugin(t *testing.T) {
	c := newContainerd(t, "", `disabled_plugins = ["io.containerd.grpc.v1.cri"]`).start()
	wantSeen(t, lookAt(t, c.suite()), observe.Unhealthy, "CRIDisabled")
}

func TestRealRuntimesOfRealContainerd(t *testing.T) {
	path := func(name string) string {
		p, err := exec.LookPath(name)
		if err != nil {
			t.Skip("needs ", name, ": ", err)
		}
		return p
	}
	runc, crun := path("runc"), path("crun")
	for _, test := range []struct {
		name    string
		section string
		path    string // PATH of containerd; empty: ours
		health  observe.Health
		reason  string
		want    observe.Program
		words   []string
	}{
		{"runc", "", "", observe.Healthy, "VersionKnown", observe.Program{Name: "runc", Path: runc}, nil},
		{"crun by its path", fmt.Sprintf("BinaryName = %q", crun), "", observe.Healthy, "VersionKnown", observe.Program{Name: "crun", Path: crun}, nil},
		{"crun by its name", `BinaryName = "crun"`, "", observe.Healthy, "VersionKnown", observe.Program{Name: "crun", Path: crun}, nil},
		{"no runc in the PATH of containerd", "", "/nowhere", observe.Unhealthy, observe.ReasonNotInstalled, observe.Program{}, []string{"not in the PATH of containerd"}},
		{"a path that leads nowhere", `BinaryName = "/nowhere/runc"`, "", observe.Unhealthy, observe.ReasonNotInstalled, observe.Program{}, []string{"/nowhere/runc"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newContainerd(t, test.section, "")
			if test.path != "" {
				c.env = []string{"PATH=" + test.path}
			}
			c.start()
			s := c.suite()
			hasUnits(s, units{containerd: c.unit()})
			got := s.lookAtRunc(t.Context(), time.Now())
			wantSeen(t, got, test.health, test.reason, test.words...)
			if got.Value.Name != test.want.Name || got.Value.Path != test.want.Path || (got.Value.Version != "") != (test.want.Name != "") {
				t.Errorf("got %+v, want %+v with its version", got.Value, test.want)
			}
			keepConfig(t, s, test.section == "")
		})
	}
}

// keepConfig writes the daemon's own account of its configuration to where FuzzRuntimeConfig finds it.
func keepConfig(t *testing.T, s *Suite, wanted bool) {
	t.Helper()
	if !golden.Updating() || !wanted {
		return
	}
	k, err := s.cri.connection(t.Context(), s.settings.criSocket)
	if err != nil {
		t.Fatal(err)
	}
	st, err := k.client.Status(t.Context(), &cri.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	config := strings.ReplaceAll(st.GetInfo()["config"], filepath.Dir(s.settings.criSocket), "/run/containerd")
	putFile(t, filepath.Join("testdata", "containerd-1.6-config.json"), []byte(config+"\n"), 0o644)
}
