package agent

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/status"
)

// think draws the conclusions from all that is known now.
func (l *loop) think(now time.Time) {
	l.facts = l.a.keeper.latest()
	set, hst := l.eyes.Latest()
	if !l.eyes.watching && !set.KubeletUnit.At.IsZero() {
		l.watch(l.eyes)
	}
	if !l.whole {
		return // what is shown of the time before says more than half a look
	}
	l.notePauses(now)
	t := l.thresholds
	lastWell := l.evidence.LastWell
	l.evidence = l.evidence.Add(&set, t)
	l.recovered(lastWell)
	l.keepSnapshot(now, &set)
	if l.writer.observation().At.IsZero() && now.Before(l.started.Add(firstWrite)) {
		return // how the first write goes belongs to the first judgement
	}
	l.judge(now, &set, hst)
	settled := l.writer.settled(now)
	if settled || !l.explained {
		l.decide(now, &set)
	}
	l.show(now, &set, hst)
	if settled {
		l.act(now)
	}
}

// notePauses records the pauses by file, and when one by command ends by itself: the journal itself records what commands did.
func (l *loop) notePauses(now time.Time) {
	if !l.files.ready() {
		return
	}
	f := l.files.pause()
	holds := f != nil && (f.Until.IsZero() || now.Before(f.Until))
	switch {
	case holds == l.heldByFile:
	case holds:
		message := f.Reason
		if !f.Until.IsZero() {
			message += ", until " + f.Until.UTC().Format(time.RFC3339)
		}
		l.a.keeper.record(journal.Entry{At: now, Kind: journal.KindPause, Subject: f.By, To: "paused", Message: message})
	case f != nil:
		l.a.keeper.record(journal.Entry{At: now, Kind: journal.KindPause, Subject: f.By, From: "paused", To: "ended"})
	default:
		l.a.keeper.record(journal.Entry{At: now, Kind: journal.KindPause, Subject: byFile(l.a.o.PauseFile), From: "paused", To: "resumed", Message: "the file is gone"})
	}
	l.heldByFile = holds
	over := func(p *journal.Pause) bool { return p.Until != nil && !now.Before(*p.Until) }
	if p := l.heldByCommand; p != nil && over(p) {
		l.a.keeper.record(journal.Entry{At: now, Kind: journal.KindPause, Subject: p.By, From: "paused", To: "ended"})
	}
	if l.heldByCommand = l.facts.pause; l.heldByCommand != nil && over(l.heldByCommand) {
		l.heldByCommand = nil
	}
}

// recovered records that the fault is over, when that means that attempts are forgotten.
func (l *loop) recovered(before time.Time) {
	if l.evidence.LastWell.Equal(before) || len(l.facts.restarts)+len(l.facts.bootstraps) == 0 {
		return
	}
	all := slices.Concat(l.facts.restarts, l.facts.bootstraps)
	var last uint64
	over := false
	for _, a := range all {
		last = max(last, a.remedy)
		began := l.facts.at.Add(-a.age)
		over = over || began.After(before) && began.Before(l.evidence.LastWell)
	}
	if over {
		l.a.keeper.record(journal.Entry{
			Kind: KindRecovered, At: l.evidence.LastWell, Reason: "Recovered", Message: "kubelet and containerd have been well for long enough: earlier attempts are forgotten",
			Data: json.RawMessage(strconv.FormatUint(last, 10)),
		})
	}
}

// judge brings the conditions up to date and records what changed.
func (l *loop) judge(now time.Time, set *observe.Set, hst observe.Host) {
	l.conditions = l.tracker.Update(now, health.Input{
		Set: set, Certificate: hst.Certificate, Clock: hst.Clock, Disk: hst.Disk, StatusFile: l.writer.observation(),
	})
	var entries []journal.Entry
	if entries, l.recorded = transitions(l.recorded, l.conditions); len(entries) > 0 {
		l.a.keeper.record(entries...)
		for _, e := range entries {
			if e.To == "" {
				l.a.o.Log.Infof("%s no longer applies to this node", e.Subject)
				continue
			}
			l.a.o.Log.WithField("reason", e.Reason).Infof("%s is %s: %s", e.Subject, e.To, e.Message)
		}
	}
	l.reporter.condition(gravest(l.conditions))
}

// gravest is the condition that the cluster is told; where there is nothing to report, one that says since when. That something can't be
// told which would only be a warning makes the node no unknown one.
func gravest(conditions []health.Condition) (c health.Condition, found bool) {
	telling := slices.DeleteFunc(slices.Clone(conditions), func(c health.Condition) bool {
		return c.Status == health.Unknown && !slices.ContainsFunc(health.Table(), func(r health.Row) bool { return r.Type == c.Type && r.Severity == health.Critical })
	})
	if c, found = health.Worst(telling); found {
		return c, true
	}
	for _, o := range conditions {
		if o.LastTransitionTime.After(c.LastTransitionTime) {
			c.LastTransitionTime = o.LastTransitionTime
		}
	}
	return c, false
}

// reasonNotApplicable is that of the entry about a condition that no longer applies; its To is empty.
const reasonNotApplicable = "NotApplicable"

// transitions are the changes from the conditions that the history has to others, as the journal keeps them, and what it has then. That nobody
// has looked yet is no news of a condition that it does not have.
func transitions(before, after []health.Condition) (entries []journal.Entry, recorded []health.Condition) {
	was := map[string]health.Condition{}
	for _, c := range before {
		was[c.Type] = c
	}
	for _, c := range after {
		b, known := was[c.Type]
		if !known && c.Reason == observe.ReasonNotLooked {
			continue
		}
		delete(was, c.Type)
		recorded = append(recorded, c)
		if b.Status == c.Status {
			continue
		}
		data, err := json.Marshal(c)
		if err != nil {
			data = nil // it is plain data; without it a restart of the agent counts as a transition
		}
		entries = append(entries, journal.Entry{
			At: c.LastTransitionTime, Kind: journal.KindCondition, Subject: c.Type, From: string(b.Status), To: string(c.Status),
			Reason: c.Reason, Message: c.Message, Data: data,
		})
	}
	for _, b := range before {
		if _, left := was[b.Type]; left {
			entries = append(entries, journal.Entry{Kind: journal.KindCondition, Subject: b.Type, From: string(b.Status), Reason: reasonNotApplicable})
		}
	}
	return entries, recorded
}

// keepSnapshot has the snapshot written when it says something new, and after each round.
func (l *loop) keepSnapshot(now time.Time, set *observe.Set) {
	s := status.FromObservations(set, l.a.o.Version, now)
	every := l.cfg.GetStatusInterval()
	fresh := max(every-leastGap, every/2) // a round may come a little early
	if same(l.view.Snapshot, s) && now.Sub(l.view.Snapshot.LastUpdated) < fresh && !l.files.takeGone() {
		return
	}
	l.view.Snapshot = s
	l.writer.write(s, l.cfg)
}

// same reports whether two snapshots differ in their time alone.
func same(a, b *status.NodeStatus) bool {
	if a == nil || b == nil {
		return false
	}
	c := *a
	c.LastUpdated = b.LastUpdated
	return reflect.DeepEqual(c, *b)
}

// decide decides anew, and tells when that is another decision.
func (l *loop) decide(now time.Time, set *observe.Set) {
	d := decision.Decide(l.input(now, set))
	if l.explained && d.Same(l.decided) {
		l.decided = d
		return
	}
	before := l.decided
	if !l.explained {
		before = l.facts.decided
	}
	l.decided, l.explained = d, true
	l.counters.Decisions++
	if before.Action == d.Action && before.Unit == d.Unit && before.Reason == d.Reason {
		return // what an earlier agent decided goes on
	}
	l.a.keeper.record(journal.Entry{
		At: now, Kind: journal.KindDecision, Subject: d.Unit, From: string(before.Action), To: string(d.Action), Reason: d.Reason, Message: d.Message,
	})
	l.a.o.Log.WithField("reason", d.Reason).Infof("Decision: %s: %s", deed(d), d.Message)
	l.a.o.Log.Debug(decision.Explain(d))
	if d.Action == decision.Hold && !l.running { // what a remedy does in between is no news
		l.reporter.event(cluster.Event{Type: "Warning", Reason: d.Reason, Action: "Hold", Message: holdText(d), At: now})
	}
}

// input is all that the decision depends on.
func (l *loop) input(now time.Time, set *observe.Set) decision.Input {
	in := decision.Input{
		Now: now, Mode: l.mode, ModeReason: l.modeReason, Set: set, Evidence: l.evidence,
		Grounds: l.writer.grounds(), Pauses: l.pauses(now), Remedy: l.inProgress(), History: l.facts.history(now),
		Window: windowOf(l.cfg, now), Thresholds: l.thresholds,
	}
	if l.cfg != nil {
		in.DryRun, in.CanBootstrap = l.cfg.Agent.DryRun, len(l.cfg.Agent.Bootstrap.Command) > 0
	}
	if now.Sub(l.system.at) < 3*stateEvery {
		in.System.State = l.system.state
	}
	in.System.Uptime = l.a.o.moment().Uptime
	return in
}

// pauses are those that hold now.
func (l *loop) pauses(now time.Time) []decision.Pause {
	return pausesOf(l.facts.pause, l.files.pause(), now)
}

// pausesOf returns those of a pause by command and one by file that hold at a time.
func pausesOf(command *journal.Pause, file *decision.Pause, now time.Time) []decision.Pause {
	var all []decision.Pause
	if p := command; p != nil && (p.Until == nil || now.Before(*p.Until)) {
		q := decision.Pause{By: p.By, Reason: p.Reason, Since: p.Since}
		if p.Until != nil {
			q.Until = *p.Until
		}
		all = append(all, q)
	}
	if p := file; p != nil && (p.Until.IsZero() || now.Before(p.Until)) {
		all = append(all, *p)
	}
	return all
}
