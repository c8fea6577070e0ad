package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
)

// bed is a machine with an agent on it, or one agent after another, with a real journal and a real snapshot, in a bubble of time.
type bed struct {
	*machine
	dir  string
	wire func(*loop) // more to replace; nil for nothing
	log  logbook

	a      *Agent
	loop   *loop
	sight  *sight // the latest
	cancel func()
	done   chan error

	// Guarded by the machine's mu: what hangs until it is closed.
	keeperHangs, writerHangs, clusterHangs, notifierHangs chan struct{}
	skew                                                  time.Duration // of the clock as the journal hears it
	watchdog                                              time.Duration
	states                                                strings.Builder // what the service manager was told

	// Guarded by loadMu.
	loadMu      sync.Mutex
	cfg         *config.Config
	cfgErr      error
	loadHangs   chan struct{} // the disk that the configuration is on, after it was read; nil for one that does not
	observeOnly bool

	cluster office
}

// newBed must be called in a bubble. The agent has not begun.
func newBed(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agent") // in memory, where there is such a place
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bed{machine: newMachine(t), dir: dir, cfg: validConfig()}
	b.cfg.Agent.Bootstrap.Command = []string{"/opt/join"}
	for _, sub := range []string{"run", "etc"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bed) statusPath() string { return filepath.Join(b.dir, "run", "status.json") }
func (b *bed) pauseFile() string  { return filepath.Join(b.dir, "etc", "paused") }
func (b *bed) stateDir() string   { return filepath.Join(b.dir, "state") }

// start begins a new agent.
func (b *bed) start() {
	log := logrus.New()
	log.SetOutput(&b.log)
	log.AddHook(&b.log)
	b.a = New(Options{
		Load:        b.load,
		ObserveOnly: b.observeOnly, Version: "v1", StatusPath: b.statusPath(), StateDir: b.stateDir(), PauseFile: b.pauseFile(), Log: log,
		senses: func(*config.Config) senses {
			b.sight = &sight{m: b.machine}
			return b.sight
		},
		systemd: b.machine, moment: b.moment, noSync: true, wire: b.replace,
	})
	ctx, cancel := context.WithCancel(b.t.Context())
	a, done := b.a, make(chan error, 1)
	b.cancel, b.done = cancel, done
	go func() { done <- a.Run(ctx) }()
}

func (b *bed) load() (*config.Config, error) {
	b.loadMu.Lock()
	cfg, err, hangs := b.cfg, b.cfgErr, b.loadHangs
	b.loadMu.Unlock()
	if hangs != nil {
		<-hangs
	}
	return cfg, err
}

func (b *bed) replace(l *loop) {
	b.loop = l
	l.files.newWatcher = func() (*fsnotify.Watcher, error) { return nil, errors.New("not in a bubble") } // one that waits for the kernel stops its time
	l.writer.judge = func(context.Context, *config.Config) []string {
		b.passes(func() chan struct{} { return b.writerHangs })
		return asks(b.statusPath())
	}
	l.a.keeper.moment = func() journal.Moment {
		b.passes(func() chan struct{} { return b.keeperHangs })
		m := b.moment()
		b.mu.Lock()
		defer b.mu.Unlock()
		m.Wall = m.Wall.Add(b.skew)
		return m
	}
	l.notifier.every = b.watchdog
	l.notifier.send = func(state string) {
		b.passes(func() chan struct{} { return b.notifierHangs })
		b.mu.Lock()
		defer b.mu.Unlock()
		b.states.WriteString(state + "\n")
	}
	l.reporter.patch = func(_ context.Context, c cluster.NodeCondition) error {
		return b.tell(l, func() { b.cluster.conditions = append(b.cluster.conditions, c) })
	}
	l.reporter.create = func(_ context.Context, e cluster.Event) error {
		return b.tell(l, func() { b.cluster.events = append(b.cluster.events, e) })
	}
	if b.wire != nil {
		b.wire(l)
	}
}

// passes waits for what hangs.
func (b *bed) passes(what func() chan struct{}) {
	b.mu.Lock()
	c := what()
	b.mu.Unlock()
	if c != nil {
		<-c
	}
}

func (b *bed) tell(l *loop, what func()) error {
	if l.teller.Load() == nil {
		return errNobody
	}
	b.passes(func() chan struct{} { return b.clusterHangs })
	b.mu.Lock()
	cut := b.linkCut
	b.mu.Unlock()
	if cut {
		return errors.New("no answer")
	}
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	what()
	return nil
}

// asks is whether the snapshot asks for a bootstrap, much as NeedsBootstrap has it.
func asks(path string) (grounds []string) {
	s, err := status.LoadStatusFromFile(path)
	switch {
	case os.IsNotExist(err):
		return []string{"SnapshotMissing"}
	case err != nil:
		return []string{"SnapshotUnreadable"}
	case time.Since(s.LastUpdated) > 5*time.Minute:
		return []string{"SnapshotStale"}
	}
	if !s.KubeletRunning {
		grounds = append(grounds, "KubeletNotRunning")
	}
	if !s.ArcStatus.Connected {
		grounds = append(grounds, "ArcNotConnected")
	}
	return grounds
}

// stop ends the agent, and returns how long it took to end.
func (b *bed) stop() time.Duration {
	b.t.Helper()
	began := time.Now()
	b.cancel()
	if err := <-b.done; err != nil {
		b.t.Errorf("Run: got %v, want nil", err)
	}
	took := time.Since(began)
	synctest.Wait()
	return took
}

// runs starts an agent and gives it a minute to settle down.
func (b *bed) runs() {
	b.start()
	after(time.Minute)
}

func (b *bed) view() *View {
	b.t.Helper()
	v, err := b.a.View(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bed) snapshot() *status.NodeStatus {
	s, err := status.LoadStatusFromFile(b.statusPath())
	if err != nil {
		return nil
	}
	return s
}

// rounds is how often everything was looked at.
func (b *bed) rounds() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.looks
}

// said is what the service manager was told since the last call.
func (b *bed) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.states.Reset()
	return b.states.String()
}

// told is what the cluster was told last, and toldTimes how often it was told.
func (b *bed) told() cluster.NodeCondition { return b.cluster.last() }

func (b *bed) toldTimes() int {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	return len(b.cluster.conditions)
}

// eventsTold are the Events of the cluster, as words.
func (b *bed) eventsTold() (all []string) {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	for _, e := range b.cluster.events {
		all = append(all, e.Type+" "+e.Reason+" "+e.Action+": "+e.Message)
	}
	return all
}

func (b *bed) history() []journal.Entry {
	b.t.Helper()
	synctest.Wait()
	entries, err := b.a.History(b.t.Context(), time.Time{}, time.Time{}, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return entries
}

// recorded is the history of one kind, as words.
func (b *bed) recorded(kind string) (all []string) {
	b.t.Helper()
	for _, e := range b.history() {
		if e.Kind == kind {
			all = append(all, strings.TrimSpace(e.Subject+" "+e.From+" → "+e.To+" "+e.Reason))
		}
	}
	return all
}

// wants checks the decision.
func (b *bed) wants(action decision.Action, reason string) {
	b.t.Helper()
	synctest.Wait()
	if d := b.view().Decision; d.Action != action || d.Reason != reason {
		b.t.Errorf("got the decision %s (%s): %s\nwant %s (%s)", d.Action, d.Reason, d.Message, action, reason)
	}
}

// hasDone checks what was done by way of systemd since the last such check.
func (b *bed) hasDone(want ...string) {
	b.t.Helper()
	synctest.Wait()
	if got := b.did(); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("got done %q, want %q", got, want)
	}
}

// restarts waits until a unit that has just failed is being restarted: when that is confirmed, at the next look.
func (b *bed) restarts(unit string) {
	b.t.Helper()
	after(decision.ConfirmFor - time.Second)
	b.hasDone()
	b.wants(decision.Wait, "Confirming")
	for range 21 {
		after(time.Second)
		if did := b.did(); len(did) > 0 {
			if want := []string{"reset-failed " + unit, "start " + unit}; fmt.Sprint(did) != fmt.Sprint(want) {
				b.t.Errorf("got done %q, want %q", did, want)
			}
			return
		}
	}
	b.t.Fatalf("got nothing done, want a restart of %s; decision %+v", unit, b.view().Decision)
}

// condition is one condition as the agent shows it.
func (b *bed) condition(name string) health.Condition {
	b.t.Helper()
	for _, c := range b.view().Conditions {
		if c.Type == name {
			return c
		}
	}
	return health.Condition{}
}

func (b *bed) write(path, text string) {
	b.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) remove(path string) {
	b.t.Helper()
	if err := os.Remove(path); err != nil {
		b.t.Fatal(err)
	}
}

// stops is what a person does to the kubelet.
func stops(m *machine) { m.kubelet.stop() }

// fails is a kubelet that fails once.
func fails(m *machine) { m.kubelet.fail() }

// logbook keeps what was logged.
type logbook struct {
	mu    sync.Mutex // guards the fields below
	text  strings.Builder
	heard func(message string) // told of each message, before the logger returns; nil for nobody
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (*logbook) Levels() []logrus.Level { return logrus.AllLevels }

func (b *logbook) Fire(e *logrus.Entry) error {
	if b.heard != nil {
		b.heard(e.Message)
	}
	return nil
}

// take returns what was logged since the last call.
func (b *logbook) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// tail returns the last lines.
func (b *logbook) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := strings.Split(b.text.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
