package localapi

import (
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

func TestTheSocketIsForItsOwnerOnlyFromItsFirstMoment(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o277} {
		path := socketIn(t)
		old := syscall.Umask(umask)
		bound, err := bind(path) // as it is before anything could mend its mode
		syscall.Umask(old)
		must(t, err)
		if got := modeOf(t, path); got&^0o600 != 0 {
			t.Errorf("umask %04o: bound with mode %04o, want 0600 at most", umask, got)
		}
		must(t, bound.Close())

		old = syscall.Umask(umask)
		l, err := listen(path)
		syscall.Umask(old)
		must(t, err)
		if got := modeOf(t, path); got != 0o600 {
			t.Errorf("umask %04o: got mode %04o, want 0600", umask, got)
		}
		if got := modeOf(t, path+lockSuffix); got&^0o600 != 0 {
			t.Errorf("umask %04o: got mode %04o for the lock file, want 0600 at most", umask, got)
		}
		must(t, l.Close())
	}
}

func TestListeningLeavesTheUmaskAlone(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	l, err := listen(socketIn(t))
	must(t, err)
	must(t, l.Close())
	if got := syscall.Umask(0o027); got != 0o027 {
		t.Errorf("got umask %04o, want 0027 as before", got)
	}
}

func TestASecondAgentIsRefusedWhileTheFirstListens(t *testing.T) {
	path := socketIn(t)
	first, err := listen(path)
	must(t, err)
	if _, err := listen(path); err == nil {
		t.Fatal("got a second listener, want ErrInUse")
	} else {
		wantIs(t, err, ErrInUse)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first can't be reached any more: %v", err)
	}
	must(t, conn.Close())
	must(t, first.Close())
	again, err := listen(path)
	must(t, err)
	must(t, again.Close())
}

func TestASocketOnWhichAnotherProgramListensIsRefused(t *testing.T) {
	path := socketIn(t)
	other, err := net.Listen("unix", path) // without our lock
	must(t, err)
	defer other.Close()
	_, err = listen(path)
	wantIs(t, err, ErrInUse)
}

func TestASocketWhoseQueueIsFullIsRefused(t *testing.T) {
	path := socketIn(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	must(t, unix.Listen(fd, 0))
	for { // nobody accepts
		conn, err := net.DialTimeout("unix", path, 100*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	_, err = listen(path)
	wantIs(t, err, ErrInUse)
}

func TestADeadSocketIsReplaced(t *testing.T) {
	path := socketIn(t)
	leaveDeadSocket(t, path)
	l, err := listen(path)
	must(t, err)
	conn, err := net.Dial("unix", path)
	must(t, err)
	must(t, conn.Close())
	must(t, l.Close())
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after closing: got %v, want that the socket is gone", err)
	}
}

func TestOfManyAgentsThatStartAtOnceOneListens(t *testing.T) {
	path := socketIn(t)
	leaveDeadSocket(t, path)
	const n = 16
	got := make(chan *listener, n)
	for range n {
		go func() {
			l, err := listen(path)
			if err != nil {
				l = nil
			}
			got <- l
		}()
	}
	var winners []*listener
	for range n {
		if l := <-got; l != nil {
			winners = append(winners, l)
		}
	}
	if len(winners) != 1 {
		t.Fatalf("got %d listeners, want 1", len(winners))
	}
	conn, err := net.Dial("unix", path)
	must(t, err)
	must(t, conn.Close())
	must(t, winners[0].Close())
}

func TestWhatIsNoSocketIsLeftAlone(t *testing.T) {
	tests := []struct {
		name  string
		place func(t *testing.T, path string)
	}{
		{"a file", func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte("mine"), 0o644)) }},
		{"a folder", func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o755)) }},
		{"a pipe", func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o600)) }},
		{"a link to a file", func(t *testing.T, path string) {
			must(t, os.WriteFile(path+".other", []byte("mine"), 0o644))
			must(t, os.Symlink(path+".other", path))
		}},
		{"a link to a dead socket", func(t *testing.T, path string) {
			leaveDeadSocket(t, path+".other")
			must(t, os.Symlink(path+".other", path))
		}},
		{"a link to nothing", func(t *testing.T, path string) { must(t, os.Symlink(path+".other", path)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := socketIn(t)
			tt.place(t, path)
			before, err := os.Lstat(path)
			must(t, err)
			if l, err := listen(path); err == nil {
				_ = l.Close()
				t.Fatal("got a listener, want an error")
			} else if !strings.Contains(err.Error(), "is no socket") {
				t.Errorf("got error %q, want it to say what is in the way", err)
			}
			after, err := os.Lstat(path)
			must(t, err)
			if !os.SameFile(before, after) {
				t.Error("what was there was replaced")
			}
		})
	}
}

func TestALockFileThatIsALinkIsRefused(t *testing.T) {
	path := socketIn(t)
	must(t, os.Symlink(path+".other", path+lockSuffix))
	if l, err := listen(path); err == nil {
		_ = l.Close()
		t.Fatal("got a listener, want an error")
	}
	if _, err := os.Lstat(path + ".other"); !os.IsNotExist(err) {
		t.Errorf("got %v, want that nothing was made where the link leads", err)
	}
}

func TestAFolderThatOthersCouldHaveMadeIsRefused(t *testing.T) {
	tests := []struct {
		name string
		root bool
		make func(t *testing.T, dir string)
		want string
	}{
		{"a link", false, func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir+".real", 0o755))
			must(t, os.Symlink(dir+".real", dir))
		}, "is a link"},
		{"others may write", false, func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir, 0o755))
			must(t, os.Chmod(dir, 0o757))
		}, "can be written by others"},
		{"the group may write", false, func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir, 0o755))
			must(t, os.Chmod(dir, 0o775))
		}, "can be written by others"},
		{"another user's", true, func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir, 0o755))
			must(t, os.Chown(dir, 12345, 12345))
		}, "belongs to user 12345"},
		{"a file", false, func(t *testing.T, dir string) { must(t, os.WriteFile(dir, nil, 0o600)) }, "it is no folder"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root {
				needsRoot(t)
			}
			dir := filepath.Join(filepath.Dir(socketIn(t)), "d")
			tt.make(t, dir)
			l, err := listen(filepath.Join(dir, socketName))
			if err == nil {
				_ = l.Close()
				t.Fatal("got a listener, want an error")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %q, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestAMissingFolderIsMade(t *testing.T) {
	path := filepath.Join(filepath.Dir(socketIn(t)), "new", socketName)
	l, err := listen(path)
	must(t, err)
	must(t, l.Close())

	dir, err := os.MkdirTemp("/tmp", "localapi-made")
	must(t, err)
	must(t, os.Remove(dir))
	defer os.RemoveAll(dir)
	l, err = listen(filepath.Join(dir, socketName))
	must(t, err)
	must(t, l.Close())
	if got := modeOf(t, dir); got != 0o700 {
		t.Errorf("a folder in /tmp: got mode %04o, want 0700", got)
	}
}

func TestOnlyRootAndTheAgentsUserAreServed(t *testing.T) {
	tests := []struct {
		uid, own int
		want     bool
	}{
		{0, 0, true}, {0, 1000, true}, {1000, 1000, true},
		{1000, 0, false}, {1001, 1000, false}, {65534, 0, false},
	}
	for _, tt := range tests {
		if got := allowed(tt.uid, tt.own); got != tt.want {
			t.Errorf("user %d asks an agent of user %d: got %v, want %v", tt.uid, tt.own, got, tt.want)
		}
	}
}

func TestThePeerIsWhoConnected(t *testing.T) {
	path := socketIn(t)
	l, err := listen(path)
	must(t, err)
	defer l.Close()
	conn, err := net.Dial("unix", path)
	must(t, err)
	defer conn.Close()
	got, err := peer(conn.(*net.UnixConn))
	must(t, err)
	if got != os.Geteuid() {
		t.Errorf("got user %d, want %d", got, os.Geteuid())
	}
}

func leaveDeadSocket(t testing.TB, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, l.Close())
}

func modeOf(t testing.TB, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Mode().Perm()
}
