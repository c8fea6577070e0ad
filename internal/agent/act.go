package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/remedy"
)

// retryAfter is when something that went wrong about a remedy, beyond its own outcome, is tried again, or one that did nothing.
const retryAfter = 30 * time.Second

// errPaused says that nothing was begun since somebody paused the agent.
var errPaused = errors.New("the agent was paused at that moment")

// paused returns why nothing may be begun now, if so. It may take as long as the disk does.
func (a *Agent) paused(j *journal.Journal) error {
	now := a.o.moment()
	p, err := j.Paused(now)
	if err != nil {
		return fmt.Errorf("look for a pause: %w", err)
	}
	if f := readPauseFile(a.o.PauseFile, now.Wall); p != nil || f != nil && (f.Until.IsZero() || now.Wall.Before(f.Until)) {
		return errPaused
	}
	return nil
}

// attemptText says which attempt of a day this one is.
func (l *loop) attemptText(now time.Time, d decision.Decision) string {
	h := l.facts.history(now)
	attempts := h.Bootstraps
	if d.Action == decision.Restart {
		attempts = nil
		for _, r := range h.Restarts {
			if r.Unit == d.Unit {
				attempts = append(attempts, r)
			}
		}
	}
	return fmt.Sprintf("attempt %d within %s", within(attempts, now, l.thresholds)+1, cmp.Or(l.thresholds.BudgetWindow, decision.BudgetWindow))
}

// inProgress is the remedy in progress, also one that an earlier agent left.
func (l *loop) inProgress() *decision.Remedy {
	switch {
	case l.running && l.now.Name != "":
		return &decision.Remedy{Name: l.now.Name, Unit: l.now.Unit, Step: l.now.Step, Since: l.now.Since}
	case l.running:
		return &decision.Remedy{Name: "a remedy", Since: time.Now()}
	}
	return leftBehind(l.facts.unfinished)
}

// act lets a remedy do what was decided, or finish what an earlier agent began.
func (l *loop) act(now time.Time) {
	if l.running || l.mode != decision.Act || l.facts.asked < l.askedThen || l.unseen > 0 || now.Before(l.notBefore) ||
		!l.files.ready() {
		return
	}
	if h := l.facts.history(now); h.Broken != "" || h.Unknown > 0 {
		return
	}
	j := l.a.keeper.open()
	if j == nil {
		return
	}
	switch {
	case l.facts.unfinished != nil && len(l.pauses(now)) == 0 && !l.cfg.Agent.DryRun:
		l.a.o.Log.Infof("Going on with %s, which an earlier agent began", l.facts.unfinished.Name)
		l.attempt = "begun by an earlier agent"
		l.begin(func(r *remedy.Runner) ending {
			o, err := r.Resume(l.ctx)
			return ending{o, err}
		}, j)
	case l.decided.Action.Acts() && l.facts.unfinished == nil:
		d := l.decided
		l.a.o.Log.Infof("Begin: %s: %s", deed(d), d.Message)
		l.attempt = l.attemptText(now, d)
		l.reporter.event(cluster.Event{
			Type: "Warning", Reason: "RemedyBegun", Action: titled(string(d.Action)), Message: fmt.Sprintf("%s (%s): %s", deed(d), l.attempt, d.Reason), At: now,
		})
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
		Redact: newRedactor(l.cfg).redact, Wanted: l.a.wantsBootstrap,
		Progress: func(p remedy.Progress) {
			select {
			case l.progress <- p:
			case <-l.ctx.Done():
			}
		},
	}
	l.all.Go(func() {
		e := ending{err: l.a.paused(j)} // once more, since what the loop knows may be a moment old
		if e.err == nil {
			e = do(r)
		}
		select {
		case l.ended <- e:
		case <-l.ctx.Done():
		}
	})
}

// wantsBootstrap waits until it is decided by what is seen now whether a bootstrap is wanted, be it held by the one in progress.
func (a *Agent) wantsBootstrap(ctx context.Context) (bool, error) {
	for after := uint64(0); ; {
		v, err := a.View(ctx, after)
		switch {
		case err != nil:
			return false, err
		case ctx.Err() != nil:
			return false, fmt.Errorf("it could not be told in time whether a bootstrap is still needed: %s", v.Decision.Message)
		case v.Decision.Action == decision.Bootstrap || v.Decision.Wanted == decision.Bootstrap:
			return true, nil
		case v.Decision.Action == decision.None:
			return false, nil
		}
		after = v.Generation
	}
}

// remedied is told when a remedy has ended: then everything is looked at anew, and nothing is decided by what was known before.
func (l *loop) remedied(e ending) {
	now := time.Now()
	l.running, l.now = false, remedy.Progress{}
	l.askedThen = l.a.keeper.record()
	l.unseen = 1
	if l.busy[lookUnits] {
		l.unseen++ // that one began before
	}
	l.look(lookUnits)
	l.round(now)
	if e.err != nil || e.outcome != nil && !remedy.Acted(e.outcome.Outcome) {
		l.notBefore = now.Add(retryAfter) // what was decided and what was found there differ: that must not go round and round
	}
	if l.reload {
		l.reload = false
		l.a.Reload()
	}
	switch {
	case l.ctx.Err() != nil:
	case errors.Is(e.err, errPaused):
		l.a.o.Log.Infof("Nothing was begun: %v", e.err)
	case e.err != nil && e.outcome == nil:
		l.a.o.Log.Warnf("A remedy could not be gone on with: %v", e.err)
	case e.err != nil:
		l.a.o.Log.Warnf("A remedy: %v", e.err)
	}
	if e.outcome == nil || e.outcome.Outcome == "" {
		return
	}
	o := e.outcome
	all := maps.Clone(l.counters.Remedies) // Views that were handed out keep theirs
	if all == nil {
		all = map[string]map[string]uint64{}
	}
	byOutcome := maps.Clone(all[o.Name])
	if byOutcome == nil {
		byOutcome = map[string]uint64{}
	}
	byOutcome[o.Outcome]++
	all[o.Name] = byOutcome
	l.counters.Remedies = all
	l.a.o.Log.Infof("End: %s %s: %s: %s", o.Name, o.Unit, o.Outcome, o.Message)
	kind := "Normal"
	if o.Outcome != remedy.Succeeded && remedy.Acted(o.Outcome) {
		kind = "Warning"
	}
	l.reporter.event(cluster.Event{Type: kind, Reason: "Remedy" + titled(o.Outcome), Action: o.Name, Message: fmt.Sprintf("%s %s (%s): %s", o.Name, o.Unit, l.attempt, o.Message), At: now})
}
