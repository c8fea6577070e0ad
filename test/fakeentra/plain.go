package fakeentra

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// identityPath is where every kind of machine has its managed identity.
const identityPath = "/metadata/identity/oauth2/token"

// arcTokens is the only folder from which SDKs take the key of Arc's challenge.
const arcTokens = "/var/opt/azcmagent/tokens"

// The versions by which the kinds of managed identity endpoints are told apart.
const (
	apiIMDS       = "2018-02-01"
	apiAppService = "2019-08-01"
	apiArc        = "2020-06-01"
)

// proxy answers without TLS: as a proxy for PublicHost and IMDS, and as a managed identity endpoint. Other hosts don't exist.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect && r.Host == PublicHost+":443":
		s.tunnel(w)
	case r.URL.Host != "" && r.URL.Host != "169.254.169.254", r.Method == http.MethodConnect:
		http.Error(w, "fakeentra: this test has no other hosts", http.StatusBadGateway)
	case r.URL.Path == identityPath && r.Method == http.MethodGet:
		s.identity(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) identity(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	answers := s.saw(Seen{Path: r.URL.Path, Resource: q.Get("resource"), Client: q.Get("client_id")})
	switch {
	case answers.Instead != nil:
		answers.Instead(w, r)
	case q.Get("api-version") == apiAppService && r.Header.Get("X-Identity-Header") != answers.Header:
		write(w, http.StatusUnauthorized, map[string]any{"statusCode": 401, "message": "wrong X-IDENTITY-HEADER"})
	case q.Get("api-version") == apiArc && !s.knowsArcKey(r.Header.Get("Authorization")):
		s.challenge(w)
	case q.Get("api-version") == apiIMDS && r.Header.Get("Metadata") != "true":
		write(w, http.StatusBadRequest, map[string]string{"error": "bad_request", "error_description": "Required metadata header not specified"})
	case !slices.Contains([]string{apiIMDS, apiAppService, apiArc}, q.Get("api-version")), q.Get("resource") == "":
		write(w, http.StatusBadRequest, map[string]string{"error": "invalid_request", "error_description": "api-version or resource is missing"})
	case q.Get("client_id") != "" && !slices.Contains(answers.Identities, q.Get("client_id")):
		write(w, http.StatusBadRequest, map[string]string{"error": "invalid_request", "error_description": "Identity not found"})
	default:
		s.giveIdentity(w, q.Get("resource"), q.Get("client_id"))
	}
}

func (s *Server) giveIdentity(w http.ResponseWriter, resource, client string) {
	if client == "" {
		client = "99999999-8888-7777-6666-555555555555"
	}
	token, lifetime, err := s.issue(map[string]any{"aud": resource, "appid": client, "xms_mirid": "/subscriptions/s/resourcegroups/g/providers/m"})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// Numbers are strings here, other than in Entra's answers.
	write(w, http.StatusOK, map[string]string{
		"access_token": token, "client_id": client, "resource": resource, "token_type": "Bearer",
		"expires_in": strconv.Itoa(int(lifetime.Seconds())),
		"expires_on": strconv.FormatInt(time.Now().Add(lifetime).Unix(), 10),
	})
}

// challenge asks for the content of a file that only root and the group himds can read.
func (s *Server) challenge(w http.ResponseWriter) {
	s.mu.Lock()
	s.arcNext++
	name := fmt.Sprintf("challenge-%d.key", s.arcNext)
	key := rand.Text()
	s.arcKeys["Basic "+key] = true
	s.mu.Unlock()
	if s.arcKeyDir != "" {
		if err := os.WriteFile(filepath.Join(s.arcKeyDir, name), []byte(key), 0o600); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("WWW-Authenticate", "Basic realm="+arcTokens+"/"+name)
	write(w, http.StatusUnauthorized, map[string]string{"error": "unauthorized_client", "error_description": "Missing Basic Authorization header"})
}

// knowsArcKey says whether a request shows a key that was given out. A key works once.
func (s *Server) knowsArcKey(authorization string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.arcKeys[authorization]
	delete(s.arcKeys, authorization)
	return known
}

// tunnel answers a client that wants to talk to PublicHost, and then talks to it as PublicHost.
func (s *Server) tunnel(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	s.tunnels.give(conn)
}

// handoff is a listener whose connections are given to it.
type handoff struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandoff() *handoff { return &handoff{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (h *handoff) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }
