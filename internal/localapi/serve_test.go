package localapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/journal"
)

func deadline() time.Time { return time.Now().Add(patience) }

func readAll(conn net.Conn) []byte {
	data, _ := io.ReadAll(conn)
	return data
}

func dialSocket(t testing.TB, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(deadline()))
	return conn
}

func TestAClientThatHangsIsLetGo(t *testing.T) {
	tests := []struct{ name, sends string }{
		{"before it says anything", ""},
		{"in the first line", "GET /v1/vi"},
		{"in a header", "GET /v1/view HTTP/1.1\r\nHost: agent\r\nX-Long: aa"},
		{"in the body", "POST /v1/pause HTTP/1.1\r\nHost: agent\r\nContent-Length: 100\r\n\r\n{\"by\""},
		{"in a body that nobody asked for", "GET /v1/view HTTP/1.1\r\nHost: agent\r\nContent-Length: 100\r\n\r\n{"},
		{"in a body for the metrics", "GET /metrics HTTP/1.1\r\nHost: agent\r\nContent-Length: 100\r\n\r\n{"},
		{"in a body for nothing", "POST /nothing HTTP/1.1\r\nHost: agent\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"},
		{"after its request", "GET /healthz HTTP/1.1\r\nHost: agent\r\n\r\n"},
	}
	path, _ := serve(t, newFake(wellView()))
	conns := map[string]net.Conn{}
	for _, tt := range tests { // all at once: each takes seconds
		conns[tt.name] = dialSocket(t, path)
		_, err := conns[tt.name].Write([]byte(tt.sends))
		must(t, err)
	}
	for name, conn := range conns {
		if _, err := io.ReadAll(conn); isTimeout(err) {
			t.Errorf("%s: got %v, want that the server closes the connection", name, err)
		}
	}
}

func isTimeout(err error) bool {
	netErr, ok := errors.AsType[net.Error](err)
	return ok && netErr.Timeout()
}

func TestClientsThatHangDoNotKeepOthersOut(t *testing.T) {
	path, _ := serve(t, newFake(wellView()))
	for range maxConns + 8 { // all places, and some in the queue
		conn := dialSocket(t, path)
		_, err := conn.Write([]byte("GET /v1/view HTTP/1.1\r\nHost: agent\r\nX: "))
		must(t, err)
	}
	resp, err := httpClient(t, path).Get("http://agent/healthz")
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got status %d, want 200", resp.StatusCode)
	}
}

func TestNoMoreConnectionsThanPlacesAreServedAtOnce(t *testing.T) {
	path := socketIn(t)
	inner, err := listen(path)
	must(t, err)
	l := newLimited(inner, 2)
	accepted := make(chan net.Conn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	for range 3 {
		dialSocket(t, path)
	}
	first, second := <-accepted, <-accepted
	if len(l.free) != 2 {
		t.Errorf("got %d places taken, want 2", len(l.free))
	}
	select {
	case <-accepted:
		t.Fatal("a third was accepted while both places were taken")
	default:
	}
	must(t, first.Close())
	_ = first.Close() // counts once
	third := <-accepted
	if len(l.free) != 2 {
		t.Errorf("after one left and one came: got %d places taken, want 2", len(l.free))
	}
	must(t, l.Close())
	<-ended
	must(t, second.Close())
	must(t, third.Close())
	if len(l.free) != 0 {
		t.Errorf("in the end: got %d places taken, want none", len(l.free))
	}
}

func TestServeEndsAtOnceWhateverClientsDo(t *testing.T) {
	fake := newFake(wellView())
	fake.hang = make(chan struct{})
	path, stop := serve(t, fake)

	silent := dialSocket(t, path)
	halfway := dialSocket(t, path)
	_, err := halfway.Write([]byte("POST /v1/pause HTTP/1.1\r\nContent-Length: 9"))
	must(t, err)
	polling, pausing := dialSocket(t, path), dialSocket(t, path)
	_, err = polling.Write([]byte("GET /v1/view?after=7 HTTP/1.1\r\nHost: agent\r\n\r\n"))
	must(t, err)
	body := `{"by":"jo","reason":"work"}`
	_, err = fmt.Fprintf(pausing, "POST /v1/pause HTTP/1.1\r\nHost: agent\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	must(t, err)
	<-fake.waiting
	<-fake.waiting // both are under way

	stop()
	for name, conn := range map[string]net.Conn{"silent": silent, "halfway": halfway} {
		if !closed(t, conn) {
			t.Errorf("%s: the connection is still open after Serve has returned", name)
		}
	}
	for name, conn := range map[string]net.Conn{"polling": polling, "pausing": pausing} {
		if got := string(readAll(conn)); !strings.Contains(got, "503") || !strings.Contains(got, "stopping") {
			t.Errorf("%s: got the answer %q, want that the agent is stopping", name, got)
		}
	}
	_, err = NewClient(path).View(t.Context(), 0)
	wantIs(t, err, ErrNotRunning)
}

// closed reports whether the other side has closed the connection already. What it sent before must have been read.
func closed(t testing.TB, conn net.Conn) bool {
	t.Helper()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	must(t, err)
	n, readErr := 0, error(nil)
	must(t, raw.Control(func(fd uintptr) { n, _, readErr = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT) }))
	return n == 0 && readErr == nil || errors.Is(readErr, unix.ECONNRESET)
}

// stubborn ignores its context.
type stubborn struct {
	*fakeAgent
	entered, let chan struct{}
}

func (s stubborn) History(context.Context, time.Time, time.Time, int) ([]journal.Entry, error) {
	close(s.entered)
	<-s.let
	return nil, nil
}

func TestServeEndsAlsoWhenTheAgentHangs(t *testing.T) {
	agent := stubborn{newFake(wellView()), make(chan struct{}), make(chan struct{})}
	defer close(agent.let)
	path, stop := serve(t, agent)
	conn := dialSocket(t, path)
	_, err := conn.Write([]byte("GET /v1/history HTTP/1.1\r\nHost: agent\r\n\r\n"))
	must(t, err)
	<-agent.entered
	stop()
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	l, err := listen(socketIn(t))
	must(t, err)
	must(t, l.Close())
	if err := serveUntil(t.Context(), l, http.NotFoundHandler()); err == nil {
		t.Error("got no error of a closed listener, want one")
	}
}

func TestHeadersHaveALimit(t *testing.T) {
	path, _ := serve(t, newFake(wellView()))
	conn := dialSocket(t, path)
	go func() {
		_, _ = conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: agent\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n"))
	}()
	if got := string(readAll(conn)); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("got %.40q, want status 431", got)
	}
}

func TestOptionsAreRefusedAsAnyOtherMethod(t *testing.T) {
	path, _ := serve(t, newFake(wellView()))
	got := string(exchange(dialSocket(t, path), "OPTIONS * HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"))
	if !strings.HasPrefix(got, "HTTP/1.1 404 ") {
		t.Errorf("got %.60q, want status 404", got)
	}
}

func TestAWaitForNewsEndsWithWhateverIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{agent: newFake(wellView()), polls: make(chan struct{}, 1)}
		began := time.Now()
		v, err := s.newer(t.Context(), 7)
		must(t, err)
		if v.Generation != 7 {
			t.Errorf("got generation %d, want 7", v.Generation)
		}
		if got := time.Since(began); got != pollWait {
			t.Errorf("waited %s, want %s", got, pollWait)
		}
	})
}
