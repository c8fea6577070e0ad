package health

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Tracker keeps the conditions of a table over time. It has no clock, does no I/O and is for one goroutine.
type Tracker struct {
	rows   []Row
	states map[string]*state
	next   time.Time
}

// state is what is kept of one condition.
type state struct {
	shown Condition
	run   run
	// badNow: it was bad in the last look, shown or not. cause names what it, or what it depends on, is blocked by.
	badNow bool
	cause  string
}

// run is a time of trouble: bad spells, with good ones between them that did not last.
type run struct {
	on       bool
	lasted   time.Duration // all bad spells together
	bad      bool          // a bad spell was under way at the last look, and counts
	seen     time.Time     // when that was
	good     time.Time     // since when it is good; zero in a bad spell
	relapses int
}

// NewTracker returns a Tracker of the agent's conditions, of which nothing is known yet.
func NewTracker() *Tracker { return newTracker(Table()) }

func newTracker(rows []Row) *Tracker { return &Tracker{rows: rows, states: map[string]*state{}} }

// Restore takes over conditions that an earlier Tracker returned, so that a restart of the agent is no transition. Conditions of types
// that the table does not have are dropped. It is called before the first Update.
func (t *Tracker) Restore(conds []Condition) {
	for _, c := range conds {
		i := slices.IndexFunc(t.rows, func(r Row) bool { return r.Type == c.Type })
		if i < 0 {
			continue
		}
		s := &state{shown: c}
		if c.Status == t.rows[i].bad() {
			s.run = run{on: true, lasted: t.rows[i].TimeToVisible} // it was shown, so it had lasted
		}
		t.states[c.Type] = s
	}
}

// Update judges what was seen and returns the conditions in the table's order, which is cause before effect. What does not apply is left
// out. Times given to successive calls should not go back; one that does counts as no time at all.
func (t *Tracker) Update(now time.Time, in Input) []Condition {
	t.next = time.Time{}
	conds := make([]Condition, 0, len(t.rows))
	for _, row := range t.rows {
		v := row.Judge(now, in)
		if v.Status == "" {
			delete(t.states, row.Type)
			continue
		}
		s := t.states[row.Type]
		if s == nil {
			s = &state{shown: Condition{Type: row.Type}}
			t.states[row.Type] = s
		}
		t.step(row, s, v, now)
		if p := s.shown.Pending; p != nil && !p.Shown.IsZero() && (t.next.IsZero() || p.Shown.Before(t.next)) {
			t.next = p.Shown
		}
		conds = append(conds, s.shown)
	}
	return conds
}

// Next is when something that is pending since the last Update will be shown if it lasts: when to look again and call Update. It is zero
// when nothing is pending.
func (t *Tracker) Next() time.Time { return t.next }

// step takes one condition through one look.
func (t *Tracker) step(row Row, s *state, v Verdict, now time.Time) {
	seen := now
	if !v.At.IsZero() {
		seen = v.At
	}
	s.badNow = v.Status == row.bad()
	blocker, held := t.dependencies(row)
	if s.cause = ""; blocker != nil {
		s.cause = blocker.cause
		if s.cause == "" {
			s.cause = blocker.shown.Type
		}
		s.run = run{} // it gets its full time again when what it depends on is back
		root := t.states[s.cause].shown
		s.show(now, Unknown, None, ReasonDependencyUnhealthy, fmt.Sprintf("not judged while %s is %s (%s); seen by itself: %s",
			root.Type, root.Status, root.Reason, v.Message))
		return
	}
	switch v.Status {
	case Unknown:
		s.run.pause()
		s.show(now, Unknown, None, v.Reason, v.Message)
	case row.bad():
		s.run.turnBad(seen, !held)
		t.showBad(row, s, v, now, held)
	default:
		s.run.turnGood(now, row.TimeToSettle)
		showGood(row, s, v, now)
	}
}

// dependencies returns a condition that blocks this one, if any: it is visibly bad or is blocked itself. held says that one looks bad and
// is not shown yet: then nothing bad about this one may be shown before it.
func (t *Tracker) dependencies(row Row) (blocker *state, held bool) {
	for _, name := range row.DependsOn {
		dep := t.states[name]
		if dep == nil {
			continue // it does not apply
		}
		i := slices.IndexFunc(t.rows, func(r Row) bool { return r.Type == name })
		switch {
		case dep.cause != "" || dep.shown.Status == t.rows[i].bad():
			return dep, false
		case dep.badNow:
			held = true
		}
	}
	return nil, held
}

// showBad shows a bad verdict if it has lasted, and else notes that it is pending.
func (t *Tracker) showBad(row Row, s *state, v Verdict, now time.Time, held bool) {
	already := s.shown.Status == row.bad()
	if already || s.run.lasted >= row.TimeToVisible && !held {
		s.show(now, v.Status, row.Severity, v.Reason, v.Message)
		s.shown.known(v, now)
		return
	}
	if s.shown.Status == "" || s.shown.Status == Unknown {
		s.show(now, Unknown, None, ReasonConfirming, fmt.Sprintf("%s; counts as %s once that has lasted %s", v.Message, v.Status, row.TimeToVisible))
	}
	s.shown.Pending = &Pending{Status: v.Status, Reason: v.Reason, Message: v.Message}
	if !held {
		s.shown.Pending.Shown = s.run.seen.Add(row.TimeToVisible - s.run.lasted)
	}
}

// showGood shows a good verdict, unless the condition flaps and the recovery has not lasted.
func showGood(row Row, s *state, v Verdict, now time.Time) {
	if s.run.relapses > 0 && s.shown.Status == row.bad() {
		s.shown.Pending = &Pending{Status: v.Status, Reason: v.Reason, Message: v.Message, Shown: s.run.good.Add(row.TimeToSettle)}
		return
	}
	s.show(now, v.Status, v.Severity, v.Reason, v.Message)
	s.shown.known(v, now)
}

// show sets what is shown. Only another status moves the time of the last transition.
func (s *state) show(now time.Time, status Status, severity Severity, reason, message string) {
	c := &s.shown
	if c.Status != status {
		c.LastTransitionTime = now
	}
	c.Status, c.Severity, c.Reason, c.Message, c.Pending = status, severity, reason, message, nil
}

func (c *Condition) known(v Verdict, now time.Time) {
	c.LastKnown, c.LastKnownTime = v.Status, v.At
	if v.At.IsZero() {
		c.LastKnownTime = now
	}
}

// turnBad notes that it is bad now. counts is false while its time must not run.
func (r *run) turnBad(now time.Time, counts bool) {
	r.add(now)
	if !r.good.IsZero() {
		r.relapses++
		r.good = time.Time{}
	}
	r.on, r.bad, r.seen = true, counts, now
}

// turnGood notes that it is good now; when that has lasted for settle, the trouble is over.
func (r *run) turnGood(now time.Time, settle time.Duration) {
	if !r.on {
		return
	}
	r.add(now)
	r.bad = false
	if r.good.IsZero() {
		r.good = now
	}
	if now.Sub(r.good) >= settle {
		*r = run{}
	}
}

// pause notes that it can't be told what it is now: that speaks neither way.
func (r *run) pause() { r.bad = false }

// add counts the time since the last look, if it was bad then.
func (r *run) add(now time.Time) {
	if r.bad {
		r.lasted += max(0, now.Sub(r.seen))
	}
}

// Check finds the mistakes of a table: programming errors, for a test to find.
func Check(rows []Row) error {
	var mistakes []error
	above := map[string]bool{}
	for _, r := range rows {
		mistake := func(format string, args ...any) {
			mistakes = append(mistakes, fmt.Errorf("condition %q: "+format, append([]any{r.Type}, args...)...))
		}
		if above[r.Type] || r.Type == "" {
			mistake("the name is empty or taken")
		}
		for _, d := range r.DependsOn {
			if !above[d] {
				mistake("depends on %q, which no row above it has (so that there is no cycle, causes stand above effects)", d)
			}
		}
		above[r.Type] = true
		if bad := r.bad(); bad != True && bad != False {
			mistake("%q can't be the bad status", r.Bad)
		}
		if r.Severity != Info && r.Severity != Warning && r.Severity != Critical {
			mistake("has no severity")
		}
		if r.TimeToVisible < 0 || r.TimeToSettle < 0 {
			mistake("has a negative time")
		}
		if r.Means == "" || r.Do == "" || r.Judge == nil {
			mistake("lacks its text or its judgement")
		}
	}
	return errors.Join(mistakes...)
}
