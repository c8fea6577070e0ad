package decision

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// witness keeps a record of what was seen and done, of its own making, and judges by that.
type witness struct {
	seen     map[string][]sight // of each subject, since the agent began
	set      *observe.Set       // the last look
	findings [9]finding         // what it amounts to
	restarts map[string][]Attempt
	boots    []Attempt
	active   bool
	well     time.Time // when kubelet and containerd had last been well for 10 min
	facts    record    // all that the last decision could have been made from, but for the time
}

// enough is how far back it is worth looking.
const enough = 10 * time.Minute

type sight struct {
	at     time.Time
	health observe.Health
	reason string
	flash  bool // it is up in the midst of a restart loop
}

// saw records a look.
func (w *witness) saw(set *observe.Set) {
	if w.seen == nil {
		w.seen = map[string][]sight{}
	}
	w.set = set
	for _, s := range set.Subjects() {
		known := w.seen[s.Name]
		if len(known) > 0 && known[len(known)-1].at.Equal(s.At) {
			continue
		}
		u := map[string]observe.Observation[observe.Unit]{"kubelet unit": set.KubeletUnit, "containerd unit": set.ContainerdUnit}[s.Name].Value
		flash := s.Health == observe.Healthy && u.NRestarts >= 3 && s.At.Sub(u.StateChange) < time.Minute
		w.seen[s.Name] = append(known, sight{s.At, s.Health, s.Reason, flash})
	}
	if w.wellFor() >= 10*time.Minute {
		w.well = set.KubeletUnit.At
	}
	for i, s := range set.Subjects() {
		last := w.seen[s.Name][len(w.seen[s.Name])-1]
		w.findings[i] = finding{health: s.Health, reason: s.Reason, flash: last.flash}
		if s.Health == observe.Healthy && !last.flash && s.Name != "containerd" && s.Name != "containerd unit" {
			continue // how long it has been well is of no matter; of containerd it is, for the kubelet's sake
		}
		lasted, looks := w.lasts(s.Name, func(x sight) bool { return x.health == last.health })
		same, sameLooks := w.lasts(s.Name, func(x sight) bool { return x.health == last.health && x.reason == last.reason })
		w.findings[i] = finding{s.Health, s.Reason, last.flash, looks >= 3, sameLooks >= 3, lasted >= time.Minute, lasted >= 10*time.Minute,
			same >= time.Minute, same >= 2*time.Minute}
	}
}

// lasts returns for how long and in how many looks all that was seen of a subject, back from now, is as allowed. Looks at a loop while
// it happens to be up count neither way.
func (w *witness) lasts(name string, allowed func(sight) bool) (d time.Duration, looks int) {
	seen := w.seen[name]
	for i := len(seen) - 1; i >= 0 && d < enough; i-- {
		if i < len(seen)-1 && seen[i+1].at.Sub(seen[i].at) > 2*time.Minute {
			return d, looks
		}
		if !allowed(seen[i]) {
			if seen[i].flash {
				continue
			}
			return d, looks
		}
		d, looks = seen[len(seen)-1].at.Sub(seen[i].at), looks+1
	}
	return d, looks
}

func (w *witness) wellFor() time.Duration {
	shortest := 24 * time.Hour
	for _, name := range []string{"kubelet unit", "containerd unit", "kubelet health", "containerd"} {
		bad := func(s sight) bool {
			return s.health == observe.Unhealthy || s.health == observe.Unknown && (name == "kubelet unit" || name == "containerd unit")
		}
		d := time.Duration(0)
		seen := w.seen[name]
		for i := len(seen) - 1; i >= 0 && !bad(seen[i]) && d < enough; i-- {
			if i < len(seen)-1 && seen[i+1].at.Sub(seen[i].at) > 2*time.Minute {
				break
			}
			d = seen[len(seen)-1].at.Sub(seen[i].at)
		}
		shortest = min(shortest, d)
	}
	return shortest
}

func (w *witness) began(d Decision) {
	w.active = true
	if d.Action == Bootstrap {
		w.boots = append(w.boots, Attempt{Began: d.At})
		return
	}
	if w.restarts == nil {
		w.restarts = map[string][]Attempt{}
	}
	w.restarts[d.Unit] = append(w.restarts[d.Unit], Attempt{Began: d.At})
}

func (w *witness) ended(a Attempt) {
	w.active = false
	list := w.restarts[a.Unit]
	if len(w.boots) > 0 && w.boots[len(w.boots)-1].Began.Equal(a.Began) {
		list = w.boots
	}
	list[len(list)-1].Ended, list[len(list)-1].OK = a.Ended, a.OK
}

func (w *witness) lastAttempt() (last time.Time) {
	for _, list := range [][]Attempt{w.boots, w.restarts[KubeletUnit], w.restarts[ContainerdUnit]} {
		if len(list) > 0 {
			last = later(last, list[len(list)-1].Began)
		}
	}
	return last
}

func (w *witness) agentRestarted(well time.Time) {
	w.seen, w.set, w.well = nil, nil, well
}

// objects returns what is wrong with carrying an action out; empty for nothing.
func (w *witness) objects(in Input, d Decision) string {
	kubelet, containerd := w.set.KubeletUnit, w.set.ContainerdUnit
	unit := map[string]observe.Observation[observe.Unit]{KubeletUnit: kubelet, ContainerdUnit: containerd}[d.Unit].Value
	missing := kubelet.Known() && !kubelet.Value.Exists()
	paused := slices.ContainsFunc(in.Pauses, func(p Pause) bool { return p.Until.IsZero() || p.Until.After(in.Now) })
	outside := in.Window != nil && (in.Now.Before(in.Window.From) || !in.Now.Before(in.Window.To))
	switch {
	case w.active:
		return "two remedies at once"
	case paused, in.Mode != Act, in.DryRun, in.History.Broken != "", outside:
		return "acted against somebody's will"
	case !kubelet.Known():
		return "acted on what is not known"
	case !missing && (unit.LoadState == "masked" || unit.UnitFileState == "disabled"):
		return "acted on a unit that is masked or disabled"
	case !missing && (in.System.State != "running" || in.System.Uptime < 5*time.Minute):
		return "acted on a host that starts"
	case in.Now.Sub(kubelet.At) > 2*time.Minute:
		return "acted on an old look"
	}
	if complaint := w.unconfirmed(d, missing); complaint != "" {
		return complaint
	}
	if d.Action == Restart {
		return w.objectsToRestart(in, d, unit)
	}
	return w.objectsToBootstrap(in, d, unit, missing)
}

// unconfirmed: something about the unit must have been unhealthy in every look for a minute.
func (w *witness) unconfirmed(d Decision, missing bool) string {
	ill := func(s sight) bool { return s.health == observe.Unhealthy }
	subjects := map[string][]string{KubeletUnit: {"kubelet unit", "kubelet health"}, ContainerdUnit: {"containerd unit", "containerd"}}[d.Unit]
	for _, name := range subjects {
		seen := w.seen[name]
		if last := seen[len(seen)-1]; !ill(last) {
			continue
		}
		if lasted, looks := w.lasts(name, ill); lasted >= time.Minute && looks >= 3 {
			if missing && w.seen["kubelet unit"][len(w.seen["kubelet unit"])-1].reason != observe.ReasonUnitNotFound {
				return "a missing unit that is not seen as missing"
			}
			return ""
		}
	}
	return fmt.Sprintf("acted on %s without confirmation", d.Unit)
}

func (w *witness) objectsToRestart(in Input, d Decision, unit observe.Unit) string {
	since := w.well
	for _, b := range w.boots {
		if b.OK {
			since = later(since, b.Ended)
		}
	}
	recent := slices.DeleteFunc(slices.Clone(w.restarts[d.Unit]), func(a Attempt) bool { return !a.Began.After(since) || in.Now.Sub(a.Began) >= 24*time.Hour })
	gaps := []time.Duration{0, 30 * time.Second, time.Minute}
	containerdUp := w.set.ContainerdUnit.Health == observe.Healthy || w.set.ContainerdAnswers()
	frozen := w.set.Containerd.Health == observe.Unhealthy && w.set.Containerd.Reason == notResponding
	switch {
	case len(recent) >= 3:
		return "restarted a fourth time"
	case len(recent) > 0 && in.Now.Sub(recent[len(recent)-1].Ended) < gaps[len(recent)]:
		return "restarted too soon after the last restart"
	case unit.Job != "":
		return "restarted what systemd has a job for"
	case unit.ActiveState == "inactive" && unit.Result == "success" && in.Now.Sub(unit.StateChange) < 10*time.Minute && !w.ours(unit.StateChange):
		return "started what somebody stopped less than 10 min ago"
	case d.Unit == KubeletUnit && (!containerdUp || frozen):
		return "restarted the kubelet while containerd is down"
	case d.Unit == ContainerdUnit && unit.ActiveState != "inactive" && unit.ActiveState != "failed" && !frozen:
		return "restarted a containerd that is neither inactive nor failed nor frozen"
	}
	if d.Unit == ContainerdUnit && unit.Running() {
		if lasted, _ := w.lasts("containerd", func(s sight) bool { return s.reason == notResponding }); lasted < 2*time.Minute {
			return "restarted a containerd that was frozen for less than 2 min"
		}
	}
	return ""
}

// ours reports whether something changed while we were at work.
func (w *witness) ours(at time.Time) bool {
	for _, list := range [][]Attempt{w.boots, w.restarts[KubeletUnit], w.restarts[ContainerdUnit]} {
		for _, a := range list {
			if !at.Before(a.Began) && !at.After(a.Ended) {
				return true
			}
		}
	}
	return false
}

func (w *witness) objectsToBootstrap(in Input, d Decision, unit observe.Unit, missing bool) string {
	today := slices.DeleteFunc(slices.Clone(w.boots), func(a Attempt) bool { return in.Now.Sub(a.Began) >= 24*time.Hour })
	cool, inARow := 2*time.Minute, 0
	for _, b := range w.boots {
		if b.Began.After(w.well) {
			if inARow++; inARow > 1 {
				cool = min(2*cool, time.Hour)
			}
		}
	}
	restarts := w.restarts[d.Unit]
	works := w.set.Node.Health == observe.Healthy || d.Unit == KubeletUnit && w.set.KubeletHealth.Health == observe.Healthy
	lost := isLinkLost(Streak{Verdict: w.set.Node.Verdict()})
	switch {
	case len(today) >= 3:
		return "bootstrapped a fourth time within a day"
	case inARow > 0 && in.Now.Sub(w.boots[len(w.boots)-1].Ended) < cool:
		return "bootstrapped before the pause was over"
	case !missing && len(restarts) > 0 && in.Now.Sub(restarts[len(restarts)-1].Ended) < 5*time.Minute && restarts[len(restarts)-1].Began.After(w.well):
		return "bootstrapped too soon after a restart"
	case works:
		return "bootstrapped a working node"
	case lost:
		return "bootstrapped without a link"
	case !missing && unit.ActiveState == "inactive" && !w.ours(unit.StateChange):
		return "bootstrapped a unit that somebody stopped"
	}
	return ""
}

// record is all that decisions go by but the time: the last look, which of its findings have lasted long enough for something, what
// people want and what was done.
type record struct {
	mode                         Mode
	dryRun, remedy               bool
	pauses, restarts, bootstraps int
	window                       *Window
	broken, grounds, system      string
	well                         time.Time
	subjects                     [9]finding
	units                        [2][5]string
	changed                      [2]time.Time
}

// finding is what was seen of one subject, and what that amounts to.
type finding struct {
	health                                                   observe.Health
	reason                                                   string
	flash, looks, sameLooks, minute, tenMinutes, same, same2 bool
}

// remember keeps what a decision was made from.
func (w *witness) remember(in Input) { w.facts = w.record(in) }

// explains reports whether a decision other than the last may be made: something else is seen, done or wanted, or the last one said that
// time would matter by now.
func (w *witness) explains(in Input, last Decision) bool {
	return w.facts != w.record(in) || !last.NextLook.IsZero() && !in.Now.Before(last.NextLook)
}

func (w *witness) record(in Input) record {
	r := record{
		mode: in.Mode, dryRun: in.DryRun, remedy: in.Remedy != nil, pauses: len(in.Pauses), restarts: len(in.History.Restarts),
		bootstraps: len(in.History.Bootstraps), window: in.Window, broken: in.History.Broken, grounds: strings.Join(in.Grounds, " "),
		system: in.System.State, well: w.well,
	}
	if in.Set == nil {
		return r
	}
	r.subjects = w.findings
	for i, u := range []observe.Unit{in.Set.KubeletUnit.Value, in.Set.ContainerdUnit.Value} {
		r.units[i] = [5]string{u.LoadState, u.ActiveState, u.SubState, u.UnitFileState, u.Job}
		r.changed[i] = u.StateChange
	}
	return r
}
