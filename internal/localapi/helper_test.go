package localapi

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/pkg/status"
)

// patience is for what must happen, and fails the test only when it never does.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// someTime is in the past of every clock that runs this.
var someTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeAgent answers as the running agent does: from memory, and with waiting for news.
type fakeAgent struct {
	mu      sync.Mutex
	v       *agent.View
	changed chan struct{}
	waiting chan struct{} // gets one for each question that begins to wait
	entries []journal.Entry
	asked   span
	pauses  []journal.Pause
	resumed []string
	err     error         // of History, Pause and Resume
	hang    chan struct{} // History, Pause and Resume wait for it or for their context; nil: they don't
}

func newFake(v *agent.View) *fakeAgent {
	return &fakeAgent{v: v, changed: make(chan struct{}), waiting: make(chan struct{}, 1000)}
}

func (f *fakeAgent) publish(v *agent.View) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.v = v
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAgent) View(ctx context.Context, after uint64) (*agent.View, error) {
	for {
		f.mu.Lock()
		v, changed := f.v, f.changed
		f.mu.Unlock()
		if v != nil && (after == 0 || v.Generation > after) {
			return v, nil
		}
		f.waiting <- struct{}{}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *fakeAgent) work(ctx context.Context) error {
	f.mu.Lock()
	hang, err := f.hang, f.err
	f.mu.Unlock()
	if hang != nil {
		f.waiting <- struct{}{}
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (f *fakeAgent) History(ctx context.Context, from, to time.Time, limit int) ([]journal.Entry, error) {
	if err := f.work(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = span{from, to, limit}
	return f.entries, nil
}

func (f *fakeAgent) Pause(ctx context.Context, p journal.Pause) error {
	if err := f.work(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pauses = append(f.pauses, p)
	return nil
}

func (f *fakeAgent) Resume(ctx context.Context, by string) error {
	if err := f.work(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resumed = append(f.resumed, by)
	return nil
}

// wellView is that of a node that works.
func wellView() *agent.View {
	var conditions []health.Condition
	for _, row := range health.Table() {
		c := health.Condition{Type: row.Type, Status: health.True, Reason: "AsItShouldBe", Message: "all is well", LastTransitionTime: someTime}
		if row.Bad == health.True {
			c.Status = health.False
		}
		conditions = append(conditions, c)
	}
	return &agent.View{
		Generation: 7, At: someTime.Add(time.Hour), AgentVersion: "v1.2.3", Started: someTime, Node: "edge-1",
		Mode: decision.Act, Conditions: conditions,
		Decision: decision.Decision{At: someTime.Add(time.Hour), Action: decision.None, Reason: "Healthy", Message: "nothing asks for an action", Evidence: []decision.Evident{}, Guards: []decision.Guard{}},
		Budget:   agent.Budget{MaxBootstraps: 3},
		Snapshot: &status.NodeStatus{KubeletVersion: "1.32.7", KubeletRunning: true, KubeletReady: "Ready", LastUpdated: someTime.Add(time.Hour)},
		Host: observe.Host{
			Certificate: observe.See(observe.Certificate{Path: "/pki", NotAfter: someTime.Add(90 * 24 * time.Hour)}, observe.Healthy, "Valid", "valid"),
			Disk:        observe.See(observe.Disk{Paths: []observe.Space{{Path: "/var/lib", Bytes: 100e9, BytesFree: 60e9, Inodes: 1e6, InodesFree: 9e5}}}, observe.Healthy, "Enough", "enough"),
		},
		Counters: agent.Counters{Looks: 60, Events: 5, Decisions: 2, SnapshotWrites: 60, NodeConditionWrites: 3},
		Probes:   []probe.Stat{{Name: "Arc", Looks: 60, Last: 1500 * time.Millisecond}, {Name: "systemd", Looks: 64, Failures: 1, Last: 12 * time.Millisecond}},
	}
}

// illView is that of a node about which everything is to be said.
func illView() *agent.View {
	v := wellView()
	v.Generation, v.Mode, v.ModeReason, v.JournalProblem = 8, decision.ObserveOnly, "told to", "read-only file system"
	v.Conditions[0].Status, v.Conditions[0].Severity = health.False, health.Critical
	v.Conditions[1].Status, v.Conditions[1].Reason = health.Unknown, health.ReasonDependencyUnhealthy
	v.Decision = decision.Decision{At: v.At, Action: decision.Hold, Unit: decision.ContainerdUnit, Wanted: decision.Restart, Reason: "BudgetUsedUp", Message: "held", Until: v.At.Add(time.Minute)}
	v.Remedy = &decision.Remedy{Name: "restart", Unit: decision.ContainerdUnit, Step: "start", Since: someTime}
	v.Pauses = []decision.Pause{{By: "jo", Reason: "work"}, {By: "/etc/paused", Since: someTime.Add(time.Minute)}, {By: "al", Since: someTime}}
	v.Budget = agent.Budget{Bootstraps: 3, MaxBootstraps: 3, Unknown: 90 * time.Minute}
	v.Counters.SnapshotWriteErrors, v.Counters.ClusterErrors = 2, 4
	v.Counters.Remedies = map[string]map[string]uint64{"restart": {"succeeded": 4, "failed": 1}, "bootstrap": {"abandoned": 1}}
	v.Probes[0].Hangs = true
	return v
}

// socketIn returns a path for a socket in a folder of its own. Paths of sockets must be short, so it is not t.TempDir.
func socketIn(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localapi")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, socketName)
}

// serve runs the API of a until the test ends or stop is called. stop waits for Serve to return.
func serve(t testing.TB, a Agent) (path string, stop func()) {
	t.Helper()
	path = socketIn(t)
	l, err := listen(path)
	must(t, err)
	stop = serveOn(t, l, Handler(a, nil))
	return path, stop
}

func serveOn(t testing.TB, l net.Listener, h http.Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serveUntil(ctx, l, h) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("Serve: got error %v, want none", err)
				}
			case <-time.After(patience):
				t.Error("Serve has not returned after its context ended")
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// httpClient speaks plain HTTP over the socket.
func httpClient(t testing.TB, path string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("got error %v, want one that is %v", got, want)
	}
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: acts as another user")
	}
}
