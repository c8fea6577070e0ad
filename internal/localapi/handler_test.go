package localapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
)

func call(t testing.TB, a Agent, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	Handler(a, nil).ServeHTTP(rec, req)
	return rec
}

func TestWhatIsAsked(t *testing.T) {
	v := illView()
	indented, err := json.MarshalIndent(v.Snapshot, "", "  ")
	must(t, err)
	explained := decision.Explain(v.Decision)
	tests := []struct {
		target, accept string
		kind           string
		want           string
	}{
		{"/v1/view", "", typeJSON, asJSON(t, v)},
		{"/v1/view?after=3", "", typeJSON, asJSON(t, v)}, // newer already
		{"/v1/view?after=900", "", typeJSON, asJSON(t, v)},
		{"/v1/status", "", typeJSON, string(indented)},
		{"/v1/conditions", "", typeJSON, asJSON(t, v.Conditions)},
		{"/v1/explain", "", typeJSON, asJSON(t, v.Decision)},
		{"/v1/explain", "*/*", typeJSON, asJSON(t, v.Decision)},
		{"/v1/explain", "text/plain", typeText, explained},
		{"/v1/explain", "text/html, text/plain;q=0.8, application/json;q=0.1", typeText, explained},
		{"/v1/explain", "application/json, text/plain", typeJSON, asJSON(t, v.Decision)},
		{"/v1/explain?output=json", "text/plain", typeJSON, asJSON(t, v.Decision)},
		{"/v1/explain?output=text", "application/json", typeText, explained},
		{"/v1/history", "", typeJSON, asJSON(t, []journal.Entry{{Sequence: 1, Kind: "pause"}})},
		{"/healthz", "", typeText, "ok\n"},
	}
	for _, tt := range tests {
		t.Run(tt.target+" as "+tt.accept, func(t *testing.T) {
			fake := newFake(v)
			fake.entries = []journal.Entry{{Sequence: 1, Kind: "pause"}}
			got := call(t, fake, http.MethodGet, tt.target, "", "Accept", tt.accept)
			if got.Code != http.StatusOK || got.Header().Get("Content-Type") != tt.kind {
				t.Errorf("got status %d and type %q, want 200 and %q", got.Code, got.Header().Get("Content-Type"), tt.kind)
			}
			if got.Body.String() != tt.want {
				t.Errorf("got %s\nwant %s", got.Body, tt.want)
			}
		})
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return string(data) + "\n"
}

func TestNothingIsAnEmptyListAndNotNull(t *testing.T) {
	v := wellView()
	v.Conditions = nil
	for _, target := range []string{"/v1/conditions", "/v1/history"} {
		if got := call(t, newFake(v), http.MethodGet, target, "").Body.String(); got != "[]\n" {
			t.Errorf("%s: got %q, want an empty list", target, got)
		}
	}
}

func TestTheSpanOfTheHistoryIsPassedOn(t *testing.T) {
	fake := newFake(wellView())
	got := call(t, fake, http.MethodGet, "/v1/history?from=2026-03-01T13:00:00%2B01:00&to=2026-03-02T00:00:00.5Z&limit=9", "")
	if got.Code != http.StatusOK {
		t.Fatalf("got %d %s", got.Code, got.Body)
	}
	if !fake.asked.from.Equal(someTime) || !fake.asked.to.Equal(time.Date(2026, 3, 2, 0, 0, 0, 5e8, time.UTC)) || fake.asked.limit != 9 {
		t.Errorf("got %+v", fake.asked)
	}
}

func TestPauseAndResumeReachTheAgent(t *testing.T) {
	fake := newFake(wellView())
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	got := call(t, fake, http.MethodPost, "/v1/pause", fmt.Sprintf(`{"by":"jo","reason":"new switch","until":%q}`, until.Format(time.RFC3339)))
	if got.Code != http.StatusNoContent || got.Body.Len() != 0 {
		t.Errorf("pause: got %d %s, want 204", got.Code, got.Body)
	}
	if got := call(t, fake, http.MethodPost, "/v1/resume", `{"by":"al"}`); got.Code != http.StatusNoContent {
		t.Errorf("resume: got %d %s, want 204", got.Code, got.Body)
	}
	if len(fake.pauses) != 1 || fake.pauses[0].By != "jo" || fake.pauses[0].Reason != "new switch" || !fake.pauses[0].Until.Equal(until) {
		t.Errorf("got pauses %+v", fake.pauses)
	}
	if len(fake.resumed) != 1 || fake.resumed[0] != "al" {
		t.Errorf("got resumed by %v, want al", fake.resumed)
	}
}

func TestWhatIsRefused(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	tests := []struct {
		method, target, body string
		status               int
		message              string
	}{
		{"GET", "/", "", 404, "there is nothing at /"},
		{"GET", "/v1/views", "", 404, "nothing at /v1/views"},
		{"GET", "/v1/view/", "", 404, "nothing at"},
		{"GET", "/v1//view", "", 404, "nothing at"},
		{"GET", "/v1/../metrics", "", 404, "nothing at"},
		{"GET", "/v1/" + long, "", 404, "nothing at"},
		{"POST", "/v1/view", "", 405, "can't be asked with POST"},
		{"HEAD", "/v1/view", "", 405, "can't be asked with HEAD"},
		{"GET", "/v1/pause", "", 405, "can't be asked with GET"},
		{"PUT", "/v1/pause", `{"by":"jo","reason":"x"}`, 405, "can't be asked with PUT"},
		{"GET", "/v1/view", "{}", 400, "no body"},
		{"GET", "/v1/view?after=-1", "", 400, "is no generation"},
		{"GET", "/v1/view?after=x", "", 400, "is no generation"},
		{"GET", "/v1/view?After=1", "", 400, "unknown name"},
		{"GET", "/v1/view?after=1&after=2", "", 400, "more than once"},
		{"GET", "/v1/view?after=%zz", "", 400, "can't be understood"},
		{"GET", "/v1/status?output=text", "", 400, "unknown name"},
		{"GET", "/v1/explain?output=yaml", "", 400, "output=yaml is not known"},
		{"GET", "/v1/history?from=yesterday", "", 400, "is no time"},
		{"GET", "/v1/history?to=2026-03-01T13:00:00+01:00", "", 400, "is no time"}, // + is a blank in a query
		{"GET", "/v1/history?limit=-1", "", 400, "is no count"},
		{"GET", "/v1/history?limit=99999999999999999999", "", 400, "is no count"},
		{"GET", "/v1/history?from=2026-03-02T00:00:00Z&to=2026-03-01T00:00:00Z", "", 400, "to is before from"},
		{"POST", "/v1/pause", "", 400, "can't be understood"},
		{"POST", "/v1/pause", "null", 400, `"by" is missing`},
		{"POST", "/v1/pause", "[]", 400, "can't be understood"},
		{"POST", "/v1/pause", `{"by":"jo"}`, 400, `"reason" is missing`},
		{"POST", "/v1/pause", `{"by":" ","reason":"x"}`, 400, `"by" is missing`},
		{"POST", "/v1/pause", `{"by":"jo","reason":"x","end":null}`, 400, "unknown field"},
		{"POST", "/v1/pause", `{"by":"jo","reason":"x"}{}`, 400, "something follows"},
		{"POST", "/v1/pause", `{"by":"jo","reason":"x","until":"2026-03-01T00:00:00Z"}`, 400, "over already"},
		{"POST", "/v1/pause", `{"by":"jo","reason":"x","until":"soon"}`, 400, "can't be understood"},
		{"POST", "/v1/pause", `{"by":"jo","reason":"` + strings.Repeat("x", MaxReason+1) + `"}`, 400, "has 1025 bytes"},
		{"POST", "/v1/pause", `{"by":"` + long + `","reason":"x"}`, 413, "more than 65536 bytes"},
		{"POST", "/v1/pause?by=jo", `{}`, 400, "unknown name"},
		{"POST", "/v1/resume", `{}`, 400, `"by" is missing`},
		{"POST", "/v1/resume", `{"by":"jo","reason":"x"}`, 400, "unknown field"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %.40s %.60s", tt.method, tt.target, tt.body), func(t *testing.T) {
			fake := newFake(wellView())
			got := call(t, fake, tt.method, tt.target, tt.body)
			e := refusalOf(t, got)
			if got.Code != tt.status || !strings.Contains(e.Message, tt.message) {
				t.Errorf("got %d %q, want %d and %q", got.Code, e.Message, tt.status, tt.message)
			}
			if e.Hint == "" {
				t.Error("got no hint what to do")
			}
			if got.Body.Len() > 1000 {
				t.Errorf("got an answer of %d bytes, want a short one", got.Body.Len())
			}
			if len(fake.pauses)+len(fake.resumed) > 0 {
				t.Error("the agent was told nevertheless")
			}
		})
	}
}

// refusalOf is the error in an answer, which must have the form of one.
func refusalOf(t testing.TB, got *httptest.ResponseRecorder) Error {
	t.Helper()
	var e Error
	if err := json.Unmarshal(got.Body.Bytes(), &e); err != nil || e.Message == "" {
		t.Fatalf("got %d %q, want an error in JSON", got.Code, got.Body)
	}
	if kind := got.Header().Get("Content-Type"); kind != typeJSON {
		t.Errorf("got type %q of an error, want %q", kind, typeJSON)
	}
	return e
}

func TestWhatTheAgentCanNotDoIsToldWithAHint(t *testing.T) {
	readOnly := fmt.Errorf("%w: read-only file system", journal.ErrReadOnly)
	tests := []struct {
		err     error
		status  int
		message string
	}{
		{readOnly, 503, "read-only file system"},
		{errors.New("page 4 is broken"), 500, "page 4 is broken"},
	}
	for _, tt := range tests {
		for _, q := range []struct{ method, target, body string }{
			{"GET", "/v1/history", ""}, {"POST", "/v1/pause", `{"by":"jo","reason":"x"}`}, {"POST", "/v1/resume", `{"by":"jo"}`},
		} {
			fake := newFake(wellView())
			fake.err = tt.err
			got := call(t, fake, q.method, q.target, q.body)
			if e := refusalOf(t, got); got.Code != tt.status || !strings.Contains(e.Message, tt.message) || e.Hint == "" {
				t.Errorf("%s, %v: got %d %+v, want %d", q.target, tt.err, got.Code, e, tt.status)
			}
		}
	}
}

func TestBeforeTheFirstLookThereIsNoSnapshotButAView(t *testing.T) {
	v := wellView()
	v.Snapshot = nil
	if got := call(t, newFake(v), http.MethodGet, "/v1/status", ""); got.Code != 503 || !strings.Contains(refusalOf(t, got).Message, "no snapshot yet") {
		t.Errorf("status: got %d %s, want 503", got.Code, got.Body)
	}
	if got := call(t, newFake(v), http.MethodGet, "/v1/view", ""); got.Code != 200 {
		t.Errorf("view: got %d %s, want 200", got.Code, got.Body)
	}
}

func TestOnlySoManyMayWaitForNews(t *testing.T) {
	s := &server{agent: newFake(wellView()), polls: make(chan struct{}, 1)}
	s.polls <- struct{}{}
	_, err := s.newer(t.Context(), 7)
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status != http.StatusServiceUnavailable {
		t.Errorf("got error %v, want status 503", err)
	}
}

// prompt never waits for news.
type prompt struct{ *fakeAgent }

func (p prompt) View(ctx context.Context, _ uint64) (*agent.View, error) {
	return p.fakeAgent.View(ctx, 0)
}

func FuzzQueries(f *testing.F) {
	for _, seed := range []string{"", "after=1", "after=18446744073709551615", "from=2026-03-01T00:00:00Z&to=2027-01-01T00:00:00Z&limit=5", "output=text", "a;b", "%", "after=1&after=1"} {
		f.Add("/v1/view", seed)
		f.Add("/v1/history", seed)
		f.Add("/v1/explain", seed)
	}
	handler := Handler(prompt{newFake(wellView())}, nil)
	f.Fuzz(func(t *testing.T, path, query string) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		req.URL.Path, req.URL.RawQuery = path, query
		checkAnswer(t, handler, req)
	})
}

func FuzzBodies(f *testing.F) {
	for _, seed := range []string{"", "null", "{}", `{"by":"jo","reason":"x"}`, `{"by":"jo"}`, `{"by":"jo","reason":"x","until":"2099-01-01T00:00:00Z"}`, `{"by":"jo","By":"x"}`, "[[[[", `{"by":"\ud800"}`} {
		f.Add(true, []byte(seed))
		f.Add(false, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, pause bool, body []byte) {
		fake := newFake(wellView())
		path := "/v1/resume"
		if pause {
			path = "/v1/pause"
		}
		checkAnswer(t, Handler(fake, nil), httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(string(body))))
		for _, p := range fake.pauses {
			if strings.TrimSpace(p.By) == "" || strings.TrimSpace(p.Reason) == "" || len(p.Reason) > MaxReason || p.Until != nil && p.Until.Before(someTime) {
				t.Errorf("the body %q made the pause %+v", body, p)
			}
		}
		for _, by := range fake.resumed {
			if strings.TrimSpace(by) == "" {
				t.Errorf("the body %q resumed for nobody", body)
			}
		}
	})
}

// checkAnswer holds what is true of every answer: it is done or refused with a reason, and never a failure of the agent.
func checkAnswer(t *testing.T, handler http.Handler, req *http.Request) {
	t.Helper()
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, req)
	switch rec.Code {
	case 200, 204:
	case 400, 404, 405, 413:
		if req.URL.Path != "/metrics" {
			refusalOf(t, rec)
		}
	default:
		t.Errorf("%s %q: got status %d %s", req.Method, req.URL, rec.Code, rec.Body)
	}
}
