package localapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
)

const (
	// pollWait is for how long a question for a newer view waits, maxPolls how many may wait at once: the other connections stay free for
	// those who want to pause the agent.
	pollWait = 30 * time.Second
	maxPolls = maxConns - 8
	// viewWait bounds the wait for the present view, which is in memory; workWait what the agent needs its disk for.
	viewWait = 2 * time.Second
	workWait = 10 * time.Second
	// maxBody is far more than any request needs; bodyWait is how long it may take to arrive.
	maxBody  = 64 << 10
	bodyWait = 2 * time.Second
	maxWord  = 200 // what the journal keeps of one
)

// MaxReason is how many bytes the reason of a pause may have: what the journal keeps.
const MaxReason = 1 << 10

const (
	typeJSON = "application/json"
	typeText = "text/plain; charset=utf-8"
)

// Handler is the whole API of a: what docs/localapi.md describes, and the metrics at /metrics. It logs pauses and failures to log; nil
// logs nothing.
func Handler(a Agent, log logrus.FieldLogger) http.Handler {
	if log == nil {
		quiet := logrus.New()
		quiet.SetLevel(logrus.PanicLevel)
		log = quiet
	}
	s := &server{agent: a, log: log, polls: make(chan struct{}, maxPolls)}
	s.routes = map[string]route{
		"/v1/view":       {http.MethodGet, []string{"after"}, s.view},
		"/v1/status":     {http.MethodGet, nil, s.status},
		"/v1/conditions": {http.MethodGet, nil, s.conditions},
		"/v1/explain":    {http.MethodGet, []string{"output"}, s.explain},
		"/v1/history":    {http.MethodGet, []string{"from", "to", "limit"}, s.history},
		"/v1/pause":      {http.MethodPost, nil, s.pause},
		"/v1/resume":     {http.MethodPost, nil, s.resume},
		"/healthz":       {http.MethodGet, nil, s.healthz},
	}
	metrics := MetricsHandler(a)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		boundBody(w, r)
		if r.URL.Path == "/metrics" {
			metrics.ServeHTTP(w, r)
			return
		}
		s.ServeHTTP(w, r)
	})
}

// boundBody keeps a request's body from growing without end, and from taking for ever to arrive: also one that nobody reads, since the
// server reads it before the connection's next request.
func boundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	// Where there is no connection, as in a test, there is nothing to wait for.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWait))
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
}

type server struct {
	agent  Agent
	log    logrus.FieldLogger
	polls  chan struct{}
	routes map[string]route
}

// route is what one path takes. Everything else is refused, so that a typing error is no silent default.
type route struct {
	method  string
	queries []string
	answer  func(*http.Request) (answer, error)
}

// answer is an answer before it is sent: complete, or there is none. A nil body is none at all (204).
type answer struct {
	kind string
	body []byte
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := s.answer(w, r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if a.body == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	_, _ = w.Write(a.body) // a client that went away misses it, nobody else
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) (answer, error) {
	route, ok := s.routes[r.URL.Path]
	if !ok {
		return answer{}, &Error{http.StatusNotFound, "there is nothing at " + clip(r.URL.Path, maxWord), "docs/localapi.md lists what there is"}
	}
	if r.Method != route.method {
		w.Header().Set("Allow", route.method)
		return answer{}, &Error{http.StatusMethodNotAllowed, r.URL.Path + " can't be asked with " + clip(r.Method, maxWord), "use " + route.method}
	}
	if route.method == http.MethodGet && r.ContentLength != 0 {
		return answer{}, &Error{http.StatusBadRequest, "a question has no body", "leave it out"}
	}
	if err := checkQuery(r, route.queries); err != nil {
		return answer{}, err
	}
	return route.answer(r)
}

func (s *server) view(r *http.Request) (answer, error) {
	after, err := generation(r)
	if err != nil {
		return answer{}, err
	}
	v, err := s.present(r.Context())
	if err == nil && after > 0 && v.Generation == after {
		v, err = s.newer(r.Context(), after)
	}
	if err != nil {
		return answer{}, err
	}
	return inJSON(v)
}

// newer waits for a view of a greater generation, or for as long as one may wait.
func (s *server) newer(ctx context.Context, after uint64) (*agent.View, error) {
	select {
	case s.polls <- struct{}{}:
		defer func() { <-s.polls }()
	default:
		return nil, &Error{http.StatusServiceUnavailable, "too many clients wait for news", "try again, or ask without after"}
	}
	waiting, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	v, err := s.agent.View(waiting, after)
	if v != nil && err == nil {
		return v, nil
	}
	if ctx.Err() != nil {
		return nil, stopping()
	}
	return s.present(ctx)
}

func (s *server) present(ctx context.Context) (*agent.View, error) {
	return presentView(ctx, s.agent)
}

// presentView is the present view, never nil without an error.
func presentView(ctx context.Context, a Agent) (*agent.View, error) {
	waiting, cancel := context.WithTimeout(ctx, viewWait)
	defer cancel()
	v, err := a.View(waiting, 0)
	switch {
	case err == nil && v != nil:
		return v, nil
	case ctx.Err() != nil:
		return nil, stopping()
	case err == nil, errors.Is(err, context.DeadlineExceeded):
		return nil, &Error{http.StatusServiceUnavailable, "the agent knows nothing yet", "it may have just started: ask again in a few seconds"}
	default:
		return nil, &Error{http.StatusServiceUnavailable, err.Error(), ""}
	}
}

func stopping() *Error {
	return &Error{http.StatusServiceUnavailable, "the agent is stopping", "ask again when it runs"}
}

// status is the snapshot in the form of the file.
func (s *server) status(r *http.Request) (answer, error) {
	v, err := s.present(r.Context())
	if err != nil {
		return answer{}, err
	}
	if v.Snapshot == nil {
		return answer{}, &Error{http.StatusServiceUnavailable, "there is no snapshot yet", "the first look has not ended: ask again in a few seconds"}
	}
	body, err := json.MarshalIndent(v.Snapshot, "", "  ")
	return answer{typeJSON, body}, err
}

func (s *server) conditions(r *http.Request) (answer, error) {
	v, err := s.present(r.Context())
	if err != nil {
		return answer{}, err
	}
	return inJSON(append([]health.Condition{}, v.Conditions...))
}

func (s *server) explain(r *http.Request) (answer, error) {
	text, err := wantsText(r)
	if err != nil {
		return answer{}, err
	}
	v, err := s.present(r.Context())
	if err != nil {
		return answer{}, err
	}
	if text {
		return answer{typeText, []byte(decision.Explain(v.Decision))}, nil
	}
	return inJSON(v.Decision)
}

func (s *server) history(r *http.Request) (answer, error) {
	span, err := spanOf(r)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), workWait)
	defer cancel()
	entries, err := s.agent.History(ctx, span.from, span.to, span.limit)
	if err != nil {
		return answer{}, err
	}
	return inJSON(append([]journal.Entry{}, entries...))
}

func (s *server) pause(r *http.Request) (answer, error) {
	var p pauseRequest
	if err := readBody(r, &p); err != nil {
		return answer{}, err
	}
	if err := p.check(time.Now()); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), workWait)
	defer cancel()
	if err := s.agent.Pause(ctx, journal.Pause{By: p.By, Reason: p.Reason, Until: p.Until}); err != nil {
		return answer{}, err
	}
	s.log.WithFields(logrus.Fields{"by": p.By, "reason": p.Reason, "until": p.Until}).Info("paused")
	return answer{}, nil
}

func (s *server) resume(r *http.Request) (answer, error) {
	var p resumeRequest
	if err := readBody(r, &p); err != nil {
		return answer{}, err
	}
	if err := checkWord("by", p.By, maxWord); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), workWait)
	defer cancel()
	if err := s.agent.Resume(ctx, p.By); err != nil {
		return answer{}, err
	}
	s.log.WithField("by", p.By).Info("resumed")
	return answer{}, nil
}

// healthz says that the agent answers; how the node fares is another question.
func (s *server) healthz(r *http.Request) (answer, error) {
	if _, err := s.present(r.Context()); err != nil {
		return answer{}, err
	}
	return answer{typeText, []byte("ok\n")}, nil
}

func inJSON(v any) (answer, error) {
	body, err := json.Marshal(v)
	return answer{typeJSON, append(body, '\n')}, err
}

// refuse sends an error as JSON.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = s.failure(r, err)
	}
	body, _ := json.Marshal(e) // two strings
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(e.Status)
	_, _ = w.Write(append(body, '\n'))
}

// failure is what the client is told when the agent could not do what was asked.
func (s *server) failure(r *http.Request, err error) *Error {
	s.log.WithError(err).WithField("path", r.URL.Path).Warn("could not do what a client of the local API asked for")
	switch {
	case errors.Is(err, journal.ErrReadOnly):
		return &Error{http.StatusServiceUnavailable, err.Error(), "see that the journal's folder can be written, then try again"}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{http.StatusServiceUnavailable, "it takes too long: " + err.Error(), "the disk may hang; what was asked for may still be done later"}
	case errors.Is(err, context.Canceled):
		return stopping()
	default:
		return &Error{http.StatusInternalServerError, err.Error(), "the agent's log may say more"}
	}
}

// clip shortens what a client sent before it is sent back.
func clip(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
