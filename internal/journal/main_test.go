package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary started again with this variable runs one of the helpers below instead of the tests: what must hold between processes
// is tested with processes.
const helperVariable = "JOURNAL_TEST_HELPER"

// uidVariable makes a helper become that user first.
const uidVariable = "JOURNAL_TEST_UID"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		flag.Parse() // not os.Args: gosec takes a path from there for a stranger's, and objects wherever the journal uses it
		if err := runHelper(name, flag.Arg(0)); err != nil {
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
		if err := errors.Join(syscall.Setgid(id), syscall.Setuid(id)); err != nil {
			return err
		}
	}
	if name == "read" {
		_, _, err := Open(path, realMoment(), Options{ReadOnly: true})
		return err
	}
	j, opened, err := Open(path, realMoment(), Options{})
	if err != nil {
		return err
	}
	switch name {
	case "open": // says what it found
		return json.NewEncoder(os.Stdout).Encode(map[string]any{
			"new": opened.New, "setAside": opened.SetAside != nil, "readOnly": fmt.Sprint(opened.ReadOnly)})
	case "hold": // keeps it open until standard input ends
		fmt.Println("open")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case "work": // without end
		return work(j)
	case "record again": // in a journal that was removed
		if err := os.Remove(j.path); err != nil {
			return err
		}
		return j.Record(realMoment(), Entry{Kind: KindDecision, To: "recorded"})
	case "record":
		return j.Record(realMoment(), Entry{Kind: KindDecision, To: "recorded"})
	}
	return fmt.Errorf("no helper %q", name)
}

// helper prepares another process; the caller runs it.
func helper(t *testing.T, name, path string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self, path)
	// A race-enabled process would sleep for a second before it ends.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", helperVariable+"="+name)
	return cmd
}

func realMoment() Moment {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var uptime syscall.Sysinfo_t
	_ = syscall.Sysinfo(&uptime)
	return Moment{Wall: time.Now(), Boot: strings.TrimSpace(string(boot)), Uptime: time.Duration(uptime.Uptime) * time.Second}
}

// A host is the clock of a test.
type host struct{ Moment }

func newHost() *host {
	return &host{Moment{Wall: time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC), Boot: "boot-1", Uptime: time.Hour}}
}

// run lets time pass while the host is up.
func (h *host) run(d time.Duration) Moment {
	h.Wall, h.Uptime = h.Wall.Add(d), h.Uptime+d
	return h.Moment
}

// setClock sets the wall clock forward, or back.
func (h *host) setClock(by time.Duration) Moment {
	h.Wall = h.Wall.Add(by)
	return h.Moment
}

// reboot switches the host off for a while; it is up for a second then.
func (h *host) reboot(off time.Duration) Moment {
	h.Wall, h.Uptime, h.Boot = h.Wall.Add(off+time.Second), time.Second, h.Boot+"+"
	return h.Moment
}

// newPath is where no journal is yet, in a folder where flushing costs nothing.
func newPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "journal")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "journal.db")
}

// open opens a journal that must open, and closes it at the end of the test.
func open(t testing.TB, path string, now Moment) (*Journal, Opened) {
	t.Helper()
	j, opened, err := Open(path, now, Options{})
	if err != nil {
		t.Fatalf("open: got error %v, want none", err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j, opened
}

// openSound opens a journal with which nothing may be wrong.
func openSound(t testing.TB, path string, now Moment) *Journal {
	t.Helper()
	j, opened := open(t, path, now)
	if opened.New = false; opened != (Opened{}) {
		t.Fatalf("open: got %+v, want a sound journal", opened)
	}
	return j
}

func reopen(t testing.TB, j *Journal, now Moment) *Journal {
	t.Helper()
	must(t, j.Close())
	return openSound(t, j.path, now)
}

// fill makes one of everything.
func fill(t testing.TB, j *Journal, now Moment) {
	t.Helper()
	for i := range 3 {
		id, err := j.Begin(now, Plan{Name: "bootstrap", Budget: "bootstrap", Decision: json.RawMessage(`{"action":"bootstrap"}`), Steps: []string{"run", "verify"}})
		must(t, err)
		must(t, j.Step(now, id, Progress{Step: "run", State: StepStarted, Limit: time.Minute}))
		must(t, j.Step(now, id, Progress{Step: "run", State: StepFailed, Output: strings.Repeat("output ", 100), Error: "exit status 1"}))
		if i < 2 {
			must(t, j.Finish(now, id, "failed", "it did not help"))
		}
	}
	must(t, j.Pause(now, Pause{By: "root", Reason: "maintenance"}))
	for i := range 40 {
		must(t, j.Record(now, Entry{Kind: KindCondition, Subject: "NodeReady", From: "True", To: "False", Message: fmt.Sprint("change ", i)}))
	}
}

// contents is all that a journal holds, without the running of time.
func contents(t testing.TB, j *Journal, now Moment) string {
	t.Helper()
	var b bytes.Buffer
	print := func(v any, err error) {
		t.Helper()
		must(t, err)
		must(t, json.NewEncoder(&b).Encode(v))
	}
	print(j.History(time.Time{}, time.Time{}, 0))
	print(j.Remedies(0))
	print(j.Unfinished())
	print(j.Attempts(now, "bootstrap", MaxBudgetWindow))
	print(j.Paused(now))
	return b.String()
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

func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(path, content, 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
