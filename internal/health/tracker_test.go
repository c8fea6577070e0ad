package health

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)

// world is a table of conditions whose verdicts the test sets, and a Tracker of them.
type world struct {
	t        *testing.T
	tracker  *Tracker
	verdicts map[string]Verdict
	rows     []Row
	now      time.Time
	last     []Condition
}

// newWorld makes a world in which all is well.
func newWorld(t *testing.T, rows ...Row) *world {
	t.Helper()
	w := &world{t: t, verdicts: map[string]Verdict{}, now: start}
	for _, r := range rows {
		r.Judge = func(time.Time, Input) Verdict { return w.verdicts[r.Type] }
		r.Means, r.Do = "m", "d"
		if r.Severity == None {
			r.Severity = Critical
		}
		w.rows = append(w.rows, r)
		w.verdicts[r.Type] = good(r)
	}
	if err := Check(w.rows); err != nil {
		t.Fatal(err)
	}
	w.tracker = newTracker(w.rows)
	return w
}

func good(r Row) Verdict {
	status := True
	if r.bad() == True {
		status = False
	}
	return Verdict{Status: status, Reason: "Fine", Message: "all is well"}
}

func bad(reason string) Verdict {
	return Verdict{Status: False, Reason: reason, Message: "it is broken"}
}

var noIdea = Verdict{Status: Unknown, Reason: "Timeout", Message: "no answer"}

// after moves time on and looks.
func (w *world) after(d time.Duration) {
	w.now = w.now.Add(d)
	w.last = w.tracker.Update(w.now, Input{})
}

// sees changes a verdict and looks at once.
func (w *world) sees(name string, v Verdict) {
	w.verdicts[name] = v
	w.after(0)
}

func (w *world) get(name string) Condition {
	w.t.Helper()
	i := slices.IndexFunc(w.last, func(c Condition) bool { return c.Type == name })
	if i < 0 {
		w.t.Fatalf("at %s: there is no condition %s", w.now.Sub(start), name)
	}
	return w.last[i]
}

// wants checks status and reason of a condition, and since when the status is what it is.
func (w *world) wants(name string, status Status, reason string, since time.Duration) {
	w.t.Helper()
	c := w.get(name)
	if c.Status != status || c.Reason != reason || c.LastTransitionTime.Sub(start) != since {
		w.t.Errorf("at %s: got %s %s (%s) since %s, want %s (%s) since %s", w.now.Sub(start), name, c.Status, c.Reason, c.LastTransitionTime.Sub(start), status, reason, since)
	}
}

func TestABadStateMustLastBeforeItShows(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 10 * time.Second})
	w.after(0)
	w.wants("A", True, "Fine", 0)
	w.after(time.Minute)
	w.sees("A", bad("Stopped"))
	w.wants("A", True, "Fine", 0)
	if p := w.get("A").Pending; p == nil || p.Status != False || p.Reason != "Stopped" || !p.Shown.Equal(w.now.Add(10*time.Second)) {
		t.Errorf("got the pending state %+v, want False (Stopped) in 10 s", p)
	}
	if got := w.tracker.Next(); !got.Equal(w.now.Add(10 * time.Second)) {
		t.Errorf("got Next %s, want it in 10 s", got)
	}
	w.after(10*time.Second - 1)
	w.wants("A", True, "Fine", 0)
	w.after(1)
	w.wants("A", False, "Stopped", 70*time.Second)
	if c := w.get("A"); c.Severity != Critical || c.Pending != nil || !w.tracker.Next().IsZero() {
		t.Errorf("got %+v, next %v; want it critical, with nothing pending", c, w.tracker.Next())
	}

	w.after(time.Hour)
	w.sees("A", bad("Failed"))
	w.wants("A", False, "Failed", 70*time.Second) // another reason is no transition
	w.verdicts["A"] = Verdict{Status: True, Reason: "Fine", Message: "all is well"}
	w.after(time.Minute)
	w.wants("A", True, "Fine", time.Hour+130*time.Second)
	if c := w.get("A"); c.Severity != None {
		t.Errorf("got severity %q after the recovery, want none", c.Severity)
	}
}

func TestABadStateThatPassesNeverShows(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 10 * time.Second})
	w.after(0)
	for range 20 {
		w.sees("A", bad("Stopped"))
		w.after(9 * time.Second)
		w.sees("A", good(w.rows[0]))
		w.wants("A", True, "Fine", 0)
		if p := w.get("A").Pending; p != nil {
			t.Fatalf("got %+v still pending after the recovery", p)
		}
	}
}

func TestTheFirstLookIsNotBelievedEither(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 10 * time.Second}, Row{Type: "B"})
	w.verdicts["A"], w.verdicts["B"] = bad("Stopped"), bad("Expired")
	w.after(0)
	w.wants("A", Unknown, ReasonConfirming, 0)
	w.wants("B", False, "Expired", 0) // it needs no time
	if c := w.get("A"); !strings.Contains(c.Message, "it is broken; counts as False once that has lasted 10s") || c.LastKnown != "" {
		t.Errorf("got %+v, want what was seen in the message, and nothing known", c)
	}
	w.after(10 * time.Second)
	w.wants("A", False, "Stopped", 10*time.Second)
}

func TestUnknownShowsAtOnceWithTheAgeOfWhatWasKnown(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 10 * time.Second})
	w.after(0)
	w.after(time.Minute)
	w.verdicts["A"] = noIdea
	w.after(time.Minute)
	w.wants("A", Unknown, "Timeout", 2*time.Minute)
	w.after(time.Minute)
	w.wants("A", Unknown, "Timeout", 2*time.Minute)
	c := w.get("A")
	if c.LastKnown != True || !c.LastKnownTime.Equal(start.Add(time.Minute)) || c.Severity != None {
		t.Errorf("got %+v, want it to be last known as True a minute after the start", c)
	}
	if got, want := c.Text(w.now), "A Unknown (Timeout): no answer; it was True 2m0s ago"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	// What it looks like after that has to last all the same, and stays unknown meanwhile.
	w.sees("A", bad("Stopped"))
	w.wants("A", Unknown, ReasonConfirming, 2*time.Minute)
	w.after(10 * time.Second)
	w.wants("A", False, "Stopped", 3*time.Minute+10*time.Second)
	// A fault that was shown needs no new time when it could not be told for a moment.
	w.sees("A", noIdea)
	w.after(time.Second)
	w.sees("A", bad("Stopped"))
	w.wants("A", False, "Stopped", 3*time.Minute+11*time.Second)
}

func TestUnknownTimeDoesNotCountAsBad(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 10 * time.Second})
	w.after(0)
	w.sees("A", bad("Stopped"))
	w.after(6 * time.Second)
	w.sees("A", noIdea)
	w.after(time.Hour)
	w.sees("A", bad("Stopped"))
	w.wants("A", Unknown, ReasonConfirming, 6*time.Second)
	w.after(4*time.Second - 1)
	w.wants("A", Unknown, ReasonConfirming, 6*time.Second)
	w.after(1)
	w.wants("A", False, "Stopped", time.Hour+10*time.Second)
}

func TestWhenItWasSeenCountsForItsAge(t *testing.T) {
	w := newWorld(t, Row{Type: "A"})
	w.verdicts["A"] = Verdict{Status: True, Reason: "Fine", At: start.Add(-time.Minute)}
	w.after(0)
	if c := w.get("A"); !c.LastKnownTime.Equal(start.Add(-time.Minute)) {
		t.Errorf("got it last known at %s, want when it was seen", c.LastKnownTime)
	}
}

// A program in a restart loop is up for some seconds and down for some seconds: neither lasts, and yet it is broken.
func TestAFlappingFaultShowsAndStays(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 15 * time.Second, TimeToSettle: time.Minute})
	w.after(0)
	cycle := func() {
		w.sees("A", bad("AutoRestart"))
		w.after(8 * time.Second)
		w.sees("A", good(w.rows[0]))
		w.after(3 * time.Second)
	}
	cycle()
	w.wants("A", True, "Fine", 0)
	w.sees("A", bad("AutoRestart")) // 11 s
	w.after(7*time.Second - 1)
	w.wants("A", True, "Fine", 0)
	w.after(1) // 8 and 7 s make 15
	w.wants("A", False, "AutoRestart", 18*time.Second)
	w.sees("A", good(w.rows[0]))
	w.after(3 * time.Second)
	for range 100 {
		cycle()
		w.wants("A", False, "AutoRestart", 18*time.Second)
	}
	if p := w.get("A").Pending; p == nil || p.Status != True || p.Reason != "Fine" || !p.Shown.Equal(w.now.Add(57*time.Second)) {
		t.Errorf("got the pending state %+v, want True (Fine) a minute after the recovery", p)
	}
	if got := w.tracker.Next(); !got.Equal(w.now.Add(57 * time.Second)) {
		t.Errorf("got Next %v, want the end of that minute", got)
	}
	w.after(57*time.Second - 1)
	w.wants("A", False, "AutoRestart", 18*time.Second)
	w.after(1)
	w.wants("A", True, "Fine", w.now.Sub(start))

	// All is forgotten: the next fault has to last again.
	w.sees("A", bad("Failed"))
	w.wants("A", True, "Fine", w.now.Sub(start))
}

func TestTheFirstRecoveryShowsAtOnceAndARelapseToo(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 15 * time.Second, TimeToSettle: time.Minute})
	w.after(0)
	w.sees("A", bad("Failed"))
	w.after(15 * time.Second)
	w.wants("A", False, "Failed", 15*time.Second)
	w.after(5 * time.Second)
	w.sees("A", good(w.rows[0]))
	w.wants("A", True, "Fine", 20*time.Second)
	w.after(time.Minute - 1)
	w.sees("A", bad("Failed"))
	w.wants("A", False, "Failed", 80*time.Second-1)

	w.sees("A", good(w.rows[0]))
	w.wants("A", False, "Failed", 80*time.Second-1) // once bitten
	w.after(time.Minute)
	w.wants("A", True, "Fine", 140*time.Second-1)
}

func TestTwoShortRestartsAreNoFault(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 15 * time.Second, TimeToSettle: time.Minute})
	w.after(0)
	for range 2 {
		w.sees("A", bad("Stopped"))
		w.after(2 * time.Second)
		w.sees("A", good(w.rows[0]))
		w.after(30 * time.Second)
		w.wants("A", True, "Fine", 0)
	}
}

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

func TestAConditionWhoseBadStatusIsTrue(t *testing.T) {
	w := newWorld(t, Row{Type: "Pending", Bad: True, TimeToVisible: time.Minute, Severity: Info}, Row{Type: "Effect", DependsOn: []string{"Pending"}})
	w.after(0)
	w.wants("Pending", False, "Fine", 0)
	w.sees("Pending", Verdict{Status: True, Reason: "Replaced"})
	w.wants("Pending", False, "Fine", 0)
	w.after(time.Minute)
	w.wants("Pending", True, "Replaced", time.Minute)
	w.wants("Effect", Unknown, ReasonDependencyUnhealthy, time.Minute)
	if c := w.get("Pending"); c.Severity != Info {
		t.Errorf("got severity %q, want Info", c.Severity)
	}
}

func TestAGoodStatusMayWarn(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: time.Minute})
	w.after(0)
	w.sees("A", Verdict{Status: True, Reason: "EndsSoon", Severity: Warning})
	w.wants("A", True, "EndsSoon", 0)
	if c := w.get("A"); c.Severity != Warning {
		t.Errorf("got severity %q, want a warning", c.Severity)
	}
}

func TestWhatDoesNotApplyIsLeftOutAndForgotten(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: time.Minute}, Row{Type: "B"})
	w.after(0)
	w.sees("A", Verdict{})
	if len(w.last) != 1 || w.last[0].Type != "B" {
		t.Errorf("got %+v, want B alone", w.last)
	}
	w.after(time.Minute)
	w.sees("A", good(w.rows[0]))
	w.wants("A", True, "Fine", time.Minute)
}

func TestARestartOfTheAgentIsNoTransition(t *testing.T) {
	rows := []Row{
		{Type: "Bad", TimeToVisible: time.Minute, TimeToSettle: time.Minute}, {Type: "Good", TimeToVisible: time.Minute}, {Type: "Dark", TimeToVisible: time.Minute},
		{Type: "Blocked", DependsOn: []string{"Bad"}}, {Type: "Waiting", TimeToVisible: time.Minute},
	}
	before := newWorld(t, rows...)
	before.verdicts["Bad"], before.verdicts["Dark"] = bad("Stopped"), noIdea
	before.after(0)
	before.after(time.Minute)
	before.sees("Waiting", bad("Failed"))

	w := newWorld(t, rows...)
	w.tracker.Restore(append(slices.Clone(before.last), Condition{Type: "OfAnotherVersion", Status: False}))
	w.now, w.verdicts = before.now.Add(10*time.Minute), before.verdicts
	w.after(0)
	w.wants("Bad", False, "Stopped", time.Minute)
	w.wants("Good", True, "Fine", 0)
	w.wants("Dark", Unknown, "Timeout", 0)
	w.wants("Blocked", Unknown, ReasonDependencyUnhealthy, time.Minute)
	w.wants("Waiting", True, "Fine", 0) // what was pending has to last anew
	if p := w.get("Waiting").Pending; p == nil || !p.Shown.Equal(w.now.Add(time.Minute)) {
		t.Errorf("got the pending state %+v, want it to have its full time again", p)
	}
	w.sees("Good", noIdea)
	if c := w.get("Good"); c.LastKnown != True || c.LastKnownTime.Sub(start) != 11*time.Minute {
		t.Errorf("got %+v, want what was known before the restart and seen again after it", c)
	}
	// A fault that was shown before needs no new time when it could not be told for a moment.
	w.sees("Bad", noIdea)
	w.sees("Bad", bad("Stopped"))
	w.wants("Bad", False, "Stopped", 11*time.Minute)
	w.sees("Bad", good(rows[0]))
	w.wants("Bad", True, "Fine", 11*time.Minute)
}

func TestNextIsTheSoonest(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 20 * time.Second}, Row{Type: "B", TimeToVisible: 10 * time.Second}, Row{Type: "C", TimeToVisible: 30 * time.Second})
	w.after(0)
	for _, name := range []string{"A", "B", "C"} {
		w.sees(name, bad("Failed"))
	}
	if got := w.tracker.Next().Sub(start); got != 10*time.Second {
		t.Errorf("got Next in %s, want when the first of them is shown", got)
	}
	w.after(10 * time.Second)
	if got := w.tracker.Next().Sub(start); got != 20*time.Second {
		t.Errorf("got Next at %s, want when the second is", got)
	}
}

func TestAClockThatIsSetBackCountsAsNoTime(t *testing.T) {
	w := newWorld(t, Row{Type: "A", TimeToVisible: 10 * time.Second})
	w.after(0)
	w.sees("A", bad("Stopped"))
	w.after(-time.Hour)
	w.after(10*time.Second - 1)
	w.wants("A", True, "Fine", 0)
	w.after(1)
	w.wants("A", False, "Stopped", -time.Hour+10*time.Second)
	if got := (Condition{Type: "A", Status: Unknown, Reason: "R", Message: "m", LastKnown: True, LastKnownTime: start}).Text(start.Add(-time.Hour)); got != "A Unknown (R): m; it was True 0s ago" {
		t.Errorf("got %q, want no negative age", got)
	}
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

func TestUpdateReturnsValuesOfItsOwn(t *testing.T) {
	w := newWorld(t, Row{Type: "A"})
	w.after(0)
	kept := slices.Clone(w.last)
	w.last[0].Reason = "changed by the caller"
	w.after(time.Second)
	if w.last[0].Reason != "Fine" || !reflect.DeepEqual(kept[0].LastTransitionTime, w.last[0].LastTransitionTime) {
		t.Errorf("got %+v, want it untouched by what a caller does with an earlier one", w.last[0])
	}
}
