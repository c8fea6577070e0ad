package health

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestWorst(t *testing.T) {
	fine := Condition{Type: "Fine", Status: True}
	off := Condition{Type: "Off", Status: False} // good for a condition whose bad status is True
	blocked := Condition{Type: "Blocked", Status: Unknown, Reason: ReasonDependencyUnhealthy}
	info := Condition{Type: "Info", Status: True, Severity: Info}
	dark := Condition{Type: "Dark", Status: Unknown, Reason: "Timeout"}
	warns := Condition{Type: "Warns", Status: True, Severity: Warning}
	warning := Condition{Type: "Warning", Status: False, Severity: Warning}
	critical := Condition{Type: "Critical", Status: False, Severity: Critical}
	for _, tc := range []struct {
		name string
		in   []Condition
		want string // empty: nothing to report
	}{
		{"given none, there is nothing to report", nil, ""},
		{"given good ones alone, neither", []Condition{fine, off}, ""},
		{"given one that is blocked, it is better than nothing", []Condition{fine, blocked}, "Blocked"},
		{"given a piece of information, it counts for more than what is blocked", []Condition{blocked, info}, "Info"},
		{"given one that can't be told, it counts for more than a piece of information", []Condition{info, dark}, "Dark"},
		{"given a warning, it counts for more than what can't be told", []Condition{dark, warning}, "Warning"},
		{"given a good one that warns, it counts as a warning", []Condition{dark, warns, fine}, "Warns"},
		{"given two warnings, the first counts", []Condition{warning, warns}, "Warning"},
		{"given a critical one, it counts most", []Condition{warning, warns, dark, critical, info}, "Critical"},
	} {
		got, found := Worst(tc.in)
		if got.Type != tc.want || found != (tc.want != "") {
			t.Errorf("%s: got %q, %v, want %q", tc.name, got.Type, found, tc.want)
		}
	}
}

func TestConditionAsJSON(t *testing.T) {
	c := Condition{Type: "KubeletRunning", Status: Unknown, Reason: "Timeout", Message: "m", LastTransitionTime: start, LastKnown: True, LastKnownTime: start}
	got, err := json.Marshal(c)
	if want := `{"type":"KubeletRunning","status":"Unknown","reason":"Timeout","message":"m","lastTransitionTime":"2026-01-15T12:00:00Z","lastKnown":"True","lastKnownTime":"2026-01-15T12:00:00Z"}`; string(got) != want || err != nil {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	c = Condition{Type: "KubeletRunning", Status: True, Severity: Warning, Reason: "R", Message: "m", LastTransitionTime: start, Pending: &Pending{Status: False, Reason: "Stopped", Message: "p", Shown: start}}
	got, err = json.Marshal(c)
	if want := `{"type":"KubeletRunning","status":"True","severity":"Warning","reason":"R","message":"m","lastTransitionTime":"2026-01-15T12:00:00Z",` +
		`"pending":{"status":"False","reason":"Stopped","message":"p","shown":"2026-01-15T12:00:00Z"}}`; string(got) != want || err != nil {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

func TestMistakesInATableAreFound(t *testing.T) {
	row := func(name string, dependsOn ...string) Row {
		return Row{Type: name, DependsOn: dependsOn, Severity: Info, Means: "m", Do: "d", Judge: func(time.Time, Input) Verdict { return Verdict{} }}
	}
	changed := func(change func(*Row)) Row {
		r := row("A")
		change(&r)
		return r
	}
	for _, tc := range []struct {
		name string
		rows []Row
		want string // part of the error; empty for none
	}{
		{"given a sound table, nothing", []Row{row("A"), row("B", "A"), row("C", "A", "B")}, ""},
		{"given a name twice", []Row{row("A"), row("A")}, `"A": the name is empty or taken`},
		{"given no name", []Row{row("")}, `"": the name is empty or taken`},
		{"given a dependency that does not exist", []Row{row("A", "Typo")}, `"A": depends on "Typo"`},
		{"given a cycle", []Row{row("A", "B"), row("B", "A")}, `"A": depends on "B"`},
		{"given one that depends on itself", []Row{row("A", "A")}, `"A": depends on "A"`},
		{"given an effect above its cause", []Row{row("B", "A"), row("A")}, `"B": depends on "A"`},
		{"given a bad status that is none", []Row{changed(func(r *Row) { r.Bad = Unknown })}, `"Unknown" can't be the bad status`},
		{"given no severity", []Row{changed(func(r *Row) { r.Severity = None })}, "has no severity"},
		{"given a severity that is none", []Row{changed(func(r *Row) { r.Severity = "Fatal" })}, "has no severity"},
		{"given a negative time", []Row{changed(func(r *Row) { r.TimeToVisible = -1 })}, "negative time"},
		{"given another negative time", []Row{changed(func(r *Row) { r.TimeToSettle = -1 })}, "negative time"},
		{"given no meaning", []Row{changed(func(r *Row) { r.Means = "" })}, "lacks its text"},
		{"given no advice", []Row{changed(func(r *Row) { r.Do = "" })}, "lacks its text"},
		{"given no judgement", []Row{changed(func(r *Row) { r.Judge = nil })}, "lacks its text or its judgement"},
	} {
		err := Check(tc.rows)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want an error with %q", tc.name, err, tc.want)
		}
	}
}
