package probe

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

const (
	node01   = "node01edge"
	node01ID = "/subscriptions/11111111-2222-4333-8444-555555555555/resourceGroups/rg-edge/providers/Microsoft.HybridCompute/machines/node01edge"
)

// connectedArc is what the stand-in says in "connected" and in its variants.
func connectedArc() observe.Arc {
	return observe.Arc{
		Registered: true, Connected: true, Status: "Connected", MachineName: node01, ResourceID: node01ID, Location: "westeurope",
		ResourceGroup: "rg-edge", LastHeartbeat: time.Date(2025, 11, 19, 23, 34, 3, 0, time.UTC), AgentVersion: "1.58.03228.700",
	}
}

func TestWhatAzcmagentSays(t *testing.T) {
	expired := connectedArc()
	expired.Connected, expired.Status = false, "Expired"
	disconnected := connectedArc()
	disconnected.Connected, disconnected.Status, disconnected.ErrorCode = false, "Disconnected", "AZCM0026"
	disconnected.LastHeartbeat = time.Date(2025, 11, 19, 22, 0, 0, 0, time.UTC)
	disconnected.ErrorDetails = `Get "https://weu.his.arc.azure.com/machines": proxyconnect tcp: dial tcp 10.0.0.9:3128: connect: connection refused`
	old := observe.Arc{
		Registered: true, Connected: true, Status: "Connected", MachineName: "myMachine", Location: "westeurope", ResourceGroup: "myRG",
		LastHeartbeat: time.Date(2019, 12, 5, 1, 36, 0, 0, time.UTC), AgentVersion: "0.4.19305.023",
	}
	for _, test := range []struct {
		scenario string
		health   observe.Health
		reason   string
		want     observe.Arc
		words    []string
	}{
		{"connected", observe.Healthy, "Connected", connectedArc(), []string{node01}},
		{"log line first", observe.Healthy, "Connected", connectedArc(), nil},
		{"messages on stderr", observe.Healthy, "Connected", connectedArc(), nil},
		{"slow", observe.Healthy, "Connected", connectedArc(), nil},
		{"expired", observe.Unhealthy, "Expired", expired, []string{"Expired"}},
		{"disconnected", observe.Unhealthy, "Disconnected", disconnected, []string{"AZCM0026", "connection refused"}},
		{"not registered", observe.Unhealthy, "NotRegistered", observe.Arc{Status: "Disconnected", AgentVersion: "1.58.03228.700"}, nil},
		{"old", observe.Healthy, "Connected", old, nil},
		{"crlf", observe.Healthy, "Connected", connectedArc(), nil},
		{"half a JSON", observe.Healthy, "Connected", connectedArc(), nil},
		{"service down for JSON", observe.Healthy, "Connected", connectedArc(), nil},
		{"floods, then answers", observe.Healthy, "Connected", connectedArc(), nil},
		{"half of both", observe.Unknown, "ArcNotUnderstood", observe.Arc{}, nil},
		{"garbage", observe.Unknown, "ArcNotUnderstood", observe.Arc{}, nil},
		{"says nothing", observe.Unknown, "ArcNotUnderstood", observe.Arc{}, nil},
		{"floods", observe.Unknown, "ArcNotUnderstood", observe.Arc{}, []string{"too much"}},
		{"service down", observe.Unknown, "AZCM0061", observe.Arc{}, []string{"exit status 61"}},
		{"fails and leaves a child", observe.Unknown, "AZCM0061", observe.Arc{}, nil},
		{"fails", observe.Unknown, "ArcUnavailable", observe.Arc{}, []string{"exit status 2"}},
		{"leaves a child", observe.Healthy, "Connected", connectedArc(), nil},
	} {
		t.Run(test.scenario, func(t *testing.T) {
			s, dir := newSuite(t)
			path := putArc(t, filepath.Join(dir, "bin/azcmagent"), test.scenario)
			got := s.lookAtArc(t.Context(), time.Now())
			wantSeen(t, got, test.health, test.reason, test.words...)
			got.Value.LastHeartbeat = got.Value.LastHeartbeat.UTC()
			if got.Value != test.want {
				t.Errorf("got %+v\nwant %+v", got.Value, test.want)
			}
			eventually(t, "azcmagent and its children have ended", func() bool { return len(processesOf(path)) == 0 })
		})
	}
}

func TestAnAzcmagentThatDoesNotEnd(t *testing.T) {
	for _, test := range []struct {
		scenario string
		within   time.Duration
		health   observe.Health
		reason   string
		want     observe.Arc
	}{
		{"hangs", time.Second, observe.Unknown, observe.ReasonTimeout, observe.Arc{}},
		{"hangs stubbornly", time.Second, observe.Unknown, observe.ReasonTimeout, observe.Arc{}},
		// What it printed is not taken for its answer: it may be half of it.
		{"prints and hangs", time.Second, observe.Unknown, observe.ReasonTimeout, observe.Arc{}},
		// The two ways share the deadline, and the second gets its part even when the first hangs.
		{"JSON hangs", 6 * time.Second, observe.Healthy, "Connected", connectedArc()},
	} {
		t.Run(test.scenario, func(t *testing.T) {
			s, dir := newSuite(t)
			path := putArc(t, filepath.Join(dir, "bin/azcmagent"), test.scenario)
			ctx, cancel := context.WithTimeout(t.Context(), test.within)
			defer cancel()
			got := s.lookAtArc(ctx, time.Now())
			wantSeen(t, got, test.health, test.reason)
			if got.Value != test.want {
				t.Errorf("got %+v\nwant %+v", got.Value, test.want)
			}
			eventually(t, "azcmagent and its children have ended", func() bool { return len(processesOf(path)) == 0 })
		})
	}
}

func TestAzcmagentIsLookedForInItsPlaces(t *testing.T) {
	for _, test := range []struct {
		name    string
		put     string
		enabled bool
		health  observe.Health
		reason  string
	}{
		{"neither installed nor enabled", "", false, observe.Unknown, observe.ReasonNotEnabled},
		{"enabled and not installed", "", true, observe.Unhealthy, observe.ReasonNotInstalled},
		{"installed and not enabled", "bin/azcmagent", false, observe.Healthy, "Connected"},
		{"installed and enabled", "bin/azcmagent", true, observe.Healthy, "Connected"},
		{"in another of its places", "opt/azcmagent", true, observe.Healthy, "Connected"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, dir := newSuite(t)
			s.settings.arcEnabled, s.settings.arcPaths = test.enabled, append(s.settings.arcPaths, filepath.Join(dir, "opt/azcmagent"))
			if test.put != "" {
				putArc(t, filepath.Join(dir, test.put), "connected")
			}
			wantSeen(t, s.lookAtArc(t.Context(), time.Now()), test.health, test.reason)
		})
	}
}

func TestRootRunsOnlyAnAzcmagentOfRoot(t *testing.T) {
	needsRoot(t, "other users run what they may run")
	s, dir := newSuite(t)
	path := putScript(t, filepath.Join(dir, "bin/azcmagent"), "echo '{}'")
	if err := os.Chown(path, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	wantSeen(t, s.lookAtArc(t.Context(), time.Now()), observe.Unknown, "ProgramNotTrusted", path)
	if got := runsOf(t, path); got != 0 {
		t.Errorf("it ran %d times", got)
	}
}

// A first way that works spares the second; one that doesn't is tried each time, since the agent may have been renewed.
func TestTheTableIsAskedForOnlyWithoutJSON(t *testing.T) {
	s, dir := newSuite(t)
	path := putScript(t, filepath.Join(dir, "bin/azcmagent"), `case "$*" in
"show -j") [ -e `+dir+`/new ] && echo '{"status":"Connected","resourceName":"of-json"}' || { echo "unknown shorthand flag: 'j' in -j" >&2; exit 1; } ;;
show) printf 'Resource Name : of-table\nAgent Status : Connected\n' ;;
esac`)
	if got := s.lookAtArc(t.Context(), time.Now()); got.Value.MachineName != "of-table" || runsOf(t, path) != 2 {
		t.Errorf("an old agent: got %+v after %d runs, want the table after 2", got.Value, runsOf(t, path))
	}
	putFile(t, filepath.Join(dir, "new"), nil, 0o644)
	if got := s.lookAtArc(t.Context(), time.Now()); got.Value.MachineName != "of-json" || runsOf(t, path) != 3 {
		t.Errorf("a new agent: got %+v after %d runs, want the JSON after one more", got.Value, runsOf(t, path))
	}
}

func TestWhatArcsWordsMean(t *testing.T) {
	for _, test := range []struct {
		name   string
		v      observe.Arc
		health observe.Health
		reason string
		words  string
	}{
		{"connected", observe.Arc{Registered: true, Connected: true, Status: "Connected", MachineName: "m"}, observe.Healthy, "Connected", "as m"},
		{"disconnected", observe.Arc{Registered: true, Status: "Disconnected"}, observe.Unhealthy, "Disconnected", "says Disconnected"},
		{"expired", observe.Arc{Registered: true, Status: "Expired"}, observe.Unhealthy, "Expired", "says Expired"},
		{"with an error", observe.Arc{Registered: true, Status: "Expired", ErrorCode: "AZCM1", ErrorDetails: "why"}, observe.Unhealthy, "Expired", "AZCM1 why"},
		{"not registered", observe.Arc{Status: "Disconnected", ErrorCode: "AZCM1"}, observe.Unhealthy, "NotRegistered", "not registered"},
		{"a word that nobody knows is no reason for programs", observe.Arc{Registered: true, Status: "not so well: (2)"}, observe.Unhealthy, "NotConnected", "not so well: (2)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := judgeArc(test.v)
			wantSeen(t, got, test.health, test.reason, test.words)
			if got.Value != test.v {
				t.Errorf("got %+v, want what was seen", got.Value)
			}
		})
	}
}
