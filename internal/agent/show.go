package agent

import (
	"reflect"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

// show publishes what is known now.
func (l *loop) show(now time.Time, set *observe.Set, hst observe.Host) {
	v := l.view
	v.At, v.Set, v.Host = now, *set, hst
	v.Node = nodeName(set, l.cfg)
	v.Mode, v.ModeReason = l.mode, l.modeReason
	v.DryRun, v.ConfigProblem = l.cfg != nil && l.cfg.Agent.DryRun, l.refused
	v.Conditions, v.Decision, v.Remedy, v.Pauses = l.conditions, l.decided, l.inProgress(), l.pauses(now)
	h := l.facts.history(now)
	v.JournalProblem = h.Broken
	v.Budget = Budget{Bootstraps: within(h.Bootstraps, now, l.thresholds), MaxBootstraps: maxBootstraps(l.thresholds), Unknown: l.facts.budgetUnknown}
	v.Counters, v.Probes = l.counters, l.eyes.Stats()
	v.Counters.SnapshotWrites, v.Counters.SnapshotWriteErrors = l.writer.counts()
	v.Counters.NodeConditionWrites, v.Counters.ClusterErrors = l.reporter.counts()
	if before := l.a.view.Load(); before == nil || !alike(before, &v) {
		v.Generation++
	}
	l.view = v
	l.a.publish(&v)
	if s := statusLine(&v); s != l.status {
		l.status = s
		l.notifier.tell("STATUS=" + s)
	}
}

// alike reports whether two Views differ in ages and counters alone.
func alike(a, b *View) bool {
	if len(a.Conditions) != len(b.Conditions) || !a.Decision.Same(b.Decision) || !same(a.Snapshot, b.Snapshot) ||
		a.Mode != b.Mode || a.ModeReason != b.ModeReason || a.DryRun != b.DryRun || a.ConfigProblem != b.ConfigProblem || a.JournalProblem == "" != (b.JournalProblem == "") || !reflect.DeepEqual(a.Remedy, b.Remedy) || !reflect.DeepEqual(a.Pauses, b.Pauses) {
		return false
	}
	for i, c := range a.Conditions {
		d := b.Conditions[i]
		if c.Type != d.Type || c.Status != d.Status || c.Severity != d.Severity || c.Reason != d.Reason || (c.Pending == nil) != (d.Pending == nil) {
			return false
		}
	}
	return true
}

// tellCluster gives the cluster's hands to whoever tells it something; nothing is told by an agent that only observes.
func (l *loop) tellCluster() (*cluster.Client, cluster.Source) {
	e := l.teller.Load()
	if e == nil {
		return nil, cluster.Source{}
	}
	return e.Cluster()
}
