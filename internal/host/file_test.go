package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const someoneElse = 65534 // nobody

// place makes one file in a folder that everybody may enter, with that owner and mode, and returns its path.
func place(t *testing.T, name, content string, owner, group int, mode uint32) string {
	t.Helper()
	p := filepath.Join(openFolder(t), name)
	must(t, os.WriteFile(p, []byte(content), 0o600))
	must(t, os.Lchown(p, owner, group))
	must(t, unix.Chmod(p, mode))
	return p
}

func openFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestIdentifyTellsAnyChange(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, path string)
		same   bool
	}{
		{"given no change, the identity is the same", func(*testing.T, string) {}, true},
		{"given that the file was read, the identity is the same", func(t *testing.T, p string) { _, err := os.ReadFile(p); must(t, err) }, true},
		{"given another file in its place, it is another", func(t *testing.T, p string) {
			must(t, os.WriteFile(p+".new", []byte("content"), 0o755))
			must(t, os.Rename(p+".new", p))
		}, false},
		{"given more content", func(t *testing.T, p string) { must(t, os.Truncate(p, 100)) }, false},
		{"given another mode", func(t *testing.T, p string) { must(t, os.Chmod(p, 0o777)) }, false},
		{"given another time of change", func(t *testing.T, p string) { must(t, os.Chtimes(p, time.Time{}, time.Unix(1, 0))) }, false},
		{"given other content of the same size with its time of change set back", func(t *testing.T, p string) {
			before, err := Identify(p)
			must(t, err)
			eventually(t, func() bool { // the clock for files moves in steps of some milliseconds
				must(t, os.WriteFile(p, []byte("CONTENT"), 0o755))
				must(t, os.Chtimes(p, time.Time{}, time.Unix(before.Mtime.Unix())))
				now, err := Identify(p)
				must(t, err)
				return now.Ctime != before.Ctime && now.Mtime == before.Mtime
			}, func() string { return "the time of the last change of the file's properties never moved" })
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := filepath.Join(t.TempDir(), "file")
			must(t, os.WriteFile(p, []byte("content"), 0o755))
			before, err := Identify(p)
			must(t, err)
			if before == (Identity{}) {
				t.Error("got the zero identity for a file")
			}
			tc.change(t, p)
			after, err := Identify(p)
			must(t, err)
			if (before == after) != tc.same {
				t.Errorf("got %+v before and %+v after; are they the same: want %v", before, after, tc.same)
			}
		})
	}
}

func TestIdentifyTellsWhatItSaw(t *testing.T) {
	needsRoot(t)
	p := place(t, "p", "content", 1, 2, 0o750)
	must(t, os.Chtimes(p, time.Time{}, time.Unix(7, 8)))
	id, err := Identify(p)
	if err != nil || id.Size != 7 || id.UID != 1 || id.GID != 2 || id.Mode != unix.S_IFREG|0o750 || id.Mtime != (unix.Timespec{Sec: 7, Nsec: 8}) {
		t.Errorf("got %+v, %v, want 7 bytes of user 1 and group 2, mode 0750, last changed 7 s and 8 ns after 1970", id, err)
	}
}

func TestIdentifyFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must(t, os.WriteFile(file, []byte("content"), 0o755))
	must(t, os.Symlink("file", link))
	a, errA := Identify(file)
	b, errB := Identify(link)
	if a != b || errA != nil || errB != nil {
		t.Errorf("got %+v, %v and %+v, %v, want the same", a, errA, b, errB)
	}
	must(t, os.Remove(file))
	_, err := Identify(link)
	var pathError *fs.PathError
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &pathError) || pathError.Path != link {
		t.Errorf("given a link that leads nowhere: got error %#v, want ErrNotExist of %s", err, link)
	}
}

func TestCheckProgramAsRoot(t *testing.T) {
	needsRoot(t)
	for _, tc := range []struct {
		name string
		path string
		want string // part of the error; "" for none
	}{
		{"given root's own program", place(t, "p", "", 0, 0, 0o755), ""},
		{"given one that runs with its owner's rights", place(t, "p", "", 0, 0, 0o4755), ""},
		{"given one that only root's own group can write", place(t, "p", "", 0, 0, 0o775), ""},
		{"given one that is another group's but which that can't write", place(t, "p", "", 0, someoneElse, 0o755), ""},
		{"given one that another group can write", place(t, "p", "", 0, someoneElse, 0o775), "(mode 0775)"},
		{"given one that everybody can write", place(t, "p", "", 0, 0, 0o757), "(mode 0757)"},
		{"given one that everybody can write, without execute bits", place(t, "p", "", 0, 0, 0o666), "can be written by others"},
		{"given somebody else's", place(t, "p", "", someoneElse, 0, 0o755), "belongs to user 65534"},
		{"given a folder", openFolder(t), "not a regular file"},
		{"given a device", "/dev/null", "not a regular file"},
		{"given a FIFO", fifo(t), "not a regular file"},
		{"given a socket", socket(t), "not a regular file"},
		{"given a link to root's own program", linkTo(t, place(t, "p", "", 0, 0, 0o755)), ""},
		{"given a link to somebody else's", linkTo(t, place(t, "p", "", someoneElse, someoneElse, 0o755)), "belongs to user 65534"},
		{"given a link to a folder", linkTo(t, openFolder(t)), "not a regular file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, err := Identify(tc.path)
			must(t, err)
			wantRefusal(t, CheckProgram(tc.path, id), tc.path, tc.want)
		})
	}
	wantRefusal(t, CheckProgram("/none", Identity{}), "/none", "not a regular file")
}

func wantRefusal(t *testing.T, err error, path, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("got error %v, want none", err)
	case want != "" && (!errors.Is(err, ErrNotTrusted) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)):
		t.Errorf("got error %v, want ErrNotTrusted with %q and the path", err, want)
	}
}

func linkTo(t *testing.T, path string) string {
	t.Helper()
	link := filepath.Join(openFolder(t), "link")
	must(t, os.Symlink(path, link))
	must(t, os.Lchown(link, someoneElse, someoneElse)) // whose the link is does not matter
	return link
}

func fifo(t *testing.T) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(p, 0o755))
	return p
}

func socket(t *testing.T) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", p)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return p
}

// What a user without rights may look at: everything runs in a process of that user.
func TestAsAnotherUser(t *testing.T) {
	needsRoot(t)
	exe := filepath.Join(openFolder(t), "test")
	self, err := os.Executable()
	must(t, err)
	copyProgram(t, self, exe)
	closed := t.TempDir()
	must(t, os.Chmod(closed, 0o700))
	for _, tc := range []struct {
		name, path string
		want       []string
	}{
		{"given somebody else's program that everybody can write, then they run it at their own risk",
			place(t, "p", "", 1, 1, 0o777), []string{"identify: <nil>", "check: <nil>"}},
		{"given a folder, then it is still no program", openFolder(t), []string{"identify: <nil>", "check: .*not a regular file.*"}},
		{"given a file in a folder they may not enter", filepath.Join(closed, "p"), []string{"identify: permission"}},
		{"given another user's process, then only its command line and its start can be seen", "/", []string{
			"environ: permission", "executable: permission", "command line: <nil>", "process: <nil>",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := execAs(t, someoneElse, exe, "look", tc.path, fmt.Sprint(os.Getpid()))
			out, err := cmd.CombinedOutput()
			must(t, err)
			for _, want := range tc.want {
				what, how, _ := strings.Cut(want, ": ")
				got := ""
				for line := range strings.Lines(string(out)) {
					if v, ok := strings.CutPrefix(line, what+": "); ok {
						got = v
					}
				}
				if !strings.Contains(got, strings.Trim(how, ".*")) {
					t.Errorf("got %s: %q, want %q", what, got, how)
				}
			}
		})
	}
}

func TestIsELF(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	for _, tc := range []struct {
		name, path string
		want       bool
	}{
		{"given a Linux program", self, true},
		{"given a link to one", linkWithoutOwner(t, self), true},
		{"given what runs, by its process", "/proc/self/exe", true},
		{"given a script", write(t, "#!/bin/sh\n"), false},
		{"given an empty file", write(t, ""), false},
		{"given the first three bytes only", write(t, "\x7fEL"), false},
		{"given the four bytes and nothing else", write(t, "\x7fELF"), true},
		{"given no file", filepath.Join(t.TempDir(), "missing"), false},
		{"given a folder", t.TempDir(), false},
		{"given a FIFO, it does not wait for a writer", fifo(t), false},
		{"given a device that has bytes without end", "/dev/zero", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			within(t, func() {
				if got := IsELF(tc.path); got != tc.want {
					t.Errorf("got %v, want %v", got, tc.want)
				}
			})
		})
	}
}

func linkWithoutOwner(t *testing.T, path string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(path, link))
	return link
}

func write(t *testing.T, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(p, []byte(content), 0o600))
	return p
}

// within fails when f does not come back.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it hangs")
	}
}

func TestFindProgram(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	dir := func(name string) string {
		p := filepath.Join(root, name)
		must(t, os.MkdirAll(p, 0o755))
		return p
	}
	put := func(dir string, mode os.FileMode) string {
		p := filepath.Join(dir, "runc")
		must(t, os.WriteFile(p, nil, mode))
		return dir
	}
	good, other := put(dir("good"), 0o755), put(dir("other"), 0o755)
	plain := put(dir("plain"), 0o644)
	folder := dir("folder")
	dir("folder/runc")
	must(t, unix.Mkfifo(filepath.Join(dir("fifo"), "runc"), 0o755))
	must(t, os.Symlink(filepath.Join(good, "runc"), filepath.Join(dir("link"), "runc")))
	must(t, os.Symlink("nowhere", filepath.Join(dir("broken"), "runc")))
	for _, tc := range []struct {
		name, searchPath, want string
	}{
		{"given two folders that have it, the first wins", other + ":" + good, other + "/runc"},
		{"given a file that can't be executed, it is passed over", plain + ":" + good, good + "/runc"},
		{"given a folder of that name, it is passed over", folder + ":" + good, good + "/runc"},
		{"given a FIFO of that name, it is passed over", root + "/fifo:" + good, good + "/runc"},
		{"given a link, its own path is returned", root + "/link:" + good, root + "/link/runc"},
		{"given a link that leads nowhere, it is passed over", root + "/broken:" + good, good + "/runc"},
		{"given relative folders, they are passed over", "good:./good::.:" + other, other + "/runc"},
		{"given relative folders only", "good", ""},
		{"given folders that are missing or lack it", "/no/such:" + root, ""},
		{"given an empty search path", "", ""},
	} {
		if got := FindProgram("runc", tc.searchPath); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := FindProgram("", good); got != "" {
		t.Errorf("given no name: got %q, want none", got)
	}
}

func TestReadFile(t *testing.T) {
	const limit = 1000
	sparse := write(t, "")
	must(t, os.Truncate(sparse, 10<<30))
	content := strings.Repeat("x", limit)
	for _, tc := range []struct {
		name, path string
		want       string // the content
		wantError  string // part of the error; "" for none
	}{
		{"given a file", write(t, "content"), "content", ""},
		{"given an empty file", write(t, ""), "", ""},
		{"given a link to a file", linkWithoutOwner(t, write(t, "content")), "content", ""},
		{"given exactly the limit", write(t, content), content, ""},
		{"given one byte more", write(t, content+"x"), "", "larger than 1000 bytes"},
		{"given a file of 10 GB", sparse, "", "larger than 1000 bytes"},
		{"given a FIFO, it does not wait for a writer", fifo(t), "", "not a regular file"},
		{"given a device that has bytes without end", "/dev/zero", "", "not a regular file"},
		{"given a folder", t.TempDir(), "", "not a regular file"},
		{"given a socket", socket(t), "", "no such device"},
		{"given a file whose size the kernel does not tell", "/proc/self/comm", comm(t), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			within(t, func() {
				got, err := ReadFile(tc.path, limit)
				if string(got) != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				if tc.wantError == "" && err != nil || tc.wantError != "" && (err == nil || !strings.Contains(err.Error(), tc.wantError)) {
					t.Errorf("got error %v, want %q", err, tc.wantError)
				}
			})
		})
	}
}

func comm(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	return string(b)
}

func TestReadFileReturnsTheSystemsErrorOfOpening(t *testing.T) {
	_, err := ReadFile(filepath.Join(t.TempDir(), "missing"), 1)
	if !os.IsNotExist(err) { // which does not unwrap
		t.Errorf("got %#v, want an error that os.IsNotExist knows", err)
	}
	loop := filepath.Join(t.TempDir(), "loop")
	must(t, os.Symlink(loop, loop))
	if _, err := ReadFile(loop, 1); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("got %#v, want ELOOP", err)
	}
}
