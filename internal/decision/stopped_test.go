package decision

import (
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

func TestAUnitThatSomebodyStopped(t *testing.T) {
	for _, unit := range []string{KubeletUnit, ContainerdUnit} {
		t.Run(unit, func(t *testing.T) {
			is := map[string]func(observe.Unit) change{KubeletUnit: kubelet, ContainerdUnit: containerd}[unit]
			s := newScene(t).has(0, is(stoppedAt(noon)))
			s.wants(Wait, "Confirming")
			s.lasts(time.Minute)
			d := s.wants(Hold, "UnitStopped")
			if d.Wanted != Restart || !d.Until.Equal(noon.Add(10*time.Minute)) {
				t.Errorf("got %s until %s, want a restart 10 min after the stop", d.Wanted, d.Until)
			}
			s.lasts(9*time.Minute - 1)
			s.wants(Hold, "UnitStopped")
			s.after(1)
			s.wants(Restart, "Stopped")

			// Whoever stops it again means it: it is started three times, and then no more. It is never bootstrapped.
			for i := range 3 {
				s.wants(Restart, "Stopped")
				s.restarts(unit, time.Second)
				s.has(time.Minute, is(running)).has(0, is(stoppedAt(s.in.Now.Add(time.Second))))
				s.lasts(10 * time.Minute)
				if i < 2 {
					continue
				}
				s.wants(Hold, "StoppedAgain")
			}
			s.lasts(20 * time.Hour)
			s.wants(Hold, "StoppedAgain")
		})
	}
}

func TestSinceWhenAUnitIsStopped(t *testing.T) {
	given := func(t *testing.T, u observe.Unit) *scene {
		t.Helper()
		return newScene(t).has(time.Minute, kubelet(u))
	}
	t.Run("given that it was stopped before the agent began, systemd's word counts", func(t *testing.T) {
		given(t, stoppedAt(noon.Add(-9*time.Minute+1))).wants(Hold, "UnitStopped")
		given(t, stoppedAt(noon.Add(-9*time.Minute))).wants(Restart, "Stopped")
	})
	t.Run("given that systemd does not say since when, our own looks count", func(t *testing.T) {
		s := given(t, stoppedAt(time.Time{}))
		s.lasts(9*time.Minute - 1)
		s.wants(Hold, "UnitStopped")
		s.lasts(1)
		s.wants(Restart, "Stopped")
	})
	t.Run("given a time in the future, since the clock was set back, our own looks count", func(t *testing.T) {
		s := given(t, stoppedAt(noon.Add(time.Hour)))
		s.lasts(9 * time.Minute)
		s.wants(Restart, "Stopped")
	})
	t.Run("given that it was failing for long before, the time counts from the stop", func(t *testing.T) {
		s := newScene(t)
		s.in.Pauses = []Pause{{By: "command"}}
		s.has(time.Hour, kubelet(failed))
		stop := s.in.Now.Add(time.Second)
		s.has(time.Minute, kubelet(stoppedAt(stop)))
		s.in.Pauses = nil
		if d := s.wants(Hold, "UnitStopped"); !d.Until.Equal(stop.Add(10 * time.Minute)) {
			t.Errorf("got until %s, want 10 min from the stop at %s", d.Until, stop)
		}
	})
	t.Run("given a masked one, it is masked", func(t *testing.T) {
		given(t, masked).wants(Hold, "UnitMasked")
	})
	t.Run("given a disabled one, it is disabled", func(t *testing.T) {
		given(t, disabled(stoppedAt(noon.Add(-time.Hour)))).wants(Hold, "UnitDisabled")
	})
}

func TestAUnitThatOurOwnBootstrapLeftStoppedWasNotStoppedBySomebody(t *testing.T) {
	for _, tc := range []struct {
		name   string
		at     time.Duration // of the stop, after the bootstrap began; it takes a minute
		action Action
		reason string
	}{
		{"given a moment before it", -1, Hold, "UnitStopped"},
		{"given its beginning", 0, Bootstrap, "BootstrapFailed"},
		{"given its end", time.Minute, Bootstrap, "BootstrapFailed"},
		{"given a moment after it", time.Minute + 1, Hold, "UnitStopped"},
	} {
		s := newScene(t)
		began := noon.Add(time.Second)
		s.in.History.Bootstraps = []Attempt{{Began: began, Ended: began.Add(time.Minute)}}
		s.after(time.Minute)
		s.has(5*time.Minute, kubelet(stoppedAt(began.Add(tc.at))), node(observe.NotReady, "NodeNotReady"))
		if d := s.decide(); d.Action != tc.action || d.Reason != tc.reason {
			t.Errorf("%s: got %s (%s): %s, want %s (%s)", tc.name, d.Action, d.Reason, d.Message, tc.action, tc.reason)
		}
	}
}

func TestAFailedBootstrapDoesNotOverruleWhoeverStopsAUnit(t *testing.T) {
	s := newScene(t).has(20*time.Minute, kubelet(stoppedAt(noon.Add(5*time.Minute))), node(observe.NotReady, "NodeNotReady"))
	s.in.Evidence.LastWell = time.Time{}
	at := func(d time.Duration) Attempt {
		return Attempt{Unit: KubeletUnit, Began: noon.Add(d), Ended: noon.Add(d)}
	}
	s.in.History.Bootstraps = []Attempt{at(-time.Hour)}
	s.wants(Restart, "Stopped")
	s.in.History.Restarts = []Attempt{at(-4 * time.Hour), at(-3 * time.Hour), at(-2 * time.Hour)}
	s.wants(Hold, "StoppedAgain")
}

// A kubelet in a restart loop is left to systemd for 10 min; then the ladder goes on.
func TestACrashLoop(t *testing.T) {
	s := newScene(t)
	loops := 2
	// cycle is one turn of the loop: down for 8 s, up for 4 s, with a look at each change.
	cycle := func() {
		loops++
		u := looping
		u.NRestarts = loops
		s.has(0, kubelet(u), node(observe.NotReady, "NodeNotReady"))
		s.after(8 * time.Second)
		up := running
		up.NRestarts, up.StateChange = loops, s.in.Now
		s.has(0, kubelet(up))
		if d := s.decide(); loops >= LoopRestarts && (d.Action != Wait || d.Reason != "NotSteady") {
			t.Fatalf("at %s, while it is up: got %s (%s), want to wait whether it stays up", s.in.Now.Sub(noon), d.Action, d.Reason)
		}
		s.after(4 * time.Second)
	}
	down := func() Decision {
		u := looping
		u.NRestarts = loops
		s.has(0, kubelet(u))
		return s.decide()
	}
	until := func(limit time.Duration, reason string) {
		t.Helper()
		for s.in.Now.Before(noon.Add(limit)) {
			cycle()
			if d := down(); d.Action.Acts() {
				t.Fatalf("at %s: got %s (%s), want none before %s", s.in.Now.Sub(noon), d.Action, d.Reason, limit)
			}
		}
		if d := down(); d.Reason != reason {
			t.Fatalf("at %s: got %s (%s): %s, want %s", s.in.Now.Sub(noon), d.Action, d.Reason, d.Message, reason)
		}
	}
	until(9*time.Minute, "SystemdAtWork")
	for s.decide().Action != Restart {
		if s.in.Now.After(noon.Add(11 * time.Minute)) {
			t.Fatal("got no restart in 11 min")
		}
		cycle()
		down()
	}
	s.wants(Restart, "CrashLoop")

	// After one of our restarts, the loop is known; three of them, and then a bootstrap.
	for range 3 {
		s.wants(Restart, "CrashLoop")
		s.restarts(KubeletUnit, time.Second)
		loops = 0
		s.has(0, kubelet(running)) // a new streak: it was up
		s.after(4 * time.Second)
		for range 8 {
			cycle()
		}
		down()
	}
	for range 30 {
		cycle()
	}
	down()
	s.wants(Bootstrap, "RestartsUsedUp")
}

func TestTheKubeletGetsTimeWhenContainerdIsBack(t *testing.T) {
	s := newScene(t).has(5*time.Minute, containerd(failed), kubelet(failed))
	s.wants(Restart, "Failed")
	s.restarts(ContainerdUnit, time.Second)
	s.has(time.Minute-1, containerd(running))
	if d := s.wants(Wait, "Confirming"); d.Unit != KubeletUnit {
		t.Errorf("got a decision about %s, want the kubelet's turn", d.Unit)
	}
	s.lasts(1)
	if d := s.wants(Restart, "Failed"); d.Unit != KubeletUnit {
		t.Errorf("got a restart of %s, want the kubelet's", d.Unit)
	}
	// The same when it was frozen.
	s = newScene(t).has(5*time.Minute, runtime(notResponding), healthz("HealthzFailed"))
	s.wants(Restart, notResponding)
	s.has(time.Minute-1, containerd(running))
	s.wants(Wait, "Confirming")
	s.lasts(1)
	s.wants(Restart, "HealthzFailed")
}

func TestContainerdThatNoRestartMends(t *testing.T) {
	s := newScene(t).has(time.Minute, containerd(failed))
	for range 3 {
		s.restarts(ContainerdUnit, time.Second)
	}
	s.lasts(5 * time.Minute)
	s.wants(Hold, "NodeWorks") // the cluster still calls it ready
	s.has(time.Minute, node(observe.NotReady, "NodeNotReady"))
	if d := s.wants(Bootstrap, "RestartsUsedUp"); d.Unit != ContainerdUnit {
		t.Errorf("got a bootstrap for %s, want one for containerd, whatever the kubelet says of itself", d.Unit)
	}
	// Frozen again and again: the same.
	s = newScene(t).has(2*time.Minute, runtime(notResponding), node(observe.NotReady, "NodeNotReady"))
	for range 3 {
		s.restarts(ContainerdUnit, time.Second)
	}
	s.lasts(5 * time.Minute)
	s.wants(Bootstrap, "RestartsUsedUp")
}
