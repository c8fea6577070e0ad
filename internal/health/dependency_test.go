package health

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestOneFaultShowsAsOneFault(t *testing.T) {
	w := newWorld(t,
		Row{Type: "Cause", TimeToVisible: 10 * time.Second},
		Row{Type: "Effect", DependsOn: []string{"Cause"}, TimeToVisible: 5 * time.Second}, // sooner than its cause
		Row{Type: "EffectOfEffect", DependsOn: []string{"Effect"}},
		Row{Type: "Apart"})
	w.after(0)
	w.verdicts["Effect"], w.verdicts["EffectOfEffect"] = bad("Down"), bad("Down")
	w.sees("Cause", bad("Stopped"))
	w.after(9 * time.Second)
	// Nothing shows before its cause does.
	w.wants("Cause", True, "Fine", 0)
	w.wants("Effect", True, "Fine", 0)
	w.wants("EffectOfEffect", True, "Fine", 0)
	if p := w.get("Effect").Pending; p == nil || !p.Shown.IsZero() {
		t.Errorf("got the pending state %+v, want one that is held back", p)
	}
	w.after(time.Second)
	w.wants("Cause", False, "Stopped", 10*time.Second)
	w.wants("Effect", Unknown, ReasonDependencyUnhealthy, 10*time.Second)
	w.wants("EffectOfEffect", Unknown, ReasonDependencyUnhealthy, 10*time.Second)
	w.wants("Apart", True, "Fine", 0)
	for _, name := range []string{"Effect", "EffectOfEffect"} {
		if got, want := w.get(name).Message, "not judged while Cause is False (Stopped); seen by itself: it is broken"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if worst, _ := Worst(w.last); worst.Type != "Cause" {
		t.Errorf("got %s as the worst, want the cause", worst.Type)
	}

	// When the cause is gone, its effects get their full time to recover.
	w.after(time.Hour)
	w.sees("Cause", good(w.rows[0]))
	back := w.now
	w.wants("Cause", True, "Fine", back.Sub(start))
	w.wants("Effect", Unknown, ReasonConfirming, 10*time.Second)
	w.wants("EffectOfEffect", Unknown, ReasonConfirming, 10*time.Second)
	w.after(5*time.Second - 1)
	w.wants("Effect", Unknown, ReasonConfirming, 10*time.Second)
	w.after(1)
	w.wants("Effect", False, "Down", back.Add(5*time.Second).Sub(start))
	w.wants("EffectOfEffect", Unknown, ReasonDependencyUnhealthy, 10*time.Second)
	w.verdicts["Effect"], w.verdicts["EffectOfEffect"] = good(w.rows[1]), good(w.rows[2])
	w.after(0)
	w.wants("Effect", True, "Fine", w.now.Sub(start))
	w.wants("EffectOfEffect", True, "Fine", w.now.Sub(start))
}

func TestDependencies(t *testing.T) {
	rows := []Row{{Type: "Cause", TimeToVisible: 10 * time.Second}, {Type: "Effect", DependsOn: []string{"Cause"}}}
	given := func(t *testing.T, cause, effect Verdict, lasting time.Duration) *world {
		t.Helper()
		w := newWorld(t, rows...)
		w.after(0)
		w.verdicts["Cause"], w.verdicts["Effect"] = cause, effect
		w.after(0)
		w.after(lasting)
		return w
	}
	t.Run("given a cause that can't be told, the effect is judged by itself", func(t *testing.T) {
		given(t, noIdea, bad("Down"), time.Minute).wants("Effect", False, "Down", 0)
	})
	t.Run("given a cause that does not apply here, too", func(t *testing.T) {
		given(t, Verdict{}, bad("Down"), time.Minute).wants("Effect", False, "Down", 0)
	})
	t.Run("given a bad cause, an effect that looks good is not judged either", func(t *testing.T) {
		given(t, bad("Stopped"), good(rows[1]), 10*time.Second).wants("Effect", Unknown, ReasonDependencyUnhealthy, 10*time.Second)
	})
	t.Run("given a cause that is bad but not shown yet, an effect that looks good stays good", func(t *testing.T) {
		given(t, bad("Stopped"), good(rows[1]), 9*time.Second).wants("Effect", True, "Fine", 0)
	})
	t.Run("given a cause that passes before it shows, the effect gets its time from then on", func(t *testing.T) {
		w := given(t, bad("Stopped"), bad("Down"), 9*time.Second)
		w.sees("Cause", good(rows[0]))
		w.wants("Effect", False, "Down", 9*time.Second)
	})
	t.Run("given that, with a time to become visible, all of it begins then", func(t *testing.T) {
		w := newWorld(t, rows[0], Row{Type: "Effect", DependsOn: []string{"Cause"}, TimeToVisible: 5 * time.Second})
		w.after(0)
		w.verdicts["Cause"], w.verdicts["Effect"] = bad("Stopped"), bad("Down")
		w.after(0)
		w.after(9 * time.Second)
		w.verdicts["Cause"] = good(rows[0])
		w.after(500 * time.Millisecond)
		w.wants("Effect", True, "Fine", 0)
		w.after(5*time.Second - 1)
		w.wants("Effect", True, "Fine", 0)
		w.after(1)
		w.wants("Effect", False, "Down", 14500*time.Millisecond)
	})
	t.Run("given an effect that was bad before its cause, it gets its time again when that is gone", func(t *testing.T) {
		w := newWorld(t, rows[0], Row{Type: "Effect", DependsOn: []string{"Cause"}, TimeToVisible: 5 * time.Second})
		w.after(0)
		w.sees("Effect", bad("Down"))
		w.after(time.Minute)
		w.wants("Effect", False, "Down", time.Minute)
		w.sees("Cause", bad("Stopped"))
		w.after(10 * time.Second)
		w.wants("Effect", Unknown, ReasonDependencyUnhealthy, 70*time.Second)
		w.sees("Cause", good(rows[0]))
		w.wants("Effect", Unknown, ReasonConfirming, 70*time.Second)
		w.after(5 * time.Second)
		w.wants("Effect", False, "Down", 75*time.Second)
	})
	t.Run("given an effect that was bad before its cause, it stays so until the cause shows", func(t *testing.T) {
		w := given(t, good(rows[0]), bad("Down"), time.Minute)
		w.sees("Cause", bad("Stopped"))
		w.wants("Effect", False, "Down", 0)
		w.after(10 * time.Second)
		w.wants("Effect", Unknown, ReasonDependencyUnhealthy, 70*time.Second)
		if c := w.get("Effect"); c.LastKnown != False || !c.LastKnownTime.Equal(start.Add(time.Minute)) {
			t.Errorf("got %+v, want it last known as False when its cause began", c)
		}
	})
}

// Whatever is seen in whatever order, the promises of the Tracker hold.
func TestPromisesOfTheTracker(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t,
			Row{Type: "A", TimeToVisible: 20 * time.Second, TimeToSettle: 30 * time.Second},
			Row{Type: "B", TimeToVisible: 5 * time.Second, DependsOn: []string{"A"}},
			Row{Type: "C", DependsOn: []string{"B", "A"}, TimeToSettle: time.Minute})
		w.after(0)
		before := w.last
		for range 300 {
			row := w.rows[r.IntN(len(w.rows))]
			w.verdicts[row.Type] = []Verdict{good(row), good(row), bad("Broken"), bad("Broken"), noIdea}[r.IntN(5)]
			w.after(time.Duration(r.IntN(20)) * time.Second)
			for i, c := range w.last {
				at := fmt.Sprintf("seed %d, %s, %s", seed, w.now.Sub(start), c.Type)
				if moved, changed := !c.LastTransitionTime.Equal(before[i].LastTransitionTime), c.Status != before[i].Status; moved != changed && w.now.After(before[i].LastTransitionTime) {
					t.Fatalf("%s: the status changed: %v, the time of the last transition moved: %v", at, changed, moved)
				}
				v := w.verdicts[c.Type]
				if v.Status == Unknown && c.Status != Unknown {
					t.Fatalf("%s: got %s, want Unknown at once", at, c.Status)
				}
				if c.Status == False && v.Status == True && c.Pending == nil {
					t.Fatalf("%s: shown as False though it looks good, and does not say so", at)
				}
				if c.Status == False && c.Type != "A" && w.get("A").Status == False {
					t.Fatalf("%s: is False beside what it depends on", at)
				}
				if (c.Reason == ReasonDependencyUnhealthy) && w.get("A").Status != False && w.get("B").Status != False {
					t.Fatalf("%s: is said to be blocked, and nothing blocks it", at)
				}
			}
			before = slices.Clone(w.last)
		}
		// Conditions clear by themselves.
		for _, row := range w.rows {
			w.verdicts[row.Type] = good(row)
		}
		w.after(0)
		w.after(time.Minute)
		for _, c := range w.last {
			if c.Status != True || c.Pending != nil {
				t.Fatalf("seed %d: got %+v a minute after all is well, want True", seed, c)
			}
		}
	}
}
