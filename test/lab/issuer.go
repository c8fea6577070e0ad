//go:build linux

package lab

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"testing"
	"time"
)

// Issuer is an OIDC issuer that serves on a switch, so that API server and hosts reach it. It has what verifying a token
// takes; the ways by which a client gets one are the test's, at Mux.
type Issuer struct {
	// URL is the issuer's name, and where it serves: https, at the switch's address, port 8443.
	URL string
	// CA issued the certificate that it serves with.
	CA *CA
	// Mux holds its pages; the test may add some.
	Mux *http.ServeMux

	key *rsa.PrivateKey
}

// StartIssuer makes an issuer and stops it when the test ends. It comes before StartCluster, which is given the same switch
// and its OIDC: an API server that does not find its issuer at once tries again only 10 s later.
func StartIssuer(t testing.TB, s *Switch) *Issuer {
	t.Helper()
	i, stop, err := startIssuer(t.Context(), s)
	if err != nil {
		t.Fatalf("start issuer: %v", err)
	}
	t.Cleanup(stop)
	return i
}

func startIssuer(ctx context.Context, s *Switch) (i *Issuer, stop func(), err error) {
	address := s.Address().String()
	i = &Issuer{URL: "https://" + address + ":8443", Mux: http.NewServeMux()}
	if i.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		return nil, nil, err
	}
	if i.CA, err = NewCA("issuer"); err != nil {
		return nil, nil, err
	}
	pair, err := i.CA.ServerCert(address)
	if err != nil {
		return nil, nil, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, nil, err
	}
	i.addPages()
	l, err := s.Listen(ctx, "tcp", address+":8443")
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{
		Handler:           i.Mux,
		ReadHeaderTimeout: shortly,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "") // ends with an error always
	}()
	return i, func() { _ = server.Close(); <-done }, nil
}

// addPages serves what OpenID Connect Discovery asks for: where the keys are, and the keys.
func (i *Issuer) addPages() {
	page := func(path string, content any) {
		i.Mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(content) // the client has gone away
		})
	}
	type object = map[string]any
	page("/.well-known/openid-configuration", object{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
	})
	number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	page("/keys", object{"keys": []object{{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "lab", "n": number(i.key.N), "e": number(big.NewInt(int64(i.key.E))),
	}}})
}

// OIDC makes an API server trust this issuer's tokens for an audience; their claim "sub" is the user's name.
func (i *Issuer) OIDC(audience string) *OIDC {
	return &OIDC{IssuerURL: i.URL, CA: i.CA.PEM(), Audience: audience}
}

// Token signs a token with these claims, such as "sub" and "aud". Issuer, times, and an hour of life are added where
// they are not given.
func (i *Issuer) Token(claims map[string]any) (string, error) {
	now := time.Now()
	all := map[string]any{"iss": i.URL, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	header, err1 := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT", "kid": "lab"})
	body, err2 := json.Marshal(all)
	if err := errors.Join(err1, err2); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(body)
	hash := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, hash[:])
	if err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
