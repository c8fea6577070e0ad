//go:build linux

package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// CA is a certificate authority made for a test. Its methods may be called from several goroutines at once.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// KeyPair is a certificate with its private key, each in PEM form, as tls.X509KeyPair takes them.
type KeyPair struct {
	Cert, Key []byte
}

// certLife is how long certificates of the lab are valid. It outlasts a lab that a person leaves up for days.
const certLife = 30 * 24 * time.Hour

// NewCA makes an authority of this name. Two of one name trust each other no more than any two do.
func NewCA(name string) (*CA, error) {
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("make CA %s: %w", name, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	ca := &CA{cert: template, key: key}
	der, err := ca.sign(template, key)
	if err != nil {
		return nil, fmt.Errorf("make CA %s: %w", name, err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("make CA %s: %w", name, err)
	}
	return ca, nil
}

// PEM returns the authority's own certificate, which those have who trust it.
func (ca *CA) PEM() []byte { return certPEM(ca.cert.Raw) }

// ServerCert issues a certificate to a server that is reached by these names and addresses.
func (ca *CA) ServerCert(hosts ...string) (KeyPair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "server"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return ca.issue(template)
}

// ClientCert issues a certificate by which Kubernetes takes its holder for this user, a member of these groups.
func (ca *CA) ClientCert(user string, groups ...string) (KeyPair, error) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (ca *CA) issue(template *x509.Certificate) (KeyPair, error) {
	key, err := newKey()
	if err != nil {
		return KeyPair{}, fmt.Errorf("issue certificate: %w", err)
	}
	der, err := ca.sign(template, key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("issue certificate: %w", err)
	}
	text, err := keyPEM(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("issue certificate: %w", err)
	}
	return KeyPair{Cert: certPEM(der), Key: text}, nil
}

// sign fills in what all certificates have in common and signs.
func (ca *CA) sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(certLife)
	return x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
