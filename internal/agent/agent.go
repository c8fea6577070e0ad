package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/internal/remedy"
	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
)

const (
	// endWait is how long Run waits for its goroutines when it ends. What hangs then is left to the end of the process: the service
	// manager gives two seconds.
	endWait = 1500 * time.Millisecond

	// PauseFile pauses the agent while it exists.
	PauseFile = "/etc/aks-flex-node/paused"
	// JournalName is the journal's file in the state folder.
	JournalName = "journal.db"
)

// Options are what an Agent is made of. Fields that are only for tests say so.
type Options struct {
	// Load reads the configuration: at start and at each reload. A nil Config means that there is none; an error that it can't be used.
	// Either makes the agent only observe.
	Load func() (*config.Config, error)
	// ObserveOnly makes the agent only observe, whatever the configuration says.
	ObserveOnly bool
	Version     string
	// StatusPath is the snapshot's file; empty means status.GetStatusFilePath.
	StatusPath string
	// StateDir is where the journal lies. It is created with mode 0700.
	StateDir string
	// PauseFile is the file that pauses the agent; empty means the constant of that name.
	PauseFile string
	Log       *logrus.Logger // nil logs nothing
	// Reloaded is told each configuration that is put to use, for the logger to follow; nil tells nobody.
	Reloaded func(*config.Config)

	// For tests; nil and zero mean the real thing.
	senses  func(*config.Config) senses
	systemd systemd
	moment  func() journal.Moment
	noSync  bool
	wire    func(*loop) // called before anything begins, to replace parts
}

// senses are what the agent sees with: a probe.Suite.
type senses interface {
	Look(ctx context.Context) observe.Set
	LookAtHost(ctx context.Context) observe.Host
	LookAtUnits(ctx context.Context)
	LookLocal(ctx context.Context)
	LookAtNode(ctx context.Context)
	Latest() (observe.Set, observe.Host)
	OnLanded(landed func())
	WatchNode(ctx context.Context, changed func())
	WatchUnits(ctx context.Context, changed func(unit string))
	Stats() []probe.Stat
	Cluster() (*cluster.Client, cluster.Source)
	Close()
}

// systemd is what the agent acts through.
type systemd interface {
	remedy.Systemd
	State(ctx context.Context) (string, error)
}

// Agent is one agent. Run makes it live; the other methods may be called from any goroutine meanwhile.
type Agent struct {
	o      Options
	reload chan struct{}
	keeper *keeper

	view    atomic.Pointer[View]
	mu      sync.Mutex // guards changed
	changed chan struct{}
}

// New returns an Agent that has not begun.
func New(o Options) *Agent {
	if o.Log == nil {
		o.Log = silent()
	}
	o.StatusPath = cmp.Or(o.StatusPath, status.GetStatusFilePath())
	o.PauseFile = cmp.Or(o.PauseFile, PauseFile)
	if o.senses == nil {
		o.senses = func(cfg *config.Config) senses { return probe.New(cfg, o.Version) }
	}
	if o.systemd == nil {
		o.systemd = &host.Systemd{}
	}
	if o.moment == nil {
		o.moment = Moment
	}
	a := &Agent{o: o, reload: make(chan struct{}, 1), changed: make(chan struct{})}
	a.keeper = newKeeper(filepath.Join(o.StateDir, JournalName), o.moment, o.noSync, o.Log)
	return a
}

// Run lives until ctx ends. It needs less than two seconds for its end, whatever hangs then. It fails only when it can't begin.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	l := newLoop(ctx, a, &all)
	if a.o.wire != nil {
		a.o.wire(l)
	}
	all.Go(func() { a.keeper.run(ctx) })
	all.Go(func() { l.writer.run(ctx) })
	all.Go(func() { l.files.run(ctx) })
	all.Go(func() { l.reporter.run(ctx) })
	all.Go(func() { l.notifier.run(ctx) })
	a.keeper.record(journal.Entry{At: time.Now(), Kind: KindAgent, To: "started", Message: "agent " + a.o.Version})
	l.run(ctx)
	a.o.Log.Info("The agent ends")
	cancel()
	if !waitFor(&all, endWait) {
		a.o.Log.Warn("Something hangs and is left behind at the end")
	}
	return nil
}

// waitFor waits for all of them, but not for longer than so long.
func waitFor(all *sync.WaitGroup, atMost time.Duration) bool {
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	t := time.NewTimer(atMost)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// Reload makes the agent read its configuration anew. It does not wait for that.
func (a *Agent) Reload() {
	select {
	case a.reload <- struct{}{}:
	default: // one is to come anyway
	}
}

// errStarting says that nothing is known yet.
var errStarting = errors.New("the agent has just started: ask again in a moment")

// View returns what the agent knows. With after greater than zero it waits for a View of a greater Generation, and returns the present one
// when ctx ends first. It fails only in the first moments of the agent.
func (a *Agent) View(ctx context.Context, after uint64) (*View, error) {
	for {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		v := a.view.Load()
		if v != nil && (after == 0 || v.Generation > after) {
			return v, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if v == nil {
				return nil, errStarting
			}
			return v, nil
		}
	}
}

// publish makes v the present View, and wakes who waits for another generation.
func (a *Agent) publish(v *View) {
	before := a.view.Swap(v)
	if before != nil && before.Generation == v.Generation {
		return
	}
	a.mu.Lock()
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
}

// History returns what the journal's History does.
func (a *Agent) History(ctx context.Context, from, to time.Time, limit int) ([]journal.Entry, error) {
	return ask(ctx, a.keeper, func(j *journal.Journal) ([]journal.Entry, error) { return j.History(from, to, limit) })
}

// Pause makes the agent change nothing until Resume, or until the pause ends.
func (a *Agent) Pause(ctx context.Context, p journal.Pause) error {
	_, err := ask(ctx, a.keeper, func(j *journal.Journal) (struct{}, error) { return struct{}{}, j.Pause(a.o.moment(), p) })
	return err
}

// Resume ends a pause by command. One by file ends when the file is removed.
func (a *Agent) Resume(ctx context.Context, by string) error {
	_, err := ask(ctx, a.keeper, func(j *journal.Journal) (struct{}, error) { return struct{}{}, j.Resume(a.o.moment(), by) })
	return err
}

// Moment is the present moment as this host tells it. What it can't tell makes budgets age more slowly, never faster.
func Moment() journal.Moment {
	m := journal.Moment{Wall: time.Now()}
	if boot, err := host.BootID(); err == nil {
		m.Boot = boot
	}
	if up, err := host.Uptime(); err == nil {
		m.Uptime = up
	} else {
		m.Boot = ""
	}
	if c, err := host.Clock(); err == nil {
		m.Synced = c.Synchronized
	}
	return m
}

// nodeName returns the node's name as far as it is known.
func nodeName(set *observe.Set, cfg *config.Config) string {
	if set.Node.Value.Name != "" {
		return set.Node.Value.Name
	}
	if cfg != nil && cfg.Node.Name != "" {
		return cfg.Node.Name
	}
	name, _ := os.Hostname() // without it, the node has no name
	return strings.ToLower(name)
}

// deed words a remedy for logs and events.
func deed(d decision.Decision) string {
	return strings.TrimSpace(string(d.Action) + " " + d.Unit)
}
