package decision

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decide says what to do now, and why. It changes nothing that in refers to; the same input gives the same decision.
func Decide(in Input) Decision {
	f := newFacts(in)
	p := propose(f)
	if g := guardRemedy(f, p); g.Holds && p.action == Hold {
		p.wait(g.Reason, g.Message+". Seen meanwhile: "+p.message) // what is seen in the midst of a remedy is no end of the ladder
	}
	d := Decision{
		At: f.Now, Action: p.action, Unit: p.unit, Reason: p.reason, Message: p.message, Changes: slices.Clone(p.changes),
		Evidence: evidence(&f.ev), Grounds: slices.Clone(f.Grounds), Thresholds: thresholds(f, p),
	}
	for _, g := range guards() {
		guard := g.ask(f, p)
		guard.Name = g.name
		d.Guards = append(d.Guards, guard)
	}
	if p.action.Acts() {
		d.obey(p)
	}
	d.NextLook = nextLook(f, p, d.Guards)
	return d
}

// obey lets the guards have their way with an action.
func (d *Decision) obey(p proposal) {
	var holding []Guard
	for _, g := range d.Guards {
		if g.Holds {
			holding = append(holding, g)
		}
	}
	if len(holding) == 0 {
		return
	}
	first := holding[0]
	if i := slices.IndexFunc(holding, func(g Guard) bool { return g.Effect == Hold }); i >= 0 {
		first = holding[i] // what holds weighs more than what waits
	}
	var why []string
	byTime := true
	for _, g := range holding {
		why = append(why, g.Message)
		d.Until = later(d.Until, g.Until)
		byTime = byTime && !g.Until.IsZero()
		if g.Change != "" {
			d.Changes = append(d.Changes, g.Change)
		}
	}
	if !byTime {
		d.Until = time.Time{}
	}
	d.Action, d.Wanted, d.Reason = first.Effect, p.action, first.Reason
	d.Message = fmt.Sprintf("%s. Else it would %s: %s", strings.Join(why, "; "), Deed(p.action, p.unit), p.message)
}

// Deed says in words what an action does; a bootstrap is of the whole host, whatever unit led to it.
func Deed(a Action, unit string) string {
	switch a {
	case Restart:
		return "restart " + unit
	case Bootstrap:
		return "bootstrap this host"
	}
	return string(a)
}

// nextLook is the first moment at which time alone could change the decision, or at which a look is needed. Some look is always about to
// get too old to count, so that it is never far.
func nextLook(f *facts, p proposal, guards []Guard) time.Time {
	next := f.ev.stale(f.Now, f.t)
	if p.lookAgain {
		due := f.Now
		if p.about != nil {
			due = later(due, p.about.streak.At.Add(f.t.lookEvery()))
		}
		next = sooner(next, due)
	}
	for _, g := range guards {
		next = sooner(next, g.Until)
	}
	if w := f.Window; w != nil && f.Now.Before(w.To) {
		next = sooner(next, w.To)
	}
	return next
}

func evidence(e *Evidence) []Evident {
	all := []Evident{} // a list also in JSON
	for _, s := range e.subjects() {
		if s.streak.Looks > 0 {
			all = append(all, Evident{
				Subject: s.name, Health: s.streak.Health.String(), Reason: s.streak.Reason, Message: s.streak.Message, Since: s.streak.Since, Looks: s.streak.Looks,
			})
		}
	}
	return all
}

// thresholds lists the limits that the decision was weighed by.
func thresholds(f *facts, p proposal) []Threshold {
	if p.about == nil {
		return nil
	}
	s := p.about.streak
	all := []Threshold{
		{p.about.name + " unhealthy for", words(p.lasted), words(p.confirmFor), p.lasted >= p.confirmFor},
		{"looks that agree", fmt.Sprint(s.Looks), fmt.Sprint(f.t.ConfirmLooks), s.Looks >= f.t.ConfirmLooks},
	}
	if p.unit != "" && !p.missing {
		restarts, _ := f.restartsOf(p.unit)
		all = append(all, Threshold{"restarts used up", fmt.Sprint(restarts), fmt.Sprint(len(f.t.RestartGaps)), restarts >= len(f.t.RestartGaps)})
	}
	used, _ := f.budget()
	return append(all, Threshold{"bootstraps used up", fmt.Sprint(used), fmt.Sprint(f.t.MaxBootstraps), used >= f.t.MaxBootstraps})
}
