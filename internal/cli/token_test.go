package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/aks-flex-node/agent/test/fakeentra"
)

// TestEveryLoginMethodGivesATokenForTheCluster runs the command as kubelets do, without a cache, and looks at the token.
func TestEveryLoginMethodGivesATokenForTheCluster(t *testing.T) {
	s := entra(t, fakeentra.Options{})
	federatedFile := file(t, "token", federated, 0o600)
	certificate := certificateAndKey(t)
	open := entra(t, fakeentra.Options{}) // takes any certificate
	open.Configure(func(a *fakeentra.Answers) { a.Secrets, a.Assertions = nil, nil })
	azToken, err := s.Token(map[string]any{"aud": serverID, "appid": clientID})
	if err != nil {
		t.Fatal(err)
	}
	az := file(t, "az", "#!/bin/sh\necho '"+`{"accessToken": "`+azToken+`", "expires_on": `+expiryOf(t, azToken)+`}'`, 0o755)

	for name, c := range map[string]struct {
		args, env []string
		client    string // claim appid; empty: that of the machine
	}{
		"service principal": {node(), spn(s), clientID},
		"service principal, variables of kubelogin": {node(), append(s.Environment(), "AAD_LOGIN_METHOD=spn", "AZURE_AUTHORITY_HOST="+s.Authority(), "AZURE_TENANT_ID="+s.Tenant(),
			"AAD_SERVICE_PRINCIPAL_CLIENT_ID="+clientID, "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET="+secret), clientID},
		"service principal, authority of the public cloud": {node(), spn(s, "AZURE_AUTHORITY_HOST="), clientID},
		"service principal, authority without a slash":     {node(), spn(s, "AZURE_AUTHORITY_HOST="+s.URL()), clientID},
		"service principal, by flags": {node("-l", "spn", "-t", s.Tenant(), "--client-id", clientID, "--client-secret", secret, "--environment", "AzurePublicCloud"),
			s.Environment(), clientID},
		"service principal, environment wins over flags": {node("--login", "msi", "--client-secret", "wrong", "--client-id", "wrong"), spn(s), clientID},
		"service principal with a certificate":           {node(), spn(open, "AZURE_CLIENT_SECRET=", "AZURE_CLIENT_CERTIFICATE_PATH="+certificate), clientID},
		"workload identity":                              {node(), spn(s, "AAD_LOGIN_METHOD=workloadidentity", "AZURE_CLIENT_SECRET=", "AZURE_FEDERATED_TOKEN_FILE="+federatedFile), clientID},
		"managed identity of a virtual machine":          {node(), msi(s), ""},
		"user-assigned managed identity":                 {node(), msi(s, "AZURE_CLIENT_ID="+clientID), clientID},
		"managed identity behind a header":               {node(), msi(s, s.AppServiceEnvironment("header-of-app-service")...), ""},
		"managed identity, proof of possession asked":    {node("--pop-enabled", "--pop-claims", "u=/subscriptions/s"), msi(s), ""},
		"azure cli": {node(), append(s.Environment(), "AAD_LOGIN_METHOD=azurecli", "PATH="+strings.TrimSuffix(az, "/az")+":/usr/bin:/bin"), clientID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := tokenProgram(t, c.args, c.env)
			code, stdout, stderr := p.run(t)
			quiet := stderr == "" || strings.Contains(name, "proof of possession") && strings.Contains(stderr, "--pop-enabled was not used")
			if code != 0 || !quiet {
				t.Fatalf("got exit %d and %q on stderr, want 0 and nothing", code, stderr)
			}
			status := credential(t, stdout).Status
			claims := claimsOf(t, status.Token)
			if claims["aud"] != serverID || c.client != "" && claims["appid"] != c.client {
				t.Errorf("got a token for %v of %v, want one for %s of %s", claims["aud"], claims["appid"], serverID, c.client)
			}
			if got, want := status.ExpirationTimestamp.Unix(), int64(claims["exp"].(float64)); got < want-5 || got > want+5 {
				t.Errorf("expirationTimestamp: got %s, want %s", status.ExpirationTimestamp, time.Unix(want, 0))
			}
			if left := p.leftBehind(t); len(left) > 0 {
				t.Errorf("it left %q behind, want nothing", left)
			}
		})
	}
}

func expiryOf(t *testing.T, token string) string {
	t.Helper()
	text, err := json.Marshal(int64(claimsOf(t, token)["exp"].(float64)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestArcMachinesShowThatTheyMayReadAFileOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts over /var/opt in a namespace of its own")
	}
	keys := t.TempDir()
	s := entra(t, fakeentra.Options{ArcKeyDir: keys})
	run := func(env ...string) (int, string, string) {
		p := tokenProgram(t, node(), append(append(msi(s), s.ArcEnvironment()...), env...))
		p.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		return p.run(t)
	}
	code, stdout, stderr := run(arcTokens + "=" + keys)
	if code != 0 || stderr != "" {
		t.Fatalf("got exit %d and %q, want 0 and nothing", code, stderr)
	}
	if got := claimsOf(t, credential(t, stdout).Status.Token)["aud"]; got != serverID {
		t.Errorf("aud: got %v, want %s", got, serverID)
	}

	// Given a key file that this process can't see, then the error says who could.
	code, stdout, stderr = run(arcTokens + "=" + t.TempDir())
	if code != ExitError || stdout != "" || !strings.Contains(stderr, "run as root") {
		t.Errorf("got exit %d, %q and %q, want exit 1 and advice", code, stdout, stderr)
	}
	code, _, stderr = run("AZURE_CLIENT_ID=" + clientID)
	if code != ExitError || !strings.Contains(stderr, "unset AZURE_CLIENT_ID") {
		t.Errorf("got exit %d and %q, want exit 1 and advice", code, stderr)
	}
}

func TestProofOfPossessionTokensCarryTheClusterAndTheEntraToken(t *testing.T) {
	s := entra(t, fakeentra.Options{})
	const cluster = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"
	p := tokenProgram(t, node("--pop-enabled", "--pop-claims", "u="+cluster), spn(s))
	code, stdout, stderr := p.run(t)
	if code != 0 || stderr != "" {
		t.Fatalf("got exit %d and %q, want 0 and nothing", code, stderr)
	}
	outer := claimsOf(t, credential(t, stdout).Status.Token)
	inner, _ := outer["at"].(string)
	if outer["u"] != cluster || claimsOf(t, inner)["aud"] != serverID || claimsOf(t, inner)["cnf"] == nil {
		t.Errorf("got a token with claims %v, want the cluster as u, and as at a token for %s that names the key", outer, serverID)
	}
	if left := p.leftBehind(t); len(left) > 0 {
		t.Errorf("it left %q behind, want nothing", left)
	}
}

// TestTheAnswerHasTheVersionThatTheClientAsksFor holds also without the variable, as kubelogin does.
func TestTheAnswerHasTheVersionThatTheClientAsksFor(t *testing.T) {
	const group = "client.authentication.k8s.io/"
	s := entra(t, fakeentra.Options{})
	for info, want := range map[string]string{
		"": group + "v1beta1",
		`{"kind":"ExecCredential","apiVersion":"` + group + `v1beta1","spec":{"interactive":false}}`:                             group + "v1beta1",
		`{"apiVersion":"` + group + `v1","kind":"ExecCredential","spec":{"cluster":{"server":"https://c"},"interactive":false}}`: group + "v1",
		`{"kind":"ExecCredential"}`: group + "v1beta1",
	} {
		code, stdout, stderr := tokenProgram(t, node(), spn(s, "KUBERNETES_EXEC_INFO="+info)).run(t)
		if code != 0 || stderr != "" {
			t.Errorf("%s: got exit %d and %q", info, code, stderr)
			continue
		}
		if got := credential(t, stdout).APIVersion; got != want {
			t.Errorf("%s: got %s, want %s", info, got, want)
		}
	}
	if got := len(s.Seen()); got != 4 {
		t.Errorf("got %d requests for a token, want one each", got)
	}
}

// TestClientGoTakesTheAnswer runs the command from where kubelets and kubectl run it.
func TestClientGoTakesTheAnswer(t *testing.T) {
	s := entra(t, fakeentra.Options{})
	var mu sync.Mutex
	var shown string
	api := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		shown = r.Header.Get("Authorization")
	}))
	t.Cleanup(api.Close)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		plugin := &clientcmdapi.ExecConfig{
			Command: self, Args: append([]string{"token", "kubelogin"}, node()...), APIVersion: "client.authentication.k8s.io/" + version,
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode, Env: []clientcmdapi.ExecEnvVar{{Name: asProgram, Value: "1"}},
		}
		for _, e := range spn(s) {
			name, value, _ := strings.Cut(e, "=")
			plugin.Env = append(plugin.Env, clientcmdapi.ExecEnvVar{Name: name, Value: value})
		}
		client, err := rest.HTTPClientFor(&rest.Config{ExecProvider: plugin, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(api.URL)
		if err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		_ = resp.Body.Close()
		client.CloseIdleConnections()
		mu.Lock()
		token, ok := strings.CutPrefix(shown, "Bearer ")
		mu.Unlock()
		if !ok || claimsOf(t, token)["aud"] != serverID {
			t.Errorf("%s: the API server saw %.20q…, want a token for the cluster", version, shown)
		}
	}
}

func TestTwentyAtOnceDoNotGetInEachOthersWay(t *testing.T) {
	s := entra(t, fakeentra.Options{})
	home := t.TempDir()
	var all sync.WaitGroup
	for range 20 {
		p := tokenProgram(t, node(), spn(s, "HOME="+home))
		all.Go(func() {
			if err := p.Run(); err != nil || p.err.Len() > 0 || !json.Valid(p.out.Bytes()) {
				t.Errorf("got %v, stderr %q and %d bytes, want an answer", err, &p.err, p.out.Len())
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("they left %v behind (%v), want nothing", left, err)
	}
}

// TestKubeletsWithoutAHome start plugins without HOME, and may have no folder that they may write to.
func TestKubeletsWithoutAHome(t *testing.T) {
	s := entra(t, fakeentra.Options{})
	p := tokenProgram(t, node(), nil)
	p.Dir = "/"
	p.Env = append(spn(s), asProgram+"=1", "TMPDIR=/nowhere")
	if code, stdout, stderr := p.run(t); code != 0 || stderr != "" || credential(t, stdout) == nil {
		t.Errorf("got exit %d and %q, want 0 and nothing", code, stderr)
	}
	if _, err := os.Stat("/.kube"); !os.IsNotExist(err) {
		t.Errorf("/.kube: got %v, want that it is not there", err)
	}
}
