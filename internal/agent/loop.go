package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
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

	running   bool // a remedy's goroutine is
	progress  chan remedy.Progress
	ended     chan ending
	now       remedy.Progress // of the one that runs
	askedThen uint64          // facts older than this do not know yet what the last remedy did
	unseen    int             // looks at the units that have to end before what the last remedy did is known
	notBefore time.Time       // when an unfinished remedy may be tried again
	attempt   string          // which attempt the one that runs is
	reload    bool            // the configuration is to be read anew when the remedy has ended

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
	l.conditions = f.conditions
	if !f.lastWell.After(time.Now()) { // else the clock was set back since
		l.evidence.LastWell = f.lastWell
	}
}

// loaded is a configuration that was read, or why it was not.
type loaded struct {
	cfg *config.Config
	err error
}

// errNotReadYet keeps an agent whose configuration lies on a disk that hangs observing until it is read.
var errNotReadYet = errors.New("the configuration has not been read yet: does its disk hang?")

// load reads the configuration, in a goroutine: its disk may hang.
func (l *loop) load() {
	if l.loading {
		l.loadAgain = true
		return
	}
	l.loading = true
	l.all.Go(func() {
		cfg, err := l.a.o.Load()
		if err != nil {
			cfg = nil
		}
		select {
		case l.loads <- loaded{cfg, err}:
		case <-l.ctx.Done():
		}
	})
}

// configure puts a configuration to use. Senses that it does not concern are kept, with all that they know.
func (l *loop) configure(c loaded) {
	old := l.eyes
	keep := old != nil && sameSenses(l.cfg, c.cfg)
	l.cfg = c.cfg
	l.mode, l.modeReason = modeOf(c.cfg, c.err, l.a.o.ObserveOnly)
	l.thresholds = thresholdsOf(c.cfg)
	if l.a.o.Reloaded != nil && c.cfg != nil {
		l.a.o.Reloaded(c.cfg)
	}
	l.a.o.Log.Infof("The agent %s", modeText(l.mode, l.modeReason, c.cfg))
	if !keep {
		l.open()
		if old != nil {
			l.all.Go(old.close)
		}
	}
	l.teller.Store(nil)
	if l.mode == decision.Act {
		l.teller.Store(l.eyes)
	}
}

// sameSenses reports whether two configurations make the agent see the same: they differ in the agent's own section alone.
func sameSenses(a, b *config.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Agent, y.Agent = config.AgentConfig{}, config.AgentConfig{}
	return reflect.DeepEqual(x, y)
}

func modeText(mode decision.Mode, reason string, cfg *config.Config) string {
	switch {
	case mode != decision.Act:
		return "only observes: " + reason
	case cfg != nil && cfg.Agent.DryRun:
		return "acts in words only (agent.dryRun)"
	}
	return "acts when that is safe"
}

// open begins to look with a configuration's senses.
func (l *loop) open() {
	e := &eyes{senses: l.a.o.senses(l.cfg)}
	e.ctx, e.end = context.WithCancel(l.ctx)
	e.OnLanded(func() { poke(l.landed) })
	l.all.Go(func() { e.WatchUnits(e.ctx, func(string) { poke(l.units) }) })
	l.eyes, l.opened, l.whole = e, time.Now(), false
}

// watch begins to watch the Node.
func (l *loop) watch(e *eyes) {
	e.watching = true
	l.all.Go(func() { e.WatchNode(e.ctx, func() { poke(l.node) }) })
}

// close ends the senses. It may take as long as what hangs there.
func (e *eyes) close() {
	e.end()
	e.Close()
}

// reread has the configuration read anew, after a remedy in progress.
func (l *loop) reread() {
	if l.running {
		l.a.o.Log.Info("The configuration will be read anew when the remedy in progress has ended")
		l.reload = true
		return
	}
	l.notifier.tell("RELOADING=1")
	l.load()
}

// reconfigure takes a configuration that was read, unless it is worse than the present one.
func (l *loop) reconfigure(c loaded) {
	l.loading = false
	if l.loadAgain {
		l.loadAgain = false
		l.load()
		return
	}
	defer l.notifier.tell("READY=1")
	switch {
	case l.running:
		l.reload = true
		return
	case l.cfg != nil && c.err != nil:
		l.a.o.Log.Warnf("The configuration was not read anew, the one before is kept: %v", c.err)
		return
	case l.cfg != nil && c.cfg == nil:
		l.a.o.Log.Warn("The configuration is gone; the one before is kept. Restart the agent to make it only observe")
		return
	}
	l.configure(c)
	l.round(time.Now())
}

// event is what systemd's word leads to.
func (l *loop) event() {
	l.counters.Events++
	l.look(lookUnits)
	l.settle = nil
	for _, d := range settleAfter() {
		l.settle = append(l.settle, time.Now().Add(d))
	}
}

// look begins a look in a goroutine, or has the one under way followed by another: it may have begun before what asks for it.
func (l *loop) look(k look) {
	if l.busy[k] {
		l.again[k] = true
		return
	}
	l.busy[k] = true
	e := l.eyes
	l.all.Go(func() {
		switch k {
		case lookRound:
			e.Look(e.ctx)
		case lookUnits:
			e.LookAtUnits(e.ctx)
		case lookLocal:
			e.LookLocal(e.ctx)
		case lookNode:
			e.LookAtNode(e.ctx)
		case lookHost:
			e.LookAtHost(e.ctx)
		}
		select {
		case l.done <- seen{k, e}:
		case <-l.ctx.Done():
		}
	})
}

// looked is told when a look has ended.
func (l *loop) looked(s seen) {
	k := s.look
	l.busy[k] = false
	if k == lookRound {
		l.counters.Looks++
		l.whole = l.whole || s.by == l.eyes
	}
	if k == lookUnits && l.unseen > 0 {
		l.unseen--
	}
	if l.again[k] {
		l.again[k] = false
		l.look(k)
	} else if k == lookUnits {
		l.look(lookLocal) // what the unit's program says of itself comes after the unit's word, which must not wait for it
	}
}

// round begins a look at everything.
func (l *loop) round(now time.Time) {
	l.lastRound = now
	every := l.cfg.GetStatusInterval()
	l.nextRound = now.Add(every - time.Duration(rand.Int64N(int64(every)/10+1))) //nolint:gosec // spreads a fleet, hides nothing
	l.look(lookRound)
	l.look(lookHost)
	l.askState(now)
	if l.nextCheck.IsZero() {
		l.nextCheck = now.Add(l.cfg.GetBootstrapCheckInterval())
	}
}

// askState asks systemd how the host is.
func (l *loop) askState(now time.Time) {
	if l.asking || now.Sub(l.system.at) < stateEvery && l.system.state != "" {
		return
	}
	l.asking = true
	l.all.Go(func() {
		s := hostState(l.ctx, l.a.o.systemd)
		select {
		case l.states <- s:
		case <-l.ctx.Done():
		}
	})
}

// hostState asks systemd how the host as a whole is.
func hostState(ctx context.Context, s systemd) systemState {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	state, err := s.State(ctx)
	if err != nil {
		state = "" // not known
	}
	return systemState{state, time.Now()}
}

// due is when the loop has to turn though nothing happens.
func (l *loop) due() time.Time {
	due := l.nextRound
	if l.nextCheck.Before(due) {
		due = l.nextCheck
	}
	first := l.opened.Add(firstWait)
	if l.whole {
		first = l.started.Add(firstWrite)
	}
	if (!l.whole || !l.explained) && first.Before(due) {
		due = first
	}
	for _, t := range []time.Time{l.tracker.Next(), l.decided.NextLook} {
		if !t.IsZero() && t.Before(due) {
			due = t
		}
	}
	if least := l.lastRound.Add(leastGap); due.Before(least) {
		due = least
	}
	if len(l.settle) > 0 && l.settle[0].Before(due) {
		due = l.settle[0]
	}
	return due
}

// timed does what is due.
func (l *loop) timed(now time.Time) {
	for len(l.settle) > 0 && !l.settle[0].After(now) {
		l.settle = l.settle[1:]
		l.look(lookUnits)
	}
	if now.Sub(l.opened) >= firstWait {
		l.whole = true
	}
	if !l.nextCheck.After(now) {
		l.nextCheck = now.Add(l.cfg.GetBootstrapCheckInterval())
		l.writer.check(l.cfg)
	}
	soonest := l.nextRound
	for _, t := range []time.Time{l.tracker.Next(), l.decided.NextLook} {
		if !t.IsZero() && t.Before(soonest) {
			soonest = t
		}
	}
	if !soonest.After(now) && now.Sub(l.lastRound) >= leastGap {
		l.round(now)
	}
}
