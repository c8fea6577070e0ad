package observe

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)

func TestHealthIsWrittenAsAWord(t *testing.T) {
	for health, want := range map[Health]string{
		Unknown: "Unknown", Healthy: "Healthy", Unhealthy: "Unhealthy", Health(7): "Health(7)", Health(-1): "Health(-1)",
	} {
		if got := health.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, err := json.Marshal(map[string]Health{"health": health}); string(got) != `{"health":"`+want+`"}` || err != nil {
			t.Errorf("as JSON: got %s, %v, want %q", got, err, want)
		}
	}
	var nobodyLooked Observation[Unit]
	if nobodyLooked.Health != Unknown || nobodyLooked.Known() {
		t.Errorf("got %v for the zero observation, want it to be unknown", nobodyLooked.Health)
	}
}

func TestBestValue(t *testing.T) {
	last := "last"
	for _, tc := range []struct {
		name      string
		in        Observation[string]
		wantKnown bool
		want      string
		wantOK    bool
	}{
		{"given a healthy value, it is the best", See("now", Healthy, "R", "m"), true, "now", true},
		{"given an unhealthy value, it is known all the same", See("now", Unhealthy, "R", "m"), true, "now", true},
		{"given a known value beside an old one, the old one does not count",
			Observation[string]{Value: "now", Health: Unhealthy, Good: &last, GoodAt: &noon}, true, "now", true},
		{"given a known value that is empty, the old one does not count", Observation[string]{Health: Healthy, Good: &last}, true, "", true},
		{"given an unknown one with an old value, the old one is the best", Observation[string]{Value: "part", Good: &last}, false, "last", true},
		{"given an unknown one without, its parts are returned and it says so", Observation[string]{Value: "part"}, false, "part", false},
		{"given that nobody looked, there is none", Observation[string]{}, false, "", false},
		{"given that it could not be told, there is none", CannotTell[string]("R", "m"), false, "", false},
	} {
		got, ok := tc.in.Best()
		if got != tc.want || ok != tc.wantOK || tc.in.Known() != tc.wantKnown {
			t.Errorf("%s: got %q, %v, known %v; want %q, %v, known %v", tc.name, got, ok, tc.in.Known(), tc.want, tc.wantOK, tc.wantKnown)
		}
	}
}

func TestBuildingObservations(t *testing.T) {
	if got, want := See(7, Unhealthy, "Bad", "%d is %q", 7, "odd"), (Observation[int]{Value: 7, Health: Unhealthy, Reason: "Bad", Message: `7 is "odd"`}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := CannotTell[int](ReasonTimeout, "%s: no answer", "x"), (Observation[int]{Reason: ReasonTimeout, Message: "x: no answer"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	o := Observation[int]{Value: 7, Health: Unhealthy, Reason: "Bad", Message: "m", At: noon}
	if got, want := o.Verdict(), (Verdict{Health: Unhealthy, Reason: "Bad", Message: "m", At: noon}); got != want {
		t.Errorf("got the verdict %+v, want %+v", got, want)
	}
}

func TestObservationAsJSON(t *testing.T) {
	value := Program{Version: "1.33.2"}
	for _, tc := range []struct {
		name string
		in   Observation[Program]
		want string
	}{
		{"given a value, its names and words are those of the document",
			Observation[Program]{Value: value, Health: Healthy, Reason: "VersionKnown", Message: "m", At: noon},
			`{"value":{"version":"1.33.2"},"health":"Healthy","reason":"VersionKnown","message":"m","at":"2026-01-15T12:00:00Z"}`},
		{"given an unknown one with the last value, both are written",
			Observation[Program]{Reason: "Timeout", At: noon, Good: &value, GoodAt: &noon},
			`{"value":{},"health":"Unknown","reason":"Timeout","at":"2026-01-15T12:00:00Z","lastKnown":{"version":"1.33.2"},"lastKnownAt":"2026-01-15T12:00:00Z"}`},
		{"given that nobody looked, it is written too", Observation[Program]{}, `{"value":{},"health":"Unknown","reason":"","at":"0001-01-01T00:00:00Z"}`},
	} {
		if got, err := json.Marshal(tc.in); string(got) != tc.want || err != nil {
			t.Errorf("%s:\ngot  %s, %v\nwant %s", tc.name, got, err, tc.want)
		}
	}
}

// Each field of a Set is filled alone; then exactly one subject must show it.
func TestSubjectsCoverEveryFieldOfASet(t *testing.T) {
	fields := reflect.TypeFor[Set]()
	names, order := map[string]string{}, (&Set{}).Subjects()
	for field := range fields.Fields() {
		var set Set
		o := reflect.ValueOf(&set).Elem().FieldByIndex(field.Index)
		want := Verdict{Unhealthy, "Reason" + field.Name, "message of " + field.Name, noon}
		o.FieldByName("Health").Set(reflect.ValueOf(want.Health))
		o.FieldByName("Reason").SetString(want.Reason)
		o.FieldByName("Message").SetString(want.Message)
		o.FieldByName("At").Set(reflect.ValueOf(want.At))

		shown := 0
		for i, s := range set.Subjects() {
			if s.Name != order[i].Name {
				t.Errorf("subject %d: got %q, want it to be %q whatever the set holds", i, s.Name, order[i].Name)
			}
			if s.Verdict == (Verdict{}) {
				continue
			}
			shown++
			if s.Verdict != want {
				t.Errorf("given %s: got %+v, want %+v", field.Name, s.Verdict, want)
			}
			if other, ok := names[s.Name]; ok || s.Name == "" {
				t.Errorf("%s is shown as %q, as %s is already", field.Name, s.Name, other)
			}
			names[s.Name] = field.Name
		}
		if shown != 1 {
			t.Errorf("%s is shown by %d subjects, want one", field.Name, shown)
		}
	}
	if len(order) != fields.NumField() {
		t.Errorf("got %d subjects, want one for each of %d fields", len(order), fields.NumField())
	}
}
