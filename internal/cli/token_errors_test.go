package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/test/fakeentra"
)

// answering returns a fake Entra that answers every request for a token in this way.
func answering(t *testing.T, how func(s *fakeentra.Server) http.HandlerFunc) *fakeentra.Server {
	t.Helper()
	s := entra(t, fakeentra.Options{})
	s.Configure(func(a *fakeentra.Answers) { a.Instead = how(s) })
	return s
}

// text answers with status 200 and this body.
func text(format string, args ...any) func(*fakeentra.Server) http.HandlerFunc {
	return func(*fakeentra.Server) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, format, args...) }
	}
}

// hanging reads the request and never answers.
func hanging(arrived chan<- struct{}) func(*fakeentra.Server) http.HandlerFunc {
	return func(*fakeentra.Server) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if arrived != nil {
				arrived <- struct{}{}
			}
			<-r.Context().Done()
		}
	}
}

// TestWithoutATokenStandardErrorSaysWhyInOneLine holds for everything that can go wrong, that no secret is told, and that standard output
// stays empty: clients read it.
func TestWithoutATokenStandardErrorSaysWhyInOneLine(t *testing.T) {
	s := entra(t, fakeentra.Options{})
	closed := closedPort(t)
	short := node("--timeout", "1s") // what it was at then depends on how fast this machine is
	longer := node("--timeout", "4s")
	wi := func(s *fakeentra.Server, tokenFile string) []string {
		return spn(s, "AAD_LOGIN_METHOD=workloadidentity", "AZURE_CLIENT_SECRET=", "AZURE_FEDERATED_TOKEN_FILE="+tokenFile)
	}
	echo := func(s *fakeentra.Server) http.HandlerFunc { // a proxy, say, that tells what it got
		return func(w http.ResponseWriter, r *http.Request) {
			told := r.PostForm.Encode()
			for _, values := range r.PostForm {
				told += "\n" + strings.Join(values, " ")
			}
			s.Refuse(w, http.StatusForbidden, "blocked", "Blocked: "+told)
		}
	}
	unavailable := func(s *fakeentra.Server) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			s.Refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable", "Later.")
		}
	}
	page := func(*fakeentra.Server) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>\n<body>"+federated+"</body></html>", http.StatusProxyAuthRequired)
		}
	}
	const tooMuch = `{"token_type": "Bearer", "expires_in": 3600, "access_token": "%s"}`

	for name, c := range map[string]struct {
		args, env []string
		want      string // parts of what is told, between bars
	}{
		"wrong secret":              {node(), spn(s, "AZURE_CLIENT_SECRET=wr0ng-secret"), "login method spn: |answered 401 Unauthorized|AADSTS7000215|check AZURE_CLIENT_ID"},
		"unknown client":            {node(), spn(s, "AZURE_CLIENT_ID=other"), "answered 400|AADSTS700016"},
		"unknown tenant":            {node(), spn(s, "AZURE_TENANT_ID=other"), "answered 400|AADSTS90002|AZURE_TENANT_ID"},
		"federated token not known": {node(), wi(s, file(t, "token", federated+"x", 0o600)), "401|AADSTS700213|federated credential"},
		"no federated token":        {node(), wi(s, "/nowhere/token"), "/nowhere/token: no such file"},
		"no certificate":            {node(), spn(s, "AZURE_CLIENT_CERTIFICATE_PATH=/nowhere/cert"), "/nowhere/cert: no such file"},
		"certificate that is none":  {node(), spn(s, "AZURE_CLIENT_CERTIFICATE_PATH="+file(t, "cert", federated, 0o600)), "login method spn: |certificate"},
		"identity not assigned":     {node(), msi(s, "AZURE_CLIENT_ID=other"), "login method msi: |answered 400|Identity not found|has this managed identity"},
		"wrong header":              {node(), msi(s, s.AppServiceEnvironment("other")...), "answered 401|wrong X-IDENTITY-HEADER"},
		"endpoint not trusted":      {longer, append(spn(s), "SSL_CERT_FILE=/dev/null", "SSL_CERT_DIR=/nowhere"), "no token within 4s by login method spn: |certificate signed by unknown authority|SSL_CERT_FILE"},
		"no way to Entra":           {longer, spn(s, "AZURE_AUTHORITY_HOST=", "HTTPS_PROXY=http://"+closed), "no token within 4s by login method spn: |connection refused|check the link"},
		"no managed identity":       {longer, msi(s, "HTTP_PROXY=http://"+closed), "no token within 4s by login method msi: |connection refused|azcmagent show"},
		"unknown authority":         {node(), spn(s, "AZURE_AUTHORITY_HOST=https://localhost:1/"), "invalid_instance|check AZURE_AUTHORITY_HOST"},
		"authority in plain text":   {node(), spn(s, "AZURE_AUTHORITY_HOST="+s.PlainURL()), "AZURE_AUTHORITY_HOST is no https URL"},
		"hanging endpoint":          {short, spn(answering(t, hanging(nil))), "no token within 1s by login method spn: "},
		"hanging managed identity":  {short, msi(answering(t, hanging(nil))), "no token within 1s by login method msi: "},
		"hanging file":              {short, wi(s, fifo(t)), "no token within 1s by login method workloadidentity: it hangs while it reads a file"},
		"answer that is no JSON":    {node(), spn(answering(t, text("<html>%s</html>", federated))), "json decode error|not how Entra answers"},
		"answer cut short":          {node(), spn(answering(t, text(tooMuch[:len(tooMuch)-2], federated))), "unexpected"},
		"answer of another form":    {node(), spn(answering(t, text(`{"access_token": "%s", "expires_in": {}}`, federated))), "login method spn: "},
		"identity's is no JSON":     {node(), msi(answering(t, text("<html>%s</html>", federated))), "login method msi: "},
		"answer without a token":    {node(), spn(answering(t, text(`{"token_type": "Bearer", "expires_in": 3600}`))), "access_token"},
		"identity without a token":  {node(), msi(answering(t, text(`{"expires_in": "3600"}`))), "the answer holds none"},
		"secrets told back":         {node(), spn(answering(t, echo)), "answered 403|Blocked: "},
		"federated token told back": {node(), wi(answering(t, echo), file(t, "token", federated, 0o600)), "answered 403|Blocked: "},
		"page of a proxy":           {node(), spn(answering(t, page)), "answered 407|HTTPS_PROXY"},
		"endpoint in trouble":       {short, spn(answering(t, unavailable)), "no token within 1s by login method spn: "},
		"no login method":           {node(), s.Environment(), "set AAD_LOGIN_METHOD to one of spn, msi, workloadidentity"},
		"login method for people":   {node(), spn(s, "AAD_LOGIN_METHOD=devicecode"), `"devicecode" can't be used on a node`},
		"settings missing":          {node(), append(s.Environment(), "AAD_LOGIN_METHOD=spn"), "needs AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET, in"},
		"no server":                 {nil, spn(s), "--server-id is empty"},
		"claims without cluster":    {node("--pop-enabled", "--pop-claims", "x=y"), spn(s), "required u-claim"},
		"no time":                   {node("--timeout", "0"), spn(s), "--timeout must be greater than 0"},
		"asked in no JSON":          {node(), spn(s, "KUBERNETES_EXEC_INFO={"), "KUBERNETES_EXEC_INFO is not an ExecCredential in JSON"},
		"asked for another version": {node(), spn(s, `KUBERNETES_EXEC_INFO={"apiVersion":"client.authentication.k8s.io/v1alpha1"}`), "v1alpha1|set client.authentication.k8s.io/v1 in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := tokenProgram(t, c.args, c.env)
			code, stdout, stderr := p.run(t)
			if code != ExitError || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "aks-flex-node: ") {
				t.Errorf("got exit %d, stdout %q and stderr %q; want exit 1, nothing, and one line", code, stdout, stderr)
			}
			for part := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(stderr, part) {
					t.Errorf("stderr: got %q, want %q in it", stderr, part)
				}
			}
			for _, s := range []string{secret, federated, federated[:20], "wr0ng-secret"} {
				if strings.Contains(stderr, s) {
					t.Errorf("stderr: got %q, which tells a secret", stderr)
				}
			}
			if left := p.leftBehind(t); len(left) > 0 {
				t.Errorf("it left %q behind, want nothing", left)
			}
		})
	}
}

// closedPort returns an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// fifo returns a file whose opening hangs, as on a file server that is gone.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrongFlagsExitWithTwoAndPrintNothing(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown flag": node("--unknown"),
		"argument":     node("get-token"),
	} {
		code, stdout, stderr := tokenProgram(t, args, nil).run(t)
		if code != ExitUsage || stdout != "" || stderr == "" {
			t.Errorf("%s: got exit %d, stdout %q and stderr %q; want exit 2, nothing, and words", name, code, stdout, stderr)
		}
	}
}

// TestATokenThatEndedByThisClockIsHandedOver since it may be the clock that is wrong, and the node works then.
func TestATokenThatEndedByThisClockIsHandedOver(t *testing.T) {
	s := entra(t, fakeentra.Options{})
	s.Configure(func(a *fakeentra.Answers) { a.Lifetime = -time.Hour })
	code, stdout, stderr := tokenProgram(t, node(), msi(s)).run(t)
	if code != 0 || !strings.Contains(stderr, "check the clock") {
		t.Fatalf("got exit %d and %q, want 0 and a note", code, stderr)
	}
	if e := credential(t, stdout).Status.ExpirationTimestamp; !e.Time.Before(time.Now()) {
		t.Errorf("expirationTimestamp: got %s, want that of the token", e)
	}
}

func TestASignalEndsItWithoutAnAnswer(t *testing.T) {
	arrived := make(chan struct{}, 8)
	s := answering(t, hanging(arrived))
	p := tokenProgram(t, node(), spn(s))
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	<-arrived
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := p.Wait()
	if code := p.ProcessState.ExitCode(); code != ExitError || p.out.Len() > 0 || !strings.Contains(p.err.String(), "interrupted") {
		t.Errorf("got %v, stdout %q and stderr %q; want exit 1, nothing, and that it was interrupted", err, &p.out, &p.err)
	}
}

// TestAnAnswerThatNobodyTakesIsAnError for the client reads a pipe.
func TestAnAnswerThatNobodyTakesIsAnError(t *testing.T) {
	s := entra(t, fakeentra.Options{})
	p := tokenProgram(t, node(), spn(s))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = full.Close() })
	p.Stdout = full
	if code, _, stderr := p.run(t); code != ExitError || !strings.Contains(stderr, "no space left") || strings.Contains(stderr, "eyJ") {
		t.Errorf("got exit %d and %q, want exit 1 and the reason", code, stderr)
	}
}
