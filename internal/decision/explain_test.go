package decision

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/golden"
)

// explained are decisions that people will read, by the name of their golden file.
var explained = map[string]func(*testing.T) Decision{
	"healthy": func(t *testing.T) Decision {
		t.Helper()
		return newScene(t).decide()
	},
	"confirming": func(t *testing.T) Decision {
		t.Helper()
		return newScene(t).has(20*time.Second, kubelet(failed)).decide()
	},
	"restart": func(t *testing.T) Decision {
		t.Helper()
		return wanting["restart"](t).decide()
	},
	"bootstrap": func(t *testing.T) Decision {
		t.Helper()
		s := wanting["bootstrap"](t)
		s.in.Grounds = []string{"KubeletNotRunning"}
		return s.decide()
	},
	"budget": func(t *testing.T) Decision {
		t.Helper()
		s := wanting["missing"](t)
		for range 3 {
			s.bootstraps(30*time.Second, false)
			s.lasts(10 * time.Minute)
		}
		s.in.Grounds = []string{"KubeletNotRunning", "KubeletVersionUnknown"}
		return s.decide()
	},
	"paused": func(t *testing.T) Decision {
		t.Helper()
		s := newScene(t).has(90*time.Second, kubelet(stoppedAt(noon)))
		s.in.Pauses = []Pause{{By: "command", Reason: "work on the rack", Since: noon.Add(-5 * time.Minute), Until: noon.Add(2 * time.Hour)}}
		s.in.DryRun = true
		return s.decide()
	},
	"link-lost": func(t *testing.T) Decision {
		t.Helper()
		s := newScene(t).has(10*time.Minute, link(cluster.ReasonTimeout), arcLost)
		s.in.Grounds = []string{"ArcNotConnected"}
		return s.decide()
	},
	"cannot-tell": func(t *testing.T) Decision {
		t.Helper()
		s := newScene(t).has(time.Hour, noSystemd)
		s.in.Mode, s.in.ModeReason, s.in.System = ObserveOnly, "there is no configuration file", System{}
		return s.decide()
	},
	"nothing-known": func(*testing.T) Decision { return Decide(Input{Now: noon}) },
}

func TestExplain(t *testing.T) {
	for name, decide := range explained {
		t.Run(name, func(t *testing.T) { golden.Check(t, filepath.Join("testdata", name+".txt"), Explain(decide(t))) })
	}
}

func TestDecisionAsJSON(t *testing.T) {
	for _, name := range []string{"healthy", "budget", "paused"} {
		d := explained[name](t)
		text, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("testdata", name+".json"), string(text)+"\n")
		var back Decision
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&back); err != nil || !reflect.DeepEqual(back, d) {
			t.Errorf("%s: got back %+v, %v, want what was written: %+v", name, back, err, d)
		}
	}
}

func TestTheSameInputGivesTheSameDecisionAndIsNotTouched(t *testing.T) {
	s := wanting["bootstrap"](t)
	s.in.Pauses = []Pause{{By: "command", Until: s.in.Now}}
	s.in.Grounds = []string{"KubeletNotRunning", "ArcNotConnected"}
	s.in.History.Bootstraps = []Attempt{{Began: noon.Add(-time.Hour)}, {Began: noon.Add(-3 * time.Hour)}, {Began: noon.Add(-2 * time.Hour)}}
	before := s.in
	before.Grounds = append([]string(nil), s.in.Grounds...)
	before.History.Bootstraps = append([]Attempt(nil), s.in.History.Bootstraps...)
	set := *s.in.Set
	before.Set = &set

	first := s.decide()
	first.Grounds[0], first.Evidence[0].Subject, first.Guards[0].Name = "changed", "by", "the caller"
	second, third := s.decide(), s.decide()
	if !reflect.DeepEqual(second, third) || reflect.DeepEqual(first, third) {
		t.Errorf("got %+v, then %+v", second, third)
	}
	if !reflect.DeepEqual(s.in, before) {
		t.Errorf("got the input changed to %+v, want %+v", s.in, before)
	}
}

func TestActs(t *testing.T) {
	for action, want := range map[Action]bool{None: false, Wait: false, Restart: true, Bootstrap: true, Hold: false, "": false} {
		if got := action.Acts(); got != want {
			t.Errorf("%q: got %v, want %v", action, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 90 * time.Second: "1m30s", time.Minute: "1m", 10 * time.Minute: "10m", time.Hour: "1h", 24 * time.Hour: "24h",
		time.Hour + time.Minute: "1h1m", time.Hour + time.Second: "1h0m1s", 100*time.Hour + 10*time.Minute: "100h10m", 1: "0s", time.Second - 1: "1s",
	} {
		if got := words(d); got != want {
			t.Errorf("got %q for %v, want %q", got, d, want)
		}
	}
}

func TestEvidenceOfEverySubjectIsTold(t *testing.T) {
	d := newScene(t).decide()
	names := map[string]bool{}
	for _, e := range d.Evidence {
		names[e.Subject] = true
	}
	for _, s := range (&observe.Set{}).Subjects() {
		if !names[s.Name] && s.Name != "kubelet version" { // a version is no evidence
			t.Errorf("got no evidence of %s", s.Name)
		}
	}
}
