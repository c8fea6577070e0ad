package decision

import (
	"slices"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// restartsOf returns how often a unit was restarted for the present fault, and when the last of these restarts ended. Forgotten are those
// from before kubelet and containerd were last well or a bootstrap did its work, and those that are too old.
func (f *facts) restartsOf(unit string) (count int, last time.Time) {
	since := f.ev.LastWell
	for _, b := range f.History.Bootstraps {
		if b.OK {
			since = later(since, b.end())
		}
	}
	for _, r := range f.History.Restarts {
		if r.Unit == unit && r.Began.After(since) && f.recent(r) {
			count++
			last = later(last, r.end())
		}
	}
	return count, last
}

// recent reports whether an attempt is within the window of the budget. One that the clock, set back since, puts into the future is.
func (f *facts) recent(a Attempt) bool { return f.Now.Sub(a.Began) < f.t.BudgetWindow }

// bootstrapFailed reports whether the last bootstrap for the present fault failed: then restarts would not help either.
func (f *facts) bootstrapFailed() bool {
	var last Attempt
	for _, b := range f.History.Bootstraps {
		if b.Began.After(last.Began) {
			last = b
		}
	}
	return !last.OK && last.Began.After(f.ev.LastWell) && f.recent(last)
}

// budget returns how many bootstraps count against the budget, and, when it is used up, from when on it no longer is.
func (f *facts) budget() (used int, free time.Time) {
	var began []time.Time
	for _, b := range f.History.Bootstraps {
		if f.recent(b) {
			began = append(began, b.Began)
		}
	}
	if len(began) < f.t.MaxBootstraps {
		return len(began), time.Time{}
	}
	slices.SortFunc(began, time.Time.Compare)
	return len(began), began[len(began)-f.t.MaxBootstraps].Add(f.t.BudgetWindow)
}

// coolDown returns how long the pause after the last bootstrap is and when it ends; zero when there was none since all was well.
func (f *facts) coolDown() (pause time.Duration, end time.Time) {
	for _, b := range f.History.Bootstraps {
		if !b.Began.After(f.ev.LastWell) {
			continue
		}
		pause = min(max(f.t.CoolDown, 2*pause), f.t.MaxCoolDown)
		end = later(end, b.end())
	}
	return pause, end.Add(pause)
}

// lastAttempt is when the last attempt ended. Ends that lie in the future, since the clock was set back, are left out: budget and
// distances go by them, but a look can't be later than now.
func (f *facts) lastAttempt() (last time.Time) {
	for _, attempts := range [][]Attempt{f.History.Restarts, f.History.Bootstraps} {
		for _, a := range attempts {
			if !a.end().After(f.Now) {
				last = later(last, a.end())
			}
		}
	}
	return last
}

// stopped reports whether a unit was stopped by somebody: it neither runs nor failed, and it was not one of our attempts that left it so.
func (f *facts) stopped(unit string) bool {
	u := f.unit(unit)
	if f.Remedy != nil && f.Remedy.Unit == unit {
		return false // a restart begins with reset-failed, after which a unit that failed looks like one that was stopped
	}
	if u.ActiveState != "inactive" || u.LoadState == "masked" || !u.Exists() {
		return false
	}
	for _, attempts := range [][]Attempt{f.History.Restarts, f.History.Bootstraps} {
		for _, a := range attempts {
			if !u.StateChange.Before(a.Began) && !u.StateChange.After(a.moved()) {
				return false
			}
		}
	}
	return true
}

func (f *facts) unit(name string) observe.Unit {
	if name == ContainerdUnit {
		return f.Set.ContainerdUnit.Value
	}
	return f.Set.KubeletUnit.Value
}
