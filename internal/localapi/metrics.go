package localapi

import (
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
)

const (
	// maxScrapes is how many pages are made at once.
	maxScrapes = 4
	// maxSeries bounds one metric, and maxLabel one label's value: labels come from the agent's own words, so this is only for mistakes.
	maxSeries = 64
	maxLabel  = 128
)

// MetricsHandler serves a's metrics at /metrics, and nothing else. It may also stand alone, on a port of the loopback: it tells no secrets
// and changes nothing. While there is no view the answer is 503, so that Prometheus takes the agent for down.
func MetricsHandler(a Agent) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
	)
	places := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		boundBody(w, r)
		switch {
		case r.URL.Path != "/metrics":
			http.Error(w, "only /metrics is served here", http.StatusNotFound)
			return
		case r.Method != http.MethodGet:
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
			return
		}
		v, err := presentView(r.Context(), a)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		page := prometheus.NewRegistry()
		page.MustRegister(viewCollector{v})
		promhttp.HandlerFor(prometheus.Gatherers{process, page}, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
	})
}

// viewCollector makes metrics of one view.
type viewCollector struct{ view *agent.View }

// Describe sends nothing: what there is depends on the view. That makes it an unchecked collector; a test holds the whole page.
func (viewCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of the view.
func (c viewCollector) Collect(out chan<- prometheus.Metric) {
	for _, m := range families() {
		desc := prometheus.NewDesc("aks_flex_node_"+m.name, m.help, m.labels, nil)
		kind := prometheus.GaugeValue
		if strings.HasSuffix(m.name, "_total") {
			kind = prometheus.CounterValue
		}
		seen := map[string]bool{}
		m.each(c.view, func(value float64, labels ...string) {
			for i := range labels {
				labels[i] = clip(labels[i], maxLabel)
			}
			key := strings.Join(labels, "\xff")
			if seen[key] || len(seen) == maxSeries {
				return
			}
			seen[key] = true
			metric, err := prometheus.NewConstMetric(desc, kind, value, labels...)
			if err != nil {
				metric = prometheus.NewInvalidMetric(desc, err)
			}
			out <- metric
		})
	}
}

type emit = func(value float64, labels ...string)

// family is one metric: its name without the prefix, and what a view says of it. A name that ends in _total makes a counter.
type family struct {
	name, help string
	labels     []string
	each       func(*agent.View, emit)
}

// families is every metric of ours. docs/metrics.md is made from it.
func families() []family {
	return slices.Concat(nodeFamilies(), decisionFamilies(), workFamilies(), probeFamilies())
}

func nodeFamilies() []family {
	return []family{
		{"build_info", "1, with the version of the agent and of Go.", []string{"version", "goversion"}, func(v *agent.View, e emit) {
			e(1, v.AgentVersion, runtime.Version())
		}},
		{"node_info", "1, with the name of the node, or of the host while that is not known.", []string{"node"}, func(v *agent.View, e emit) {
			e(1, v.Node)
		}},
		{"condition", "1 for the status that a condition has, 0 for the other two.", []string{"type", "status"}, eachStatus},
		{"condition_severity", "1 for the severity that a condition has now, 0 for the others; all are 0 when it is as it should be or can't be told.", []string{"type", "severity"}, eachSeverity},
		{"condition_last_transition_timestamp_seconds", "When the status of a condition last changed.", []string{"type"}, func(v *agent.View, e emit) {
			for _, c := range v.Conditions {
				at(e, c.LastTransitionTime, c.Type)
			}
		}},
		{"kubelet_certificate_not_after_timestamp_seconds", "When the kubelet's client certificate ends; left out while there is none or it can't be read.", nil, func(v *agent.View, e emit) {
			if cert, ok := v.Host.Certificate.Best(); ok {
				at(e, cert.NotAfter)
			}
		}},
		{"disk_size_bytes", "Size of a file system that the node can't do without.", []string{"path"}, func(v *agent.View, e emit) {
			for _, s := range v.Host.Disk.Value.Paths {
				e(float64(s.Bytes), s.Path)
			}
		}},
		{"disk_free_bytes", "Free space, for users without privileges, of a file system that the node can't do without.", []string{"path"}, func(v *agent.View, e emit) {
			for _, s := range v.Host.Disk.Value.Paths {
				e(float64(s.BytesFree), s.Path)
			}
		}},
		{"disk_inodes", "Inodes of a file system that the node can't do without; 0 when it does not count them.", []string{"path"}, func(v *agent.View, e emit) {
			for _, s := range v.Host.Disk.Value.Paths {
				e(float64(s.Inodes), s.Path)
			}
		}},
		{"disk_inodes_free", "Free inodes of a file system that the node can't do without.", []string{"path"}, func(v *agent.View, e emit) {
			for _, s := range v.Host.Disk.Value.Paths {
				e(float64(s.InodesFree), s.Path)
			}
		}},
	}
}

func eachStatus(v *agent.View, e emit) {
	for _, c := range v.Conditions {
		for _, status := range []health.Status{health.True, health.False, health.Unknown} {
			e(truth(c.Status == status), c.Type, strings.ToLower(string(status)))
		}
	}
}

func eachSeverity(v *agent.View, e emit) {
	for _, c := range v.Conditions {
		for _, severity := range []health.Severity{health.Info, health.Warning, health.Critical} {
			e(truth(c.Severity == severity), c.Type, strings.ToLower(string(severity)))
		}
	}
}

func decisionFamilies() []family {
	return []family{
		{"acting", "1 when the agent may change the node, 0 when it only observes or makes a dry run.", nil, func(v *agent.View, e emit) {
			e(truth(v.Mode == decision.Act && !v.DryRun))
		}},
		{"decision", "1, with the present decision.", []string{"action", "reason"}, func(v *agent.View, e emit) {
			e(1, string(v.Decision.Action), v.Decision.Reason)
		}},
		{"decision_until_timestamp_seconds", "When time alone ends the present wait or hold; left out when it takes something else.", nil, func(v *agent.View, e emit) {
			at(e, v.Decision.Until)
		}},
		{"bootstrap_budget_used", "Bootstraps begun within the budget's window.", nil, func(v *agent.View, e emit) {
			e(float64(v.Budget.Bootstraps))
		}},
		{"bootstrap_budget_max", "Bootstraps that may be begun within the budget's window.", nil, func(v *agent.View, e emit) {
			e(float64(v.Budget.MaxBootstraps))
		}},
		{"bootstrap_budget_unknown_seconds", "For how long the budget still counts as used up because the journal was lost; 0 when it is known.", nil, func(v *agent.View, e emit) {
			e(v.Budget.Unknown.Seconds())
		}},
		{"paused", "1 while somebody has paused the agent.", nil, func(v *agent.View, e emit) {
			e(truth(len(v.Pauses) > 0))
		}},
		{"paused_since_timestamp_seconds", "When the oldest pause that holds now began; left out when that is not known.", nil, func(v *agent.View, e emit) {
			at(e, oldest(v.Pauses))
		}},
		{"remedy_in_progress", "1 while this remedy is being carried out.", []string{"name"}, func(v *agent.View, e emit) {
			if v.Remedy != nil {
				e(1, v.Remedy.Name)
			}
			for _, name := range remedies() { // what was sent above is not sent again
				e(0, name)
			}
		}},
		{"remedies_total", "Remedies that have ended, since the agent started.", []string{"name", "outcome"}, eachRemedy},
	}
}

// remedies are those that there are: they are shown at 0 from the start, so that the first one is seen as an increase.
func remedies() []string { return []string{string(decision.Restart), string(decision.Bootstrap)} }

func eachRemedy(v *agent.View, e emit) {
	for _, name := range slices.Sorted(maps.Keys(v.Counters.Remedies)) {
		outcomes := v.Counters.Remedies[name]
		for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
			e(float64(outcomes[outcome]), name, outcome)
		}
	}
	for _, name := range remedies() {
		for _, outcome := range []string{"succeeded", "failed", "abandoned"} {
			e(0, name, outcome)
		}
	}
}

func oldest(pauses []decision.Pause) time.Time {
	var first time.Time
	for _, p := range pauses {
		if !p.Since.IsZero() && (first.IsZero() || p.Since.Before(first)) {
			first = p.Since
		}
	}
	return first
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// at sends a point in time; zero is none.
func at(e emit, t time.Time, labels ...string) {
	if !t.IsZero() {
		e(float64(t.UnixMilli())/1e3, labels...)
	}
}
