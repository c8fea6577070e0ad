package status

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
)

// The test binary started again with this variable runs one of the helpers
// below instead of the tests: what must hold between processes is tested with
// processes.
const helperVariable = "STATUS_TEST_HELPER"

// uidVariable makes a helper become that user first.
const uidVariable = "STATUS_TEST_UID"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		if err := runHelper(name, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func runHelper(name, path string) error {
	if uid := os.Getenv(uidVariable); uid != "" {
		id, err := strconv.Atoi(uid)
		if err != nil {
			return err
		}
		if err := syscall.Setgid(id); err != nil {
			return err
		}
		if err := syscall.Setuid(id); err != nil {
			return err
		}
	}
	p := placeIn(path, os.Getenv("STATUS_TEST_GUESSABLE"))
	switch name {
	case "hold": // takes the lock and keeps it until standard input ends
		return whileLocked(p, func(*folder) error {
			fmt.Println("held")
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		})
	case "count": // says so after the first of 10,000 increments
		for i := range 10_000 {
			if err := update(p, increment); err != nil {
				return err
			}
			if i == 0 {
				fmt.Println("counting")
			}
		}
		return nil
	case "write":
		return write(p, fullSnapshot())
	case "load":
		_, err := load(p)
		return err
	case "needs-bootstrap":
		logger := logrus.New()
		logger.SetLevel(logrus.DebugLevel)
		logger.SetOutput(os.Stdout)
		fmt.Println(needsBootstrap(path, nil, logger, time.Now()))
		return nil
	}
	return fmt.Errorf("no helper %q", name)
}

// helper prepares another process; the caller runs it.
func helper(t *testing.T, name, path string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, path)
	// A race-enabled process would sleep for a second before it ends.
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0", helperVariable+"="+name), env...)
	return cmd
}

// startHelper starts another process and returns once it printed its first line.
// Its standard input stays open until the returned function closes it.
func startHelper(t *testing.T, name, path string) (cmd *exec.Cmd, release func()) {
	t.Helper()
	cmd = helper(t, name, path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("helper %s printed %q, then %v", name, line, err)
	}
	return cmd, func() { _ = in.Close() }
}

// increment counts in a field that holds text.
func increment(s *NodeStatus) error {
	n, _ := strconv.Atoi(s.AgentVersion) // empty in a minimal snapshot
	s.AgentVersion = strconv.Itoa(n + 1)
	return nil
}

// fullSnapshot is testdata/full.json: a snapshot with every field set.
func fullSnapshot() *NodeStatus {
	return &NodeStatus{
		KubeletVersion:    "1.32.7",
		RuncVersion:       "1.1.12",
		ContainerdVersion: "1.7.20",
		KubeletRunning:    true,
		KubeletReady:      "Ready",
		ContainerdRunning: true,
		ArcStatus: ArcStatus{
			Registered:    true,
			Connected:     true,
			MachineName:   "node-1",
			ResourceID:    "/subscriptions/…",
			Location:      "westeurope",
			ResourceGroup: "rg-edge",
			LastHeartbeat: time.Date(2026, 1, 15, 17, 47, 26, 0, time.UTC),
			AgentVersion:  "1.58.03228.700",
		},
		LastUpdated:       time.Date(2026, 1, 15, 17, 47, 26, 247968895, time.UTC),
		LastUpdatedBy:     LastUpdatedByStatusCollectionLoop,
		LastUpdatedReason: LastUpdatedReasonPeriodicStatusLoop,
		AgentVersion:      "v0.3.0",
	}
}

func needsRoot(t *testing.T, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: " + what)
	}
}

// mountTmpfs returns a new file system of the given size.
func mountTmpfs(t *testing.T, size string) string {
	t.Helper()
	needsRoot(t, "mounts a tmpfs")
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Fatalf("mount a tmpfs on %s: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// memoryFolder is a folder where an fsync costs nothing, if there is one.
func memoryFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "status")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// sharedFolder is a folder that every user can reach, which t.TempDir is not.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "status")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	return readFile(t, filepath.Join("testdata", name))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
