package health

import (
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
