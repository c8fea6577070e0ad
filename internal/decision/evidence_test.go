package decision

import (
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// sights are what the looks at a kubelet's unit saw, each so long after the one before.
type sights []struct {
	after time.Duration
	unit  observe.Unit
}

func TestConfirmation(t *testing.T) {
	odd := observe.Unit{LoadState: "loaded", ActiveState: "maintenance"} // can't be told
	upSince := func(at time.Duration) observe.Unit {
		u := running
		u.NRestarts, u.StateChange = 5, noon.Add(at)
		return u
	}
	for _, tc := range []struct {
		name string
		in   sights
		want bool
	}{
		{"given one look, no", sights{{0, failed}}, false},
		{"given three at once, no", sights{{0, failed}, {1, failed}, {1, failed}}, false},
		{"given two in 60 s, no", sights{{0, failed}, {time.Minute, failed}}, false},
		{"given three in 60 s, yes", sights{{0, failed}, {30 * time.Second, failed}, {30 * time.Second, failed}}, true},
		{"given three in a moment less, no", sights{{0, failed}, {30 * time.Second, failed}, {30*time.Second - 1, failed}}, false},
		{"given another reason in between, yes", sights{{0, failed}, {30 * time.Second, starting}, {30 * time.Second, failed}}, true},
		{"given a healthy look in between, no", sights{{0, failed}, {30 * time.Second, failed}, {10 * time.Second, running}, {20 * time.Second, failed}}, false},
		{"given one that can't be told in between, no", sights{{0, failed}, {30 * time.Second, failed}, {10 * time.Second, odd}, {20 * time.Second, failed}}, false},
		{"given that it lasts after that, yes", sights{{0, failed}, {30 * time.Second, odd}, {20 * time.Second, failed}, {30 * time.Second, failed}, {30 * time.Second, failed}}, true},
		{"given the longest gap that counts, yes", sights{{0, failed}, {EvidenceGap, failed}, {EvidenceGap, failed}}, true},
		{"given a longer gap, no", sights{{0, failed}, {30 * time.Second, failed}, {EvidenceGap + 1, failed}}, false},
		{"given a clock that went back, no", sights{{0, failed}, {30 * time.Second, failed}, {30 * time.Second, failed}, {-time.Hour, failed}}, false},
		{"given a clock that went back by a little, no: nobody knows what has passed", sights{{0, failed}, {time.Minute, failed}, {time.Minute, failed}, {-10 * time.Second, failed}}, false},
		{"given a healthy end, no", sights{{0, failed}, {30 * time.Second, failed}, {30 * time.Second, failed}, {time.Second, running}}, false},
		{"given nothing but unknown looks, no", sights{{0, odd}, {30 * time.Second, odd}, {30 * time.Second, odd}}, false},

		{"given a loop that is up for a moment in between, yes",
			sights{{0, looping}, {20 * time.Second, upSince(15 * time.Second)}, {20 * time.Second, looping}, {20 * time.Second, looping}}, true},
		{"given a loop that is up now, no: nothing is done to what runs",
			sights{{0, looping}, {20 * time.Second, looping}, {40 * time.Second, looping}, {time.Second, upSince(60 * time.Second)}}, false},
		{"given a loop that has stayed up for a minute, no: that is health",
			sights{{0, looping}, {30 * time.Second, looping}, {60 * time.Second, upSince(30 * time.Second)}, {time.Second, looping}}, false},
		{"given a loop that has stayed up for a moment less, yes",
			sights{{0, looping}, {30 * time.Second, looping}, {60*time.Second - 1, upSince(30 * time.Second)}, {time.Second, looping}}, true},
		{"given a unit that looped once and runs well, an old count makes no loop",
			sights{{0, upSince(-time.Hour)}, {30 * time.Second, failed}, {30 * time.Second, failed}}, false},
	} {
		var e Evidence
		now := noon
		for _, l := range tc.in {
			now = now.Add(l.after)
			set := &observe.Set{}
			kubelet(l.unit)(set)
			set.KubeletUnit.At = now
			e = e.Add(set, Thresholds{})
		}
		if got := e.KubeletUnit.Confirmed(Thresholds{}); got != tc.want {
			t.Errorf("%s: got %v after %+v", tc.name, got, e.KubeletUnit)
		}
	}
}

// To be unsteady is for what was down: a unit of which nothing was known runs, and that is known now.
func TestAUnitThatIsSeenAgainIsNoLongerUnknown(t *testing.T) {
	u := running
	u.NRestarts, u.StateChange = 5, noon.Add(20*time.Second)
	var e Evidence
	for i, unit := range []observe.Unit{{LoadState: "loaded", ActiveState: "maintenance"}, u} {
		set := &observe.Set{}
		kubelet(unit)(set)
		set.KubeletUnit.At = noon.Add(time.Duration(i) * 30 * time.Second)
		e = e.Add(set, Thresholds{})
	}
	if got := e.KubeletUnit; got.Health != observe.Healthy || got.Looks != 1 {
		t.Errorf("got %+v, want it healthy in one look", got)
	}
}

func TestTheSameLookCountsOnce(t *testing.T) {
	set := &observe.Set{}
	kubelet(failed)(set)
	set.KubeletUnit.At = noon
	var e Evidence
	for range 10 {
		e = e.Add(set, Thresholds{})
	}
	if e.KubeletUnit.Looks != 1 {
		t.Errorf("got %d looks, want the one there was", e.KubeletUnit.Looks)
	}
	if e.Node.Looks != 0 {
		t.Errorf("got %d looks at the node, want none: its observation has no time", e.Node.Looks)
	}
	if got := e.Add(nil, Thresholds{}); got != e {
		t.Errorf("got %+v after no look at all, want no change", got)
	}
}

func TestAReasonIsConfirmedByItself(t *testing.T) {
	s := newScene(t).has(time.Minute, runtime("RuntimeNotReady"))
	s.has(0, runtime(notResponding))
	if c := s.in.Evidence.Containerd; !c.Confirmed(Thresholds{}) || c.ReasonConfirmed(Thresholds{}, 0) {
		t.Errorf("got %+v, want it to be confirmed, but not for this reason", c)
	}
	s.lasts(2*time.Minute - 1)
	if c := s.in.Evidence.Containerd; c.ReasonConfirmed(Thresholds{}, 2*time.Minute) {
		t.Errorf("got %+v confirmed a moment too soon", c)
	}
	s.lasts(1)
	if c := s.in.Evidence.Containerd; !c.ReasonConfirmed(Thresholds{}, 2*time.Minute) {
		t.Errorf("got %+v not confirmed after 2 min", c)
	}
}

func TestLastWell(t *testing.T) {
	newly := func(t *testing.T) *scene {
		t.Helper()
		s := newScene(t).has(time.Minute, kubelet(failed), containerd(failed), healthz("HealthzFailed"))
		s.in.Evidence.LastWell = time.Time{}
		return s
	}
	disabledHealthz := func(set *observe.Set) {
		set.KubeletHealth = observe.CannotTell[observe.KubeletHealth]("HealthzDisabled", "off")
	}
	for _, tc := range []struct {
		name  string
		given []change
		want  bool
	}{
		{"given kubelet and containerd that run", []change{healthy}, true},
		{"given a health endpoint that is off", []change{healthy, disabledHealthz}, true},
		{"given a node that is not ready, it is no matter of these two", []change{healthy, node(observe.NotReady, "NodeNotReady")}, true},
		{"given a kubelet that is down", []change{healthy, kubelet(failed)}, false},
		{"given a kubelet that hangs", []change{healthy, healthz("HealthzSilent")}, false},
		{"given a containerd that is down", []change{healthy, containerd(failed)}, false},
		{"given a containerd that hangs", []change{healthy, runtime(notResponding)}, false},
		{"given that systemd can't be asked", []change{healthy, noSystemd}, false},
	} {
		s := newly(t).has(Recovered-1, tc.given...)
		if got := s.in.Evidence.LastWell; !got.IsZero() {
			t.Errorf("%s: got well at %s, want not before 10 min", tc.name, got)
		}
		s.lasts(1)
		if got := !s.in.Evidence.LastWell.IsZero(); got != tc.want {
			t.Errorf("%s: after 10 min got well: %v, want %v", tc.name, got, tc.want)
		}
	}
	// Containerd recovers later than the kubelet: that is since when all is well.
	s := newly(t).has(9*time.Minute, kubelet(running)).has(Recovered-1, healthy)
	if got := s.in.Evidence.LastWell; !got.IsZero() {
		t.Errorf("got well at %s, want not before both have been for 10 min", got)
	}
	// A health endpoint that failed until a moment ago speaks against it; one that could not be asked for a moment does not.
	s = newly(t).has(5*time.Minute, healthy, healthz("HealthzFailed")).has(Recovered-1, healthy)
	if got := s.in.Evidence.LastWell; !got.IsZero() {
		t.Errorf("got well at %s, want not before the kubelet has said so for 10 min", got)
	}
	s = newly(t).has(5*time.Minute, healthy).has(0, disabledHealthz).has(Recovered-5*time.Minute, healthy)
	if got := s.in.Evidence.LastWell; got.IsZero() {
		t.Error("got not well, want a look that can't tell to make no difference")
	}
	s = newScene(t).has(time.Second, healthy)
	// It keeps its value when all is no longer well.
	s.lasts(time.Second)
	well := s.in.Evidence.LastWell
	if s.has(time.Hour, kubelet(failed)); well.IsZero() || !s.in.Evidence.LastWell.Equal(well) {
		t.Errorf("got last well %s an hour later, want %s", s.in.Evidence.LastWell, well)
	}
}

func TestContainerdThatAnswersIsNotDown(t *testing.T) {
	s := newScene(t).has(0, func(set *observe.Set) {
		set.ContainerdUnit = observe.JudgeUnit(observe.Unit{Name: ContainerdUnit, LoadState: "not-found", ActiveState: "inactive"})
	})
	if c := s.in.Evidence.ContainerdUnit; c.Health != observe.Healthy || c.Reason != "Answering" || !c.At.Equal(noon) {
		t.Errorf("got %+v, want it healthy as it answers", c)
	}
	s.wants(None, "Healthy")
}
