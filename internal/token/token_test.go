package token

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kubelogin "github.com/Azure/kubelogin/pkg/token"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/test/fakeentra"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// identity starts a managed identity endpoint and makes this process use it.
func identity(t *testing.T) *fakeentra.Server {
	t.Helper()
	s, err := fakeentra.Start(fakeentra.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, name := range []string{"AAD_LOGIN_METHOD", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"} {
		t.Setenv(name, "")
	}
	s.Configure(func(a *fakeentra.Answers) { a.Header = "h" })
	for _, e := range s.AppServiceEnvironment("h") {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	return s
}

// msi asks for a token for this server. Each test has its own: the SDK keeps tokens of managed identities for as long as a process lives.
func msi(server string) Request {
	return Request{Options: Options{LoginMethod: kubelogin.MSILogin, ServerID: server}}
}

func TestACredentialIsOneLineWithTokenAndEnd(t *testing.T) {
	identity(t)
	answer, notes, err := ExecCredential(t.Context(), msi("server"))
	if err != nil || len(notes) > 0 {
		t.Fatalf("got %v and %q, want neither error nor notes", err, notes)
	}
	var got struct {
		Kind, APIVersion string
		Status           struct {
			Token               string
			ExpirationTimestamp time.Time
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil || strings.Count(string(answer), "\n") != 1 {
		t.Fatalf("got %q (%v), want one line of JSON", answer, err)
	}
	left := time.Until(got.Status.ExpirationTimestamp)
	if got.Kind != "ExecCredential" || got.APIVersion != apiV1beta1 || got.Status.Token == "" || left < fakeentra.DefaultLifetime-time.Minute || left > fakeentra.DefaultLifetime {
		t.Errorf("got %+v, want a token of an hour", got)
	}
}

func TestTokensThatDoNotEndHaveNoExpirationTimestamp(t *testing.T) {
	answer, err := encode(apiV1, kubelogin.AccessToken{Token: "t"})
	const want = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false},"status":{"token":"t"}}` + "\n"
	if err != nil || string(answer) != want {
		t.Errorf("got %s (%v), want %s", answer, err, want)
	}
}

func TestALateLoginSaysHowFarItCame(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"no answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "gives no answer"},
		"only later": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, "answers, but slowly or only to try again later"},
	} {
		t.Run(name, func(t *testing.T) {
			s := identity(t)
			s.Configure(func(a *fakeentra.Answers) { a.Instead = c.answer })
			r := msi(name)
			r.Timeout = 2 * time.Second
			answer, _, err := ExecCredential(t.Context(), r)
			if answer != nil || err == nil || !strings.Contains(err.Error(), "no token within 2s") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q and %v, want no token and %q", answer, err, c.want)
			}
		})
	}
}

func TestItComesBackWhenItIsInterrupted(t *testing.T) {
	s := identity(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.Configure(func(a *fakeentra.Answers) {
		a.Instead = func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		}
	})
	if answer, _, err := ExecCredential(ctx, msi("interrupted")); answer != nil || err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("got %q and %v, want no token and that it was interrupted", answer, err)
	}
}

// TestTheDeadlineHoldsWhereNothingCanBeInterrupted: a file on a file server that is gone is opened for ever.
func TestTheDeadlineHoldsWhereNothingCanBeInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "certificate")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := get(t.Context(), Options{LoginMethod: kubelogin.ServicePrincipalLogin, ServerID: "s", ClientID: "c", TenantID: "t", ClientCert: path}, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "it hangs while it reads a file") {
		t.Errorf("got %v, want that it hangs", err)
	}
	// Let it go.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTheVersionThatIsAskedFor(t *testing.T) {
	for in, want := range map[string]string{
		"":                               apiV1beta1,
		"{}":                             apiV1beta1,
		`{"apiVersion":"` + apiV1 + `"}`: apiV1,
		`{"apiVersion":"` + apiV1beta1 + `","spec":{}}`:          apiV1beta1,
		`{"apiVersion":"client.authentication.k8s.io/v1alpha1"}`: "error",
		`{"apiVersion":7}`: "error",
		`[]`:               "error",
		`{"apiVersion":`:   "error",
		` `:                "error",
	} {
		got, err := apiVersion(in)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: got %q (%v), want %q", in, got, err, want)
		}
	}
}

func FuzzExecInfo(f *testing.F) {
	for _, seed := range []string{"", "{", `{"apiVersion":"client.authentication.k8s.io/v1"}`, `{"apiVersion":"x\u0000"}`, `{"kind":"ExecCredential","spec":{"cluster":{}}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, info string) {
		version, err := apiVersion(info)
		if (err == nil) != (version == apiV1 || version == apiV1beta1) {
			t.Errorf("got %q and %v, want a version that we write, or an error", version, err)
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 400) {
			t.Errorf("got %q, want a short line", err)
		}
	})
}
