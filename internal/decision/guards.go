package decision

import (
	"fmt"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// namedGuard asks one guard about a proposal.
type namedGuard struct {
	name string
	ask  func(*facts, proposal) Guard
}

// guards is every guard there is, in the order in which they are told: people's wishes, the agent itself, the host, the unit, the
// ladder's own measure.
func guards() []namedGuard {
	return []namedGuard{
		{"mode", guardMode},
		{"paused", guardPaused},
		{"journal", guardJournal},
		{"remedy in progress", guardRemedy},
		{"system start", guardSystem},
		{"unit masked or disabled", guardMasked},
		{"unit stopped by someone", guardStopped},
		{"systemd at work", guardSystemd},
		{"dependency", guardDependency},
		{"node works", guardWorks},
		{"distance to last restart", guardDistance},
		{"budget", guardBudget},
		{"cool-down", guardCoolDown},
		{"bootstrap command", guardCommand},
		{"maintenance window", guardWindow},
		{"dry-run", guardDryRun},
	}
}

// free is a guard that does not hold.
func free(format string, args ...any) Guard { return Guard{Message: fmt.Sprintf(format, args...)} }

// held is a guard that does. A zero until means that time alone does not lift it; change says what does.
func held(effect Action, reason, message string, until time.Time, change string) Guard {
	return Guard{Holds: true, Effect: effect, Reason: reason, Message: message, Until: until, Change: change}
}

func guardMode(f *facts, _ proposal) Guard {
	if f.Mode == Act {
		return free("the agent acts")
	}
	message := "the agent only observes"
	if f.ModeReason != "" {
		message += ": " + f.ModeReason
	}
	return held(Hold, "ObserveOnly", message, time.Time{}, "a start without --observe-only, with a configuration that has no mistakes")
}

func guardPaused(f *facts, _ proposal) Guard {
	var paused []string
	var until time.Time
	endless := false
	for _, p := range f.Pauses {
		if !p.Until.IsZero() && !f.Now.Before(p.Until) {
			continue // over
		}
		text := "paused by " + p.By
		if !p.Since.IsZero() {
			text += " " + words(f.Now.Sub(p.Since)) + " ago"
		}
		if p.Reason != "" {
			text += " (" + p.Reason + ")"
		}
		if endless = endless || p.Until.IsZero(); !p.Until.IsZero() {
			text += ", until " + stamp(p.Until)
			until = later(until, p.Until)
		}
		paused = append(paused, text)
	}
	if len(paused) == 0 {
		return free("not paused")
	}
	if endless {
		until = time.Time{}
	}
	return held(Hold, "Paused", strings.Join(paused, "; "), until, "aks-flex-node resume, or remove the pause file")
}

func guardJournal(f *facts, _ proposal) Guard {
	switch {
	case f.History.Broken == "" && f.History.Unknown <= 0:
		return free("the journal can be written")
	case f.History.Broken == "":
		message := "an earlier journal was lost, so that nobody knows how often was tried: for another " + words(f.History.Unknown) + " the budget counts as used up"
		return held(Hold, "BudgetUnknown", message, f.Now.Add(f.History.Unknown), "")
	}
	return held(Hold, "JournalBroken", "what is done could not be written down, so that the budget counts as used: "+f.History.Broken, time.Time{}, "a journal that can be written")
}

func guardRemedy(f *facts, _ proposal) Guard {
	r := f.Remedy
	if r == nil {
		return free("no remedy is in progress")
	}
	message := strings.TrimSpace(r.Name+" "+r.Unit) + " is in progress for " + words(f.Now.Sub(r.Since))
	if r.Step != "" {
		message += ", at step " + r.Step
	}
	return held(Wait, "RemedyInProgress", message, time.Time{}, "its end")
}

// guardSystem gives a host that boots its time; one without a kubelet unit has nothing to wait for.
func guardSystem(f *facts, p proposal) Guard {
	state := f.System.State
	switch state {
	case "stopping":
		return held(Hold, "SystemStopping", "the host is shutting down", time.Time{}, "the next boot")
	case "maintenance":
		return held(Hold, "SystemInMaintenance", "the host is in rescue or emergency mode: somebody is at work on it", time.Time{}, "systemctl default")
	}
	if p.missing {
		return free("does not count where there is no kubelet unit")
	}
	switch state {
	case "running", "degraded":
	case "initializing", "starting":
		return held(Wait, "SystemStarting", "the host is still starting", time.Time{}, "the end of its start (systemctl list-jobs)")
	case "":
		return held(Wait, "SystemUnknown", "systemd's own state is not known", time.Time{}, "a look that can tell")
	default:
		return held(Wait, "SystemUnknown", "systemd says of itself: "+state, time.Time{}, "systemctl is-system-running saying running or degraded")
	}
	if left := f.t.MinUptime - f.System.Uptime; left > 0 {
		return held(Wait, "SystemStarting", fmt.Sprintf("the host booted %s ago, and nothing is done in the first %s", words(f.System.Uptime), words(f.t.MinUptime)), f.Now.Add(left), "")
	}
	return free("the host is %s, and has been up for %s", state, words(f.System.Uptime))
}

func guardMasked(f *facts, p proposal) Guard {
	for _, name := range f.touched(p) {
		u := f.unit(name)
		switch {
		case u.LoadState == "masked" || strings.HasPrefix(u.UnitFileState, "masked"):
			return held(Hold, "UnitMasked", name+" is masked: somebody does not want it to run", time.Time{}, "systemctl unmask "+name)
		case u.UnitFileState == "disabled" && (name == p.unit || !u.Running() && !p.missing): // on a machine that is no node yet it may be off
			return held(Hold, "UnitDisabled", name+" is disabled: somebody does not want it to start", time.Time{}, "systemctl enable "+name)
		}
	}
	if p.unit == "" || p.missing {
		return free("no unit is concerned")
	}
	return free("%s is neither", p.unit)
}

// touched is every unit that an action may start: a bootstrap is of the whole host, whatever unit led to it.
func (f *facts) touched(p proposal) []string {
	switch {
	case p.action == Bootstrap && p.unit == ContainerdUnit:
		return []string{ContainerdUnit, KubeletUnit}
	case p.action == Bootstrap:
		return []string{KubeletUnit, ContainerdUnit}
	case p.unit == "":
		return nil
	}
	return []string{p.unit}
}

// guardStopped leaves a unit alone that somebody stopped. Since when is told by systemd: our own looks may have missed that it ran in
// between. They count where systemd does not say, or says a time that is yet to come, since the clock was set back.
func guardStopped(f *facts, p proposal) Guard {
	long := ""
	for _, name := range f.touched(p) {
		since := f.unit(name).StateChange
		told := !since.IsZero() && !since.After(f.Now)
		switch {
		case !f.stopped(name), name == p.unit && p.missing, name != p.unit && !told:
			continue
		case !told:
			since = p.about.streak.ReasonSince
		}
		until := since.Add(f.t.StopHold)
		if !f.Now.Before(until) {
			long = name
			continue
		}
		return held(Hold, "UnitStopped", fmt.Sprintf("%s was stopped %s ago: whoever did it has %s to start it again", name, words(f.Now.Sub(since)), words(f.t.StopHold)),
			until, "systemctl start "+name)
	}
	if long != "" {
		return free("%s was stopped more than %s ago", long, words(f.t.StopHold))
	}
	return free("no unit was stopped")
}

func guardSystemd(f *facts, p proposal) Guard {
	u := f.unit(p.unit)
	switch {
	case p.unit == "" || p.missing:
		return free("no unit is concerned")
	case u.Job != "":
		return held(Wait, "SystemdAtWork", fmt.Sprintf("systemd has a job for %s: %s", p.unit, u.Job), time.Time{}, "the job's end")
	case u.ActiveState != "activating" && u.ActiveState != "deactivating":
		return free("systemd has no job for %s", p.unit)
	case f.loopsForGood(p, u):
		return free("systemd restarts %s again and again (%d times) and does not mend it", p.unit, u.NRestarts)
	}
	return held(Wait, "SystemdAtWork", fmt.Sprintf("%s is %s (%s): systemd is at work on it", p.unit, u.ActiveState, u.SubState), time.Time{}, "what becomes of it")
}

// loopsForGood reports whether systemd has had its time: the unit loops, and has done so for long or does so again after a restart of ours.
func (f *facts) loopsForGood(p proposal, u observe.Unit) bool {
	restarts, _ := f.restartsOf(p.unit)
	return u.NRestarts >= LoopRestarts && strings.HasPrefix(u.SubState, "auto-restart") && (restarts > 0 || p.about.streak.Lasted() >= f.t.LoopPatience)
}

// guardDependency keeps the kubelet from being restarted without its runtime, and a bootstrap from being wasted without a link. Where
// containerd is known to be down, the ladder is about containerd in the first place.
func guardDependency(f *facts, p proposal) Guard {
	switch {
	case p.action == Bootstrap && isLinkLost(f.ev.Node):
		return held(Wait, "LinkLost", "a bootstrap needs a link, and the API server is out of reach: "+f.ev.Node.Message, time.Time{}, "the link's return")
	case p.action == Restart && p.unit == KubeletUnit && f.ev.ContainerdUnit.Health != observe.Healthy:
		return held(Wait, "DependencyUnknown", "the kubelet needs containerd, and whether that runs can't be told: "+f.ev.ContainerdUnit.Message, time.Time{}, "a look that can tell")
	}
	return free("nothing that is needed is known to be down")
}

// guardWorks: whatever speaks for a bootstrap or a start, a node that works is left alone. A kubelet may call itself healthy while
// containerd is down; then the cluster's word counts.
func guardWorks(f *facts, p proposal) Guard {
	elsewhere := f.Set.KubeletAnswers() && !f.unit(KubeletUnit).Running()
	const change = "nothing: the node works"
	switch {
	case p.unit == KubeletUnit && elsewhere:
		return held(Hold, "KubeletElsewhere", "a kubelet answers that it is healthy, though "+KubeletUnit+" does not run: it is run by something else", time.Time{}, change)
	case p.action == Bootstrap && p.unit == KubeletUnit && f.ev.KubeletHealth.Health == observe.Healthy:
		return held(Hold, "NodeWorks", "the kubelet says that it is healthy: a working node is not bootstrapped", time.Time{}, change)
	case p.action == Bootstrap && f.ev.Node.Health == observe.Healthy:
		return held(Hold, "NodeWorks", "the cluster says that the node is ready: a working node is not bootstrapped", time.Time{}, change)
	}
	return free("nothing shows a node that works all the same")
}

// guardDistance keeps attempts apart, so that each has the time to show its effect.
func guardDistance(f *facts, p proposal) Guard {
	restarts, last := f.restartsOf(p.unit)
	if restarts == 0 || p.missing {
		return free("no restart was made for this")
	}
	wait := f.t.BootstrapAfter
	if p.action != Bootstrap {
		wait = f.t.RestartGaps[min(restarts, len(f.t.RestartGaps))-1]
	}
	until := last.Add(wait)
	if !f.Now.Before(until) {
		return free("%s was last restarted %s ago", p.unit, words(f.Now.Sub(last)))
	}
	if p.action == Bootstrap {
		return held(Wait, "AfterRestart", fmt.Sprintf("%s was restarted %s ago; a bootstrap comes %s after that", p.unit, words(f.Now.Sub(last)), words(wait)), until, "")
	}
	return held(Wait, "BetweenRestarts", fmt.Sprintf("%s was restarted %s ago; the next step comes %s after that", p.unit, words(f.Now.Sub(last)), words(wait)), until, "")
}
