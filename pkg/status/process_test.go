package status

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gofrs/flock"
)

func TestGivesUpWhenAnotherProcessKeepsTheLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	must(t, WriteStatusToFile(path, fullSnapshot()))
	before := names(t, dir)
	holder, release := startHelper(t, "hold", path)

	writers := map[string]func() error{
		"write":  func() error { return WriteStatusToFile(path, &NodeStatus{}) },
		"update": func() error { return Update(path, increment) },
	}
	var waiting sync.WaitGroup
	for name, writer := range writers {
		waiting.Go(func() {
			err := writer()
			if err == nil {
				t.Errorf("%s: got no error", name)
				return
			}
			for _, want := range []string{path, "another process", "2s", "fuser -v " + path + ".lock"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got error %q, want one with %q", name, err, want)
				}
			}
		})
	}
	waiting.Wait()
	assertUntouched(t, dir, before)
	if _, err := LoadStatusFromFile(path); err != nil {
		t.Errorf("a reader waits for the lock: %v", err)
	}

	release()
	must(t, holder.Wait())
	must(t, WriteStatusToFile(path, &NodeStatus{}))
}

func TestARemovalDoesNotNeedTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	must(t, WriteStatusToFile(path, fullSnapshot()))
	holder, release := startHelper(t, "hold", path)
	RemoveStatusFileBestEffortAtPath(nil, path)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there (%v)", err)
	}
	release()
	must(t, holder.Wait())
}

func TestALockFileThatWasRemovedKeepsNobodyOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	stale := flock.New(path + ".lock")
	must(t, stale.Lock())
	defer func() { _ = stale.Unlock() }()
	must(t, os.Remove(path+".lock"))

	must(t, WriteStatusToFile(path, fullSnapshot()))

	f, err := openFolder(placeOf(path))
	must(t, err)
	defer f.close()
	if ours, err := f.isOurs(stale); ours || err != nil {
		t.Errorf("got ours %v (%v) for a lock that others don't find", ours, err)
	}
}

func TestALockThatCannotBeOne(t *testing.T) {
	tests := map[string]struct {
		plant func(lock string) error
		want  string // empty: it serves as well
	}{
		"a link":       {func(lock string) error { return os.Symlink("elsewhere", lock) }, "is a link"},
		"a folder":     {func(lock string) error { return os.Mkdir(lock, 0o700) }, "is a directory"},
		"a named pipe": {func(lock string) error { return syscall.Mkfifo(lock, 0o600) }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "status.json")
			must(t, tt.plant(path+".lock"))
			err := WriteStatusToFile(path, fullSnapshot())
			if tt.want == "" {
				must(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path+".lock") {
				t.Errorf("got error %v, want that %s %s", err, path+".lock", tt.want)
			}
			if got := names(t, dir); !slices.Equal(got, []string{"status.json.lock"}) {
				t.Errorf("got files %v", got)
			}
		})
	}
}

func TestTwoProcessesLoseNoUpdate(t *testing.T) {
	path := filepath.Join(memoryFolder(t), "status.json")
	commands := []*exec.Cmd{helper(t, "count", path), helper(t, "count", path)}
	for _, cmd := range commands {
		cmd.Stderr = os.Stderr
		must(t, cmd.Start())
	}
	for _, cmd := range commands {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a counting process ended with %v", err)
		}
	}
	s, err := LoadStatusFromFile(path)
	must(t, err)
	if s.AgentVersion != "20000" {
		t.Errorf("got %s updates, want 20000", s.AgentVersion)
	}
}

func TestGoroutinesLoseNoUpdate(t *testing.T) {
	path := filepath.Join(memoryFolder(t), "status.json")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if err := Update(path, increment); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s, err := LoadStatusFromFile(path)
	must(t, err)
	if s.AgentVersion != "400" {
		t.Errorf("got %s updates, want 400", s.AgentVersion)
	}
}

func TestAKilledWriterLeavesAWholeFileAndNoLock(t *testing.T) {
	dir := memoryFolder(t)
	path := filepath.Join(dir, "status.json")
	for range 20 {
		writer, _ := startHelper(t, "count", path)
		must(t, writer.Process.Kill())
		_ = writer.Wait() // says that it was killed
		if _, err := LoadStatusFromFile(path); err != nil {
			t.Fatal(err)
		}
		must(t, Update(path, increment))
		if got, want := names(t, dir), []string{"status.json", "status.json.lock"}; !slices.Equal(got, want) {
			t.Fatalf("got files %v, want %v", got, want)
		}
	}
}

// A crash of the host loses nothing only if the kernel is asked in this order.
func TestWritesAreMadeDurableInOrder(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace: install it to see the system calls")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	must(t, WriteStatusToFile(path, &NodeStatus{}))
	trace := filepath.Join(t.TempDir(), "trace")
	writer := helper(t, "write", path)
	writer.Args = append([]string{strace, "-f", "-y", "-s", "16", "-o", trace,
		"-e", "trace=write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2"}, writer.Args...)
	writer.Path = strace
	if out, err := writer.CombinedOutput(); err != nil {
		t.Fatalf("strace: %v\n%s", err, out)
	}

	temporary := regexp.QuoteMeta(dir) + `/\.status\.json\d+`
	steps := []struct{ name, call string }{
		{"write the temporary file", `write\(\d+<` + temporary + `>`},
		{"fsync it", `fsync\(\d+<` + temporary + `>`},
		{"rename it", `renameat2?\(\d+<` + regexp.QuoteMeta(dir) + `>, "\.status\.json\d+", \d+<` + regexp.QuoteMeta(dir) + `>, "status\.json"`},
		{"fsync the folder", `fsync\(\d+<` + regexp.QuoteMeta(dir) + `>`},
	}
	var got []string
	lines := strings.Split(readFile(t, trace), "\n")
	for _, line := range lines {
		for _, step := range steps {
			if regexp.MustCompile(step.call).MatchString(line) {
				got = append(got, step.name)
			}
		}
	}
	var want []string
	for _, step := range steps {
		want = append(want, step.name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q\nfrom\n%s", got, want, strings.Join(lines, "\n"))
	}
}
