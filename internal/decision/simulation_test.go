package decision

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// simulation is a day of a host on which faults happen at random, an agent that looks each minute, at events and when a decision asks
// for it, and an executor that does what is decided. A witness keeps its own record and checks every step.
type simulation struct {
	t    *testing.T
	seed uint64
	host *host
	in   Input
	kept time.Time // the LastWell that survives the agent

	asleep    time.Time // until when the agent is stopped
	periodic  time.Time // the next look that is due anyway
	remedyEnd time.Time
	action    Decision // being carried out
	events    []event
	last      Decision
	witness   witness
	counts    map[string]int
}

type event struct {
	at time.Time
	do func()
}

func TestADayOfRandomFaults(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(seeds) {
		s := newSimulation(t, seed, counts)
		s.run(24 * time.Hour)
		s.end()
		if t.Failed() {
			return
		}
	}
	// The simulation is worth something only if it got everywhere.
	for _, reason := range []string{
		"Healthy", "Confirming", "CannotTell", "NotSteady", "Failed", "CrashLoop", "HealthzSilent", "NotResponding", "Stopped", "StoppedAgain", "KubeletMissing",
		"RestartsUsedUp", "BootstrapFailed", "RuntimeUnhealthy", "RuncMissing", "NodeNotReady", "LinkLost", "ContainerdLoops", "ObserveOnly", "Paused",
		"JournalBroken", "RemedyInProgress", "SystemStarting", "UnitMasked", "UnitDisabled", "UnitStopped", "SystemdAtWork", "KubeletElsewhere",
		"BetweenRestarts", "AfterRestart", "BudgetUsedUp", "CoolDown", "OutsideWindow", "DryRun", "SnapshotNotRefreshed",
	} {
		if counts[reason] == 0 {
			t.Errorf("in %d days no decision was made for %s; got %v", seeds, reason, counts)
		}
	}
	t.Logf("%d restarts, %d bootstraps in %d days", counts["restart"], counts["bootstrap"], seeds)
}

func newSimulation(t *testing.T, seed uint64, counts map[string]int) *simulation {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	s := &simulation{t: t, seed: seed, host: newHost(r, noon), counts: counts, in: Input{Mode: Act, CanBootstrap: true}}
	s.in.Now = noon
	s.schedule(time.Minute, s.misfortune)
	return s
}

func (s *simulation) schedule(in time.Duration, do func()) {
	s.events = append(s.events, event{s.in.Now.Add(in), do})
}

// between is a random time, in whole seconds.
func (s *simulation) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.host.r.Int64N(int64((most-least)/time.Second)+1))*time.Second
}

func (s *simulation) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("seed %d, %s: %s\n%s", s.seed, s.in.Now.Sub(noon), fmt.Sprintf(format, args...), Explain(s.last))
}

// run lets so much time pass.
func (s *simulation) run(d time.Duration) {
	for end := s.in.Now.Add(d); s.in.Now.Before(end); {
		s.step()
	}
}

// step goes to the next moment at which something happens.
func (s *simulation) step() {
	var next time.Time
	for _, at := range []time.Time{s.periodic, s.last.NextLook, s.remedyEnd, s.host.kubelet.next, s.host.containerd.next, s.asleep} {
		if at.After(s.in.Now) {
			next = sooner(next, at)
		}
	}
	for _, e := range s.events {
		next = sooner(next, e.at)
	}
	s.in.Now = later(next, s.in.Now.Add(time.Second))
	s.host.now = s.in.Now

	s.happen()
	changed := s.host.kubelet.tick(s.in.Now)
	changed = s.host.containerd.tick(s.in.Now) || changed
	if s.in.Remedy != nil && !s.in.Now.Before(s.remedyEnd) {
		s.endRemedy()
		changed = true
	}
	if s.in.Now.Before(s.asleep) {
		return
	}
	asked := !s.last.NextLook.IsZero() && !s.in.Now.Before(s.last.NextLook)
	if asked || !s.in.Now.Before(s.periodic) || changed && s.host.r.IntN(5) > 0 {
		s.look()
	}
	s.decide()
}

// happen lets the events happen that are due; they may plan others.
func (s *simulation) happen() {
	var due []event
	s.events = slices.DeleteFunc(s.events, func(e event) bool {
		if e.at.After(s.in.Now) {
			return false
		}
		due = append(due, e)
		return true
	})
	for _, e := range due {
		e.do()
	}
}

func (s *simulation) look() {
	s.in.Set = s.host.see(s.in.Set)
	s.in.System.State = s.host.state()
	s.in.Evidence = s.in.Evidence.Add(s.in.Set, s.in.Thresholds)
	s.witness.saw(s.in.Set)
	s.periodic = s.in.Now.Add(s.between(50*time.Second, 70*time.Second))
	s.in.Grounds = nil
	if !s.host.kubelet.unit.Running() {
		s.in.Grounds = append(s.in.Grounds, "KubeletNotRunning")
	}
	if s.host.arcCut {
		s.in.Grounds = append(s.in.Grounds, "ArcNotConnected")
	}
	if s.in.History.Broken != "" {
		s.in.Grounds = append(s.in.Grounds, "SnapshotStale") // the same disk
	}
	// The journal is told when all is well again after an attempt.
	if began := s.witness.lastAttempt(); s.in.Evidence.LastWell.After(began) && !s.kept.After(began) {
		s.kept = s.in.Evidence.LastWell
	}
}

func (s *simulation) decide() {
	s.in.System.Uptime = s.in.Now.Sub(s.host.boot)
	d := Decide(s.in)
	if !d.Same(s.last) {
		if why := s.witness.explains(s.in, s.last); !why && s.last.Action != "" {
			s.failf("became %s (%s): %s\nwithout anything having been seen, or time having been said to matter", d.Action, d.Reason, d.Message)
		}
		s.counts[d.Reason]++
	}
	s.last = d
	s.witness.remember(s.in)
	if d.Action.Acts() {
		s.counts[string(d.Action)]++
		if err := s.witness.objects(s.in, d); err != "" {
			s.failf("%s", err)
		}
		s.begin(d)
	}
}

// begin carries a decision out.
func (s *simulation) begin(d Decision) {
	took := s.between(2*time.Second, 30*time.Second)
	if d.Action == Bootstrap {
		took = s.between(10*time.Second, 5*time.Minute)
	}
	s.action, s.remedyEnd = d, s.in.Now.Add(took)
	s.in.Remedy = &Remedy{Name: string(d.Action), Unit: d.Unit, Since: s.in.Now}
	s.witness.began(d)
}

func (s *simulation) endRemedy() {
	a := Attempt{Unit: s.action.Unit, Began: s.action.At, Ended: s.in.Now}
	if s.action.Action == Restart {
		a.OK = s.host.endRestart(a.Unit)
		s.in.History.Restarts = append(s.in.History.Restarts, a)
	} else {
		a.OK = s.host.endBootstrap(a.Began)
		s.in.History.Bootstraps = append(s.in.History.Bootstraps, a)
	}
	s.in.Remedy = nil
	s.witness.ended(a)
}

// restartAgent starts the agent anew: what it saw is lost, what the journal holds is kept.
func (s *simulation) restartAgent() {
	s.in.Evidence, s.in.Set, s.last = Evidence{LastWell: s.kept}, nil, Decision{}
	s.witness.agentRestarted(s.kept)
	s.periodic = s.in.Now
}

// end repairs all and lets the node come to rest.
func (s *simulation) end() {
	s.t.Helper()
	s.events, s.in.Pauses, s.in.DryRun, s.in.Mode, s.in.Window, s.in.History.Broken, s.asleep = nil, nil, false, Act, nil, "", time.Time{}
	s.host.repair()
	s.host.mendable = true // for a bootstrap that is still in progress
	s.run(20 * time.Minute)
	if s.last.Action != None || s.last.Reason != "Healthy" {
		s.failf("got %s (%s) on a repaired node, want nothing to do", s.last.Action, s.last.Reason)
	}
	if !s.in.Evidence.LastWell.Equal(s.in.Evidence.KubeletUnit.At) {
		s.failf("got last well %s, want it to be well now", s.in.Evidence.LastWell)
	}
}

// faulty makes one daemon so.
func (s *simulation) faulty(d *daemon, broken, loops bool) {
	d.broken, d.loops, d.fails = broken, loops, s.between(0, 20*time.Second)
	if d.unit.Running() {
		d.fail(s.in.Now)
	}
}

// misfortune lets something happen, and plans the next.
func (s *simulation) misfortune() {
	h, r := s.host, s.host.r
	s.schedule(s.between(time.Minute, 50*time.Minute), s.misfortune)
	h.mendable = r.IntN(3) > 0
	unit := []string{KubeletUnit, KubeletUnit, ContainerdUnit}[r.IntN(3)]
	d := h.daemon(unit)
	later := func(do func()) { s.schedule(s.between(time.Minute, 2*time.Hour), do) }
	switch r.IntN(22) {
	case 0, 1:
		s.faulty(d, false, false)
	case 2, 3:
		s.faulty(d, true, false)
	case 4:
		s.faulty(d, true, true)
	case 5:
		d.stop(s.in.Now)
	case 6: // somebody who stops it whenever it runs
		for i := range 60 {
			s.schedule(time.Duration(i)*time.Minute, func() { d.stop(s.host.now) })
		}
	case 7:
		d.stop(s.in.Now)
		d.unit.LoadState, d.unit.UnitFileState = "masked", "masked"
		later(func() { d.unit.LoadState, d.unit.UnitFileState = "loaded", "enabled"; d.start(s.host.now) })
	case 8:
		s.faulty(d, false, false)
		d.unit.UnitFileState = "disabled"
		later(func() { d.unit.UnitFileState = "enabled" })
	case 9:
		d.stop(s.in.Now)
		d.unit.LoadState, d.unit.UnitFileState = "not-found", ""
	case 10, 11:
		d.broken = r.IntN(2) == 0
		h.setSickness(unit, map[string][]string{KubeletUnit: {"HealthzSilent", "HealthzFailed"}, ContainerdUnit: {notResponding, "RuntimeNotReady"}}[unit][r.IntN(2)])
		later(func() { h.setSickness(unit, "") })
	case 12:
		h.linkCut, h.arcCut = true, r.IntN(2) == 0
		later(func() { h.linkCut, h.arcCut = false, false })
	case 13:
		h.dark = true
		s.schedule(s.between(time.Second, 10*time.Minute), func() { h.dark = false })
	case 14:
		p := Pause{By: "command", Since: s.in.Now}
		if r.IntN(2) == 0 {
			p.Until = s.in.Now.Add(s.between(time.Minute, time.Hour))
		}
		s.in.Pauses = append(slices.Clone(s.in.Pauses), p)
		later(func() { s.in.Pauses = nil })
	case 15:
		what := r.IntN(4)
		s.in.DryRun = what == 0
		s.in.Mode = map[bool]Mode{true: ObserveOnly, false: Act}[what == 1]
		s.in.History.Broken = map[bool]string{true: "no space left on device"}[what == 2]
		if what == 3 {
			from := s.in.Now.Add(s.between(time.Minute, time.Hour))
			s.in.Window = &Window{From: from, To: from.Add(time.Hour)}
		}
		later(func() { s.in.DryRun, s.in.Mode, s.in.History.Broken, s.in.Window = false, Act, "", nil })
	case 16:
		h.reboot()
		if s.in.Remedy != nil {
			s.remedyEnd = s.in.Now
		}
		s.restartAgent()
	case 17:
		s.restartAgent()
	case 18:
		s.asleep = s.in.Now.Add(s.between(time.Second, 30*time.Minute))
		s.last = Decision{} // whatever it says then
	case 19:
		h.notReady = true
		later(func() { h.notReady = false })
	case 20:
		h.noRunc, h.elsewhere = r.IntN(2) == 0, r.IntN(2) == 0
		if h.elsewhere {
			h.kubelet.stop(s.in.Now)
			h.kubelet.stoppedAt = time.Time{}
			h.kubelet.becomes(s.in.Now, "failed", "failed", "exit-code")
		}
		later(func() { h.noRunc, h.elsewhere = false, false })
	default:
		h.repair()
	}
}
