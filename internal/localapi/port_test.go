package localapi

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"testing"
)

// freePort is one on which nobody listens just now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func addressOf(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func TestThePortIsWhereTheLastConfigurationWantsIt(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	open := func(port int) bool {
		resp, err := client.Get("http://" + addressOf(port) + "/")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusNoContent
	}
	log, logged := newLog()
	ports := make(chan int)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ServePort(ctx, ports, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), log)
	}()
	defer func() { cancel(); <-ended }()
	say := func(port int) {
		ports <- port
		ports <- port // taken when the first was dealt with; the same once more changes nothing
	}
	first, second := freePort(t), freePort(t)

	say(0)
	say(first)
	if !open(first) {
		t.Error("it is not open where it was wanted")
	}
	conn, err := net.Dial("tcp", addressOf(first))
	must(t, err)
	defer conn.Close()
	say(first)
	_, err = conn.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	must(t, err)
	if n, err := conn.Read(make([]byte, 1)); n == 0 {
		t.Errorf("a reload that changes nothing: got %v, want that a connection outlives it", err)
	}
	say(second)
	if open(first) || !open(second) {
		t.Errorf("after it moved: got the first open %v and the second %v", open(first), open(second))
	}

	taken, err := net.Listen("tcp", addressOf(first))
	must(t, err)
	ports <- first
	ports <- 0
	if open(second) || logged.count("No metrics on a port") != 1 || logged.count(addressOf(first)) != 1 {
		t.Errorf("a port that is taken: got the second open %v, and it was told %d times", open(second), logged.count("No metrics on a port"))
	}
	must(t, taken.Close())
	say(first)
	if !open(first) {
		t.Error("it was not tried again at the next reload")
	}
	say(0)
	if open(first) {
		t.Error("0 did not close it")
	}
	say(second)
	cancel()
	<-ended
	if open(second) {
		t.Error("it is open after the end")
	}
	if got := logged.count("level="); got != 1 {
		t.Errorf("got %d lines, want the one about the port that was taken", got)
	}
}
