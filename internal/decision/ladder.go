package decision

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// facts is an Input made ready: thresholds filled, the look added, what is too old put aside.
type facts struct {
	Input
	t  Thresholds
	ev Evidence
}

func newFacts(in Input) *facts {
	t := in.Thresholds.orDefault()
	if in.Set == nil {
		in.Set = &observe.Set{}
	}
	return &facts{Input: in, t: t, ev: in.Evidence.Add(in.Set, t).asOf(in.Now, t)}
}

// proposal is what the ladder says before any guard is asked.
type proposal struct {
	action          Action
	unit            string
	reason, message string
	changes         []string
	// about is the subject whose health it goes by; nil for none.
	about *subject
	// lasted is for how long that has been unhealthy, as far as it counts, and confirmFor for how long it must have been.
	lasted, confirmFor time.Duration
	// lookAgain: more looks are needed.
	lookAgain bool
	// missing: there is no kubelet unit at all.
	missing bool
}

// propose asks one rung after the other; the first that has something to say is heard. Causes come before effects: while containerd is
// down, nothing about the kubelet is news.
func propose(f *facts) proposal {
	for _, rung := range []func(*facts) (proposal, bool){
		kubeletMissing, kubeletUnknown, containerdDown, containerdFrozen, kubeletDown, kubeletSick, containerdUnknown,
		onlyGrounds, reportOnly, linkLost,
	} {
		if p, ok := rung(f); ok {
			return p
		}
	}
	return proposal{action: None, reason: "Healthy", message: "kubelet and containerd run, and nothing asks for an action"}
}

// kubeletMissing: a host without a kubelet unit is no node (any more), and no restart makes it one.
func kubeletMissing(f *facts) (proposal, bool) {
	s := &f.ev.KubeletUnit
	if s.Health != observe.Unhealthy || s.Reason != observe.ReasonUnitNotFound {
		return proposal{}, false
	}
	p := start(KubeletUnit, "kubelet unit", s, s.At.Sub(s.ReasonSince), f.t.ConfirmFor)
	p.missing = true
	if f.confirmed(&p, s.ReasonConfirmed(f.t, f.t.ConfirmFor)) {
		p.action, p.reason = Bootstrap, "KubeletMissing"
		p.message = "there is no kubelet unit on this host: " + seen(s)
	}
	return p, true
}

// kubeletUnknown: what is not known never leads to an action.
func kubeletUnknown(f *facts) (proposal, bool) { return cannotTell("kubelet unit", &f.ev.KubeletUnit) }

// containerdUnknown comes after the kubelet's rungs, so that a kubelet that is down is told; the guard of its dependency keeps it from
// being restarted.
func containerdUnknown(f *facts) (proposal, bool) {
	return cannotTell("containerd unit", &f.ev.ContainerdUnit)
}

func cannotTell(name string, s *Streak) (proposal, bool) {
	if s.Health != observe.Unknown {
		return proposal{}, false
	}
	p := proposal{}
	p.wait("CannotTell", fmt.Sprintf("the state of the %s can't be told: %s", name, s.Message))
	if s.Looks == 0 {
		p.wait(observe.ReasonNotLooked, "nobody has looked at the "+name+" yet")
		p.lookAgain = true
	}
	return p, true
}

func containerdDown(f *facts) (proposal, bool) {
	s := &f.ev.ContainerdUnit
	if s.Health != observe.Unhealthy {
		return proposal{}, false
	}
	p := start(ContainerdUnit, "containerd unit", s, s.Lasted(), f.t.ConfirmFor)
	if !f.confirmed(&p, s.Confirmed(f.t)) {
		return p, true
	}
	u := f.Set.ContainerdUnit.Value
	switch {
	case !u.Exists():
		p.hold("ContainerdMissing", "there is no containerd unit on this host, though there is one of the kubelet: no restart mends that", "install containerd")
	case u.ActiveState == "inactive" || u.ActiveState == "failed":
		f.climb(&p)
	case s.At.Sub(s.ReasonSince) >= f.t.LoopPatience: // one that was stopped for long and is being started does not loop
		p.hold("ContainerdLoops", "systemd restarts containerd again and again: another restart would be one more of these. "+seen(s), "journalctl -u containerd -n 50")
	default:
		p.wait("SystemdAtWork", "systemd is at work on containerd: "+seen(s))
	}
	return p, true
}

// notResponding is the reason of a containerd that takes connections and does not answer.
const notResponding = "NotResponding"

func containerdFrozen(f *facts) (proposal, bool) {
	s := &f.ev.Containerd
	if s.Health != observe.Unhealthy || s.Reason != notResponding {
		return proposal{}, false
	}
	p := start(ContainerdUnit, "containerd", s, s.At.Sub(s.ReasonSince), f.t.FrozenFor)
	if f.confirmed(&p, s.ReasonConfirmed(f.t, f.t.FrozenFor)) {
		f.climb(&p)
	}
	return p, true
}

func kubeletDown(f *facts) (proposal, bool) {
	return f.kubelet("kubelet unit", &f.ev.KubeletUnit)
}

// kubeletSick: its unit runs, and the kubelet itself says that it is not well, or hangs.
func kubeletSick(f *facts) (proposal, bool) {
	return f.kubelet("kubelet health", &f.ev.KubeletHealth)
}

func (f *facts) kubelet(name string, s *Streak) (proposal, bool) {
	if s.Health != observe.Unhealthy {
		return proposal{}, false
	}
	// What the kubelet suffered while containerd was down does not count: it is given the time to recover from that.
	p := start(KubeletUnit, name, s, min(s.Lasted(), s.At.Sub(f.containerdBack())), f.t.ConfirmFor)
	if f.confirmed(&p, s.Confirmed(f.t) && p.lasted >= f.t.ConfirmFor) {
		f.climb(&p)
	}
	return p, true
}

// containerdBack is since when containerd is seen to be well, as far as that is known.
func (f *facts) containerdBack() time.Time { return back(f.ev.ContainerdUnit, f.ev.Containerd) }

// back is since when all of them are seen to be well, as far as that is known.
func back(all ...Streak) (since time.Time) {
	for _, s := range all {
		if s.Health == observe.Healthy {
			since = later(since, s.Since)
		}
	}
	return since
}

// onlyGrounds: NeedsBootstrap says yes, and what is seen does not bear it out.
func onlyGrounds(f *facts) (proposal, bool) {
	if len(f.Grounds) == 0 {
		return proposal{}, false
	}
	p := proposal{}
	all := strings.Join(f.Grounds, ", ")
	switch {
	case !slices.ContainsFunc(f.Grounds, func(g string) bool { return !isLinkGround(g) }):
		p.hold("LinkLost", "a bootstrap is asked for only because of a lost link ("+all+"): that is no fault of this node", "the link's return")
	case !slices.ContainsFunc(f.Grounds, func(g string) bool { return !isLinkGround(g) && !isSnapshotGround(g) }):
		p.hold("SnapshotNotRefreshed", "a bootstrap is asked for only because of the snapshot ("+all+"), which this agent itself failed to keep fresh: that is no fault of this node",
			"a snapshot that can be written: see condition StatusFileWritable")
	default:
		if q, ok := reportOnly(f); ok && q.action == Hold {
			return q, true // that says what is wrong
		}
		p.hold("NotSeenHere", "a bootstrap is asked for ("+all+"), but what is seen of kubelet and containerd does not bear it out", "the next snapshot")
	}
	return p, true
}

// reportOnly: faults that neither a restart nor a bootstrap is for. What lies under them may have been down until a moment ago: they are
// given the time to recover from that, and from what we did.
func reportOnly(f *facts) (proposal, bool) {
	done := f.lastAttempt()
	for _, r := range []struct {
		subject
		under          time.Time // since when what it rests on is well
		reason, advice string
	}{
		{subject{"containerd", &f.ev.Containerd}, later(done, back(f.ev.ContainerdUnit)), "RuntimeUnhealthy", "crictl info; journalctl -u containerd -n 50"},
		{subject{"runc", &f.ev.Runc}, time.Time{}, "RuncMissing", "install runc"},
		{subject{"node", &f.ev.Node}, later(later(done, f.containerdBack()), back(f.ev.KubeletUnit, f.ev.KubeletHealth)), "NodeNotReady", "kubectl describe node"},
		{subject{"arc unit", &f.ev.ArcUnit}, time.Time{}, "ArcNotRunning", "systemctl status himdsd; azcmagent show"},
		{subject{"arc", &f.ev.Arc}, back(f.ev.ArcUnit), "LinkLost", "azcmagent check"},
	} {
		if r.streak.Confirmed(f.t) {
			p := start("", r.name, r.streak, max(0, min(r.streak.Lasted(), r.streak.At.Sub(r.under))), f.t.ConfirmFor)
			if p.lasted < p.confirmFor {
				p.wait("Recovering", seen(r.streak)+"; what lies under it has been well for "+words(p.lasted)+" only")
				p.lookAgain = true
				return p, true
			}
			p.hold(r.reason, "neither a restart nor a bootstrap is for this: "+seen(r.streak), r.advice)
			return p, true
		}
	}
	return proposal{}, false
}

// linkLost: the API server is out of reach. That is worth saying when it has lasted; it never leads to more.
func linkLost(f *facts) (proposal, bool) {
	s := f.ev.Node
	if !isLinkLost(s) || s.Looks < f.t.ConfirmLooks || s.Lasted() < f.t.ConfirmFor {
		return proposal{}, false
	}
	p := proposal{}
	p.hold("LinkLost", "the API server is out of reach, which is no fault of this node: "+s.Message, "the link's return")
	return p, true
}

// climb takes the first step of the ladder that has not been used up for this fault.
func (f *facts) climb(p *proposal) {
	restarts, _ := f.restartsOf(p.unit)
	most := len(f.t.RestartGaps)
	stopped := f.stopped(p.unit)
	switch {
	case !stopped && f.bootstrapFailed():
		p.action, p.reason = Bootstrap, "BootstrapFailed"
		p.message = "the last bootstrap failed, and " + seen(p.about.streak)
	case restarts < most:
		p.action, p.reason = Restart, p.about.streak.Reason
		p.message = fmt.Sprintf("%s; restart %d of %d", seen(p.about.streak), restarts+1, most)
	case stopped:
		// Somebody stops what we start, every time: they mean it, and no bootstrap may overrule that.
		p.hold("StoppedAgain", fmt.Sprintf("%s was started %d times and is stopped again: somebody wants it so", p.unit, restarts),
			"systemctl start "+p.unit+", or say so by systemctl disable or aks-flex-node pause")
	default:
		p.action, p.reason = Bootstrap, "RestartsUsedUp"
		p.message = fmt.Sprintf("%d restarts did not help, and %s", restarts, seen(p.about.streak))
	}
}

func start(unit, name string, s *Streak, lasted, confirmFor time.Duration) proposal {
	return proposal{unit: unit, about: &subject{name, s}, lasted: lasted, confirmFor: confirmFor}
}

// confirmed reports whether what p is about may lead to an action at all; where not, p waits for that.
func (f *facts) confirmed(p *proposal, confirmed bool) bool {
	s := p.about.streak
	switch last := f.lastAttempt(); {
	case s.Unsteady:
		p.wait("NotSteady", fmt.Sprintf("%s; it counts as well when it has been up for %s", seen(s), words(f.t.Steady)))
	case !confirmed:
		p.wait("Confirming", seen(s)+"; that has to be confirmed")
	case f.Remedy == nil && !s.At.After(last):
		p.wait("NotLookedSince", "nobody has looked since the last attempt ended")
	default:
		return true
	}
	p.lookAgain = true
	return false
}

func (p *proposal) hold(reason, message, change string) {
	p.action, p.reason, p.message, p.changes = Hold, reason, message, []string{change}
}

func (p *proposal) wait(reason, message string) {
	p.action, p.reason, p.message, p.changes = Wait, reason, message, []string{"what the next looks show"}
}

func seen(s *Streak) string {
	return fmt.Sprintf("%s (for %s, %s)", s.Message, words(s.Lasted()), looks(s.Looks))
}
