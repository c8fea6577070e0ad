package probe

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

// newCertificate makes a certificate as kubelets have it, with its key, both as PEM.
func newCertificate(t testing.TB, subject string, from, to time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: subject, Organization: []string{"system:nodes"}}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
}

// userOf replaces the user of a kubeconfig; user is YAML in braces.
func userOf(t testing.TB, path, user string) {
	t.Helper()
	kubeconfigOf(t, path, "https://127.0.0.1:6443")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, path, []byte(strings.Replace(string(raw), "{token: t}", user, 1)), 0o600)
}

func TestTheKubeletsCertificate(t *testing.T) {
	from, to := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC), time.Date(2027, 1, 15, 12, 0, 0, 0, time.UTC)
	certificate, key := newCertificate(t, "system:node:edge-1", from, to)
	authority, _ := newCertificate(t, "an authority", from, to.AddDate(10, 0, 0))
	old, oldKey := newCertificate(t, "system:node:edge-1", from.AddDate(-20, 0, 0), to.AddDate(-20, 0, 0))
	_, otherKey := newCertificate(t, "x", from, to)
	dir := t.TempDir()
	current := putFile(t, filepath.Join(dir, "pki", "current.pem"), slices.Concat(certificate, authority, key), 0o600)
	inline := func(certificate, key []byte) string {
		return fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s}", base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))
	}
	const plugin = "exec: {apiVersion: client.authentication.k8s.io/v1, command: kubelogin, interactiveMode: Never}"
	path := filepath.Join(dir, "kubeconfig")
	seen := observe.Certificate{Path: current, Subject: "system:node:edge-1", NotBefore: from, NotAfter: to}
	written := seen
	written.Path = path
	expired := written
	expired.NotBefore, expired.NotAfter = from.AddDate(-20, 0, 0), to.AddDate(-20, 0, 0)
	for _, tc := range []struct {
		name   string
		user   string
		want   observe.Certificate
		health observe.Health
		reason string
		words  string
	}{
		{"in a file", fmt.Sprintf("{client-certificate: %s, client-key: %s}", current, current), seen, observe.Healthy, "CertificateRead", "ends on 2027-01-15T12:00:00Z"},
		{"in a file beside the kubeconfig", "{client-certificate: pki/current.pem, client-key: pki/current.pem}", seen, observe.Healthy, "CertificateRead", current},
		{"in the kubeconfig itself", inline(certificate, key), written, observe.Healthy, "CertificateRead", path},
		{"that has ended, which others judge", inline(old, oldKey), expired, observe.Healthy, "CertificateRead", "2007-01-15"},
		{"none, but a plugin", "{" + plugin + "}", observe.Certificate{Plugin: true}, observe.Healthy, "NoCertificate", "plugin"},
		{"none, but a token", "{token: t}", observe.Certificate{Plugin: true}, observe.Healthy, "NoCertificate", "token"},
		{"named, but not there", "{client-certificate: gone.pem, client-key: gone.pem}", observe.Certificate{}, observe.Unknown, cluster.ReasonKubeconfigInvalid, "gone.pem"},
		{"that is none", inline([]byte("x"), key), observe.Certificate{}, observe.Unknown, cluster.ReasonKubeconfigInvalid, path},
		{"of another key", inline(certificate, otherKey), observe.Certificate{}, observe.Unknown, cluster.ReasonKubeconfigInvalid, path},
	} {
		t.Run(tc.name, func(t *testing.T) {
			userOf(t, path, tc.user)
			s, _ := newSuite(t)
			s.settings.kubeconfigs = []string{path}
			got := s.lookAtCertificate(t.Context(), time.Now())
			wantSeen(t, got, tc.health, tc.reason, tc.words)
			if got.Value != tc.want {
				t.Errorf("got %+v, want %+v", got.Value, tc.want)
			}
		})
	}
}

func TestTheCertificateOfWhicheverKubeconfigTheKubeletUses(t *testing.T) {
	certificate, key := newCertificate(t, "system:node:edge-1", time.Now(), time.Now().Add(time.Hour))
	s, dir := newSuite(t)
	wantSeen(t, s.lookAtCertificate(t.Context(), time.Now()), observe.Unknown, cluster.ReasonKubeconfigMissing, filepath.Join(dir, "kubeconfig"))

	putFile(t, filepath.Join(dir, "own.pem"), slices.Concat(certificate, key), 0o600)
	userOf(t, filepath.Join(dir, "own"), "{client-certificate: own.pem, client-key: own.pem}")
	hasUnits(s, units{kubelet: running("kubelet.service", 0, "/kubelet", "--kubeconfig="+filepath.Join(dir, "own"))})
	s.LookAtUnits(t.Context())
	got := s.lookAtCertificate(t.Context(), time.Now())
	wantSeen(t, got, observe.Healthy, "CertificateRead", "system:node:edge-1")

	renewed, newKey := newCertificate(t, "system:node:edge-2", time.Now(), time.Now().Add(time.Hour))
	putFile(t, filepath.Join(dir, "own.pem"), slices.Concat(renewed, newKey), 0o600)
	if got := s.lookAtCertificate(t.Context(), time.Now()); got.Value.Subject != "system:node:edge-2" {
		t.Errorf("after it was renewed: got %+v, want the new one", got)
	}
}
