package decision

import (
	"testing"
	"time"
)

// The pause doubles with each bootstrap that the node did not recover after, up to an hour, however long ago they are.
func TestCoolDown(t *testing.T) {
	for n, pause := range []time.Duration{0, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour, time.Hour} {
		given := func(ago time.Duration) Guard {
			s := wanting["missing"](t)
			s.in.Evidence.LastWell = noon.Add(-1000 * time.Hour)
			for i := range n {
				end := s.in.Now.Add(-ago).Add(-time.Duration(n-1-i) * 48 * time.Hour) // two days apart: the budget does not come into it
				s.in.History.Bootstraps = append(s.in.History.Bootstraps, Attempt{Began: end.Add(-time.Minute), Ended: end})
			}
			d := s.decide()
			for _, g := range d.Guards {
				if g.Name != "cool-down" {
					continue
				}
				if g.Holds != (d.Action == Wait && d.Reason == "CoolDown") || !g.Until.Equal(d.Until) {
					t.Errorf("given %d bootstraps: got %s (%s) until %s with %+v", n, d.Action, d.Reason, d.Until, g)
				}
				return g
			}
			t.Fatal("there is no such guard")
			return Guard{}
		}
		if n == 0 {
			if g := given(0); g.Holds {
				t.Errorf("given no bootstrap: got %+v, want it free", g)
			}
			continue
		}
		if g := given(pause - 1); !g.Holds {
			t.Errorf("given %d bootstraps, a moment less than %s after the last: got %+v, want it to hold", n, pause, g)
		}
		if g := given(pause); g.Holds {
			t.Errorf("given %d bootstraps, %s after the last: got %+v, want it free", n, pause, g)
		}
	}
}

func TestCoolDownBeginsAnewWhenAllWasWell(t *testing.T) {
	s := wanting["missing"](t)
	began := s.in.Now.Add(-time.Minute)
	s.in.History.Bootstraps = []Attempt{{Began: began, OK: true}}
	s.in.Evidence.LastWell = began.Add(-1)
	s.wants(Wait, "CoolDown")
	s.in.Evidence.LastWell = began
	s.wants(Bootstrap, "KubeletMissing")
}

func TestAnAttemptWithoutAnEndCountsFromItsBeginning(t *testing.T) {
	s := wanting["missing"](t)
	s.in.History.Bootstraps = []Attempt{{Began: s.in.Now.Add(-time.Minute)}}
	if d := s.wants(Wait, "CoolDown"); !d.Until.Equal(s.in.Now.Add(time.Minute)) {
		t.Errorf("got until %s, want 2 min after its beginning", d.Until)
	}
}

func TestARestartIsNotKeptBackByTheBudget(t *testing.T) {
	s := wanting["restart"](t)
	ago := func(d time.Duration) Attempt {
		return Attempt{Began: s.in.Now.Add(-d), Ended: s.in.Now.Add(-d + 1), OK: true}
	}
	s.in.History.Bootstraps = []Attempt{ago(3 * time.Hour), ago(2 * time.Hour), ago(time.Minute)}
	s.in.Evidence.LastWell = time.Time{}
	s.wants(Restart, "Failed")
}

func TestThresholdsCanBeScaled(t *testing.T) {
	s := newScene(t)
	s.in.Thresholds = Thresholds{
		ConfirmFor: 4 * time.Second, ConfirmLooks: 2, RestartGaps: []time.Duration{time.Second}, BootstrapAfter: 10 * time.Second, MaxBootstraps: 1,
		BudgetWindow: time.Minute, CoolDown: time.Second, MaxCoolDown: 2 * time.Second,
	}
	look := func(d time.Duration) {
		s.after(d)
		s.look()
	}
	s.has(0, kubelet(failed), node("NotReady", "NodeNotReady"))
	if d := s.wants(Wait, "Confirming"); !d.NextLook.Equal(s.in.Now.Add(2 * time.Second)) {
		t.Errorf("got the next look at %s, want it in 2 s", d.NextLook)
	}
	look(4 * time.Second)
	s.wants(Restart, "Failed")
	s.restarts(KubeletUnit, time.Second)
	look(9 * time.Second)
	s.wants(Wait, "AfterRestart")
	look(time.Second)
	s.wants(Bootstrap, "RestartsUsedUp")
	s.bootstraps(time.Second, false)
	look(time.Second)
	s.wants(Hold, "BudgetUsedUp")
	look(58 * time.Second)
	s.wants(Restart, "Failed") // all attempts are forgotten
}

func TestZeroThresholdsAreTheConstants(t *testing.T) {
	got := Thresholds{}.orDefault()
	if got.ConfirmFor != time.Minute || got.ConfirmLooks != 3 || got.BootstrapAfter != 5*time.Minute || got.FrozenFor != 2*time.Minute ||
		got.StopHold != 10*time.Minute || got.MinUptime != 5*time.Minute || got.MaxBootstraps != 3 || got.BudgetWindow != 24*time.Hour ||
		got.CoolDown != 2*time.Minute || got.MaxCoolDown != time.Hour || len(got.RestartGaps) != MaxRestarts ||
		got.RestartGaps[0] != 30*time.Second || got.RestartGaps[1] != time.Minute || got.RestartGaps[2] != 2*time.Minute {
		t.Errorf("got %+v, want the limits of the design", got)
	}
}
