package localapi

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func logTo(l *lines) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(l)
	return log
}

// hello is a handler that says who answers.
func hello(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(name)) })
}

// whoAnswers returns what is said at a socket or a port; empty when nothing is.
func whoAnswers(t *testing.T, network, address string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}
	r, err := client.Get("http://agent/")
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(r.Body)
	must(t, err)
	return b.String()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come to this: %s", what)
		}
	}
}

// keep opens a socket and serves it until the end of the test, or until what it returns is called.
func keep(t *testing.T, path, name string, log *lines) (end func()) {
	t.Helper()
	s, err := Open(path, hello(name), logTo(log))
	must(t, err)
	s.every = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(ctx)
	}()
	end = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(end)
	return end
}

func TestASocketThatIsTakenAwayIsMadeAnew(t *testing.T) {
	for name, takeAway := range map[string]func(t *testing.T, path string){
		"the socket": func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"its folder": func(t *testing.T, path string) { must(t, os.RemoveAll(filepath.Dir(path))) },
		"a dead one in its place": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			leaveDeadSocket(t, path)
		},
		"its lock too": func(t *testing.T, path string) {
			must(t, os.Remove(path+lockSuffix))
			must(t, os.Remove(path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, log := socketIn(t), &lines{}
			end := keep(t, path, "first", log)
			eventually(t, "it answers", func() bool { return whoAnswers(t, "unix", path) == "first" })
			takeAway(t, path)
			eventually(t, "it answers again", func() bool { return whoAnswers(t, "unix", path) == "first" })
			if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("got %v, %v; want a socket of mode 0600", info, err)
			}
			if n := log.count("was removed or replaced"); n != 1 {
				t.Errorf("got that told %d times, want once", n)
			}
			end()
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("after the end: got %v, want no socket", err)
			}
		})
	}
}

func TestASocketThatCantBeMadeIsTriedAgain(t *testing.T) {
	path, log := socketIn(t), &lines{}
	must(t, os.Mkdir(path, 0o700))
	keep(t, path, "first", log)
	for range 10 { // looks go by
		<-time.After(10 * time.Millisecond)
	}
	must(t, os.Remove(path))
	eventually(t, "it answers", func() bool { return whoAnswers(t, "unix", path) == "first" })
	if n := log.count("can't be made"); n != 1 {
		t.Errorf("got told %d times why it can't be made, want once", n)
	}
}

func TestOfTwoAgentsOneServesAndTheOtherFollows(t *testing.T) {
	path, log := socketIn(t), &lines{}
	endFirst := keep(t, path, "first", log)
	if _, err := Open(path, hello("second"), logTo(log)); !errors.Is(err, ErrInUse) {
		t.Fatalf("while one serves: got error %v, want ErrInUse", err)
	}
	// Whoever has its files taken away while another begins must not come back over that one.
	must(t, os.RemoveAll(filepath.Dir(path)))
	var s *Socket
	eventually(t, "another begins, unless the first was faster", func() bool {
		var err error
		s, err = Open(path, hello("second"), logTo(log))
		return err == nil || errors.Is(err, ErrInUse)
	})
	if s == nil {
		return // the first was
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(ctx)
	}()
	for range 10 {
		if got := whoAnswers(t, "unix", path); got != "second" {
			t.Errorf("got an answer of %q, want the second's", got)
		}
		<-time.After(10 * time.Millisecond)
	}
	cancel()
	<-done
	eventually(t, "the first answers again", func() bool { return whoAnswers(t, "unix", path) == "first" })
	endFirst()
}

func TestThePortFollowsTheConfiguration(t *testing.T) {
	free := func() int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	ports, log := make(chan int), &lines{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ServePort(ctx, ports, hello("metrics"), logTo(log))
	}()
	answers := func(port int) bool {
		return whoAnswers(t, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) == "metrics"
	}
	one, two := free(), free()
	ports <- one
	eventually(t, "the first port answers", func() bool { return answers(one) })
	ports <- one // the same stays
	ports <- two
	eventually(t, "the second port answers", func() bool { return answers(two) })
	if answers(one) {
		t.Error("the first port still answers")
	}
	ports <- 0
	ports <- 0 // taken once the one before is done
	if answers(two) {
		t.Error("a port answers though none is wanted")
	}
	taken, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(one)))
	must(t, err)
	ports <- one
	ports <- 0
	if log.count("No metrics on a port") != 1 {
		t.Error("nothing was told of a port that is taken")
	}
	must(t, taken.Close())
	ports <- one
	eventually(t, "a port that became free answers when it is named again", func() bool { return answers(one) })
	cancel()
	<-done
	if answers(one) {
		t.Error("the port answers after the end")
	}
}
