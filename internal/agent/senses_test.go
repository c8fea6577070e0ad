package agent

import (
	"context"
	"sync"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
)

const (
	lookDeadline = 5 * time.Second // of a look at one subject
	arcDeadline  = 15 * time.Second
	slowly       = time.Minute // how often what changes slowly is looked at
	keepFor      = 3 * time.Minute
)

// The names of what can hang.
const (
	hangUnits, hangNode, hangArc, hangHost = "units", "node", "arc", "host"
	// hangLook is a whole round that never returns, whatever becomes of its context: worse than any Suite.
	hangLook = "look"
)

// sight is what one agent sees of a machine: senses as a probe.Suite has them.
type sight struct {
	m           *machine
	landed      func()
	unitChanged func(string)
	nodeChanged func() // nil while nobody watches the Node

	mu      sync.Mutex // guards the fields below
	set     observe.Set
	hst     observe.Host
	clients int // how often it was asked for the way to the cluster
}

// hang makes looks at a subject hang. The function that it returns ends that.
func (m *machine) hang(what string) (end func()) {
	c := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hangs[what] = c
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.hangs, what)
		close(c)
	}
}

// take lets a look take its time. It is not in time if it hangs until its deadline, and is nothing if ctx ends before.
func (s *sight) take(ctx context.Context, what string, usually, deadline time.Duration) (inTime, ended bool) {
	s.m.mu.Lock()
	hangs := s.m.hangs[what]
	s.m.mu.Unlock()
	inTime = true
	if hangs != nil {
		usually, inTime = deadline, false
	} else if usually == 0 {
		return true, ctx.Err() == nil
	}
	t := time.NewTimer(usually)
	defer t.Stop()
	select {
	case <-t.C:
		return inTime, true
	case <-hangs:
		return true, true
	case <-ctx.Done():
		return false, false
	}
}

// land puts what was seen in its place.
func (s *sight) land(see func(m *machine, now time.Time)) {
	s.m.mu.Lock()
	s.mu.Lock()
	see(s.m, time.Now())
	s.mu.Unlock()
	s.m.mu.Unlock()
	if s.landed != nil {
		s.landed()
	}
}

// put makes o the latest observation, with the last good value where it can't be told.
func put[T any](latest *observe.Observation[T], o observe.Observation[T], now time.Time) {
	o.At = now
	if !o.Known() {
		switch {
		case latest.Known() && !latest.At.IsZero():
			value, at := latest.Value, latest.At
			o.Good, o.GoodAt = &value, &at
		case latest.Good != nil && now.Sub(*latest.GoodAt) < keepFor:
			o.Good, o.GoodAt = latest.Good, latest.GoodAt
		}
	}
	*latest = o
}

func timeout[T any]() observe.Observation[T] {
	return observe.CannotTell[T](observe.ReasonTimeout, "no answer")
}

func (s *sight) Look(ctx context.Context) observe.Set {
	s.m.mu.Lock()
	s.m.looks++
	forever, atOnce := s.m.hangs[hangLook], s.m.quick && len(s.m.hangs) == 0
	s.m.mu.Unlock()
	if atOnce && ctx.Err() == nil {
		s.land(func(m *machine, now time.Time) {
			s.seeUnits(m, now, true)
			s.seePrograms(m, now)
			s.seeNode(m, now, true)
			s.seeArc(m, now, true)
		})
		set, _ := s.Latest()
		return set
	}
	if forever != nil {
		<-forever
	}
	var all sync.WaitGroup
	all.Go(func() { s.LookAtNode(ctx) })
	all.Go(func() { s.lookAtArc(ctx) })
	s.LookLocal(ctx)
	all.Wait()
	set, _ := s.Latest()
	return set
}

func (s *sight) LookAtUnits(ctx context.Context) {
	inTime, ended := s.take(ctx, hangUnits, 0, lookDeadline)
	if !ended {
		return
	}
	s.land(func(m *machine, now time.Time) { s.seeUnits(m, now, inTime) })
}

func (s *sight) seeUnits(m *machine, now time.Time, inTime bool) {
	k, c := observe.JudgeUnit(m.kubelet.Unit), observe.JudgeUnit(m.runtime.Unit)
	if m.dark || !inTime {
		k = observe.CannotTell[observe.Unit]("SystemdUnavailable", "systemd does not answer")
		c = k
	}
	put(&s.set.KubeletUnit, k, now)
	put(&s.set.ContainerdUnit, c, now)
	put(&s.set.ArcUnit, observe.JudgeUnit(observe.Unit{Name: "himdsd.service", LoadState: "loaded", ActiveState: "active", SubState: "running"}), now)
}

func (s *sight) LookLocal(ctx context.Context) {
	inTime, ended := s.take(ctx, hangUnits, 0, lookDeadline)
	if !ended {
		return
	}
	s.land(func(m *machine, now time.Time) {
		s.seeUnits(m, now, inTime)
		s.seePrograms(m, now)
	})
}

func (s *sight) seePrograms(m *machine, now time.Time) {
	put(&s.set.Kubelet, observe.See(observe.Program{Version: "1.33.2"}, observe.Healthy, "VersionKnown", "kubelet 1.33.2"), now)
	put(&s.set.Runc, observe.See(observe.Program{Version: "1.1.12"}, observe.Healthy, "VersionKnown", "runc 1.1.12"), now)
	if m.noRunc {
		put(&s.set.Runc, observe.See(observe.Program{}, observe.Unhealthy, observe.ReasonNotInstalled, "no runc"), now)
	}
	health := observe.CannotTell[observe.KubeletHealth]("KubeletNotRunning", "nothing listens")
	if m.kubelet.Running() {
		health = observe.See(observe.KubeletHealth{StatusCode: 200}, observe.Healthy, "HealthzOK", "healthy")
		if reason := m.sick[kubelet]; reason != "" {
			health = observe.See(observe.KubeletHealth{}, observe.Unhealthy, reason, "not well")
		}
	}
	put(&s.set.KubeletHealth, health, now)
	runtime := observe.See(observe.Runtime{}, observe.Unhealthy, "NotRunning", "containerd does not run")
	if m.runtime.Running() {
		runtime = observe.See(observe.Runtime{Program: observe.Program{Version: "1.7.20"}, Answers: true, RuntimeReady: true}, observe.Healthy, "RuntimeReady", "ready")
		if reason := m.sick[containerd]; reason != "" {
			runtime = observe.See(observe.Runtime{}, observe.Unhealthy, reason, "not well")
		}
	}
	put(&s.set.Containerd, runtime, now)
}

func (s *sight) LookAtNode(ctx context.Context) {
	inTime, ended := s.take(ctx, hangNode, 20*time.Millisecond, lookDeadline)
	if !ended {
		return
	}
	s.land(func(m *machine, now time.Time) { s.seeNode(m, now, inTime) })
}

func (s *sight) seeNode(m *machine, now time.Time, inTime bool) {
	n := observe.See(observe.Node{Name: "edge-1", Ready: observe.Ready}, observe.Healthy, "NodeReady", "ready")
	switch {
	case !inTime:
		n = timeout[observe.Node]()
	case m.linkCut:
		n = observe.CannotTell[observe.Node](cluster.ReasonTimeout, "no answer")
	case m.notReady || !m.works():
		n = observe.See(observe.Node{Name: "edge-1", Ready: observe.NotReady}, observe.Unhealthy, "NodeNotReady", "not ready")
	}
	put(&s.set.Node, n, now)
}

func (s *sight) lookAtArc(ctx context.Context) {
	set, _ := s.Latest()
	if !set.Arc.At.IsZero() && time.Since(set.Arc.At) < slowly {
		return
	}
	inTime, ended := s.take(ctx, hangArc, 30*time.Millisecond, arcDeadline)
	if !ended {
		return
	}
	s.land(func(m *machine, now time.Time) { s.seeArc(m, now, inTime) })
}

func (s *sight) seeArc(m *machine, now time.Time, inTime bool) {
	a := observe.See(observe.Arc{Registered: true, Connected: true}, observe.Healthy, "Connected", "connected")
	switch {
	case !inTime:
		a = timeout[observe.Arc]()
	case m.arcCut:
		a = observe.See(observe.Arc{Registered: true}, observe.Unhealthy, "Disconnected", "disconnected")
	}
	put(&s.set.Arc, a, now)
}

func (s *sight) LookAtHost(ctx context.Context) observe.Host {
	_, hst := s.Latest()
	if !hst.Clock.At.IsZero() && time.Since(hst.Clock.At) < slowly {
		return hst
	}
	inTime, ended := s.take(ctx, hangHost, 0, lookDeadline)
	if !ended {
		return hst
	}
	s.land(func(m *machine, now time.Time) {
		disk := timeout[observe.Disk]()
		if inTime {
			disk = observe.See(observe.Disk{Paths: []observe.Space{{Path: "/var/lib", Bytes: 100, BytesFree: m.diskFree}}}, observe.Healthy, "Seen", "seen")
		}
		put(&s.hst.Disk, disk, now)
		put(&s.hst.Clock, observe.See(observe.Clock{Synchronized: !m.unsynced}, observe.Healthy, "Seen", "seen"), now)
		put(&s.hst.Certificate, observe.See(observe.Certificate{Plugin: true}, observe.Healthy, "CredentialPlugin", "a plugin"), now)
	})
	_, hst = s.Latest()
	return hst
}

func (s *sight) Latest() (observe.Set, observe.Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set, s.hst
}

func (s *sight) OnLanded(landed func()) { s.landed = landed }

func (s *sight) WatchUnits(ctx context.Context, changed func(string)) {
	s.m.mu.Lock()
	s.unitChanged = changed
	s.m.sights[s] = true
	s.m.mu.Unlock()
	changed("") // as after each connection
	<-ctx.Done()
	s.m.mu.Lock()
	delete(s.m.sights, s)
	s.m.mu.Unlock()
}

func (s *sight) WatchNode(ctx context.Context, changed func()) {
	s.mu.Lock()
	s.nodeChanged = changed
	s.mu.Unlock()
	<-ctx.Done()
}

func (s *sight) Stats() []probe.Stat { return nil }

func (s *sight) Cluster() (*cluster.Client, cluster.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	return nil, cluster.Source{}
}

func (s *sight) Close() {}
