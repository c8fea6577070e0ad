package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const v1, v1beta1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"

// pluginSetup is a kubeconfig with this test program as its credential plugin.
type pluginSetup struct {
	source       Source
	answer, runs string // files
}

func withPlugin(t testing.TB, s *apiServer, mode string, change func(*clientcmdapi.ExecConfig)) pluginSetup {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := pluginSetup{answer: filepath.Join(dir, "answer"), runs: filepath.Join(dir, "runs")}
	exec := &clientcmdapi.ExecConfig{
		Command: self, APIVersion: v1, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Env: []clientcmdapi.ExecEnvVar{
			{Name: pluginMode, Value: mode}, {Name: pluginAnswer, Value: p.answer}, {Name: pluginRuns, Value: p.runs},
			{Name: "GORACE", Value: "atexit_sleep_ms=0"}, // else each run under the race detector takes a second
		},
	}
	if change != nil {
		change(exec)
	}
	p.source = Source{NodeName: "n1", Kubeconfig: s.kubeconfig(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		*u = clientcmdapi.AuthInfo{Exec: exec}
	})}
	return p
}

// ran returns a line for each time the plugin ran: its pid and what it was told.
func (p pluginSetup) ran(t testing.TB) []string {
	t.Helper()
	b, err := os.ReadFile(p.runs)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")[:strings.Count(string(b), "\n")]
}

// answers makes the plugin print a token, or a certificate, that is good until then; the zero time leaves that open.
func (p pluginSetup) answers(t testing.TB, apiVersion string, status clientauthentication.ExecCredentialStatus, until time.Time) {
	t.Helper()
	if !until.IsZero() {
		status.ExpirationTimestamp = &metav1.Time{Time: until}
	}
	b, err := json.Marshal(clientauthentication.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "ExecCredential"}, Status: &status,
	})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, p.answer, b)
}

func token(word string) clientauthentication.ExecCredentialStatus {
	return clientauthentication.ExecCredentialStatus{Token: word}
}

func TestAPluginsTokenIsUsedInEitherVersion(t *testing.T) {
	for _, version := range []string{v1, v1beta1} {
		for _, tellsCluster := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, told the cluster: %v", version, tellsCluster), func(t *testing.T) {
				s := newAPIServer(t, nil, nil)
				p := withPlugin(t, s, "print", func(e *clientcmdapi.ExecConfig) { e.APIVersion, e.ProvideClusterInfo = version, tellsCluster })
				p.answers(t, version, token("of-plugin"), time.Time{})
				mustSee(t, newClient(t), s, p.source, "/api/v1/nodes/n1 Bearer of-plugin")

				_, info, _ := strings.Cut(strings.Join(p.ran(t), "\n"), " ")
				var told clientauthentication.ExecCredential
				if err := json.Unmarshal([]byte(info), &told); err != nil {
					t.Fatalf("KUBERNETES_EXEC_INFO is %q: %v", info, err)
				}
				if told.Kind != "ExecCredential" || told.APIVersion != version || told.Spec.Interactive || told.Status != nil {
					t.Errorf("the plugin was told %q, want an ExecCredential of %s that is not interactive", info, version)
				}
				if tellsCluster != (told.Spec.Cluster != nil) {
					t.Fatalf("the plugin was told the cluster %+v, want it: %v", told.Spec.Cluster, tellsCluster)
				}
				if tellsCluster && (told.Spec.Cluster.Server != s.URL || string(told.Spec.Cluster.CertificateAuthorityData) != string(s.authority.pem)) {
					t.Errorf("the plugin was told of the cluster %+v, want %s and its authority", told.Spec.Cluster, s.URL)
				}
			})
		}
	}
}

func TestATokenIsKeptUntilShortlyBeforeItExpires(t *testing.T) {
	for _, test := range []struct {
		name     string
		until    time.Time
		wantRuns int // for three looks of two requests each: for the Node and for its Lease
	}{
		{"no end is told", time.Time{}, 1},
		{"it ends in an hour", time.Now().Add(time.Hour), 1},
		{"it ends within the margin", time.Now().Add(expiryMargin - time.Second), 6},
		{"it has ended", time.Now().Add(-time.Hour), 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, c := newAPIServer(t, nil, nil), newClient(t)
			p := withPlugin(t, s, "print", nil)
			p.answers(t, v1, token("x"), test.until)
			for range 3 {
				mustSee(t, c, s, p.source, "/api/v1/nodes/n1 Bearer x")
			}
			if got := len(p.ran(t)); got != test.wantRuns {
				t.Errorf("the plugin ran %d times for three looks, want %d", got, test.wantRuns)
			}
		})
	}
}

func TestSeveralWhoAskShareOneRun(t *testing.T) {
	s, c := newAPIServer(t, nil, nil), newClient(t)
	p := withPlugin(t, s, "print", nil)
	p.answers(t, v1, token("x"), time.Time{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := c.Node(t.Context(), p.source); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := len(p.ran(t)); got != 1 {
		t.Errorf("the plugin ran %d times, want once", got)
	}
}

func TestARefusedTokenIsRenewedOnce(t *testing.T) {
	var p pluginSetup
	s := newAPIServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer revoked" {
			p.answers(t, v1, token("renewed"), time.Time{})
			answerStatus(401, metav1.StatusReasonUnauthorized)(w, r)
			return
		}
		answerNode(w, r)
	})
	p = withPlugin(t, s, "print", nil)
	p.answers(t, v1, token("revoked"), time.Time{})
	c := newClient(t)
	mustSee(t, c, s, p.source, "/api/v1/nodes/n1 Bearer revoked", "/api/v1/nodes/n1 Bearer renewed")
	mustSee(t, c, s, p.source, "/api/v1/nodes/n1 Bearer renewed")
	if got := len(p.ran(t)); got != 2 {
		t.Errorf("the plugin ran %d times, want twice", got)
	}
}

func TestATokenThatIsRefusedAgainIsNotAskedForWithoutEnd(t *testing.T) {
	s, c := newAPIServer(t, nil, answerStatus(401, metav1.StatusReasonUnauthorized)), newClient(t)
	p := withPlugin(t, s, "print", nil)
	p.answers(t, v1, token("x"), time.Time{})
	for look := 1; look <= 2; look++ { // each look tries anew: the right may have come back
		if _, err := c.Node(t.Context(), p.source); ReasonOf(err) != ReasonUnauthorized {
			t.Errorf("got %v, want reason %s", err, ReasonUnauthorized)
		}
		if requests, runs := len(s.visitors()), len(p.ran(t)); requests != 2 || runs != 2*look {
			t.Errorf("look %d: got %d requests and %d runs so far, want 2 and %d", look, requests, runs, 2*look)
		}
	}
}

func TestAPluginThatFailsSaysWhyButNoSecret(t *testing.T) {
	s := newAPIServer(t, nil, nil)
	p := withPlugin(t, s, "fail", nil)
	told := wantReason(t, p.source.Kubeconfig, ReasonPluginFailed, true)
	if !strings.Contains(told, "AADSTS7000215") || strings.Contains(told, "secret that") {
		t.Errorf("people are told %q, want what it printed as its error and not its output", told)
	}
}

func TestAnswersOfAPluginThatCanNotBeUsed(t *testing.T) {
	s := newAPIServer(t, nil, nil)
	certificate, key := s.authority.issue(t, "n1", nil)
	_, other := s.authority.issue(t, "n1", nil)
	answer := func(fields map[string]any) string {
		whole := map[string]any{"kind": "ExecCredential", "apiVersion": v1, "status": map[string]any{"token": "s3cret"}}
		maps.Copy(whole, fields)
		b, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	pair := func(certificate, key string) string {
		return answer(map[string]any{"status": map[string]any{"clientCertificateData": certificate, "clientKeyData": key}})
	}
	for _, test := range []struct{ name, answer, says string }{
		{"nothing", "", "not an ExecCredential"},
		{"a bare token", "s3cret", "not an ExecCredential"},
		{"half an answer", answer(nil)[:40], "not an ExecCredential"},
		{"an answer and more", answer(nil) + answer(nil), "not an ExecCredential"},
		{"null", "null", "kind"},
		{"another kind", answer(map[string]any{"kind": "Secret"}), "kind"},
		{"another version", answer(map[string]any{"apiVersion": v1beta1}), "apiVersion"},
		{"a version that is no more", answer(map[string]any{"apiVersion": "client.authentication.k8s.io/v1alpha1"}), "apiVersion"},
		{"no status", answer(map[string]any{"status": nil}), "no credentials"},
		{"an empty status", answer(map[string]any{"status": map[string]any{}}), "no credentials"},
		{"a certificate without its key", pair(string(certificate), ""), "without a key"},
		{"a key without its certificate", answer(map[string]any{"status": map[string]any{"token": "s3cret", "clientKeyData": string(key)}}), "without a certificate"},
		{"a certificate with another's key", pair(string(certificate), string(other)), "certificate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := withPlugin(t, s, "print", nil)
			writeFile(t, p.answer, []byte(test.answer))
			c := newClient(t)
			for range 2 { // what can't be used is not kept either
				_, err := c.Node(t.Context(), p.source)
				if ReasonOf(err) != ReasonPluginFailed || !strings.Contains(err.Error(), test.says) {
					t.Errorf("got error %v with reason %s, want %s saying %q", err, ReasonOf(err), ReasonPluginFailed, test.says)
				}
				if err != nil && strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the error shows the secret: %v", err)
				}
			}
			if got := s.visitors(); len(got) > 0 {
				t.Errorf("the server was asked: %q", got)
			}
		})
	}
}

func TestAPluginThatHangsEndsWithTheLook(t *testing.T) {
	s, c := newAPIServer(t, nil, nil), newClient(t)
	p := withPlugin(t, s, "hang", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Node(ctx, p.source)
		done <- err
	}()
	eventually(t, "the plugin runs", func() bool { return len(p.ran(t)) == 1 })
	cancel()
	if err := <-done; ReasonOf(err) != ReasonPluginFailed {
		t.Errorf("got %v, want reason %s", err, ReasonPluginFailed)
	}
	pid, _, _ := strings.Cut(p.ran(t)[0], " ")
	if _, err := os.Stat("/proc/" + pid); !os.IsNotExist(err) {
		t.Errorf("the plugin's process %s is still there (%v)", pid, err)
	}
}

// Who waits for another's run of the plugin waits no longer than they have time.
func TestWaitingForAPluginEndsWithTheLook(t *testing.T) {
	s, c := newAPIServer(t, nil, nil), newClient(t)
	p := withPlugin(t, s, "hang", nil)
	first, endFirst := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Node(first, p.source)
	}()
	eventually(t, "the plugin runs", func() bool { return len(p.ran(t)) == 1 })
	second, endSecond := context.WithCancel(t.Context())
	endSecond()
	if _, err := c.Node(second, p.source); err == nil {
		t.Error("got no error from a look that was given up")
	}
	endFirst()
	<-done
	if got := len(p.ran(t)); got != 1 {
		t.Errorf("the plugin ran %d times, want once", got)
	}
}
