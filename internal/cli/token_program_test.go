package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/aks-flex-node/agent/test/fakeentra"
)

// The test program runs as aks-flex-node when this is set: what standard output gets, and which certificates are trusted, is a matter of
// whole processes.
const (
	asProgram = "TEST_RUN_AS_AKS_FLEX_NODE"
	arcTokens = "TEST_FOLDER_OF_ARC_KEYS" // bind this folder to where Arc has its keys, in a mount namespace of its own
)

// The cluster's API server, as kubeconfigs of nodes name it.
const serverID = "6dae42f8-4368-4678-94ff-3960e28e3630"

func runAsProgram() {
	if dir := os.Getenv(arcTokens); dir != "" {
		const place = "/var/opt/azcmagent/tokens"
		err := errors.Join(unix.Mount("tmpfs", "/var/opt", "tmpfs", 0, ""), os.MkdirAll(place, 0o755), unix.Mount(dir, place, "", unix.MS_BIND, ""))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// program is one run of `aks-flex-node token kubelogin`.
type program struct {
	*exec.Cmd
	out, err bytes.Buffer
	dir      string // its home, its TMPDIR and where it runs: an empty folder
}

// tokenProgram is ready to run with just this environment.
func tokenProgram(t *testing.T, args, env []string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{dir: t.TempDir()}
	p.Cmd = exec.CommandContext(t.Context(), self, append([]string{"token", "kubelogin"}, args...)...)
	p.Dir, p.Stdout, p.Stderr = p.dir, &p.out, &p.err
	p.Env = append([]string{asProgram + "=1", "PATH=/usr/bin:/bin", "HOME=" + p.dir, "TMPDIR=" + p.dir}, env...)
	return p
}

// run runs it and returns what a client would see.
func (p *program) run(t *testing.T) (code int, stdout, stderr string) {
	t.Helper()
	err := p.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode(), p.out.String(), p.err.String()
}

// leftBehind lists what it wrote into its home, working folder and folder of temporary files.
func (p *program) leftBehind(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(p.dir, func(path string, _ os.DirEntry, err error) error {
		if path != p.dir {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// node is the command line that kubeconfigs of nodes have.
func node(more ...string) []string { return append([]string{"--server-id", serverID}, more...) }

// Settings of the service principal that fake Entra knows.
const (
	clientID  = "00001111-aaaa-2222-bbbb-3333cccc4444"
	secret    = "S3cr~t.of-the_node"
	federated = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJub2RlIn0.c2lnbmF0dXJlLW9mLWEtdGVzdA"
)

// entra starts a fake Entra that knows the service principal and one user-assigned managed identity.
func entra(t *testing.T, o fakeentra.Options) *fakeentra.Server {
	t.Helper()
	o.Dir = t.TempDir()
	s, err := fakeentra.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Configure(func(a *fakeentra.Answers) {
		a.Secrets = map[string]string{clientID: secret}
		a.Assertions = map[string]string{clientID: federated}
		a.Identities = []string{clientID}
		a.Header = "header-of-app-service"
	})
	return s
}

// spn is the environment of a service principal with a secret; what is given later wins.
func spn(s *fakeentra.Server, more ...string) []string {
	return append(append(s.Environment(), "AAD_LOGIN_METHOD=spn", "AZURE_AUTHORITY_HOST="+s.Authority(), "AZURE_TENANT_ID="+s.Tenant(),
		"AZURE_CLIENT_ID="+clientID, "AZURE_CLIENT_SECRET="+secret), more...)
}

// msi is the environment of a managed identity.
func msi(s *fakeentra.Server, more ...string) []string {
	return append(append(s.Environment(), "AAD_LOGIN_METHOD=msi"), more...)
}

// credential reads an answer as strictly as a client could.
func credential(t *testing.T, stdout string) *clientauthentication.ExecCredential {
	t.Helper()
	if strings.Count(stdout, "\n") != 1 || !strings.HasSuffix(stdout, "\n") {
		t.Fatalf("stdout: got %q, want one line", stdout)
	}
	c := &clientauthentication.ExecCredential{}
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		t.Fatalf("stdout: got %q: %v", stdout, err)
	}
	if c.Kind != "ExecCredential" || c.Status == nil || c.Status.Token == "" || c.Status.ExpirationTimestamp == nil {
		t.Fatalf("stdout: got %q, want an ExecCredential with token and expirationTimestamp", stdout)
	}
	return c
}

// claimsOf reads the body of a token.
func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("token: got %q, want three parts", token)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// file writes a file for the program to read and returns its path.
func file(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificateAndKey makes a PEM file for a service principal.
func certificateAndKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "node.pem", string(slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))), 0o600)
}
