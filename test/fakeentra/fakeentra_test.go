package fakeentra

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.Dir = t.TempDir()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// client trusts the server's CA and nothing else; through the proxy, if asked.
func client(t *testing.T, s *Server, proxied bool) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(s.CAFile())
	if err != nil || !bytes.Equal(pem, s.CA()) {
		t.Fatalf("CA file: got %d bytes (%v), want the CA's %d", len(pem), err, len(s.CA()))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("the CA file holds no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	if proxied {
		proxy, err := url.Parse(s.PlainURL())
		if err != nil {
			t.Fatal(err)
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// get returns status and JSON body of an answer.
func get(t *testing.T, c *http.Client, url string, form url.Values, header ...string) (int, map[string]any) {
	t.Helper()
	method, body := http.MethodGet, ""
	if form != nil {
		method, body = http.MethodPost, form.Encode()
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	if realm, ok := strings.CutPrefix(resp.Header.Get("WWW-Authenticate"), "Basic realm="); ok {
		got["realm"] = realm
	}
	return resp.StatusCode, got
}

func form(client, secret string) url.Values {
	return url.Values{"grant_type": {"client_credentials"}, "client_id": {client}, "client_secret": {secret}, "scope": {"api/.default openid"}}
}

// verified returns the claims of a token whose signature the issuer's keys confirm, going the way that an API server goes.
func verified(t *testing.T, s *Server, token string) map[string]any {
	t.Helper()
	c := client(t, s, false)
	_, discovery := get(t, c, s.Issuer()+"/.well-known/openid-configuration", nil)
	if discovery["issuer"] != s.Issuer() {
		t.Errorf("issuer: got %v, want %s", discovery["issuer"], s.Issuer())
	}
	_, set := get(t, c, discovery["jwks_uri"].(string), nil)
	var key map[string]any
	if keys, ok := set["keys"].([]any); ok && len(keys) == 1 {
		key, _ = keys[0].(map[string]any)
	}
	if key == nil {
		t.Fatalf("keys: got %v, want one", set)
	}
	decode := func(text any) []byte {
		b, err := base64.RawURLEncoding.DecodeString(text.(string))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	public := &rsa.PublicKey{N: new(big.Int).SetBytes(decode(key["n"])), E: int(new(big.Int).SetBytes(decode(key["e"])).Int64())}
	parts := strings.Split(token, ".")
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], decode(parts[2])); err != nil {
		t.Fatalf("signature: %v", err)
	}
	var header, claims map[string]any
	if err := json.Unmarshal(decode(parts[0]), &header); err != nil || header["kid"] != key["kid"] || header["alg"] != key["alg"] {
		t.Fatalf("header: got %v (%v), want that of key %v", header, err, key)
	}
	if err := json.Unmarshal(decode(parts[1]), &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestTokensAreSignedByTheIssuersKeyAndSayWhatTheTestWants(t *testing.T) {
	s := start(t, Options{})
	usual, err := s.Token(nil)
	if err != nil {
		t.Fatal(err)
	}
	claims := verified(t, s, usual)
	if claims["iss"] != s.Issuer() || claims["oid"] != DefaultObjectID || claims["exp"].(float64)-claims["iat"].(float64) != DefaultLifetime.Seconds() {
		t.Errorf("usual claims: got %v", claims)
	}
	s.Configure(func(a *Answers) {
		a.Claims = map[string]any{"oid": "o", "upn": "u@x", "tid": nil, "aud": "of the test"}
		a.Lifetime = -time.Minute
	})
	_, answer := get(t, client(t, s, false), s.URL()+"/"+s.Tenant()+"/oauth2/v2.0/token", form("c", ""))
	claims = verified(t, s, answer["access_token"].(string))
	_, hasTenant := claims["tid"]
	if claims["oid"] != "o" || claims["upn"] != "u@x" || hasTenant || claims["aud"] != "of the test" || claims["appid"] != "c" || claims["exp"].(float64) >= claims["iat"].(float64) {
		t.Errorf("claims of the test: got %v", claims)
	}
	mine, err := s.Token(map[string]any{"oid": "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if claims := verified(t, s, mine); claims["oid"] != "mine" || claims["upn"] != "u@x" {
		t.Errorf("claims of this token: got %v", claims)
	}
	if _, err := s.Token(map[string]any{"x": func() {}}); err == nil {
		t.Error("a claim that is no JSON: got a token, want an error")
	}
}

func TestWhoGetsAToken(t *testing.T) {
	s := start(t, Options{})
	s.Configure(func(a *Answers) {
		a.Secrets = map[string]string{"a": "secret"}
		a.Assertions = map[string]string{"w": "assertion"}
	})
	with := func(f url.Values, name, value string) url.Values { f.Set(name, value); return f }
	for name, c := range map[string]struct {
		form   url.Values
		status int
		tells  string
	}{
		"right secret":    {form("a", "secret"), 200, ""},
		"wrong secret":    {form("a", "x"), 401, "AADSTS7000215"},
		"right assertion": {with(form("w", ""), "client_assertion", "assertion"), 200, ""},
		"wrong assertion": {with(form("w", ""), "client_assertion", "x"), 401, "AADSTS700213"},
		"unknown":         {form("x", "secret"), 400, "AADSTS700016"},
		"other grant":     {with(form("a", "secret"), "grant_type", "password"), 400, "AADSTS70003"},
		"no scope":        {with(form("a", "secret"), "scope", "openid"), 400, "AADSTS1002012"},
	} {
		status, got := get(t, client(t, s, false), s.URL()+"/"+s.Tenant()+"/oauth2/v2.0/token", c.form)
		text, _ := got["error_description"].(string)
		if _, has := got["access_token"]; status != c.status || has != (status == 200) || !strings.HasPrefix(text, c.tells) {
			t.Errorf("%s: got %d and %v, want %d and %q", name, status, got, c.status, c.tells)
		}
	}
	if seen := s.Seen(); len(seen) != 7 || seen[0].Client == "" {
		t.Errorf("seen: got %v, want seven requests with their clients", seen)
	}
}

func TestTheProxyLeadsThePublicNamesHereAndOthersNowhere(t *testing.T) {
	s := start(t, Options{})
	c := client(t, s, true)
	_, found := get(t, c, "https://"+PublicHost+"/"+s.Tenant()+"/v2.0/.well-known/openid-configuration", nil)
	if want := "https://" + PublicHost + "/" + s.Tenant() + "/v2.0"; found["issuer"] != want {
		t.Errorf("issuer under the public name: got %v, want %s", found["issuer"], want)
	}
	_, instance := get(t, c, "https://"+PublicHost+"/common/discovery/instance?authorization_endpoint="+url.QueryEscape(s.URL()+"/T/oauth2/v2.0/authorize"), nil)
	if want := s.URL() + "/T/v2.0/.well-known/openid-configuration"; instance["tenant_discovery_endpoint"] != want {
		t.Errorf("discovery of this instance: got %v, want %s", instance, want)
	}
	if status, got := get(t, c, "https://"+PublicHost+"/common/discovery/instance?authorization_endpoint=https://other/T/", nil); status != 400 || got["error"] != "invalid_instance" {
		t.Errorf("another instance: got %d and %v", status, got)
	}
	if status, got := get(t, c, "http://169.254.169.254"+identityPath+"?api-version="+apiIMDS+"&resource=r", nil, "Metadata", "true"); status != 200 || got["resource"] != "r" {
		t.Errorf("IMDS: got %d and %v", status, got)
	}
	for _, other := range []string{"https://example.com/", "http://example.com/"} {
		resp, err := c.Get(other)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s: got %s, want that the proxy refuses", other, resp.Status)
			}
		}
	}
}

func TestManagedIdentities(t *testing.T) {
	keys := t.TempDir()
	s := start(t, Options{ArcKeyDir: keys})
	s.Configure(func(a *Answers) { a.Header, a.Identities = "h", []string{"known"} })
	c := client(t, s, false)
	at := func(api, more string) string {
		return s.PlainURL() + identityPath + "?api-version=" + api + "&resource=r" + more
	}
	for name, r := range map[string]struct {
		url    string
		header []string
		status int
	}{
		"virtual machine":           {at(apiIMDS, ""), []string{"Metadata", "true"}, 200},
		"without the header":        {at(apiIMDS, ""), nil, 400},
		"user-assigned":             {at(apiIMDS, "&client_id=known"), []string{"Metadata", "true"}, 200},
		"user-assigned, not known":  {at(apiIMDS, "&client_id=x"), []string{"Metadata", "true"}, 400},
		"app service":               {at(apiAppService, ""), []string{"X-IDENTITY-HEADER", "h"}, 200},
		"app service, wrong header": {at(apiAppService, ""), []string{"X-IDENTITY-HEADER", "x"}, 401},
		"another version":           {at("2000-01-01", ""), nil, 400},
	} {
		if status, got := get(t, c, r.url, nil, r.header...); status != r.status {
			t.Errorf("%s: got %d and %v, want %d", name, status, got, r.status)
		}
	}

	// Arc asks for a file's content, which works once.
	status, got := get(t, c, at(apiArc, ""), nil, "Metadata", "true")
	realm, _ := got["realm"].(string)
	if status != 401 || filepath.Dir(realm) != arcTokens {
		t.Fatalf("Arc: got %d and %v, want the challenge", status, got)
	}
	key, err := os.ReadFile(filepath.Join(keys, filepath.Base(realm)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 401} {
		if status, got := get(t, c, at(apiArc, ""), nil, "Metadata", "true", "Authorization", "Basic "+string(key)); status != want {
			t.Errorf("Arc, try %d with the key: got %d and %v, want %d", i+1, status, got, want)
		}
	}
}

func TestAnswersInsteadAndClosingWhileARequestHangs(t *testing.T) {
	s := start(t, Options{})
	s.Configure(func(a *Answers) {
		a.Instead = func(w http.ResponseWriter, _ *http.Request) { s.Refuse(w, http.StatusTeapot, "code", "text") }
	})
	c := client(t, s, false)
	token := s.URL() + "/" + s.Tenant() + "/oauth2/v2.0/token"
	if status, got := get(t, c, token, form("a", "b")); status != http.StatusTeapot || got["error"] != "code" {
		t.Errorf("instead: got %d and %v", status, got)
	}
	arrived := make(chan struct{})
	s.Configure(func(a *Answers) {
		a.Instead = func(_ http.ResponseWriter, r *http.Request) { close(arrived); <-r.Context().Done() }
	})
	failed := make(chan error)
	go func() {
		resp, err := c.PostForm(token, form("a", "b"))
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	<-arrived
	s.Close()
	if err := <-failed; err == nil {
		t.Error("got an answer from a server that was closed while it hung")
	}
}

func TestListenersOfTheTest(t *testing.T) {
	var l [2]net.Listener
	for i := range l {
		var err error
		if l[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, Options{Listener: l[0], PlainListener: l[1]})
	if s.URL() != "https://"+l[0].Addr().String() || s.PlainURL() != "http://"+l[1].Addr().String() {
		t.Errorf("got %s and %s, want %s and %s", s.URL(), s.PlainURL(), l[0].Addr(), l[1].Addr())
	}
	if status, _ := get(t, client(t, s, true), "https://"+PublicHost+"/"+s.Tenant()+"/oauth2/v2.0/token", form("a", "b")); status != 200 {
		t.Errorf("got %d through both, want 200", status)
	}
}

func TestAServerThatCanNotStartSaysWhy(t *testing.T) {
	s := start(t, Options{})
	for name, o := range map[string]Options{
		"no folder":       {},
		"folder not here": {Dir: "/nowhere"},
		"no port":         {Dir: t.TempDir(), Address: "127.0.0.1"},
		"port in use":     {Dir: t.TempDir(), Address: s.host},
		"plain in use":    {Dir: t.TempDir(), PlainAddress: s.plainHost},
	} {
		if got, err := Start(o); err == nil {
			got.Close()
			t.Errorf("%s: got a server, want an error", name)
		}
	}
}
