package probe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

func TestTheURLOfTheKubeletsHealth(t *testing.T) {
	port := func(p int) *int { return &p }
	for _, test := range []struct {
		name string
		c    kubeletConfig
		want string
	}{
		{"by default", kubeletConfig{}, "http://127.0.0.1:10248/healthz"},
		{"on another port", kubeletConfig{HealthzPort: port(1)}, "http://127.0.0.1:1/healthz"},
		{"switched off", kubeletConfig{HealthzPort: port(0), HealthzBindAddress: "127.0.0.1"}, ""},
		{"on one address", kubeletConfig{HealthzBindAddress: "10.0.0.7"}, "http://10.0.0.7:10248/healthz"},
		{"on all addresses", kubeletConfig{HealthzBindAddress: "0.0.0.0"}, "http://127.0.0.1:10248/healthz"},
		{"on all addresses of IPv6", kubeletConfig{HealthzBindAddress: "::"}, "http://[::1]:10248/healthz"},
		{"on one address of IPv6", kubeletConfig{HealthzBindAddress: "fd00::7"}, "http://[fd00::7]:10248/healthz"},
	} {
		if got := healthzURL(test.c); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func askOnce(t *testing.T, ctx context.Context, url string, u observe.Unit) observe.Observation[observe.KubeletHealth] { //nolint:revive // t comes first in helpers
	t.Helper()
	client := newHealthzClient()
	t.Cleanup(client.CloseIdleConnections)
	return askHealthz(ctx, client, url, u)
}

func TestAKubeletThatAnswersForItsHealth(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		health  observe.Health
		reason  string
		words   []string
		code    int
	}{
		{"ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }, observe.Healthy, "HealthzOK", nil, 200},
		{"a long ok", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("ok\n", maxHealthz)) }, observe.Healthy, "HealthzOK", nil, 200},
		{"a failing check", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "[+]ping ok\n[-]syncloop failed: reason withheld", http.StatusInternalServerError)
		}, observe.Unhealthy, "HealthzFailed", []string{"HTTP 500", "syncloop failed"}, 500},
		{"a failing check with very much to say", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, strings.Repeat("x", 1<<20), http.StatusInternalServerError)
		}, observe.Unhealthy, "HealthzFailed", []string{"HTTP 500"}, 500},
		{"a redirect is not followed", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, observe.Unhealthy, "HealthzFailed", []string{"HTTP 302"}, 302},
		{"no such page", http.NotFound, observe.Unhealthy, "HealthzFailed", []string{"HTTP 404"}, 404},
		{"204 is not 200", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, observe.Unhealthy, "HealthzFailed", nil, 204},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := httptest.NewServer(test.handler)
			defer s.Close()
			got := askOnce(t, t.Context(), s.URL+"/healthz", observe.Unit{})
			wantSeen(t, got, test.health, test.reason, test.words...)
			if want := (observe.KubeletHealth{URL: s.URL + "/healthz", StatusCode: test.code}); got.Value != want {
				t.Errorf("got %+v, want %+v", got.Value, want)
			}
			if len(got.Message) > 1500 {
				t.Errorf("got a message of %d bytes", len(got.Message))
			}
		})
	}
}

func TestAKubeletsHealthOverIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("needs IPv6: ", err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	port := l.Addr().(*net.TCPAddr).Port
	got := askOnce(t, t.Context(), healthzURL(kubeletConfig{HealthzBindAddress: "::", HealthzPort: &port}), observe.Unit{})
	wantSeen(t, got, observe.Healthy, "HealthzOK")
}

// listenTCP gives each connection to serve, one after another, and closes them all at the end.
func listenTCP(t testing.TB, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveConnections(t, l, serve)
	return l.Addr().String()
}

func serveConnections(t testing.TB, l net.Listener, serve func(net.Conn)) {
	t.Helper()
	var done sync.WaitGroup
	done.Go(func() {
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open = append(open, c)
			serve(c)
		}
		for _, c := range open {
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); done.Wait() })
}

func silent(net.Conn) {}

func TestAKubeletThatGivesNoAnswerForItsHealth(t *testing.T) {
	says := func(what string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			fmt.Fprint(c, what)
		}
	}
	saysAndCloses := func(what string) func(net.Conn) {
		return func(c net.Conn) {
			says(what)(c)
			c.Close()
		}
	}
	runs := running("kubelet.service", 0)
	for _, test := range []struct {
		name   string
		serve  func(net.Conn)
		within time.Duration
		health observe.Health
		reason string
	}{
		{"it is silent for longer than patience", silent, patience + 200*time.Millisecond, observe.Unhealthy, "HealthzSilent"},
		{"it is silent, and there was no time to be patient", silent, patience / 50, observe.Unknown, observe.ReasonTimeout},
		{"it stops in the middle of an answer", says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"), patience + 200*time.Millisecond, observe.Unhealthy, "HealthzSilent"},
		{"it closes at once", func(c net.Conn) { c.Close() }, time.Minute, observe.Unknown, "HealthzUnavailable"},
		{"it speaks another language", saysAndCloses("SSH-2.0-OpenSSH_9.2\r\n"), time.Minute, observe.Unknown, "HealthzUnavailable"},
		{"it speaks TLS", saysAndCloses("\x15\x03\x01\x00\x02\x02\x16"), time.Minute, observe.Unknown, "HealthzUnavailable"},
		{"it closes in the middle of an answer", saysAndCloses("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), time.Minute, observe.Unknown, "HealthzUnavailable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), test.within)
			defer cancel()
			url := "http://" + listenTCP(t, test.serve) + "/healthz"
			wantSeen(t, askOnce(t, ctx, url, runs), test.health, test.reason)
		})
	}
}

func TestNobodyListensForTheKubeletsHealth(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	url := "http://" + l.Addr().String() + "/healthz"
	wantSeen(t, askOnce(t, t.Context(), url, running("kubelet.service", 0)), observe.Unknown, "HealthzRefused", "may be starting")
	wantSeen(t, askOnce(t, t.Context(), url, observe.Unit{ActiveState: "inactive"}), observe.Unknown, "KubeletNotRunning", "does not run")
	wantSeen(t, askOnce(t, t.Context(), "http://127.0.0.1:99999/healthz", observe.Unit{}), observe.Unknown, "HealthzUnavailable")
	wantSeen(t, askOnce(t, t.Context(), "http://[a b]:1/healthz", observe.Unit{}), observe.Unknown, "KubeletConfigInvalid")
}

func TestTheKubeletsHealthIsAskedWhereItsConfigSays(t *testing.T) {
	s, dir := newSuite(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	defer server.Close()
	config := filepath.Join(dir, "config.yaml")
	putFile(t, config, fmt.Appendf(nil, "healthzPort: %d\n", server.Listener.Addr().(*net.TCPAddr).Port), 0o644)
	wantSeen(t, s.lookAtKubeletHealth(t.Context(), time.Now()), observe.Healthy, "HealthzOK")

	putFile(t, config, []byte("healthzPort: 0\n"), 0o644)
	wantSeen(t, s.lookAtKubeletHealth(t.Context(), time.Now()), observe.Unknown, "HealthzDisabled", "switched off")
}

func TestOneConnectionIsKeptForTheKubeletsHealth(t *testing.T) {
	var mu sync.Mutex
	connections := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if state == http.StateNew {
			connections++
		}
	}
	server.Start()
	defer server.Close()
	client := newHealthzClient()
	defer client.CloseIdleConnections()
	for range 5 {
		wantSeen(t, askHealthz(t.Context(), client, server.URL, observe.Unit{}), observe.Healthy, "HealthzOK")
	}
	mu.Lock()
	got := connections
	mu.Unlock()
	if got != 1 {
		t.Errorf("got %d connections for five looks, want 1", got)
	}
	server.CloseClientConnections() // the kubelet was restarted
	wantSeen(t, askHealthz(t.Context(), client, server.URL, observe.Unit{}), observe.Healthy, "HealthzOK")
}
