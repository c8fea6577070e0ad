package decision

import (
	"fmt"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// Evidence is what looks have shown over time. It is a plain value: Add returns a new one. The zero value knows nothing.
type Evidence struct {
	ContainerdUnit, Containerd, Runc, KubeletUnit, KubeletHealth, Node, ArcUnit, Arc Streak
	// LastWell is when kubelet and containerd had last been healthy for as long as Recovered says. Attempts from before count for a fault
	// that is over. Callers keep it over restarts of the agent: it is enough to do so when it first moves after an attempt.
	LastWell time.Time
}

// Streak is the looks at one subject that agree on its health, up to the last one.
type Streak struct {
	observe.Verdict           // of the last look; At is when that was
	Since           time.Time // the first look
	Looks           int
	// ReasonSince and ReasonLooks are the same for those of them that also agree on the reason.
	ReasonSince time.Time
	ReasonLooks int
	// Free is since when it has not been seen unhealthy: the first such look, be it that it could not be told. Zero while it is unhealthy.
	Free time.Time
	// Unsteady: in the last look the unit ran, but it has been looping and has not shown yet that it stays up. Such a look speaks neither
	// way: it does not end the streak and does not lengthen it, and nothing is done on its account.
	Unsteady bool
}

// Lasted is the time from the first look to the last.
func (s Streak) Lasted() time.Duration { return s.At.Sub(s.Since) }

// Confirmed reports whether the subject was unhealthy in every look, often enough and for long enough.
func (s Streak) Confirmed(t Thresholds) bool {
	t = t.orDefault()
	return s.Health == observe.Unhealthy && !s.Unsteady && s.Looks >= t.ConfirmLooks && s.Lasted() >= t.ConfirmFor
}

// ReasonConfirmed reports whether that was so for one and the same reason, for at least so long.
func (s Streak) ReasonConfirmed(t Thresholds, least time.Duration) bool {
	return s.Confirmed(t) && s.ReasonLooks >= t.orDefault().ConfirmLooks && s.At.Sub(s.ReasonSince) >= least
}

// Add adds one look. A subject that was not looked at anew since the last Add is left as it is.
func (e Evidence) Add(set *observe.Set, t Thresholds) Evidence {
	if set == nil {
		return e
	}
	t = t.orDefault()
	e.ContainerdUnit = e.ContainerdUnit.add(containerdVerdict(set), unsteady(set.ContainerdUnit, t), t)
	e.Containerd = e.Containerd.add(set.Containerd.Verdict(), false, t)
	e.Runc = e.Runc.add(set.Runc.Verdict(), false, t)
	e.KubeletUnit = e.KubeletUnit.add(set.KubeletUnit.Verdict(), unsteady(set.KubeletUnit, t), t)
	e.KubeletHealth = e.KubeletHealth.add(set.KubeletHealth.Verdict(), false, t)
	e.Node = e.Node.add(set.Node.Verdict(), false, t)
	e.ArcUnit = e.ArcUnit.add(set.ArcUnit.Verdict(), false, t)
	e.Arc = e.Arc.add(set.Arc.Verdict(), false, t)
	if at, well := e.well(t); well {
		e.LastWell = at
	}
	return e
}

// add adds one look at the subject.
func (s Streak) add(v observe.Verdict, unsteady bool, t Thresholds) Streak {
	switch {
	case v.At.IsZero(), v.At.Equal(s.At):
		return s // no look, or one that is known
	case s.Looks == 0, v.At.Before(s.At), v.At.Sub(s.At) > t.EvidenceGap:
		return begin(v, time.Time{})
	case unsteady && s.Health == observe.Unhealthy:
		s.At, s.Message, s.Unsteady = v.At, v.Message+", but has been looping", true
		return s
	case v.Health != s.Health:
		return begin(v, s.Free)
	case v.Reason != s.Reason:
		s.ReasonSince, s.ReasonLooks = v.At, 0
	}
	s.Verdict, s.Unsteady = v, false
	s.Looks++
	s.ReasonLooks++
	return s
}

// begin is a streak of one look. free is since when the subject had not been seen unhealthy before that; zero when it had, or when that is
// not known.
func begin(v observe.Verdict, free time.Time) Streak {
	s := Streak{Verdict: v, Since: v.At, Looks: 1, ReasonSince: v.At, ReasonLooks: 1}
	switch {
	case v.Health == observe.Unhealthy:
	case free.IsZero():
		s.Free = v.At
	default:
		s.Free = free
	}
	return s
}

// containerdVerdict is that of the unit; but what answers runs, whatever started it.
func containerdVerdict(set *observe.Set) observe.Verdict {
	v := set.ContainerdUnit.Verdict()
	if v.Health != observe.Healthy && set.ContainerdAnswers() {
		v.Health, v.Reason, v.Message = observe.Healthy, "Answering", "containerd answers, though not as its unit"
	}
	return v
}

// unsteady reports whether a unit runs that systemd has restarted again and again, and that came up only just now.
func unsteady(o observe.Observation[observe.Unit], t Thresholds) bool {
	u := o.Value
	return o.Known() && u.Running() && u.NRestarts >= LoopRestarts && !u.StateChange.IsZero() && o.At.Sub(u.StateChange) < t.Steady
}

// well returns the last look if kubelet and containerd have been healthy for long enough. A health endpoint that can't be asked does not
// speak against it: the unit runs.
func (e Evidence) well(t Thresholds) (at time.Time, well bool) {
	if e.KubeletUnit.Health != observe.Healthy || e.ContainerdUnit.Health != observe.Healthy {
		return time.Time{}, false
	}
	at, since := e.KubeletUnit.At, later(e.KubeletUnit.Since, e.ContainerdUnit.Since)
	for _, s := range []Streak{e.KubeletHealth, e.Containerd} {
		if s.Health == observe.Unhealthy {
			return time.Time{}, false
		}
		since = later(since, s.Free)
	}
	return at, at.Sub(since) >= t.Recovered
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// subject is a streak with the name that people read.
type subject struct {
	name   string
	streak *Streak
}

// subjects lists the streaks, cause before effect.
func (e *Evidence) subjects() []subject {
	return []subject{
		{"containerd unit", &e.ContainerdUnit}, {"containerd", &e.Containerd}, {"runc", &e.Runc}, {"kubelet unit", &e.KubeletUnit},
		{"kubelet health", &e.KubeletHealth}, {"node", &e.Node}, {"arc unit", &e.ArcUnit}, {"arc", &e.Arc},
	}
}

// asOf returns the evidence as it counts at a time: what was last seen too long ago can't be told.
func (e Evidence) asOf(now time.Time, t Thresholds) Evidence {
	for _, s := range e.subjects() {
		if age := now.Sub(s.streak.At); s.streak.Looks > 0 && age > t.EvidenceGap {
			*s.streak = Streak{Since: s.streak.At, Looks: 1, ReasonSince: s.streak.At, ReasonLooks: 1, Verdict: observe.Verdict{
				Reason: "Stale", At: s.streak.At, Message: fmt.Sprintf("last seen %s ago: %s", words(age), s.streak.Message)}}
		}
	}
	return e
}

// stale is when the first of the streaks will be too old to count; zero when there is none.
func (e Evidence) stale(now time.Time, t Thresholds) time.Time {
	var first time.Time
	for _, s := range e.subjects() {
		if at := s.streak.At.Add(t.EvidenceGap); s.streak.Looks > 0 && !at.Before(now) {
			first = sooner(first, at)
		}
	}
	return first
}

// sooner returns the earlier of two times, where zero stands for none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
