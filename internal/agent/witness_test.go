package agent

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/remedy"
)

// witness keeps a record of what is done to a machine, of its own making, and judges it by the truth. What it hears of the agent are only
// the beginning and the end of remedies.
type witness struct {
	s      *simulation
	counts *counts
	began  time.Time

	mu        sync.Mutex // guards the fields below; it is taken after the machine's
	attempts  []*tried
	active    bool // since this agent began it
	byFile    bool // paused
	byCommand bool
	dryRun    time.Time // since when
	lost      int       // how many attempts were begun before the journal was lost
}

// tried is one remedy that was begun.
type tried struct {
	action, unit string
	began, ended time.Time // ended is zero while it is in progress
	acted        bool      // something was done to the machine
	outcome      string
}

func newWitness(s *simulation, counts *counts) *witness {
	return &witness{s: s, counts: counts, began: time.Now()}
}

func (w *witness) pause(byFile, paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if byFile {
		w.byFile = paused
	} else {
		w.byCommand = paused
	}
}

// configured is told of each change of the configuration.
func (w *witness) configured(dryRun bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !dryRun:
		w.dryRun = time.Time{}
	case w.dryRun.IsZero():
		w.dryRun = time.Now()
	}
}

func (w *witness) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active
}

func (w *witness) agentEnded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active = false
}

// lostHistory is told when the journal is lost: pauses and the remedy in progress are forgotten with it.
func (w *witness) lostHistory() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byCommand, w.lost = false, len(w.attempts)
	for _, a := range w.attempts {
		if a.ended.IsZero() {
			a.ended = time.Now()
		}
	}
}

// heard is told what the agent logs, before it goes on.
func (w *witness) heard(message string) {
	word, rest, _ := strings.Cut(message, ": ")
	resumed := strings.HasPrefix(message, "Going on with ")
	if !resumed && word != "Begin" && word != "End" {
		return
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case resumed:
		w.counts.add("resumed")
		w.begins()
	case word == "Begin":
		deed, _, _ := strings.Cut(rest, ": ")
		action, unit, _ := strings.Cut(deed, " ")
		w.attempts = append(w.attempts, &tried{action: action, unit: unit, began: time.Now()})
		w.begins()
		w.objects(w.attempts[len(w.attempts)-1])
	default:
		w.counts.add("remedies ended")
		w.active = false
		a := w.attempts[len(w.attempts)-1]
		a.ended = time.Now()
		_, after, _ := strings.Cut(rest, ": ")
		outcome, _, _ := strings.Cut(after, ": ")
		a.outcome = outcome
		w.counts.add(a.action + " " + outcome)
	}
}

// begins checks what holds for every remedy, also one that is gone on with.
func (w *witness) begins() {
	switch {
	case w.active:
		w.s.failf("two remedies at once")
	case w.byFile, w.byCommand:
		w.s.failf("began while paused (file %v, command %v)", w.byFile, w.byCommand)
	case !w.dryRun.IsZero() && time.Since(w.dryRun) > time.Second:
		w.s.failf("began in a dry-run")
	}
	w.active = true
}

// objects checks a remedy that begins.
func (w *witness) objects(a *tried) {
	s, m := w.s, w.s.machine
	set, _ := s.sight.Latest()
	missing := m.kubelet.LoadState == "not-found"
	works := m.since["works"]
	switch {
	case m.commandRuns() && len(w.attempts)-1 > w.lost:
		s.failf("began while the command runs")
	case !set.KubeletUnit.Known() || time.Since(set.KubeletUnit.At) > s.gap:
		s.failf("began without knowing about the kubelet's unit: %+v", set.KubeletUnit)
	case !missing && time.Since(m.booted) < decision.MinUptime:
		s.failf("began %s after the start of the host", time.Since(m.booted))
	case m.longer("dark", s.gap):
		s.failf("began though systemd has not answered for %s", time.Since(m.since["dark"]))
	case m.longer("works", s.gap):
		s.failf("began on a node that has worked for %s", time.Since(works))
	case a.action == string(decision.Restart):
		w.objectsToRestart(a)
	}
}

// since returns the attempts that still count: those that did something since all was last well.
func (w *witness) since(action, unit string) (all []*tried) {
	m := w.s.machine
	well := m.well
	if m.longer("up", decision.Recovered) {
		well = time.Now()
	}
	for _, a := range w.attempts[w.lost:] {
		switch {
		case !a.began.After(well) || !a.acted || a.ended.IsZero() || time.Since(a.began) >= decision.BudgetWindow:
		case a.action == action && (unit == "" || a.unit == unit):
			all = append(all, a)
		case a.action == string(decision.Bootstrap) && a.outcome == remedy.Succeeded:
			all = nil // restarts from before count no more
		}
	}
	return all
}

// tell says what was tried, for people.
func (w *witness) tell(attempts []*tried) string {
	var all []string
	for _, a := range attempts {
		all = append(all, fmt.Sprintf("%s %s from %s to %s: %s", a.action, a.unit, a.began.Sub(w.began), a.ended.Sub(w.began), a.outcome))
	}
	return strings.Join(all, "; ")
}

func (w *witness) objectsToRestart(a *tried) {
	before := w.since(a.action, a.unit)
	gaps := []time.Duration{0, 30 * time.Second, time.Minute}
	switch n := len(before); {
	case n >= len(gaps):
		w.s.failf("restarted %s for the %dth time: %s", a.unit, n+1, w.tell(before))
	case n > 0 && time.Since(before[n-1].ended) < gaps[n]:
		w.s.failf("restarted %s %s after restart %d", a.unit, time.Since(before[n-1].ended), n)
	}
}

// acted is told of each act, before it has an effect. The caller holds the machine's mu.
func (w *witness) acted(a act) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.add(a.what)
	m := w.s.machine
	if !w.active {
		w.s.failf("%s %s without a remedy that was begun", a.what, a.unit)
		return
	}
	t := w.attempts[len(w.attempts)-1]
	if a.what == "command" {
		w.objectsToCommand(t)
		t.acted = true
		return
	}
	d := m.unit(a.unit)
	switch {
	case t.unit != a.unit || t.action != string(decision.Restart):
		w.s.failf("%s %s, though %s %s was begun", a.what, a.unit, t.action, t.unit)
	case m.commandRuns() && len(w.attempts)-1 > w.lost:
		w.s.failf("%s %s while the command runs", a.what, a.unit)
	case d.LoadState == "masked", d.UnitFileState == "disabled":
		w.s.failf("%s %s, which is %s and %s", a.what, a.unit, d.LoadState, d.UnitFileState)
	case w.left(d):
		w.s.failf("%s %s, which somebody stopped %s ago", a.what, a.unit, time.Since(d.stoppedAt))
	}
	t.acted = true
}

// left reports whether a unit is to be left as it is, since somebody stopped it not long ago, and not in the midst of a remedy, when that
// can't be told from what the remedy did.
func (w *witness) left(d *service) bool {
	if d.stoppedAt.IsZero() || time.Since(d.stoppedAt) >= decision.StopHold {
		return false
	}
	for _, a := range w.attempts {
		if !d.stoppedAt.Before(a.began) && (a.ended.IsZero() || !d.stoppedAt.After(a.ended)) {
			return false
		}
	}
	return true
}

func (w *witness) objectsToCommand(t *tried) {
	m, s := w.s.machine, w.s
	if t.acted {
		s.failf("the command was started twice for one bootstrap")
	}
	recent := 0
	for _, a := range w.attempts {
		if a.action == string(decision.Bootstrap) && a.acted && time.Since(a.began) < decision.BudgetWindow {
			recent++
		}
	}
	before := w.since(t.action, "")
	pause := time.Duration(0)
	for range before {
		pause = min(max(decision.CoolDown, 2*pause), decision.MaxCoolDown)
	}
	d := m.unit(t.unit)
	switch {
	case recent >= decision.MaxBootstraps:
		s.failf("bootstrapped for the %dth time within a day", recent+1)
	case len(before) > 0 && time.Since(before[len(before)-1].ended) < pause:
		s.failf("bootstrapped %s after the last time, want a pause of %s", time.Since(before[len(before)-1].ended), pause)
	case m.commandRuns() && len(w.attempts)-1 > w.lost:
		s.failf("the command was started while it runs")
	case m.longer("masked", s.gap) && t.unit == kubelet:
		s.failf("bootstrapped though the kubelet has been masked or disabled for %s", time.Since(m.since["masked"]))
	case d.LoadState != "not-found" && w.left(d) && time.Since(d.stoppedAt) > s.gap:
		s.failf("bootstrapped, though %s was stopped by somebody %s ago", t.unit, time.Since(d.stoppedAt))
	}
}

// readsHistory checks what was recorded in all that time.
func (w *witness) readsHistory(entries []journal.Entry) {
	var before journal.Entry
	last := map[string]journal.Entry{} // by kind and subject
	bad := func(e journal.Entry, why string) {
		w.s.failf("the history has %+v\nafter %+v\n%s", e, before, why)
	}
	for _, e := range entries {
		if before.Sequence != 0 && e.Sequence != before.Sequence+1 {
			bad(e, "sequences must grow by one")
		}
		key := e.Kind
		if e.Kind == journal.KindCondition {
			key += e.Subject
		}
		old, known := last[key]
		switch e.Kind {
		case journal.KindCondition:
			if known && (old.To == e.To || old.To != e.From) {
				bad(e, "a condition must change with each entry; this one was "+old.To)
			}
		case journal.KindDecision:
			if known && old.To == e.To && old.Subject == e.Subject && old.Reason == e.Reason {
				bad(e, "a decision must be another one than before")
			}
			if known && e.At.Before(old.At) {
				bad(e, "a decision must not be made before the last")
			}
		case journal.KindRemedy:
			if known && (e.To == "begun") == (old.To == "begun") {
				bad(e, "remedies must end before others begin; there was "+old.To)
			}
		}
		if (e.Kind == journal.KindCondition || e.Kind == journal.KindDecision) && (e.At.Before(w.began) || e.At.After(time.Now())) {
			bad(e, "it must have happened in the time of the simulation")
		}
		last[key], before = e, e
	}
}
