package probe

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// counted replaces every probe of a Suite by one that takes no time, and counts the looks by the probes' names.
type counted struct {
	mu    sync.Mutex
	looks map[string]int
}

func countLooks(s *Suite) *counted {
	c := &counted{looks: map[string]int{}}
	countsLooks(c, &s.units)
	countsLooks(c, &s.kubelet)
	countsLooks(c, &s.kubeletHealth)
	countsLooks(c, &s.containerd)
	countsLooks(c, &s.runc)
	countsLooks(c, &s.node)
	countsLooks(c, &s.arc)
	countsLooks(c, &s.clock)
	countsLooks(c, &s.certificate)
	countsLooks(c, &s.disk)
	return c
}

func countsLooks[T any](c *counted, r *runner[T]) {
	r.look = func(context.Context, time.Time) observe.Observation[T] {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.looks[r.name]++
		return observe.See(*new(T), observe.Healthy, "Seen", "")
	}
}

// since returns what was looked at since the last time, once for each look.
func (c *counted) since() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.looks)) {
		for range c.looks[name] {
			names = append(names, name)
		}
	}
	clear(c.looks)
	return names
}

func TestEachWayOfLookingLooksAtItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil, "test")
		defer s.Close()
		c := countLooks(s)
		host := []string{"certificate", "clock", "disk"}
		local := []string{"containerd", "kubelet health", "kubelet version", "runc", "systemd"}
		for _, tc := range []struct {
			name  string
			after time.Duration
			look  func()
			want  []string
		}{
			{"the units alone", 0, func() { s.LookAtUnits(t.Context()) }, []string{"systemd"}},
			{"the Node alone", 0, func() { s.LookAtNode(t.Context()) }, []string{"node"}},
			{"what is local to this machine", time.Second, func() { s.LookLocal(t.Context()) }, local},
			{"it again, after an event", time.Second, func() { s.LookLocal(t.Context()) }, local},
			{"the host", 0, func() { s.LookAtHost(t.Context()) }, host},
			{"it again soon", slowEvery - time.Nanosecond, func() { s.LookAtHost(t.Context()) }, nil},
			{"it again a minute later", time.Nanosecond, func() { s.LookAtHost(t.Context()) }, host},
			{"everything in the snapshot", time.Second, func() { s.Look(t.Context()) }, slices.Sorted(slices.Values(append([]string{"Arc", "node"}, local...)))},
			{"what is latest", time.Hour, func() { s.Latest(); s.Stats(); s.Cluster() }, nil},
		} {
			passTime(tc.after)
			tc.look()
			synctest.Wait()
			if got := c.since(); !slices.Equal(got, tc.want) {
				t.Errorf("%s: got looks at %q, want %q", tc.name, got, tc.want)
			}
		}
	})
}

func TestTheLatestOfEverything(t *testing.T) {
	s, _ := newNode(t, "connected", nil)
	landed := make(chan struct{}, 100)
	s.OnLanded(func() { landed <- struct{}{} })
	seen, seenOfHost := s.Look(t.Context()), s.LookAtHost(t.Context())
	for range 2 {
		if set, machine := s.Latest(); !reflect.DeepEqual(set, seen) || !reflect.DeepEqual(machine, seenOfHost) {
			t.Errorf("after a look: got\n%+v\n%+v, want what it saw\n%+v\n%+v", set, machine, seen, seenOfHost)
		}
	}
	for range 10 {
		select {
		case <-landed:
		case <-time.After(30 * time.Second):
			t.Fatal("want to be told of each of ten looks")
		}
	}

	names := map[string]bool{}
	for _, stat := range s.Stats() {
		if stat.Name == "" || names[stat.Name] || stat.Looks != 1 || stat.Last <= 0 || stat.Hangs {
			t.Errorf("got %+v, want one look, under a name of its own", stat)
		}
		names[stat.Name] = true
	}
	if len(names) != 10 {
		t.Errorf("got the stats of %d probes, want ten", len(names))
	}
	client, source := s.Cluster()
	if client != &s.cluster || filepath.Base(source.Kubeconfig) != "kubelet.conf" || source.HostName != "n1" {
		t.Errorf("got %p and %+v, want the client of the looks and the kubelet's kubeconfig", client, source)
	}
}

func TestTheLatestBeforeAnybodyLooked(t *testing.T) {
	s, _ := newSuite(t) // without Arc
	if set, machine := s.Latest(); !reflect.DeepEqual(set, observe.Set{}) || !reflect.DeepEqual(machine, observe.Host{}) {
		t.Errorf("got %+v and %+v, want nothing but zero observations", set, machine)
	}
}

// A unit that is down is known at once, whatever hangs beside it.
func TestAStoppedUnitIsKnownWhileAllElseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil, "test")
		hang := make(chan struct{})
		s.kubeletHealth.look = func(context.Context, time.Time) observe.Observation[observe.KubeletHealth] {
			<-hang
			return observe.CannotTell[observe.KubeletHealth]("Late", "")
		}
		s.containerd.look = func(context.Context, time.Time) observe.Observation[observe.Runtime] {
			<-hang
			return observe.CannotTell[observe.Runtime]("Late", "")
		}
		var stopped atomic.Bool
		s.units.look = func(context.Context, time.Time) observe.Observation[units] {
			now := running("kubelet.service", 1)
			if stopped.Load() {
				now.ActiveState = "inactive"
			}
			passTime(2 * time.Millisecond) // as systemd takes
			return observe.See(units{kubelet: now}, observe.Healthy, "Seen", "")
		}
		s.kubelet.look = func(context.Context, time.Time) observe.Observation[observe.Program] {
			return observe.See(observe.Program{}, observe.Healthy, "Seen", "")
		}
		s.runc.look = s.kubelet.look
		local := make(chan struct{})
		go func() {
			s.LookLocal(t.Context())
			close(local)
		}()
		passTime(time.Millisecond)
		stopped.Store(true)
		begin := time.Now()
		s.LookAtUnits(t.Context())
		tookExactly(t, begin, 3*time.Millisecond) // the rest of the look that was under way, and one of its own
		set, _ := s.Latest()
		wantSeen(t, set.KubeletUnit, observe.Unhealthy, observe.ReasonStopped)
		if !set.KubeletUnit.At.Equal(time.Now()) || set.Arc.Reason != "" {
			t.Errorf("got %+v, want the unit as of now and nothing of what was not looked at", set)
		}

		passTime(10 * time.Second)
		set, _ = s.Latest()
		wantSeen(t, set.Containerd, observe.Unknown, observe.ReasonAbandoned, "hangs")
		wantSeen(t, set.KubeletHealth, observe.Unknown, observe.ReasonAbandoned, "hangs")
		<-local
		hanging := 0
		for _, stat := range s.Stats() {
			if stat.Hangs {
				hanging++
			}
		}
		if hanging != 2 {
			t.Errorf("got %d probes that hang, want two", hanging)
		}
		close(hang)
		synctest.Wait()
		s.Close()
	})
}

// What a probe needs to know of the units must not come from before the event for which it looks.
func TestTheUnitsThatAProbeGoesByAreThoseAfterTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil, "test")
		defer s.Close()
		var pid atomic.Int32
		pid.Store(1)
		s.units.look = func(context.Context, time.Time) observe.Observation[units] {
			u := units{kubelet: running("kubelet.service", int(pid.Load()))}
			passTime(100 * time.Millisecond)
			return observe.See(u, observe.Healthy, "Seen", "")
		}
		early := make(chan struct{})
		go func() {
			s.LookAtUnits(t.Context())
			close(early)
		}()
		passTime(50 * time.Millisecond)
		pid.Store(2)
		facts, known := s.unitFacts(t.Context(), time.Now())
		<-early
		if !known || facts.kubelet.MainPID != 2 {
			t.Errorf("got process %d, %v, want the one after the event", facts.kubelet.MainPID, known)
		}
	})
}

func TestTheUnitsThatAreWatched(t *testing.T) {
	for _, tc := range []struct {
		name               string
		enabled, installed bool
		want               []string
	}{
		{"given neither Arc nor a wish for it", false, false, []string{"kubelet.service", "containerd.service"}},
		{"given that it is wanted", true, false, []string{"kubelet.service", "containerd.service", "himdsd.service"}},
		{"given that it is installed", false, true, []string{"kubelet.service", "containerd.service", "himdsd.service"}},
	} {
		s, dir := newSuite(t)
		s.settings.arcEnabled = tc.enabled
		if tc.installed {
			putScript(t, filepath.Join(dir, "bin/azcmagent"), "exit 1")
		}
		if got := s.unitNames(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	s, _ := newSuite(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan struct{})
	go func() {
		s.WatchUnits(ctx, func(string) {})
		close(done)
	}()
	cancel(errors.New("enough"))
	<-done
}
