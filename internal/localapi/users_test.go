package localapi

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// asNobody runs f as another user. Only f's thread changes its user, and ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	needsRoot(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread must serve nobody else
		defer close(done)
		const same = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, nobody, same); errno != 0 {
			done <- errno
			return
		}
		f()
	}()
	must(t, <-done)
}

func TestAnotherUserIsKeptOutByTheModeAndThenByWhoTheyAre(t *testing.T) {
	path, _ := serve(t, newFake(wellView()))
	must(t, os.Chmod(filepath.Dir(path), 0o755))

	var err error
	asNobody(t, func() { _, err = dial(t.Context(), path) })
	wantIs(t, err, fs.ErrPermission)

	must(t, os.Chmod(path, 0o666)) // somebody made a mistake
	var answer []byte
	asNobody(t, func() {
		var conn net.Conn
		if conn, err = net.Dial("unix", path); err != nil {
			return
		}
		defer conn.Close()
		answer = exchange(conn, "GET /healthz HTTP/1.1\r\nHost: agent\r\n\r\n")
	})
	must(t, err)
	if len(answer) > 0 {
		t.Errorf("another user got the answer %q, want none", answer)
	}
	if _, err := NewClient(path).View(t.Context(), 0); err != nil {
		t.Errorf("root after that: %v", err)
	}
}

func TestASocketOnWhichAnotherUserListensIsNotTrusted(t *testing.T) {
	path := socketIn(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	asNobody(t, func() { err = unix.Listen(fd, 8) })
	must(t, err)

	_, err = NewClient(path).View(t.Context(), 0)
	if err == nil || !strings.Contains(err.Error(), "user 65534 listens there") {
		t.Errorf("got error %v, want that the client says who listens there", err)
	}
}

func TestAClientDoesNotTrustAFolderThatOthersCanWrite(t *testing.T) {
	path, _ := serve(t, newFake(wellView()))
	must(t, os.Chmod(filepath.Dir(path), 0o777))
	_, err := NewClient(path).View(t.Context(), 0)
	if err == nil || !strings.Contains(err.Error(), "can be written by others") {
		t.Errorf("got error %v, want that it is not trusted", err)
	}
	must(t, os.Chmod(filepath.Dir(path), 0o700))
}

// exchange sends a text and returns all that comes back until the other side closes or is silent for long.
func exchange(conn net.Conn, text string) []byte {
	_ = conn.SetDeadline(deadline())
	_, _ = conn.Write([]byte(text))
	return readAll(conn)
}
