package localapi

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/test/golden"
)

func page(t testing.TB, v *agent.View) string {
	t.Helper()
	got := call(t, newFake(v), http.MethodGet, "/metrics", "")
	if got.Code != http.StatusOK {
		t.Fatalf("got status %d: %s", got.Code, got.Body)
	}
	return got.Body.String()
}

// ours leaves out the process's own metrics, which differ from run to run, and Go's version.
func ours(page string) string {
	var b strings.Builder
	for line := range strings.Lines(page) {
		if strings.Contains(line, "aks_flex_node_") {
			b.WriteString(line)
		}
	}
	return regexp.MustCompile(`goversion="[^"]*"`).ReplaceAllString(b.String(), `goversion="GO"`)
}

func TestMetricsPages(t *testing.T) {
	empty := &agent.View{Generation: 1, AgentVersion: "v1.2.3", Node: "edge-1", Budget: agent.Budget{MaxBootstraps: 3}}
	for name, v := range map[string]*agent.View{"empty": empty, "well": wellView(), "ill": illView()} {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, filepath.Join("testdata", "metrics-"+name+".txt"), ours(page(t, v)))
		})
	}
}

func TestMetricsAreAsPrometheusWantsThem(t *testing.T) {
	for name, v := range map[string]*agent.View{"well": wellView(), "ill": illView()} {
		problems, err := promlint.New(strings.NewReader(page(t, v))).Lint()
		must(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s: %s", name, p.Metric, p.Text)
		}
	}
}

func TestThePageHasTheProcessToo(t *testing.T) {
	got := page(t, wellView())
	for _, want := range []string{"process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds ", "go_goroutines "} {
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

func TestExactlyOneStatusOfEachConditionIsSet(t *testing.T) {
	lines := strings.Split(page(t, illView()), "\n")
	for _, row := range health.Table() {
		set, shown := 0, 0
		for _, line := range lines {
			if strings.HasPrefix(line, "aks_flex_node_condition{") && strings.Contains(line, `type="`+row.Type+`"`) {
				shown++
				if strings.HasSuffix(line, " 1") {
					set++
				}
			}
		}
		if shown != 3 || set != 1 {
			t.Errorf("%s: got %d statuses of which %d are set, want 3 and 1", row.Type, shown, set)
		}
	}
}

func TestTheNumberOfSeriesIsBoundedWhateverTheViewHolds(t *testing.T) {
	v := illView()
	v.Counters.Remedies = map[string]map[string]uint64{}
	for i := range 500 {
		name := fmt.Sprintf("n%d\xff", i) // not even text
		v.Conditions = append(v.Conditions, health.Condition{Type: name, Status: health.True})
		v.Probes = append(v.Probes, probe.Stat{Name: name}, probe.Stat{Name: "same"})
		v.Host.Disk.Value.Paths = append(v.Host.Disk.Value.Paths, observe.Space{Path: name + strings.Repeat("x", 1000)})
		v.Counters.Remedies[name] = map[string]uint64{name: 1}
	}
	got := page(t, v)
	if n := strings.Count(got, "\n"); n > len(families())*(maxSeries+2)+200 {
		t.Errorf("got %d lines", n)
	}
	for line := range strings.Lines(got) {
		if len(line) > 600 {
			t.Errorf("got a line of %d bytes: %.80s…", len(line), line)
		}
	}
}

// A node's page must not grow with time: what changes takes the place of what was.
func TestTheNumberOfSeriesStaysTheSameOverTime(t *testing.T) {
	fake := newFake(wellView())
	handler := MetricsHandler(fake)
	count := func() int {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return strings.Count(ours(rec.Body.String()), "\n")
	}
	before := count()
	for i := range 50 {
		v := wellView()
		v.Decision.Reason = fmt.Sprintf("Reason%d", i)
		v.Decision.Action = decision.Wait
		v.Node = fmt.Sprintf("node-%d", i)
		fake.publish(v)
		if got := count(); got != before {
			t.Fatalf("got %d lines after %d changes, want %d as before", got, i+1, before)
		}
	}
}

func TestTheMetricsHandlerServesTheMetricsAndNothingElse(t *testing.T) {
	handler := MetricsHandler(newFake(wellView()))
	tests := []struct {
		method, target string
		want           int
	}{
		{"GET", "/metrics", 200}, {"GET", "/metrics?name=x", 200},
		{"GET", "/", 404}, {"GET", "/v1/view", 404}, {"POST", "/v1/pause", 404}, {"GET", "/metrics/", 404}, {"GET", "/debug/pprof/", 404},
		{"POST", "/metrics", 405}, {"HEAD", "/metrics", 405},
	}
	for _, tt := range tests {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), tt.method, tt.target, nil))
		if rec.Code != tt.want {
			t.Errorf("%s %s: got status %d, want %d", tt.method, tt.target, rec.Code, tt.want)
		}
	}
}

func TestMetricsOverTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	serveOn(t, l, MetricsHandler(newFake(wellView())))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Get("http://" + l.Addr().String() + "/metrics")
	must(t, err)
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	if !strings.Contains(body.String(), "aks_flex_node_acting 1\n") {
		t.Errorf("got %s", body.String())
	}
}

func TestWithoutAViewAScrapeFails(t *testing.T) {
	ctx := t.Context()
	fake := newFake(nil)
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
	rec := httptest.NewRecorder()
	MetricsHandler(fake).ServeHTTP(rec, req)
	if rec.Code != http.StatusServiceUnavailable {
		t.Errorf("got status %d, want 503", rec.Code)
	}
}

func TestDryRunAndObservingAreNotActing(t *testing.T) {
	tests := []struct {
		mode   decision.Mode
		dryRun bool
		want   string
	}{{decision.Act, false, "1"}, {decision.Act, true, "0"}, {decision.ObserveOnly, false, "0"}, {"", false, "0"}}
	for _, tt := range tests {
		v := wellView()
		v.Mode, v.DryRun = tt.mode, tt.dryRun
		if !strings.Contains(page(t, v), "\naks_flex_node_acting "+tt.want+"\n") {
			t.Errorf("mode %q, dry run %v: want acting %s", tt.mode, tt.dryRun, tt.want)
		}
	}
}

func TestThePauseThatCountsIsTheOldestOfThoseKnown(t *testing.T) {
	got := oldest([]decision.Pause{{}, {Since: someTime.Add(time.Hour)}, {Since: someTime}, {}})
	if !got.Equal(someTime) {
		t.Errorf("got %s, want %s", got, someTime)
	}
	if got := oldest([]decision.Pause{{}}); !got.IsZero() {
		t.Errorf("none is known: got %s, want none", got)
	}
}

func TestDocumentedMetrics(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "metrics.md")
	doc, err := os.ReadFile(path)
	must(t, err)
	const begin, end = "<!-- families -->\n", "<!-- end -->\n"
	head, rest, ok := strings.Cut(string(doc), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks %q and %q", path, begin, end)
	}
	var b strings.Builder
	b.WriteString("| metric | labels | what it says |\n|---|---|---|\n")
	for _, f := range families() {
		fmt.Fprintf(&b, "| `aks_flex_node_%s` | %s | %s |\n", f.name, strings.Join(f.labels, ", "), f.help)
	}
	golden.Check(t, path, head+begin+b.String()+end+tail)
}
