package decision

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

func TestNothingWithoutALook(t *testing.T) {
	for name, in := range map[string]Input{
		"given nothing at all":    {},
		"given an empty set":      {Set: &observe.Set{}, Mode: Act, Now: noon},
		"given grounds alone":     {Mode: Act, Now: noon, Grounds: []string{"KubeletNotRunning"}},
		"given an agent that may": {Mode: Act, Now: noon, System: System{State: "running", Uptime: time.Hour}, CanBootstrap: true},
	} {
		d := Decide(in)
		if d.Action != Wait || d.Reason != observe.ReasonNotLooked || !d.NextLook.Equal(in.Now) {
			t.Errorf("%s: got %s (%s), next look %s; want to wait for a look, due now", name, d.Action, d.Reason, d.NextLook)
		}
	}
}

// What hurts only because of what lies under it is no news for as long as that has been back for less than a minute.
func TestEffectsAreGivenTheTimeToRecover(t *testing.T) {
	for name, given := range map[string]struct {
		down, effect change
		reason       string
	}{
		"a node that is not ready after its kubelet is back": {kubelet(stoppedAt(noon)), node(observe.NotReady, "NodeNotReady"), "NodeNotReady"},
		"a runtime that is not ready after containerd is":    {containerd(failed), runtime("RuntimeNotReady"), "RuntimeUnhealthy"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t).has(5*time.Minute, given.down, given.effect)
			s.has(0, healthy, given.effect)
			s.wants(Wait, "Recovering")
			s.lasts(time.Minute - 1)
			s.wants(Wait, "Recovering")
			s.lasts(1)
			s.wants(Hold, given.reason)
		})
	}
}

// A restart of ours shows as a fault of its own for a moment.
func TestARestartIsGivenTheTimeToShow(t *testing.T) {
	s := newScene(t).has(2*time.Minute, runtime(notResponding))
	s.wants(Restart, notResponding)
	s.restarts(ContainerdUnit, time.Second)
	s.has(0, runtime("SocketMissing"))
	s.wants(Wait, "Recovering")
	s.lasts(time.Minute)
	s.wants(Hold, "RuntimeUnhealthy")
}

// That a containerd was stopped for long makes no loop of its start.
func TestAStartIsNoLoop(t *testing.T) {
	s := newScene(t).has(20*time.Minute, containerd(stoppedAt(noon)))
	s.has(0, containerd(starting))
	s.wants(Wait, "SystemdAtWork")
	s.lasts(10 * time.Minute)
	s.wants(Hold, "ContainerdLoops")
}

func TestAMissingRuncIsNamedWhereTheSnapshotAsksForABootstrap(t *testing.T) {
	s := newScene(t).has(time.Minute, func(set *observe.Set) {
		set.Runc = observe.See(observe.Program{}, observe.Unhealthy, observe.ReasonNotInstalled, "no runc")
	})
	s.in.Grounds = []string{"RuncVersionUnknown"}
	s.wants(Hold, "RuncMissing")
}

// Each case is a node that was well at noon, changes, and is looked at for so long.
func TestTheLadder(t *testing.T) {
	cut := link(cluster.ReasonTimeout)
	for _, tc := range []struct {
		name   string
		given  []change
		lasts  time.Duration
		action Action
		unit   string
		reason string
	}{
		{"nothing: given a healthy node", nil, time.Minute, None, "", "Healthy"},
		{"nothing: given that a reload of the kubelet is under way", []change{kubelet(observe.Unit{LoadState: "loaded", ActiveState: "reloading"})}, time.Hour, None, "", "Healthy"},
		{"nothing: given a healthz that refuses, since the unit runs", []change{func(set *observe.Set) {
			set.KubeletHealth = observe.CannotTell[observe.KubeletHealth]("HealthzRefused", "m")
		}}, time.Hour, None, "", "Healthy"},

		{"wait: given a kubelet that has just failed", []change{kubelet(failed)}, 0, Wait, KubeletUnit, "Confirming"},
		{"wait: given a moment less than a minute", []change{kubelet(failed)}, time.Minute - 1, Wait, KubeletUnit, "Confirming"},
		{"restart: given a minute", []change{kubelet(failed)}, time.Minute, Restart, KubeletUnit, "Failed"},
		{"restart: given that systemd gave up", []change{kubelet(observe.Unit{LoadState: "loaded", ActiveState: "failed", Result: "start-limit-hit"})}, time.Minute, Restart, KubeletUnit, "StartLimitHit"},
		{"restart: given a unit file with an error", []change{kubelet(observe.Unit{LoadState: "bad-setting", ActiveState: "failed"})}, time.Minute, Restart, KubeletUnit, "UnitNotLoadable"},
		{"restart: given a kubelet that hangs", []change{healthz("HealthzSilent")}, time.Minute, Restart, KubeletUnit, "HealthzSilent"},
		{"restart: given a kubelet that says it is not well", []change{healthz("HealthzFailed")}, time.Minute, Restart, KubeletUnit, "HealthzFailed"},
		{"wait: given that for a moment less", []change{healthz("HealthzFailed")}, time.Minute - 1, Wait, KubeletUnit, "Confirming"},
		{"restart: given a failed kubelet and a lost link, the kubelet counts", []change{kubelet(failed), cut}, time.Minute, Restart, KubeletUnit, "Failed"},

		{"wait: given a containerd that has just failed", []change{containerd(failed)}, time.Minute - 1, Wait, ContainerdUnit, "Confirming"},
		{"restart: given a failed containerd", []change{containerd(failed)}, time.Minute, Restart, ContainerdUnit, "Failed"},
		{"restart: given that both failed, the cause comes first", []change{containerd(failed), kubelet(failed)}, time.Minute, Restart, ContainerdUnit, "Failed"},
		{"wait: given both, neither is known well enough yet", []change{containerd(failed), kubelet(failed)}, 0, Wait, ContainerdUnit, "Confirming"},
		{"wait: given a containerd that systemd starts", []change{containerd(starting)}, 10*time.Minute - 1, Wait, ContainerdUnit, "SystemdAtWork"},
		{"wait: given a containerd that loops", []change{containerd(looping)}, 10*time.Minute - 1, Wait, ContainerdUnit, "SystemdAtWork"},
		{"hold: given that for 10 min, it is not ours to restart", []change{containerd(looping)}, 10 * time.Minute, Hold, ContainerdUnit, "ContainerdLoops"},
		{"hold: given no containerd unit", []change{containerd(missing)}, time.Minute, Hold, ContainerdUnit, "ContainerdMissing"},
		{"wait: given that it was only just removed", []change{containerd(missing)}, time.Minute - 1, Wait, ContainerdUnit, "Confirming"},
		{"wait: given a frozen containerd", []change{runtime(notResponding)}, 2*time.Minute - 1, Wait, ContainerdUnit, "Confirming"},
		{"restart: given a containerd that was frozen for 2 min", []change{runtime(notResponding)}, 2 * time.Minute, Restart, ContainerdUnit, notResponding},
		{"wait: given a frozen containerd and a failed kubelet, the cause comes first", []change{runtime(notResponding), kubelet(failed)}, 2*time.Minute - 1, Wait, ContainerdUnit, "Confirming"},

		{"bootstrap: given no kubelet unit", []change{kubelet(missing), node(observe.ReadyUnknown, "NodeUnknown")}, time.Minute, Bootstrap, KubeletUnit, "KubeletMissing"},
		{"bootstrap: given a host that never was a node", []change{kubelet(missing), containerd(missing), runtime("NotInstalled"), link(cluster.ReasonKubeconfigMissing)}, time.Minute, Bootstrap, KubeletUnit, "KubeletMissing"},
		{"wait: given that for a moment less", []change{kubelet(missing), node(observe.ReadyUnknown, "NodeUnknown")}, time.Minute - 1, Wait, KubeletUnit, "Confirming"},

		{"hold: given a runtime that is not ready", []change{runtime("RuntimeNotReady")}, time.Minute, Hold, "", "RuntimeUnhealthy"},
		{"hold: given a runtime without CRI, a restart does not mend its configuration", []change{runtime("CRIDisabled")}, time.Hour, Hold, "", "RuntimeUnhealthy"},
		{"nothing: given that for less than a minute", []change{runtime("RuntimeNotReady")}, time.Minute - 1, None, "", "Healthy"},
		{"restart: given a runtime that is not ready and a failed kubelet", []change{runtime("RuntimeNotReady"), kubelet(failed)}, time.Minute, Restart, KubeletUnit, "Failed"},
		{"hold: given no runc", []change{func(set *observe.Set) {
			set.Runc = observe.See(observe.Program{}, observe.Unhealthy, observe.ReasonNotInstalled, "m")
		}}, time.Hour, Hold, "", "RuncMissing"},
		{"hold: given a node that is not ready", []change{node(observe.NotReady, "NodeNotReady")}, time.Hour, Hold, "", "NodeNotReady"},
		{"hold: given a node that the cluster has not heard from", []change{node(observe.ReadyUnknown, "NodeUnknown")}, time.Hour, Hold, "", "NodeNotReady"},
		{"hold: given a Node that was deleted", []change{node(observe.ReadyUnknown, cluster.ReasonNodeNotFound)}, time.Hour, Hold, "", "NodeNotReady"},
		{"hold: given that Arc's service is down", []change{func(set *observe.Set) {
			set.ArcUnit = observe.JudgeUnit(observe.Unit{LoadState: "loaded", ActiveState: "failed"})
		}}, time.Hour, Hold, "", "ArcNotRunning"},

		{"nothing: given a link that was lost just now", []change{cut}, time.Minute - 1, None, "", "Healthy"},
		{"hold: given a lost link", []change{cut}, time.Minute, Hold, "", "LinkLost"},
		{"hold: given a link lost for a day", []change{cut, arcLost}, 24 * time.Hour, Hold, "", "LinkLost"},
		{"hold: given that Arc is cut off", []change{arcLost}, 24 * time.Hour, Hold, "", "LinkLost"},
		{"nothing: given no kubeconfig, that is no lost link", []change{link(cluster.ReasonKubeconfigMissing)}, time.Hour, None, "", "Healthy"},

		{"wait: given that systemd can't be asked", []change{noSystemd}, time.Hour, Wait, "", "CannotTell"},
		{"wait: given that, what else is seen leads to nothing", []change{noSystemd, healthz("HealthzSilent"), node(observe.NotReady, "NodeNotReady")}, time.Hour, Wait, "", "CannotTell"},
		{"wait: given that containerd's unit alone can't be told", []change{func(set *observe.Set) {
			set.ContainerdUnit = observe.JudgeUnit(observe.Unit{LoadState: "loaded", ActiveState: "maintenance"})
			set.Containerd = observe.CannotTell[observe.Runtime]("Timeout", "m")
		}}, time.Hour, Wait, "", "CannotTell"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t).has(tc.lasts, tc.given...)
			d := s.wants(tc.action, tc.reason)
			if d.Unit != tc.unit || d.Wanted != "" || d.Message == "" {
				t.Errorf("got unit %q, wanted %q, message %q; want unit %q, nothing that was kept from being done, and a message", d.Unit, d.Wanted, d.Message, tc.unit)
			}
			if (d.Action == Wait || d.Action == Hold) && len(d.Changes) == 0 {
				t.Error("got nothing that would change it")
			}
			if d.Reason == "Confirming" && !d.NextLook.Equal(s.in.Now.Add(20*time.Second)) && !s.in.Now.Before(d.NextLook) {
				t.Errorf("got the next look at %s, want one within 20 s", d.NextLook)
			}
		})
	}
}

func TestWhatSystemdCannotSayStopsEverything(t *testing.T) {
	// Confirmed, and then the look of now can't tell.
	s := newScene(t).has(5*time.Minute, kubelet(failed))
	s.wants(Restart, "Failed")
	s.has(0, noSystemd)
	s.wants(Wait, "CannotTell")
	s.has(0, kubelet(failed), containerd(running))
	s.wants(Wait, "Confirming")
}

func TestAKubeletThatCannotBeToldStopsContainerdsRestartToo(t *testing.T) {
	s := newScene(t).has(5*time.Minute, containerd(failed), func(set *observe.Set) {
		set.KubeletUnit = observe.JudgeUnit(observe.Unit{LoadState: "loaded", ActiveState: "maintenance"})
	})
	s.wants(Wait, "CannotTell")
}

// A package that is being upgraded takes its unit away for a moment.
func TestAUnitThatGoesMissingHasToBeMissingForAMinute(t *testing.T) {
	s := newScene(t)
	s.in.Pauses = []Pause{{By: "command"}}
	s.has(5*time.Minute, kubelet(failed), node(observe.NotReady, "NodeNotReady"))
	s.in.Pauses = nil
	s.has(time.Minute-1, kubelet(missing))
	if d := s.wants(Wait, "Confirming"); d.Thresholds[0].Met || d.Thresholds[0].Have != "1m" {
		t.Errorf("got the threshold %+v, want it to be the time that it is missing, and not reached", d.Thresholds[0])
	}
	s.lasts(1)
	s.wants(Bootstrap, "KubeletMissing")
}

func TestALostLinkIsSaidAfterThreeLooks(t *testing.T) {
	s := newScene(t).has(0, link(cluster.ReasonTimeout))
	s.after(time.Minute)
	s.look()
	s.wants(None, "Healthy")
	s.after(time.Second)
	s.look()
	s.wants(Hold, "LinkLost")
}

func TestAnOldLookIsNoEvidence(t *testing.T) {
	s := newScene(t).has(time.Minute, kubelet(failed))
	s.after(EvidenceGap)
	d := s.wants(Restart, "Failed")
	if !d.NextLook.Equal(s.in.Now) {
		t.Errorf("got the next look at %s, want it before the evidence is too old", d.NextLook)
	}
	s.after(1)
	s.wants(Wait, "CannotTell")
	s.look() // the gap has ended the streak
	s.wants(Wait, "Confirming")
}

func TestALookThatWasNotFedCounts(t *testing.T) {
	fed := newScene(t).has(time.Minute, kubelet(failed))
	unfed := newScene(t).has(40*time.Second, kubelet(failed))
	before := unfed.in.Evidence
	unfed.lasts(20 * time.Second)
	unfed.in.Evidence = before
	if got, want := unfed.decide(), fed.decide(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want what is decided when the look was fed: %+v", got, want)
	}
}

func TestThreeRestartsThenABootstrap(t *testing.T) {
	s := newScene(t).has(time.Minute, kubelet(failed), node(observe.NotReady, "NodeNotReady"))
	began := s.in.Now
	s.wants(Restart, "Failed")
	for i, gap := range []time.Duration{30 * time.Second, time.Minute} {
		s.restarts(KubeletUnit, 5*time.Second)
		s.wants(Wait, "NotLookedSince")
		s.lasts(gap - 1)
		if d := s.wants(Wait, "BetweenRestarts"); d.Wanted != Restart || !d.Until.Equal(s.in.Now.Add(1)) || !d.NextLook.Equal(s.in.Now.Add(1)) {
			t.Errorf("after restart %d: got %s until %s, next look %s; want a restart when the time is over", i+1, d.Wanted, d.Until, d.NextLook)
		}
		s.after(1)
		s.wants(Restart, "Failed")
	}
	s.restarts(KubeletUnit, 5*time.Second)
	s.lasts(5*time.Minute - 1)
	if d := s.wants(Wait, "AfterRestart"); d.Wanted != Bootstrap || !d.Until.Equal(s.in.Now.Add(1)) {
		t.Errorf("got %s until %s, want a bootstrap when the time is over", d.Wanted, d.Until)
	}
	s.after(1)
	s.wants(Bootstrap, "RestartsUsedUp")
	if got, want := s.in.Now.Sub(began), 15*time.Second+90*time.Second+5*time.Minute; got != want {
		t.Errorf("got to the bootstrap in %s, want %s", got, want)
	}
}

func TestRestartsOfAnotherUnitOrFaultDoNotCount(t *testing.T) {
	at := noon.Add(-time.Hour)
	attempt := func(unit string, at time.Time) Attempt {
		return Attempt{Unit: unit, Began: at, Ended: at.Add(time.Second), OK: true}
	}
	three := func(unit string, at time.Time) []Attempt {
		return []Attempt{attempt(unit, at), attempt(unit, at.Add(time.Minute)), attempt(unit, at.Add(2*time.Minute))}
	}
	for _, tc := range []struct {
		name   string
		in     History
		well   time.Time
		reason string
	}{
		{"given three for this fault, they are used up", History{Restarts: three(KubeletUnit, at)}, time.Time{}, "RestartsUsedUp"},
		{"given three of containerd", History{Restarts: three(ContainerdUnit, at)}, time.Time{}, "Failed"},
		{"given three from before all was well", History{Restarts: three(KubeletUnit, at)}, at.Add(2 * time.Minute), "Failed"},
		{"given that the last came after that, two are left", History{Restarts: three(KubeletUnit, at)}, at.Add(2*time.Minute - 1), "Failed"},
		{"given that all was well when they began", History{Restarts: []Attempt{attempt(KubeletUnit, at), attempt(KubeletUnit, at), attempt(KubeletUnit, at)}}, at, "Failed"},
		{"given that all was well before them", History{Restarts: three(KubeletUnit, at)}, at.Add(-1), "RestartsUsedUp"},
		{"given three from before a bootstrap that did its work", History{Restarts: three(KubeletUnit, at),
			Bootstraps: []Attempt{{Began: at.Add(5 * time.Minute), Ended: at.Add(6 * time.Minute), OK: true}}}, time.Time{}, "Failed"},
		{"given three from before a bootstrap that failed, restarts are over", History{Restarts: three(KubeletUnit, at),
			Bootstraps: []Attempt{{Began: at.Add(5 * time.Minute), Ended: at.Add(6 * time.Minute)}}}, time.Time{}, "BootstrapFailed"},
		{"given a bootstrap that failed, and then one that did its work", History{
			Bootstraps: []Attempt{{Began: at.Add(5 * time.Minute), OK: true}, {Began: at}}}, time.Time{}, "Failed"},
		{"given a bootstrap that failed before all was well", History{Bootstraps: []Attempt{{Began: at}}}, at, "Failed"},
		{"given a bootstrap that failed a day ago", History{Bootstraps: []Attempt{{Began: noon.Add(-24*time.Hour + time.Minute)}}}, time.Time{}, "Failed"},
		{"given one that failed a moment less ago", History{Bootstraps: []Attempt{{Began: noon.Add(-24*time.Hour + time.Minute + 1)}}}, time.Time{}, "BootstrapFailed"},
		{"given three from a day ago", History{Restarts: three(KubeletUnit, noon.Add(-24*time.Hour+time.Minute-2*time.Minute))}, time.Time{}, "Failed"},
		{"given three from almost a day ago", History{Restarts: three(KubeletUnit, noon.Add(-24*time.Hour+time.Minute+1))}, time.Time{}, "RestartsUsedUp"},
	} {
		s := newScene(t).has(time.Minute, kubelet(failed), node(observe.NotReady, "NodeNotReady"))
		s.in.History, s.in.Evidence.LastWell = tc.in, tc.well
		if d := s.decide(); !d.Action.Acts() || d.Reason != tc.reason {
			t.Errorf("%s: got %s (%s): %s, want %s", tc.name, d.Action, d.Reason, d.Message, tc.reason)
		}
	}
}

func TestBootstrapsForAMissingKubelet(t *testing.T) {
	s := newScene(t).has(time.Minute, kubelet(missing), node(observe.ReadyUnknown, "NodeUnknown"))
	for i, pause := range []time.Duration{2 * time.Minute, 4 * time.Minute} {
		s.wants(Bootstrap, "KubeletMissing")
		s.bootstraps(30*time.Second, false)
		s.wants(Wait, "NotLookedSince")
		s.lasts(pause - 1)
		if d := s.wants(Wait, "CoolDown"); d.Wanted != Bootstrap || !d.Until.Equal(s.in.Now.Add(1)) {
			t.Errorf("after bootstrap %d: got %s until %s, want another when %s are over", i+1, d.Wanted, d.Until, pause)
		}
		s.after(1)
	}
	s.wants(Bootstrap, "KubeletMissing")
	s.bootstraps(30*time.Second, false)
	first := s.in.History.Bootstraps[0].Began
	for s.in.Now.Before(first.Add(24*time.Hour - time.Hour)) {
		s.lasts(30 * time.Minute)
		s.wants(Hold, "BudgetUsedUp")
	}
	s.lasts(first.Add(24*time.Hour - 1).Sub(s.in.Now))
	if d := s.wants(Hold, "BudgetUsedUp"); !d.Until.Equal(first.Add(24*time.Hour)) || d.Wanted != Bootstrap {
		t.Errorf("got %s until %s, want a bootstrap a day after the first", d.Wanted, d.Until)
	}
	s.after(1)
	s.wants(Bootstrap, "KubeletMissing")
}

func TestGroundsAloneNeverLeadToAnAction(t *testing.T) {
	for _, tc := range []struct {
		name    string
		grounds []string
		reason  string
	}{
		{"given a lost link", []string{"ArcNotConnected"}, "LinkLost"},
		{"given a stale snapshot", []string{"SnapshotStale"}, "SnapshotNotRefreshed"},
		{"given no snapshot", []string{"SnapshotMissing"}, "SnapshotNotRefreshed"},
		{"given one that can't be read", []string{"SnapshotUnreadable"}, "SnapshotNotRefreshed"},
		{"given one that can't be trusted", []string{"SnapshotUntrusted"}, "SnapshotNotRefreshed"},
		{"given one that is broken", []string{"SnapshotInvalid"}, "SnapshotNotRefreshed"},
		{"given one from the future", []string{"SnapshotInFuture"}, "SnapshotNotRefreshed"},
		{"given a stale snapshot and a lost link", []string{"ArcNotConnected", "SnapshotStale"}, "SnapshotNotRefreshed"},
		{"given a kubelet that the snapshot says is down, and that is seen running", []string{"KubeletNotRunning"}, "NotSeenHere"},
		{"given versions that are not known", []string{"KubeletVersionUnknown", "RuncVersionUnknown"}, "NotSeenHere"},
		{"given a word of another version of the agent", []string{"ArcNotConnected", "SomethingNew"}, "NotSeenHere"},
	} {
		s := newScene(t).has(24 * time.Hour)
		s.in.Grounds = tc.grounds
		if d := s.decide(); d.Action != Hold || d.Reason != tc.reason || !reflect.DeepEqual(d.Grounds, tc.grounds) || !strings.Contains(d.Message, tc.grounds[0]) {
			t.Errorf("%s: got %s (%s): %s; want to hold (%s) and say so", tc.name, d.Action, d.Reason, d.Message, tc.reason)
		}
		// What is seen leads to what it leads to without them.
		s.has(time.Minute, kubelet(failed))
		s.wants(Restart, "Failed")
	}
}

// Some words are kept by rooms that this one may not import; they must not drift apart.
func TestWordsAreThoseOfTheOtherRooms(t *testing.T) {
	for _, reason := range []string{cluster.ReasonDNS, cluster.ReasonRefused, cluster.ReasonTimeout, cluster.ReasonTLS, cluster.ReasonUnavailable} {
		if !isLinkLost(Streak{Verdict: observe.Verdict{Reason: reason}}) {
			t.Errorf("%s does not count as a lost link", reason)
		}
	}
	for _, reason := range []string{cluster.ReasonUnauthorized, cluster.ReasonForbidden, cluster.ReasonNodeNotFound, cluster.ReasonKubeconfigMissing, cluster.ReasonPluginFailed} {
		if isLinkLost(Streak{Verdict: observe.Verdict{Reason: reason}}) {
			t.Errorf("%s counts as a lost link", reason)
		}
	}
	for file, words := range map[string][]string{
		"internal/probe/containerd.go": {notResponding},
		"pkg/status/bootstrap.go": {"ArcNotConnected", "SnapshotMissing", "SnapshotUnreadable", "SnapshotUntrusted", "SnapshotInvalid", "SnapshotStale",
			"SnapshotInFuture"},
	} {
		source, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !strings.Contains(string(source), `"`+word+`"`) {
				t.Errorf("%s no longer says %s", file, word)
			}
			if word != notResponding && !isLinkGround(word) && !isSnapshotGround(word) {
				t.Errorf("%s is no ground of link or snapshot", word)
			}
		}
	}
}
