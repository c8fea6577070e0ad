package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

func TestAnAPIServerThatAnswersGivesTheNode(t *testing.T) {
	s := newAPIServer(t, nil, nil)
	got, err := newClient(t).Node(t.Context(), Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1", UserAgent: "agent/1"})
	if err != nil || got.Node == nil || got.Node.Name != "n1" {
		t.Fatalf("got %+v and error %v, want the Node n1", got, err)
	}
	if got.NodeName != "n1" || got.Server != s.URL {
		t.Errorf("got node %q and server %q, want n1 and %q", got.NodeName, got.Server, s.URL)
	}
}

// TestEveryWayToFailHasItsReason asks servers that fail each in its own way.
func TestEveryWayToFailHasItsReason(t *testing.T) {
	html := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			fmt.Fprint(w, "<html><body>a proxy's page</body></html>")
		}
	}
	hasServer := true // the answer says who gave it, in all of these
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		server  func(*x509.Certificate)
		want    string
	}{
		{"the token is not known", answerStatus(401, metav1.StatusReasonUnauthorized), nil, ReasonUnauthorized},
		{"RBAC forbids it", answerStatus(403, metav1.StatusReasonForbidden), nil, ReasonForbidden},
		{"there is no such Node", answerStatus(404, metav1.StatusReasonNotFound), nil, ReasonNodeNotFound},
		{"the API server fails", answerStatus(500, metav1.StatusReasonInternalError), nil, ReasonUnavailable},
		{"the API server is not ready yet", answerStatus(503, metav1.StatusReasonServiceUnavailable), nil, ReasonUnavailable},
		{"the API server has too much to do", answerStatus(429, metav1.StatusReasonTooManyRequests), nil, ReasonUnavailable},
		{"its storage did not answer in time", answerStatus(504, metav1.StatusReasonTimeout), nil, ReasonUnavailable},
		{"a web page says 200", html(200), nil, ReasonUnavailable},
		{"a proxy says 502", html(502), nil, ReasonUnavailable},
		{"a web server knows no such page, which says nothing about the Node", html(404), nil, ReasonUnavailable},
		{"a proxy forbids it", html(403), nil, ReasonUnavailable},
		{"a proxy wants a password", html(407), nil, ReasonUnavailable},
		{"the certificate is for another name", nil, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"other.example"} }, ReasonTLS},
		{"the certificate has expired", nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, ReasonTLS},
		{"the certificate is for clients", nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, ReasonTLS},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newAPIServer(t, test.server, test.handler)
			wantReason(t, s.kubeconfig(t, nil), test.want, hasServer)
		})
	}
}

// wantReason looks with a kubeconfig, expects that to fail in a certain way, and returns what people are told.
func wantReason(t *testing.T, kubeconfig, want string, wantServer bool) (told string) {
	t.Helper()
	answer, err := newClient(t).Node(t.Context(), Source{Kubeconfig: kubeconfig, NodeName: "n1"})
	if got := ReasonOf(err); err == nil || got != want {
		t.Fatalf("got reason %s of error %v, want %s", got, err, want)
	}
	if (answer.Server != "") != wantServer || answer.NodeName != "n1" || answer.Node != nil {
		t.Errorf("got answer %+v, want one about n1 with a server: %v", answer, wantServer)
	}
	return Explain(err, answer.Server)
}

func TestAnotherAuthorityIsNotTrusted(t *testing.T) {
	s := newAPIServer(t, nil, nil)
	wantReason(t, writeKubeconfig(t, kubeconfigFor(s.URL, newAuthority(t).pem, nil)), ReasonTLS, true)
	if got := s.visitors(); len(got) > 0 {
		t.Errorf("the token went to a server that is not trusted: %q", got)
	}
}

func TestAServerThatRefusesTheHandshakeIsATLSFailure(t *testing.T) {
	s := newAPIServer(t, nil, nil)
	s.TLS.ClientAuth, s.TLS.MaxVersion = tls.RequireAndVerifyClientCert, tls.VersionTLS12 // and the kubeconfig has only a token
	wantReason(t, s.kubeconfig(t, nil), ReasonTLS, true)
}

func TestPlainHTTPOnTheTLSPortIsATLSFailure(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	server := strings.Replace(s.URL, "http://", "https://", 1)
	wantReason(t, writeKubeconfig(t, kubeconfigFor(server, newAuthority(t).pem, nil)), ReasonTLS, true)
}

// listen accepts connections and gives each to serve, which must not block for longer than the test's context.
func listen(t *testing.T, serve func(*net.TCPConn)) (server string) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			serve(c)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "https://" + l.Addr().String()
}

func TestNobodyListening(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	wantReason(t, writeKubeconfig(t, kubeconfigFor("https://"+l.Addr().String(), nil, nil)), ReasonRefused, true)
}

func TestAServerThatTakesTheConnectionAndIsSilent(t *testing.T) {
	var open []*net.TCPConn
	t.Cleanup(func() {
		for _, c := range open {
			c.Close()
		}
	})
	server := listen(t, func(c *net.TCPConn) { open = append(open, c) }) // its cleanup comes first and waits for the last of them
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("the look's time was up"))
	defer cancel()
	answer, err := newClient(t).Node(ctx, Source{Kubeconfig: writeKubeconfig(t, kubeconfigFor(server, nil, nil)), NodeName: "n1"})
	if got := ReasonOf(err); err == nil || got != ReasonTimeout || answer.Server != server {
		t.Errorf("got reason %s of error %v (%+v), want %s", got, err, answer, ReasonTimeout)
	}
}

func TestAServerThatAnswersTheHandshakeAndIsSilent(t *testing.T) {
	release := make(chan struct{})
	s := newAPIServer(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := newClient(t).Node(ctx, Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1"})
	if got := ReasonOf(err); err == nil || got != ReasonTimeout {
		t.Errorf("got reason %s of error %v, want %s", got, err, ReasonTimeout)
	}
}

// A connection that is reset says so at once: the next look asks again, and must not find this one still trying.
func TestAConnectionThatIsResetIsTriedOnce(t *testing.T) {
	var accepted atomic.Int32
	server := listen(t, func(c *net.TCPConn) {
		accepted.Add(1)
		hello := make([]byte, 1)
		_, _ = c.Read(hello)
		_ = c.SetLinger(0) // a reset instead of an orderly end
		c.Close()
	})
	told := wantReason(t, writeKubeconfig(t, kubeconfigFor(server, nil, nil)), ReasonUnavailable, true)
	if n := accepted.Load(); n != 1 {
		t.Errorf("the server was asked %d times in one look, want once (%s)", n, told)
	}
}

func TestAServerThatAsksToComeAgainIsAskedOncePerLook(t *testing.T) {
	s := newAPIServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "1")
		answerStatus(503, metav1.StatusReasonServiceUnavailable)(w, r)
	})
	wantReason(t, s.kubeconfig(t, nil), ReasonUnavailable, true)
	if got := s.visitors(); len(got) != 1 {
		t.Errorf("the server was asked %d times in one look, want once", len(got))
	}
}

func TestANameThatCanNotBeResolved(t *testing.T) {
	// .invalid never exists (RFC 6761). Where no DNS server answers, the look-up ends with the dial's deadline and means the same.
	wantReason(t, writeKubeconfig(t, kubeconfigFor("https://name.invalid:6443", nil, nil)), ReasonDNS, true)
}

func TestReasonOfAnErrorThatWasWrapped(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"ours", reasoned(ReasonPluginFailed, os.ErrPermission), ReasonPluginFailed},
		{"ours, inside what the HTTP client makes of it", &url.Error{Op: "Get", URL: "x", Err: reasoned(ReasonPluginFailed, io.EOF)}, ReasonPluginFailed},
		{"DNS that did not answer", &net.DNSError{IsTimeout: true}, ReasonDNS},
		{"a look that had no time left", context.DeadlineExceeded, ReasonTimeout},
		{"no route", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, ReasonTimeout},
		{"a bad certificate", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, ReasonTLS},
		{"something new", errors.New("?"), ReasonUnavailable},
	} {
		if got := ReasonOf(fmt.Errorf("get node: %w", test.err)); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}
