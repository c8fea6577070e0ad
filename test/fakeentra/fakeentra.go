// Package fakeentra is a stand-in for Microsoft Entra and for the managed identity endpoints of a machine, for tests.
//
// It is an authority as the Azure SDKs want it (instance discovery, OpenID configuration, token endpoint), an OIDC issuer that an API
// server can trust (discovery document and keys), and the HTTP endpoints of IMDS, App Service and Azure Arc. What it gives are JWTs signed
// with a key of its own, whose claims the test chooses. It also is a proxy that leads login.microsoftonline.com and 169.254.169.254 to
// itself and everything else nowhere, so that code under test runs with its real addresses and no test reaches the real ones.
package fakeentra

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Values that a server has unless its options say otherwise.
const (
	DefaultTenant   = "11111111-2222-3333-4444-555555555555"
	DefaultObjectID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee" // claims oid and sub
	DefaultLifetime = time.Hour
)

// PublicHost is the authority of the public cloud. The server's certificate and its proxy answer for it.
const PublicHost = "login.microsoftonline.com"

// Options say what a server is. The zero value, with Dir set, is a server on a free port of 127.0.0.1 that gives everyone a token.
type Options struct {
	Dir          string // existing folder, where the certificate of its CA is put
	Address      string // host:port for TLS; default 127.0.0.1:0. The host is the one in URLs, so that it can't be 0.0.0.0
	PlainAddress string // host:port for the proxy and the managed identity; default a free port of the host of Address
	// Listener and PlainListener are used instead of the addresses, where the test opened them itself: in another network namespace, say.
	// They must not be TLS listeners; the server closes them.
	Listener, PlainListener net.Listener
	Hosts                   []string // more names and IP addresses for its certificate
	Tenant                  string   // default DefaultTenant
	ArcKeyDir               string   // where the key files of Arc's challenge are put, which is /var/opt/azcmagent/tokens of the code under test; empty: nowhere
}

// Answers say what is answered to a request for a token. They may be changed at any time, with Server.Configure.
type Answers struct {
	Secrets    map[string]string // client ID to its secret; together with Assertions, everyone who may have a token; both nil: anyone
	Assertions map[string]string // client ID to the federated token that it must show
	Identities []string          // client IDs of user-assigned managed identities
	Header     string            // what App Service's X-IDENTITY-HEADER must be
	Claims     map[string]any    // put over the usual claims of a token; nil takes a claim away
	Lifetime   time.Duration     // of tokens, also negative; default DefaultLifetime
	Instead    http.HandlerFunc  // if not nil, gets every request for a token instead of the server; may call Server.Give, Refuse, or hang until the request's context ends
}

// Seen is a request for a token that came.
type Seen struct {
	Path     string
	Resource string // what the token is for: the scope without /.default
	Client   string // client ID; empty for a system-assigned managed identity
}

// Server is a running stand-in. Its methods are safe for concurrent use.
type Server struct {
	host, plainHost string // host:port
	tenant          string
	caFile          string
	arcKeyDir       string
	ca              *authority
	signer          *signer
	servers         []*http.Server
	done            sync.WaitGroup
	tunnels         *handoff

	mu      sync.Mutex // guards the fields below
	answers Answers
	seen    []Seen
	arcKeys map[string]bool // contents of key files that were not used yet
	arcNext int
}

// Start starts a server. Its caller ends it with Close.
func Start(o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("fakeentra: Options.Dir is empty")
	}
	if o.Tenant == "" {
		o.Tenant = DefaultTenant
	}
	secure, plain, err := o.listeners()
	if err != nil {
		return nil, fmt.Errorf("fakeentra: %w", err)
	}
	s, err := newServer(o, secure, plain)
	if err != nil {
		return nil, errors.Join(err, secure.Close(), plain.Close())
	}
	return s, nil
}

// listeners are those of the options, or open ones at their addresses.
func (o *Options) listeners() (secure, plain net.Listener, err error) {
	secure, plain = o.Listener, o.PlainListener
	if secure == nil {
		if secure, err = net.Listen("tcp", cmp.Or(o.Address, "127.0.0.1:0")); err != nil { //nolint:noctx // it doesn't wait
			return nil, nil, err
		}
	}
	if plain == nil {
		host, _, err := net.SplitHostPort(secure.Addr().String())
		if err == nil {
			plain, err = net.Listen("tcp", cmp.Or(o.PlainAddress, net.JoinHostPort(host, "0"))) //nolint:noctx // it doesn't wait
		}
		if err != nil {
			return nil, nil, errors.Join(err, secure.Close())
		}
	}
	return secure, plain, nil
}

func newServer(o Options, secure, plain net.Listener) (*Server, error) {
	s := &Server{
		host: secure.Addr().String(), plainHost: plain.Addr().String(), tenant: o.Tenant, arcKeyDir: o.ArcKeyDir,
		caFile: filepath.Join(o.Dir, "fakeentra-ca.crt"), arcKeys: map[string]bool{}, tunnels: newHandoff(),
	}
	var err error
	if s.signer, err = newSigner(); err != nil {
		return nil, err
	}
	if s.ca, err = newAuthority(); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(s.host)
	if err != nil {
		return nil, err
	}
	certificate, err := s.ca.certify(append([]string{host, PublicHost, "localhost", "127.0.0.1"}, o.Hosts...))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.caFile, s.ca.pem, 0o644); err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	s.serve(s.entra(), tls.NewListener(secure, config), tls.NewListener(s.tunnels, config))
	s.serve(http.HandlerFunc(s.proxy), plain)
	return s, nil
}

func (s *Server) serve(h http.Handler, listeners ...net.Listener) {
	// Handshakes that clients break off are what many tests are about.
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(discard{}, "", 0)}
	s.servers = append(s.servers, server)
	for _, l := range listeners {
		s.done.Go(func() { _ = server.Serve(l) }) // ends with an error always
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Close ends the server and every connection, and returns when nothing of it runs any more.
func (s *Server) Close() {
	for _, server := range s.servers {
		_ = server.Close()
	}
	s.done.Wait()
}

// URL is where the server is, without a slash at the end.
func (s *Server) URL() string { return "https://" + s.host }

// Authority is a value for AZURE_AUTHORITY_HOST.
func (s *Server) Authority() string { return s.URL() + "/" }

// Tenant is the tenant's ID.
func (s *Server) Tenant() string { return s.tenant }

// Issuer is a value for the API server's --oidc-issuer-url, and the claim iss of tokens.
func (s *Server) Issuer() string { return s.URL() + "/" + s.tenant + "/v2.0" }

// CA is the certificate to trust, in PEM.
func (s *Server) CA() []byte { return s.ca.pem }

// CAFile is the certificate to trust, in PEM: for SSL_CERT_FILE and the API server's --oidc-ca-file.
func (s *Server) CAFile() string { return s.caFile }

// PlainURL is where the proxy and the managed identity endpoints are, without a slash at the end.
func (s *Server) PlainURL() string { return "http://" + s.plainHost }

// Environment is what a process needs to take this server for Entra and for the IMDS of a virtual machine.
func (s *Server) Environment() []string {
	return []string{"SSL_CERT_FILE=" + s.caFile, "HTTPS_PROXY=" + s.PlainURL(), "HTTP_PROXY=" + s.PlainURL(), "NO_PROXY="}
}

// ArcEnvironment makes this server the managed identity endpoint of an Azure Arc machine. Options.ArcKeyDir must be the folder that the
// process sees as /var/opt/azcmagent/tokens.
func (s *Server) ArcEnvironment() []string {
	return []string{"IDENTITY_ENDPOINT=" + s.PlainURL() + identityPath, "IMDS_ENDPOINT=" + s.PlainURL()}
}

// AppServiceEnvironment makes this server the managed identity endpoint of App Service.
func (s *Server) AppServiceEnvironment(header string) []string {
	return []string{"IDENTITY_ENDPOINT=" + s.PlainURL() + identityPath, "IDENTITY_HEADER=" + header}
}

// Configure changes the answers to requests that come from now on. f gets copies of the maps.
func (s *Server) Configure(f func(*Answers)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answers
	a.Secrets, a.Assertions, a.Claims = maps.Clone(a.Secrets), maps.Clone(a.Assertions), maps.Clone(a.Claims)
	f(&a)
	s.answers = a
}

// Seen returns the requests for a token that came, oldest first.
func (s *Server) Seen() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.seen...)
}

func (s *Server) saw(r Seen) Answers {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r)
	return s.answers
}
