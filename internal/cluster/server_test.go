package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs certificates. Its own is in pem.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a cluster"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue makes a certificate for a common name that is good for an hour, for 127.0.0.1, and for whatever change makes of it.
func (a *authority) issue(t testing.TB, commonName string, change func(*x509.Certificate)) (certificate, key []byte) {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	own := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &own.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// apiServer speaks as much of the API over TLS as these tests need, and remembers who came.
type apiServer struct {
	*httptest.Server
	authority *authority

	mu       sync.Mutex
	requests []string // for each request: path, then the client certificate's common name or the Authorization header
	open     map[net.Conn]bool
}

// newAPIServer starts a server with a certificate of the authority that change may spoil. A nil handler answers with the Node asked for.
func newAPIServer(t testing.TB, change func(*x509.Certificate), handler http.HandlerFunc) *apiServer {
	t.Helper()
	s := &apiServer{authority: newAuthority(t), open: map[net.Conn]bool{}}
	if handler == nil {
		handler = answerNode
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/coordination.k8s.io/") { // the Lease is asked for behind each Node, and is not the subject here
			answerStatus(http.StatusNotFound, metav1.StatusReasonNotFound)(w, r)
			return
		}
		s.note(r)
		handler(w, r)
	}))
	certificate, key := s.authority.issue(t, "kube-apiserver", change)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(s.authority.certificate)
	s.EnableHTTP2 = true // as a real one
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.Config.ErrorLog = discard()
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if state == http.StateClosed || state == http.StateHijacked {
			delete(s.open, c)
			return
		}
		s.open[c] = true
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) note(r *http.Request) {
	who := r.Header.Get("Authorization")
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		who = certs[0].Subject.CommonName
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.URL.Path+" "+who)
}

// visitors returns who came since the last call.
func (s *apiServer) visitors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.requests
	s.requests = nil
	return v
}

func (s *apiServer) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

func answerNode(w http.ResponseWriter, r *http.Request) {
	node := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name = strings.TrimPrefix(r.URL.Path, "/api/v1/nodes/")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(node) // the client sees it when this fails
}

// answerStatus answers as the API server does when it refuses.
func answerStatus(code int, reason metav1.StatusReason) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: "the server says " + string(reason),
		})
	}
}

// kubeconfigFor returns a kubeconfig for a server with a token; change makes of it what a test needs.
func kubeconfigFor(server string, ca []byte, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) clientcmdapi.Config {
	cl := &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	user := &clientcmdapi.AuthInfo{Token: "a-token"}
	if change != nil {
		change(cl, user)
	}
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": cl},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}
}

// writeKubeconfig writes it to a new folder and returns its path.
func writeKubeconfig(t testing.TB, c clientcmdapi.Config) string {
	t.Helper()
	raw, err := clientcmd.Write(c)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, filepath.Join(t.TempDir(), "kubeconfig"), raw)
}

// writeFile replaces a file as programs should, so that the new one has an identity of its own.
func writeFile(t testing.TB, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path+".next", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubeconfig writes a kubeconfig for this server.
func (s *apiServer) kubeconfig(t testing.TB, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) string {
	t.Helper()
	return writeKubeconfig(t, kubeconfigFor(s.URL, s.authority.pem, change))
}

// newClient returns a Client that is closed at the end of the test.
func newClient(t testing.TB) *Client {
	t.Helper()
	c := &Client{}
	t.Cleanup(c.Close)
	return c
}

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited 20 s in vain: %s", what)
		}
	}
}
