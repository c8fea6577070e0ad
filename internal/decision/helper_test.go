package decision

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

var noon = time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)

// scene is a node and an agent that looks at it every 20 seconds.
type scene struct {
	t  *testing.T
	in Input
}

// newScene is a node that has been well for half an hour, with an agent that may act.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, in: Input{
		Now: noon.Add(-30*time.Minute - time.Second), Mode: Act, System: System{State: "running", Uptime: 24 * time.Hour}, CanBootstrap: true,
	}}
	s.becomes(healthy)
	s.look()
	s.lasts(30 * time.Minute)
	s.after(time.Second)
	if got := s.decide(); got.Action != None || got.Reason != "Healthy" || !s.in.Now.Equal(noon) || s.in.Evidence.LastWell.IsZero() {
		t.Fatalf("given a node that is well at noon: got %s (%s) at %s, last well %s", got.Action, got.Reason, s.in.Now, s.in.Evidence.LastWell)
	}
	return s
}

// a change alters what a look sees.
type change func(*observe.Set)

// becomes changes the node. The set is a new one: evidence may refer to the old.
func (s *scene) becomes(changes ...change) {
	set := observe.Set{}
	if s.in.Set != nil {
		set = *s.in.Set
	}
	for _, c := range changes {
		c(&set)
	}
	s.in.Set = &set
}

// look looks at everything now.
func (s *scene) look() {
	s.becomes(func(set *observe.Set) {
		for _, v := range reflect.ValueOf(set).Elem().Fields() {
			v.FieldByName("At").Set(reflect.ValueOf(s.in.Now))
		}
	})
	s.in.Evidence = s.in.Evidence.Add(s.in.Set, s.in.Thresholds)
}

// after moves time on without a look.
func (s *scene) after(d time.Duration) {
	s.in.Now = s.in.Now.Add(d)
	s.in.System.Uptime += d
}

// lasts looks every 20 seconds for so long, and at its end.
func (s *scene) lasts(d time.Duration) {
	for d > 0 {
		step := min(d, 20*time.Second)
		s.after(step)
		s.look()
		d -= step
	}
}

// has makes the node so, looks at once (or a second later, if the last look was just now), and goes on looking for so long.
func (s *scene) has(lasting time.Duration, changes ...change) *scene {
	if s.in.Evidence.Node.At.Equal(s.in.Now) {
		s.after(time.Second)
	}
	s.becomes(changes...)
	s.look()
	s.lasts(lasting)
	return s
}

func (s *scene) decide() Decision { return Decide(s.in) }

// wants checks the decision.
func (s *scene) wants(action Action, reason string) Decision {
	s.t.Helper()
	d := s.decide()
	if d.Action != action || d.Reason != reason {
		s.t.Errorf("at %s: got %s (%s): %s\nwant %s (%s)", s.in.Now.Sub(noon), d.Action, d.Reason, d.Message, action, reason)
	}
	return d
}

// restarts notes a restart that took so long and has just ended.
func (s *scene) restarts(unit string, took time.Duration) {
	began := s.in.Now
	s.after(took)
	s.in.History.Restarts = append(slices.Clone(s.in.History.Restarts), Attempt{Unit: unit, Began: began, Ended: s.in.Now, OK: true})
}

// bootstraps notes a bootstrap that took so long and has just ended.
func (s *scene) bootstraps(took time.Duration, ok bool) {
	began := s.in.Now
	s.after(took)
	s.in.History.Bootstraps = append(slices.Clone(s.in.History.Bootstraps), Attempt{Began: began, Ended: s.in.Now, OK: ok})
}

// What a node can be like.

func healthy(set *observe.Set) {
	kubelet(running)(set)
	containerd(running)(set)
	set.ArcUnit = observe.JudgeUnit(observe.Unit{Name: "himdsd.service", LoadState: "loaded", ActiveState: "active", SubState: "running"})
	set.Kubelet = observe.See(observe.Program{Version: "1.33.2"}, observe.Healthy, "VersionKnown", "kubelet 1.33.2")
	set.Runc = observe.See(observe.Program{Version: "1.1.12"}, observe.Healthy, "VersionKnown", "runc 1.1.12")
	set.Node = observe.See(observe.Node{Ready: observe.Ready}, observe.Healthy, "NodeReady", "the cluster says that the node is ready")
	set.Arc = observe.See(observe.Arc{Connected: true}, observe.Healthy, "Connected", "Azure Arc is connected")
}

// The states of a unit.
var (
	running    = observe.Unit{LoadState: "loaded", UnitFileState: "enabled", ActiveState: "active", SubState: "running", Result: "success"}
	failed     = observe.Unit{LoadState: "loaded", UnitFileState: "enabled", ActiveState: "failed", SubState: "failed", Result: "exit-code"}
	starting   = observe.Unit{LoadState: "loaded", UnitFileState: "enabled", ActiveState: "activating", SubState: "start", Job: "start"}
	restarting = observe.Unit{LoadState: "loaded", UnitFileState: "enabled", ActiveState: "activating", SubState: "auto-restart", Result: "exit-code", NRestarts: 2}
	looping    = observe.Unit{LoadState: "loaded", UnitFileState: "enabled", ActiveState: "activating", SubState: "auto-restart", Result: "exit-code", NRestarts: 3}
	stopping   = observe.Unit{LoadState: "loaded", UnitFileState: "enabled", ActiveState: "deactivating", SubState: "stop-sigterm"}
	masked     = observe.Unit{LoadState: "masked", UnitFileState: "masked", ActiveState: "inactive", SubState: "dead"}
	missing    = observe.Unit{LoadState: "not-found", ActiveState: "inactive", SubState: "dead"}
)

// stoppedAt is a unit that somebody stopped.
func stoppedAt(t time.Time) observe.Unit {
	return observe.Unit{LoadState: "loaded", UnitFileState: "enabled", ActiveState: "inactive", SubState: "dead", Result: "success", StateChange: t}
}

func disabled(u observe.Unit) observe.Unit {
	u.UnitFileState = "disabled"
	return u
}

// kubelet makes the kubelet's unit so; its health endpoint answers while it runs.
func kubelet(u observe.Unit) change {
	return func(set *observe.Set) {
		u.Name = KubeletUnit
		set.KubeletUnit = observe.JudgeUnit(u)
		set.KubeletHealth = observe.CannotTell[observe.KubeletHealth]("KubeletNotRunning", "nothing listens")
		if u.Running() {
			set.KubeletHealth = observe.See(observe.KubeletHealth{StatusCode: 200}, observe.Healthy, "HealthzOK", "the kubelet says that it is healthy")
		}
	}
}

// containerd makes containerd's unit so; it answers while it runs.
func containerd(u observe.Unit) change {
	return func(set *observe.Set) {
		u.Name = ContainerdUnit
		set.ContainerdUnit = observe.JudgeUnit(u)
		set.Containerd = observe.See(observe.Runtime{}, observe.Unhealthy, "NotRunning", "containerd does not run")
		if u.Running() {
			set.Containerd = observe.See(observe.Runtime{Answers: true, RuntimeReady: true}, observe.Healthy, "RuntimeReady", "containerd is ready")
		}
	}
}

func runtime(reason string) change {
	return func(set *observe.Set) {
		set.Containerd = observe.See(observe.Runtime{}, observe.Unhealthy, reason, "containerd is not well")
	}
}

func healthz(reason string) change {
	return func(set *observe.Set) {
		set.KubeletHealth = observe.See(observe.KubeletHealth{}, observe.Unhealthy, reason, "the kubelet is not well")
	}
}

func node(ready, reason string) change {
	return func(set *observe.Set) {
		set.Node = observe.See(observe.Node{Ready: ready}, observe.Unhealthy, reason, "the cluster says %s", ready)
	}
}

func link(reason string) change {
	return func(set *observe.Set) {
		set.Node = observe.CannotTell[observe.Node](reason, "the API server can't be asked: %s", reason)
	}
}

func arcLost(set *observe.Set) {
	set.Arc = observe.See(observe.Arc{}, observe.Unhealthy, "Disconnected", "Azure Arc says Disconnected")
}

// noSystemd is what is seen when systemd can't be asked.
func noSystemd(set *observe.Set) {
	set.KubeletUnit = observe.CannotTell[observe.Unit]("SystemdUnavailable", "systemd does not answer")
	set.ContainerdUnit = set.KubeletUnit
}
