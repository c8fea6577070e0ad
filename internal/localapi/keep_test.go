package localapi

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/agent"
)

// lines is what an agent has logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), word)
}

func newLog() (*logrus.Logger, *lines) {
	log, out := logrus.New(), &lines{}
	log.SetOutput(out)
	return log, out
}

// keptSocket is an agent's socket that looks every few milliseconds.
type keptSocket struct {
	path   string
	logged *lines
	stop   func() // comes back when Serve has
}

func keep(t testing.TB, a Agent, path string) keptSocket {
	t.Helper()
	log, logged := newLog()
	s, err := Open(path, Handler(a, log), log)
	must(t, err)
	s.every = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(ctx)
	}()
	stop := func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return keptSocket{path, logged, stop}
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	limit := time.After(patience)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func answers(t testing.TB, path, version string) bool {
	t.Helper()
	v, err := NewClient(path).View(t.Context(), 0)
	return err == nil && v.AgentVersion == version
}

func viewOf(version string) *agent.View {
	v := wellView()
	v.AgentVersion = version
	return v
}

func TestASocketThatSomebodyTookAwayIsMadeAnew(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, path string){
		"the socket": func(t *testing.T, path string) { t.Helper(); must(t, os.Remove(path)) },
		"the socket and its lock": func(t *testing.T, path string) {
			t.Helper()
			must(t, os.Remove(path+lockSuffix))
			must(t, os.Remove(path))
		},
		"the folder": func(t *testing.T, path string) {
			t.Helper()
			must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old"))
		},
		"the folder, and another came": func(t *testing.T, path string) {
			t.Helper()
			must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old"))
			_ = os.Mkdir(filepath.Dir(path), 0o700) // the agent may have been faster
		},
		"a dead one of somebody else's lies there": func(t *testing.T, path string) {
			t.Helper()
			leaveDeadSocket(t, path+".other")
			must(t, os.Rename(path+".other", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := keep(t, newFake(viewOf("v1")), filepath.Join(filepath.Dir(socketIn(t)), "run", socketName))
			if !answers(t, s.path, "v1") {
				t.Fatal("it does not answer in the beginning")
			}
			take(t, s.path)
			eventually(t, "the agent answers again", func() bool { return answers(t, s.path, "v1") })
			if got := s.logged.count("was removed or replaced"); got != 1 {
				t.Errorf("told %d times that the socket was taken away, want once", got)
			}
			if got := modeOf(t, s.path); got != 0o600 {
				t.Errorf("got mode %04o, want 0600", got)
			}
			s.stop()
			if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("in the end: got %v, want that the socket is gone", err)
			}
		})
	}
}

func TestAFolderMadeAnewIsAsOpenAsTheOneBeforeWhateverTheUmask(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for name, c := range map[string]struct {
		before fs.FileMode
		first  bool // another part of the agent is the first to make it anew
	}{
		"as it was made":                       {0o755, false},
		"as somebody wanted it":                {0o750, false},
		"as it was made, after the writer":     {0o755, true},
		"as somebody wanted it, after another": {0o750, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(filepath.Dir(socketIn(t)), "run")
			s := keep(t, newFake(viewOf("v1")), filepath.Join(dir, socketName))
			if got := modeOf(t, dir); got != 0o755 {
				t.Errorf("made with mode %04o, want 0755", got)
			}
			if c.before != 0o755 {
				must(t, os.Remove(s.path)) // to have it look at the folder again
				must(t, os.Chmod(dir, c.before))
				eventually(t, "the agent answers again", func() bool { return answers(t, s.path, "v1") })
			}
			must(t, os.Rename(dir, dir+".old")) // still there, so that its inode is not the new one's
			if c.first {
				_ = os.Mkdir(dir, 0o755) // the agent may have been faster
			}
			eventually(t, "the agent answers again", func() bool { return answers(t, s.path, "v1") })
			if got := modeOf(t, dir); got != c.before {
				t.Errorf("made anew with mode %04o, want %04o", got, c.before)
			}
		})
	}
}

func TestTheModeOfAFolderIsRestoredOnlyWhereItIsAnotherAndOurs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	must(t, os.Mkdir(dir, 0o755))
	earlier, err := os.Lstat(dir)
	must(t, err)
	want := func(mode fs.FileMode, when string) {
		t.Helper()
		if got := modeOf(t, dir); got != mode {
			t.Errorf("%s: got mode %04o, want %04o", when, got, mode)
		}
	}
	must(t, os.Chmod(dir, 0o700))
	restoreMode(dir, earlier)
	want(0o700, "the same folder, which somebody closed")

	must(t, os.Rename(dir, dir+".old"))
	must(t, os.Mkdir(dir, 0o700))
	restoreMode(dir, earlier)
	want(0o755, "another folder")

	must(t, os.Chmod(dir, 0o700))
	must(t, os.Rename(dir, dir+".real"))
	must(t, os.Symlink(dir+".real", dir))
	restoreMode(dir, earlier)
	must(t, os.Remove(dir))
	must(t, os.Rename(dir+".real", dir))
	want(0o700, "behind a link")

	if os.Geteuid() == 0 {
		must(t, os.Chown(dir, nobody, nobody))
		restoreMode(dir, earlier)
		want(0o700, "somebody else's")
	}
}

func TestRequestsUnderWayGoOnWhenTheSocketIsTakenAway(t *testing.T) {
	fake := newFake(wellView())
	fake.hang = make(chan struct{})
	s := keep(t, fake, socketIn(t))
	paused := make(chan error, 1)
	go func() { paused <- NewClient(s.path).Resume(t.Context(), "jo") }()
	<-fake.waiting
	must(t, os.Remove(s.path))
	eventually(t, "the agent answers again", func() bool { return answers(t, s.path, "v1.2.3") })
	close(fake.hang)
	if err := <-paused; err != nil {
		t.Errorf("got %v, want that what was asked before is done", err)
	}
}

func TestARequestFromBeforeTheSocketWasTakenAwayDoesNotHoldUpTheEnd(t *testing.T) {
	a := stubborn{newFake(wellView()), make(chan struct{}), make(chan struct{})}
	defer close(a.let)
	s := keep(t, a, socketIn(t))
	conn := dialSocket(t, s.path)
	_, err := conn.Write([]byte("GET /v1/history HTTP/1.1\r\nHost: agent\r\n\r\n"))
	must(t, err)
	<-a.entered
	must(t, os.Remove(s.path))
	eventually(t, "the agent answers again", func() bool { return answers(t, s.path, "v1.2.3") })
	s.stop()
	if !closed(t, conn) {
		t.Error("the connection is still open after Serve has returned")
	}
}

func TestASocketThatCannotBeMadeIsToldOnceAndTriedAgain(t *testing.T) {
	path := socketIn(t)
	must(t, os.WriteFile(path, []byte("mine"), 0o600))
	s := keep(t, newFake(viewOf("v1")), path)
	begun := time.Now()
	eventually(t, "many tries", func() bool { return time.Since(begun) > 100*time.Millisecond })
	if got := s.logged.count("is no socket"); got != 1 {
		t.Errorf("told %d times what is in the way, want once", got)
	}
	must(t, os.Remove(path))
	eventually(t, "the agent answers", func() bool { return answers(t, path, "v1") })
	eventually(t, "it tells of it", func() bool { return s.logged.count("The agent can be asked at") == 1 })

	must(t, os.WriteFile(path+".other", []byte("mine"), 0o600))
	must(t, os.Rename(path+".other", path))
	eventually(t, "the next trouble is told", func() bool { return s.logged.count("is no socket") == 2 })
}

func TestAnAgentThatStartsBesideAnotherIsRefusedAtOnce(t *testing.T) {
	first := keep(t, newFake(viewOf("v1")), socketIn(t))
	log, _ := newLog()
	_, err := Open(first.path, nil, log)
	wantIs(t, err, ErrInUse)
	must(t, os.Remove(first.path+lockSuffix))
	_, err = Open(first.path, nil, log)
	wantIs(t, err, ErrInUse) // it listens there
}

func TestOfTwoAgentsOneServesAndTheOtherSaysSoAndWaits(t *testing.T) {
	path := socketIn(t)
	first := keep(t, newFake(viewOf("v1")), path)
	// The second comes in while socket and lock are away: as if the first looked only now and then.
	elsewhere := path + ".second"
	l, err := bind(elsewhere)
	must(t, err)
	l.SetUnlinkOnClose(false)
	lock, err := takeLock(path + ".second" + lockSuffix)
	must(t, err)
	must(t, os.Rename(elsewhere+lockSuffix, path+lockSuffix))
	must(t, os.Rename(elsewhere, path))
	stopSecond := serveOn(t, l, Handler(newFake(viewOf("v2")), nil))
	defer lock.Close()

	eventually(t, "the first notices", func() bool { return first.logged.count(ErrInUse.Error()) > 0 })
	begun := time.Now()
	eventually(t, "many tries", func() bool { return time.Since(begun) > 100*time.Millisecond })
	if !answers(t, path, "v2") {
		t.Error("the second does not answer any more")
	}
	if got := first.logged.count(ErrInUse.Error()); got != 1 {
		t.Errorf("the first told %d times of the second, want once", got)
	}
	stopSecond()
	must(t, lock.Close())
	eventually(t, "the first is there again", func() bool { return answers(t, path, "v1") })
}

func TestAnAgentThatEndsLeavesTheSocketOfAnotherAlone(t *testing.T) {
	path := socketIn(t)
	l, err := listen(path)
	must(t, err)
	must(t, os.Remove(path))
	other, err := net.Listen("unix", path)
	must(t, err)
	defer other.Close()
	must(t, l.Close())
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed again: got %v, want that it is closed", err)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the other's socket: got %v, want that it is still there", err)
	} else {
		must(t, conn.Close())
	}
}
