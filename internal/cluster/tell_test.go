package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// told is what a server was told by one request.
type told struct {
	what string // method, path and content type
	body []byte
}

// newListener starts a server that keeps what it is told, and then lets answer answer.
func newListener(t testing.TB, answer http.HandlerFunc) (*apiServer, func() []told) {
	t.Helper()
	var mu sync.Mutex
	var all []told
	s := newAPIServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		all = append(all, told{what: r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("Content-Type"), body: body})
		mu.Unlock()
		answer(w, r)
	})
	return s, func() []told {
		mu.Lock()
		defer mu.Unlock()
		was := all
		all = nil
		return was
	}
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 7, time.UTC)

func TestAConditionIsOnePatchOfNothingElse(t *testing.T) {
	var accept string
	s, heard := newListener(t, func(w http.ResponseWriter, r *http.Request) {
		accept = r.Header.Get("Accept")
		answerNode(w, r)
	})
	source := Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1"}
	err := newClient(t).PatchNodeCondition(t.Context(), source, NodeCondition{
		Type: "FlexNodeHealthy", Status: "False", Reason: "Stopped", Message: "KubeletRunning: it is stopped",
		LastTransition: noon, Heartbeat: noon.Add(time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := heard()
	if accept != onlyMetadata {
		t.Errorf("it accepts %s, want an answer without the Node's status", accept)
	}
	if len(got) != 1 || got[0].what != "PATCH /api/v1/nodes/n1/status application/strategic-merge-patch+json" {
		t.Fatalf("got %q, want one PATCH of the Node's status", got)
	}
	const want = `{"status":{"conditions":[{"type":"FlexNodeHealthy","status":"False","lastHeartbeatTime":"2026-03-04T12:01:00Z",` +
		`"lastTransitionTime":"2026-03-04T12:00:00Z","reason":"Stopped","message":"KubeletRunning: it is stopped"}]}}`
	if string(got[0].body) != want {
		t.Errorf("got  %s\nwant %s", got[0].body, want)
	}
}

// decodeEvent reads an Event as the client sends it.
func decodeEvent(t *testing.T, body []byte) *corev1.Event {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	e := &corev1.Event{}
	if _, _, err := protobuf.NewSerializer(scheme, scheme).Decode(body, nil, e); err != nil {
		t.Fatal(err)
	}
	return e
}

func answerEvent(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}})
}

func TestAnEventIsAboutTheNodeAsKubectlLooksForIt(t *testing.T) {
	s, heard := newListener(t, answerEvent)
	source, c := Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1", HostName: "machine"}, newClient(t)
	event := Event{Type: "Warning", Reason: "KubeletStopped", Action: "Restart", Message: "begin: Restart kubelet.service", At: noon}
	other := event
	other.Message = "another of the same moment"
	for _, e := range []Event{event, event, other} {
		if err := c.CreateEvent(t.Context(), source, e); err != nil {
			t.Fatal(err)
		}
	}
	all := heard()
	if len(all) != 3 || all[0].what != "POST /api/v1/namespaces/default/events application/vnd.kubernetes.protobuf" {
		t.Fatalf("got %q, want three POSTs of events", all)
	}
	got := decodeEvent(t, all[0].body)
	if o := got.InvolvedObject; o.Kind != "Node" || o.APIVersion != "v1" || o.Name != "n1" || o.UID != "n1" || o.Namespace != "" {
		t.Errorf("it is about %+v, want the Node n1, its name for a UID", o)
	}
	if got.Type != event.Type || got.Reason != event.Reason || got.Action != event.Action || got.Message != event.Message || got.Count != 1 {
		t.Errorf("got %+v, want what was given", got)
	}
	if !got.FirstTimestamp.Equal(&metav1.Time{Time: noon.Truncate(time.Second)}) || !got.LastTimestamp.Equal(&got.FirstTimestamp) {
		t.Errorf("got the times %v and %v, want %v", got.FirstTimestamp, got.LastTimestamp, noon)
	}
	if got.Source != (corev1.EventSource{Component: "aks-flex-node", Host: "machine"}) || got.ReportingController != "aks-flex-node" || got.ReportingInstance != "machine" {
		t.Errorf("it is by %+v, %s, %s, want aks-flex-node on machine", got.Source, got.ReportingController, got.ReportingInstance)
	}
	if prefix := fmt.Sprintf("n1.%x", noon.UnixNano()); !strings.HasPrefix(got.Name, prefix) || got.Namespace != "default" {
		t.Errorf("got the name %s/%s, want default/%s…", got.Namespace, got.Name, prefix)
	}
	if again := decodeEvent(t, all[1].body); again.Name != got.Name {
		t.Errorf("created again: got the name %s, want the same %s", again.Name, got.Name)
	}
	if another := decodeEvent(t, all[2].body); another.Name == got.Name {
		t.Errorf("another event of the same moment: got the same name %s, want another", got.Name)
	}
}

// tellers are both ways of telling.
var tellers = map[string]func(context.Context, *Client, Source) error{
	"condition": func(ctx context.Context, c *Client, s Source) error {
		return c.PatchNodeCondition(ctx, s, NodeCondition{Type: "FlexNodeHealthy", Status: "True", LastTransition: noon, Heartbeat: noon})
	},
	"event": func(ctx context.Context, c *Client, s Source) error {
		return c.CreateEvent(ctx, s, Event{Type: "Normal", Reason: "R", Message: "m", At: noon})
	},
}

func TestARefusalHasItsReasonAndIsNotTriedAgain(t *testing.T) {
	for name, tell := range tellers {
		for _, test := range []struct {
			code    int
			status  metav1.StatusReason
			want    string
			refused bool
		}{
			{http.StatusForbidden, metav1.StatusReasonForbidden, ReasonForbidden, false},
			{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, ReasonUnauthorized, false},
			{http.StatusNotFound, metav1.StatusReasonNotFound, ReasonNodeNotFound, false},
			{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, ReasonUnavailable, false},
			{http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, ReasonUnavailable, false},
			{http.StatusInternalServerError, metav1.StatusReasonInternalError, ReasonUnavailable, false},
			{http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, ReasonUnavailable, true},
			{http.StatusBadRequest, metav1.StatusReasonBadRequest, ReasonUnavailable, true},
		} {
			s, heard := newListener(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "1") // by which client-go would try again
				answerStatus(test.code, test.status)(w, r)
			})
			err := tell(t.Context(), newClient(t), Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1"})
			if err == nil || ReasonOf(err) != test.want || Refused(err) != test.refused {
				t.Errorf("%s answered %s: got %v, reason %s, refused %v, want reason %s, refused %v", name, test.status, err, ReasonOf(err), Refused(err), test.want, test.refused)
			}
			if got := heard(); len(got) != 1 {
				t.Errorf("%s answered %s: got %d requests, want one", name, test.status, len(got))
			}
		}
	}
}

func TestAnEventThatIsThereAlreadyIsToldWell(t *testing.T) {
	s, _ := newListener(t, answerStatus(http.StatusConflict, metav1.StatusReasonAlreadyExists))
	if err := tellers["event"](t.Context(), newClient(t), Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1"}); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

func TestAServerThatHangsIsGivenUpWhenTheContextEnds(t *testing.T) {
	for name, tell := range tellers {
		release := make(chan struct{})
		s, _ := newListener(t, func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		t.Cleanup(func() { close(release) })
		ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, io.ErrUnexpectedEOF)
		err := tell(ctx, newClient(t), Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1"})
		cancel()
		if ReasonOf(err) != ReasonTimeout {
			t.Errorf("%s: got %v, reason %s, want %s", name, err, ReasonOf(err), ReasonTimeout)
		}
	}
}

// What hangs before there is a connection ends with the cause of the context, which can be any error.
func TestAServerThatDoesNotEvenGreetIsGivenUpWhenTheContextEnds(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	kubeconfig := writeKubeconfig(t, kubeconfigFor("https://"+l.Addr().String(), newAuthority(t).pem, nil))
	for name, tell := range tellers {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, io.ErrUnexpectedEOF)
		err := tell(ctx, newClient(t), Source{Kubeconfig: kubeconfig, NodeName: "n1"})
		cancel()
		if ReasonOf(err) != ReasonTimeout {
			t.Errorf("%s: got %v, reason %s, want %s", name, err, ReasonOf(err), ReasonTimeout)
		}
	}
}

func TestWithoutAKubeconfigNothingIsTold(t *testing.T) {
	for name, tell := range tellers {
		if err := tell(t.Context(), newClient(t), Source{Kubeconfig: t.TempDir() + "/none", NodeName: "n1"}); ReasonOf(err) != ReasonKubeconfigMissing {
			t.Errorf("%s: got %v, want reason %s", name, err, ReasonKubeconfigMissing)
		}
	}
}

// A request with a body is not sent twice, as one without is; the next one has a new token all the same.
func TestAfterARefusedTokenThePluginIsAskedAnew(t *testing.T) {
	s, _ := newListener(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer new" {
			answerStatus(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)(w, r)
			return
		}
		answerNode(w, r)
	})
	p, c := withPlugin(t, s, "print", nil), newClient(t)
	p.answers(t, v1, token("old"), time.Time{})
	if err := tellers["condition"](t.Context(), c, p.source); ReasonOf(err) != ReasonUnauthorized {
		t.Errorf("with a token that is refused: got %v, want reason %s", err, ReasonUnauthorized)
	}
	p.answers(t, v1, token("new"), time.Time{})
	if err := tellers["condition"](t.Context(), c, p.source); err != nil {
		t.Errorf("with the next: got %v, want no error", err)
	}
	if got := len(p.ran(t)); got != 2 {
		t.Errorf("the plugin ran %d times, want 2", got)
	}
}

func TestAMessageIsCutWhereItIsTooLong(t *testing.T) {
	for _, test := range []struct{ name, give, want string }{
		{"short", "well", "well"},
		{"just long enough", strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		{"a byte too long", strings.Repeat("x", 1025), strings.Repeat("x", 1021) + "…"},
		{"in the middle of a letter", strings.Repeat("ä", 600), strings.Repeat("ä", 510) + "…"},
		{"not text", "a\xffb", "a\uFFFDb"},
	} {
		if got := cut(test.give); got != test.want {
			t.Errorf("%s: got %d bytes %.20q…, want %d bytes", test.name, len(got), got, len(test.want))
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("well")
	f.Add(strings.Repeat("ä", 600))
	f.Add(strings.Repeat("\xff", 2000))
	f.Fuzz(func(t *testing.T, message string) {
		got := cut(message)
		if len(got) > maxMessage || !utf8.ValidString(got) || (message != "" && got == "") {
			t.Errorf("%q became %q", message, got)
		}
	})
}
