package agent

import (
	"fmt"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/remedy"
)

// inProgress is the remedy in progress, also one that an earlier agent left.
func (l *loop) inProgress() *decision.Remedy {
	switch {
	case l.running && l.now.Name != "":
		return &decision.Remedy{Name: l.now.Name, Unit: l.now.Unit, Step: l.now.Step, Since: l.now.Since}
	case l.running:
		return &decision.Remedy{Name: "a remedy", Since: time.Now()}
	case l.facts.unfinished != nil:
		return &decision.Remedy{Name: l.facts.unfinished.Name, Since: l.facts.unfinished.Begun.Wall, Step: "left by an earlier agent"}
	}
	return nil
}

// act lets a remedy do what was decided, or finish what an earlier agent began.
func (l *loop) act(now time.Time) {
	if l.running || l.mode != decision.Act || l.facts.at.IsZero() || l.facts.asked < l.askedThen {
		return
	}
	j := l.a.keeper.open()
	if j == nil {
		return
	}
	switch {
	case l.facts.unfinished != nil && len(l.pauses(now)) == 0 && !l.cfg.Agent.DryRun:
		l.a.o.Log.Infof("Going on with %s, which an earlier agent began", l.facts.unfinished.Name)
		l.begin(func(r *remedy.Runner) ending {
			o, err := r.Resume(l.ctx)
			return ending{o, err}
		}, j)
	case l.decided.Action.Acts() && l.facts.unfinished == nil:
		d := l.decided
		l.a.o.Log.Infof("Begin: %s: %s", deed(d), d.Message)
		l.reporter.event(cluster.Event{Type: "Warning", Reason: d.Reason, Action: titled(string(d.Action)), Message: "begin: " + deed(d), At: now})
		l.begin(func(r *remedy.Runner) ending {
			o, err := r.Do(l.ctx, d)
			return ending{&o, err}
		}, j)
	}
}

// begin runs a remedy in its own goroutine. There is only ever one.
func (l *loop) begin(do func(*remedy.Runner) ending, j *journal.Journal) {
	l.running = true
	r := &remedy.Runner{
		Systemd: l.a.o.systemd, Journal: j, Now: l.a.o.moment, OutputDir: l.a.o.StateDir,
		Command: l.cfg.Agent.Bootstrap.Command, Timeout: time.Duration(l.cfg.Agent.Bootstrap.Timeout),
		Redact: newRedactor(l.cfg).redact,
		Progress: func(p remedy.Progress) {
			select {
			case l.progress <- p:
			case <-l.ctx.Done():
			}
		},
	}
	l.all.Go(func() {
		e := do(r)
		select {
		case l.ended <- e:
		case <-l.ctx.Done():
		}
	})
}

// remedied is told when a remedy has ended: then everything is looked at anew, and nothing is decided by what was known before.
func (l *loop) remedied(e ending) {
	l.running, l.now, l.endedAt = false, remedy.Progress{}, time.Now()
	l.askedThen = l.a.keeper.record()
	l.round(time.Now())
	if l.reload {
		l.reload = false
		l.a.Reload()
	}
	switch {
	case l.ctx.Err() != nil:
	case e.err != nil && e.outcome == nil:
		l.a.o.Log.Warnf("A remedy could not be gone on with: %v", e.err)
	case e.err != nil:
		l.a.o.Log.Warnf("A remedy: %v", e.err)
	}
	if e.outcome == nil || e.outcome.Outcome == "" {
		return
	}
	o := e.outcome
	if l.counters.Remedies == nil {
		l.counters.Remedies = map[string]map[string]uint64{}
	}
	byOutcome := map[string]uint64{}
	for k, v := range l.counters.Remedies[o.Name] { // Views that were handed out keep theirs
		byOutcome[k] = v
	}
	byOutcome[o.Outcome]++
	all := map[string]map[string]uint64{o.Name: byOutcome}
	for k, v := range l.counters.Remedies {
		if k != o.Name {
			all[k] = v
		}
	}
	l.counters.Remedies = all
	l.a.o.Log.Infof("End: %s %s: %s: %s", o.Name, o.Unit, o.Outcome, o.Message)
	kind := "Normal"
	if o.Outcome != remedy.Succeeded && remedy.Acted(o.Outcome) {
		kind = "Warning"
	}
	l.reporter.event(cluster.Event{Type: kind, Reason: "Remedy" + titled(o.Outcome), Action: o.Name, Message: fmt.Sprintf("%s %s: %s", o.Name, o.Unit, o.Message), At: time.Now()})
}
