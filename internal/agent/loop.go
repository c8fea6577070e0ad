package agent

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/remedy"
	"github.com/aks-flex-node/agent/pkg/config"
)

const (
	// restoreWait is how long the loop waits for what the journal knows of the time before. A disk that hangs must not keep it blind.
	restoreWait = 4 * time.Second
	// firstWait is how long the first snapshot waits for a look that takes its time.
	firstWait = 6 * time.Second
	// firstWrite is until when, after the start, the first judgement waits for the first write of the snapshot.
	firstWrite = firstWait + 2*time.Second
	// leastGap is the least time between two rounds that no event asked for, whatever is due.
	leastGap = time.Second
	// stateEvery is how often systemd is asked how the host as a whole is; a decision to act needs an answer not older than three times that.
	stateEvery = 30 * time.Second
)

// settleAfter is how long after an event the host's daemons are looked at again: what was started needs a moment to answer.
func settleAfter() []time.Duration {
	return []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 20 * time.Second}
}

// loop is the one goroutine that joins what is seen, known and wanted. It computes and never waits for anything but the next wake-up;
// all its fields belong to it.
type loop struct {
	a   *Agent
	ctx context.Context //nolint:containedctx // the agent's life, which the goroutines that the loop begins share
	all *sync.WaitGroup

	writer   *writer
	files    *files
	reporter *reporter
	notifier *notifier

	cfg        *config.Config
	mode       decision.Mode
	modeReason string
	refused    string // why the configuration was not read anew, if so
	thresholds decision.Thresholds
	eyes       *eyes
	teller     atomic.Pointer[eyes] // whose cluster is told; nil when nobody is
	landed     chan struct{}        // cap 1: a look has ended
	done       chan seen            // a goroutine that looked is done
	units      chan struct{}        // cap 1: systemd told of a unit
	node       chan struct{}        // cap 1: the watch of the Node told something
	busy       map[look]bool
	again      map[look]bool

	tracker    *health.Tracker
	evidence   decision.Evidence
	conditions []health.Condition
	recorded   []health.Condition // as the history has them
	facts      facts
	decided    decision.Decision
	explained  bool // there is a decision
	whole      bool // a whole round of these eyes has ended
	started    time.Time
	opened     time.Time // when these eyes were
	lastRound  time.Time
	nextRound  time.Time
	nextCheck  time.Time // of whether the snapshot asks for a bootstrap
	settle     []time.Time
	system     systemState
	states     chan systemState
	asking     bool // how the host is
	loads      chan loaded
	loading    bool
	loadAgain  bool

	running  bool // a remedy's goroutine is
	progress chan remedy.Progress
	ended    chan ending
	now      remedy.Progress // of the one that runs
	// What the history was told of pauses.
	heldByFile    bool
	heldByCommand *journal.Pause

	askedThen uint64    // facts older than this do not know yet what the last remedy did
	unseen    int       // looks at the units that have to end before what the last remedy did is known
	notBefore time.Time // when an unfinished remedy may be tried again
	attempt   string    // which attempt the one that runs is
	reload    bool      // the configuration is to be read anew when the remedy has ended

	counters Counters
	view     View
	status   string
}

// look is one kind of looking: each has at most one goroutine.
type look int

const (
	lookRound look = iota
	lookUnits
	lookLocal
	lookNode
	lookHost
)

// seen is a look that has ended, and with which eyes.
type seen struct {
	look look
	by   *eyes
}

// eyes are the senses of one configuration, with the goroutines that serve them.
type eyes struct {
	senses
	end context.CancelFunc
	ctx context.Context //nolint:containedctx // their own life, which ends when the configuration is replaced
	// watching: the Node is watched. That begins once the kubelet was looked at, whose arguments say with which credentials.
	watching bool
}

// systemState is what systemd says about the host as a whole.
type systemState struct {
	state string
	at    time.Time
}

// ending is how a remedy's goroutine ended.
type ending struct {
	outcome *remedy.Outcome // nil when there was nothing to resume
	err     error
}

func newLoop(ctx context.Context, a *Agent, all *sync.WaitGroup) *loop {
	l := &loop{
		a: a, ctx: ctx, all: all,
		landed: make(chan struct{}, 1), units: make(chan struct{}, 1), node: make(chan struct{}, 1),
		done: make(chan seen), states: make(chan systemState), loads: make(chan loaded), progress: make(chan remedy.Progress), ended: make(chan ending),
		busy: map[look]bool{}, again: map[look]bool{},
		tracker: health.NewTracker(), started: time.Now(),
		notifier: newNotifier(),
	}
	l.writer = newWriter(a.o.StatusPath, a.o.Log)
	l.files = newFiles(a.o.StatusPath, a.o.PauseFile)
	l.reporter = newReporter(l.tellCluster, a.o.Log)
	l.view = View{AgentVersion: a.o.Version, Started: l.started}
	return l
}

// run turns until ctx ends.
func (l *loop) run(ctx context.Context) {
	l.notifier.tell("READY=1")
	l.load()
	select {
	case c := <-l.loads:
		l.loading = false
		l.configure(c)
	case <-time.After(restoreWait):
		l.configure(loaded{err: errNotReadYet})
	case <-ctx.Done():
		return
	}
	defer func() { l.all.Go(l.eyes.close) }()
	l.restore(ctx)
	l.round(time.Now())
	watchdog := l.notifier.watchdog()
	defer watchdog.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(l.due()))
		select {
		case <-ctx.Done():
			return
		case <-watchdog.C:
			l.alive()
			continue
		case <-l.landed:
		case s := <-l.done:
			l.looked(s)
		case <-l.units:
			l.event()
		case <-l.node:
			l.counters.Events++
			l.look(lookNode)
		case <-l.files.changed:
			l.counters.Events++
		case <-l.writer.wrote:
		case s := <-l.states:
			l.system, l.asking = s, false
		case <-l.a.keeper.told:
		case l.now = <-l.progress:
		case e := <-l.ended:
			l.remedied(e)
		case <-l.a.reload:
			l.reread()
		case c := <-l.loads:
			l.reconfigure(c)
		case <-timer.C:
			l.timed(time.Now())
		}
		l.think(time.Now())
	}
}

// alive tells the watchdog that the loop turns, unless a remedy's step is past its deadline: then only a new process gets out of it, which
// goes on by the journal.
func (l *loop) alive() {
	if l.running && !l.now.Deadline.IsZero() && time.Now().After(l.now.Deadline) {
		return
	}
	l.notifier.tell("WATCHDOG=1")
}

// restore takes over what was so when the last agent ended.
func (l *loop) restore(ctx context.Context) {
	select {
	case <-l.a.keeper.told:
	case <-time.After(restoreWait):
		l.a.o.Log.Warn("The journal has not been read yet: the agent begins without what was known before")
	case <-ctx.Done():
		return
	}
	f := l.a.keeper.latest()
	l.tracker.Restore(f.conditions)
	l.conditions, l.recorded, l.heldByFile = f.conditions, f.conditions, f.heldByFile
	if !f.lastWell.After(time.Now()) { // else the clock was set back since
		l.evidence.LastWell = f.lastWell
	}
	// Attempts are as old as they are at least, and the clock may have been set: by their times alone some might seem to have come after that.
	for _, a := range slices.Concat(f.restarts, f.bootstraps) {
		if end := f.at.Add(-a.ended); a.remedy <= f.forgotten && end.After(l.evidence.LastWell) {
			l.evidence.LastWell = end
		}
	}
}
