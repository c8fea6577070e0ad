package decision

import (
	"slices"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

// The three things that can be wanted. Each returns a scene in which nothing keeps it from being done.
var wanting = map[string]func(*testing.T) *scene{
	"restart": func(t *testing.T) *scene {
		t.Helper()
		return newScene(t).has(time.Minute, kubelet(failed), node(observe.NotReady, "NodeNotReady"))
	},
	"bootstrap": func(t *testing.T) *scene {
		t.Helper()
		s := newScene(t).has(time.Minute, kubelet(failed), node(observe.NotReady, "NodeNotReady"))
		for range 3 {
			s.restarts(KubeletUnit, time.Second)
		}
		s.lasts(BootstrapAfter)
		return s
	},
	"missing": func(t *testing.T) *scene {
		t.Helper()
		return newScene(t).has(time.Minute, kubelet(missing), node(observe.NotReady, "NodeNotReady"))
	},
}

func TestWithoutAnyGuardHoldingItIsDone(t *testing.T) {
	for name, given := range wanting {
		d := given(t).decide()
		if !d.Action.Acts() {
			t.Errorf("%s: got %s (%s): %s", name, d.Action, d.Reason, d.Message)
		}
		for _, g := range d.Guards {
			if g.Holds || g.Effect != "" || g.Reason != "" || !g.Until.IsZero() || g.Change != "" || g.Message == "" {
				t.Errorf("%s: got guard %+v, want it free, and to say why", name, g)
			}
		}
		if len(d.Guards) != len(guards()) {
			t.Errorf("%s: got %d guards, want all %d", name, len(d.Guards), len(guards()))
		}
	}
}

const (
	everything = "restart bootstrap missing"
	all        = 0
)

func TestGuards(t *testing.T) {
	in := func(change func(*Input)) func(*scene) { return func(s *scene) { change(&s.in) } }
	pause := func(until time.Duration) func(*scene) {
		return func(s *scene) {
			p := Pause{By: "command", Reason: "work on the rack"}
			if until != all {
				p.Until = s.in.Now.Add(until)
			}
			s.in.Pauses = []Pause{p}
		}
	}
	system := func(state string, up time.Duration) func(*scene) {
		return in(func(in *Input) { in.System = System{State: state, Uptime: up} })
	}
	window := func(from, to time.Duration) func(*scene) {
		return func(s *scene) { s.in.Window = &Window{From: s.in.Now.Add(from), To: s.in.Now.Add(to)} }
	}
	// now changes what the last look saw, without another one.
	now := func(c ...change) func(*scene) { return func(s *scene) { s.becomes(c...) } }
	sees := func(c ...change) func(*scene) { return func(s *scene) { s.has(0, c...) } }
	used := func(ago ...time.Duration) func(*scene) {
		return func(s *scene) {
			s.in.Evidence.LastWell = noon // they were for other faults: no cool-down
			for _, a := range ago {
				s.in.History.Bootstraps = append(s.in.History.Bootstraps, Attempt{Began: s.in.Now.Add(-a), OK: true})
			}
		}
	}
	withJob := failed
	withJob.Job = "start"
	hour := time.Hour
	for _, tc := range []struct {
		name    string
		of      string // which of wanting
		given   func(*scene)
		guard   string
		effect  Action // empty: does not hold
		reason  string
		lasting time.Duration // until it lifts by time; all for never
	}{
		{"given an agent that only observes", everything, in(func(in *Input) { in.Mode = ObserveOnly }), "mode", Hold, "ObserveOnly", all},
		{"given an agent whose mode was not set", everything, in(func(in *Input) { in.Mode, in.ModeReason = "", "there is no configuration" }), "mode", Hold, "ObserveOnly", all},
		{"given a mode that is none", everything, in(func(in *Input) { in.Mode = "ACT" }), "mode", Hold, "ObserveOnly", all},

		{"given a pause without end", everything, pause(all), "paused", Hold, "Paused", all},
		{"given a pause that ends in an hour", everything, pause(hour), "paused", Hold, "Paused", hour},
		{"given a pause that ends in a moment", everything, pause(1), "paused", Hold, "Paused", 1},
		{"given a pause that ends now", everything, func(s *scene) { s.in.Pauses = []Pause{{By: "file", Until: s.in.Now}} }, "paused", "", "", all},
		{"given a pause that is over", everything, pause(-1), "paused", "", "", all},
		{"given two pauses, the longer counts", everything, func(s *scene) {
			s.in.Pauses = []Pause{{By: "file", Until: s.in.Now.Add(hour), Since: noon}, {By: "command", Until: s.in.Now.Add(time.Minute)}, {By: "command", Until: s.in.Now}}
		}, "paused", Hold, "Paused", hour},
		{"given two of which one has no end", everything, func(s *scene) {
			s.in.Pauses = []Pause{{By: "/etc/aks-flex-node/paused"}, {By: "command", Until: s.in.Now.Add(time.Minute)}}
		}, "paused", Hold, "Paused", all},

		{"given a journal that can't be written", everything, in(func(in *Input) { in.History.Broken = "read-only file system" }), "journal", Hold, "JournalBroken", all},
		{"given a remedy in progress", everything, in(func(in *Input) { in.Remedy = &Remedy{Name: "restart", Unit: KubeletUnit, Step: "verify", Since: noon} }), "remedy in progress", Wait, "RemedyInProgress", all},

		{"given a host that starts", "restart bootstrap", system("starting", hour), "system start", Wait, "SystemStarting", all},
		{"given a host that begins to start", "restart bootstrap", system("initializing", hour), "system start", Wait, "SystemStarting", all},
		{"given a host that starts and no kubelet unit", "missing", system("starting", 0), "system start", "", "", all},
		{"given a host that has been up for a moment less than 5 min", "restart bootstrap", system("running", 5*time.Minute-1), "system start", Wait, "SystemStarting", 1},
		{"given a host that has just booted", "restart bootstrap", system("degraded", 0), "system start", Wait, "SystemStarting", 5 * time.Minute},
		{"given a host that has been up for 5 min", everything, system("degraded", 5*time.Minute), "system start", "", "", all},
		{"given a host that has just booted and no kubelet unit", "missing", system("running", time.Second), "system start", "", "", all},
		{"given a host whose state is not known", "restart bootstrap", system("", hour), "system start", Wait, "SystemUnknown", all},
		{"given a host whose state is a word of the future", "restart bootstrap", system("dreaming", hour), "system start", Wait, "SystemUnknown", all},
		{"given a host that shuts down", everything, system("stopping", hour), "system start", Hold, "SystemStopping", all},
		{"given a host in rescue mode", everything, system("maintenance", hour), "system start", Hold, "SystemInMaintenance", all},

		{"given a masked unit", "restart bootstrap", sees(kubelet(masked)), "unit masked or disabled", Hold, "UnitMasked", all},
		{"given one that was masked until the next boot", "restart bootstrap", sees(kubelet(observe.Unit{LoadState: "loaded", ActiveState: "failed", UnitFileState: "masked-runtime"})), "unit masked or disabled", Hold, "UnitMasked", all},
		{"given a disabled unit", "restart bootstrap", sees(kubelet(disabled(failed))), "unit masked or disabled", Hold, "UnitDisabled", all},
		{"given a unit that is static", "restart bootstrap", sees(kubelet(observe.Unit{LoadState: "loaded", ActiveState: "failed", UnitFileState: "static"})), "unit masked or disabled", "", "", all},
		{"given a masked containerd, which a bootstrap would start", "bootstrap missing", sees(containerdUnit(masked)), "unit masked or disabled", Hold, "UnitMasked", all},
		{"given a disabled containerd that does not run", "bootstrap", sees(containerdUnit(disabled(stoppedAt(noon)))), "unit masked or disabled", Hold, "UnitDisabled", all},
		{"given that on a machine that is no node yet", "missing", sees(containerdUnit(disabled(stoppedAt(time.Time{})))), "unit masked or disabled", "", "", all},
		{"given a disabled containerd that runs", "bootstrap missing", sees(containerdUnit(disabled(running))), "unit masked or disabled", "", "", all},
		{"given a masked unit of something else", "restart bootstrap", now(func(set *observe.Set) { set.ArcUnit = observe.JudgeUnit(masked) }), "unit masked or disabled", "", "", all},

		{"given a unit that systemd has a job for", "restart bootstrap", sees(kubelet(withJob)), "systemd at work", Wait, "SystemdAtWork", all},
		{"given a unit that starts", "restart bootstrap", sees(kubelet(starting)), "systemd at work", Wait, "SystemdAtWork", all},
		{"given a unit that stops", "restart bootstrap", sees(kubelet(stopping)), "systemd at work", Wait, "SystemdAtWork", all},
		{"given a unit that waits to be restarted", "restart bootstrap", sees(kubelet(restarting)), "systemd at work", Wait, "SystemdAtWork", all},
		{"given a unit that loops since a minute", "restart", sees(kubelet(looping)), "systemd at work", Wait, "SystemdAtWork", all},
		{"given one that loops after our restarts", "bootstrap", sees(kubelet(looping)), "systemd at work", "", "", all},
		{"given one that starts after our restarts, loop or not", "bootstrap", sees(kubelet(observe.Unit{LoadState: "loaded", ActiveState: "activating", SubState: "start", NRestarts: 9})), "systemd at work", Wait, "SystemdAtWork", all},
		{"given one that loops after our restarts and has a job now", "bootstrap", sees(kubelet(observe.Unit{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart-queued", NRestarts: 9, Job: "restart"})), "systemd at work", Wait, "SystemdAtWork", all},

		{"given a containerd that can't be told", "restart", sees(func(set *observe.Set) {
			set.ContainerdUnit = observe.JudgeUnit(observe.Unit{LoadState: "loaded", ActiveState: "maintenance"})
			set.Containerd = observe.CannotTell[observe.Runtime]("Timeout", "m")
		}), "dependency", Wait, "DependencyUnknown", all},
		{"given a lost link, a restart does not need it", "restart", sees(link(cluster.ReasonTimeout)), "dependency", "", "", all},
		{"given a lost link, a bootstrap does", "bootstrap missing", sees(link(cluster.ReasonTimeout)), "dependency", Wait, "LinkLost", all},
		{"given an API server that is down", "bootstrap missing", sees(link(cluster.ReasonRefused)), "dependency", Wait, "LinkLost", all},
		{"given an API server that refuses the credentials, a bootstrap may be what helps", "bootstrap missing", sees(link(cluster.ReasonUnauthorized)), "dependency", "", "", all},
		{"given no kubeconfig", "bootstrap missing", sees(link(cluster.ReasonKubeconfigMissing)), "dependency", "", "", all},
		{"given a lost Arc", everything, sees(arcLost), "dependency", "", "", all},

		{"given a node that the cluster calls ready", "bootstrap missing", sees(func(set *observe.Set) {
			set.Node = observe.See(observe.Node{Ready: observe.Ready}, observe.Healthy, "NodeReady", "m")
		}), "node works", Hold, "NodeWorks", all},
		{"given that, a restart is fine", "restart", sees(func(set *observe.Set) {
			set.Node = observe.See(observe.Node{Ready: observe.Ready}, observe.Healthy, "NodeReady", "m")
		}), "node works", "", "", all},
		{"given a kubelet that answers though its unit does not run", everything, sees(func(set *observe.Set) {
			set.KubeletHealth = observe.See(observe.KubeletHealth{}, observe.Healthy, "HealthzOK", "m")
		}), "node works", Hold, "KubeletElsewhere", all},

		{"given a restart 30 s ago", "restart", restartedAgo(1, 30*time.Second), "distance to last restart", "", "", all},
		{"given a restart a moment less ago", "restart", restartedAgo(1, 30*time.Second-1), "distance to last restart", Wait, "BetweenRestarts", 1},
		{"given the second a minute ago", "restart", restartedAgo(2, time.Minute), "distance to last restart", "", "", all},
		{"given the second a moment less ago", "restart", restartedAgo(2, time.Minute-1), "distance to last restart", Wait, "BetweenRestarts", 1},
		{"given the third 5 min ago", "restart", restartedAgo(3, 5*time.Minute), "distance to last restart", "", "", all},
		{"given the third a moment less ago", "restart", restartedAgo(3, 5*time.Minute-1), "distance to last restart", Wait, "AfterRestart", 1},
		{"given restarts and no kubelet unit any more", "missing", restartedAgo(3, time.Second), "distance to last restart", "", "", all},

		{"given two bootstraps today", "bootstrap missing", used(hour, 2*hour), "budget", "", "", all},
		{"given three today", "bootstrap missing", used(2*hour, hour, 23*hour), "budget", Hold, "BudgetUsedUp", hour},
		{"given three, the first a moment less than a day ago", "bootstrap missing", used(hour, 2*hour, 24*hour-1), "budget", Hold, "BudgetUsedUp", 1},
		{"given three, the first a day ago", "bootstrap missing", used(hour, 2*hour, 24*hour), "budget", "", "", all},
		{"given four today, two of them must be forgotten", "bootstrap missing", used(3*hour, 2*hour, 23*hour, 22*hour), "budget", Hold, "BudgetUsedUp", 2 * hour},
		{"given three in the future, since the clock was set back", "missing", used(-hour, -hour, -hour), "budget", Hold, "BudgetUsedUp", 25 * hour},
		{"given three, a restart does not need the budget", "restart", used(hour, 2*hour, 3*hour), "budget", "", "", all},

		{"given that it is not configured how to bootstrap", "bootstrap missing", in(func(in *Input) { in.CanBootstrap = false }), "bootstrap command", Hold, "NoBootstrapCommand", all},
		{"given that, a restart does not need it", "restart", in(func(in *Input) { in.CanBootstrap = false }), "bootstrap command", "", "", all},

		{"given a window that begins in an hour", everything, window(hour, 2*hour), "maintenance window", Hold, "OutsideWindow", hour},
		{"given a window that begins in a moment", everything, window(1, hour), "maintenance window", Hold, "OutsideWindow", 1},
		{"given a window that begins now", everything, window(0, hour), "maintenance window", "", "", all},
		{"given a window that is open for a moment more", everything, window(-hour, 1), "maintenance window", "", "", all},
		{"given a window that ends now", everything, window(-hour, 0), "maintenance window", Hold, "OutsideWindow", all},

		{"given a dry-run", everything, in(func(in *Input) { in.DryRun = true }), "dry-run", Hold, "DryRun", all},
	} {
		for name, given := range wanting {
			if !slices.Contains(splitWords(tc.of), name) {
				continue
			}
			t.Run(tc.guard+"/"+name+"/"+tc.name, func(t *testing.T) {
				s := given(t)
				tc.given(s)
				checkGuard(t, s, tc.guard, tc.effect, tc.reason, tc.lasting)
			})
		}
	}
}

// restartedAgo notes so many restarts for this fault, the last of which ended so long ago.
func restartedAgo(count int, ago time.Duration) func(*scene) {
	return func(s *scene) {
		end := s.in.Now.Add(-ago)
		for range count {
			s.in.History.Restarts = append(s.in.History.Restarts, Attempt{Unit: KubeletUnit, Began: end.Add(-time.Second), Ended: end, OK: true})
		}
		s.in.Evidence.LastWell = time.Time{}
		s.look()
	}
}

// checkGuard checks one guard, what the decision makes of it, and that it lifts by time when it says so.
func checkGuard(t *testing.T, s *scene, name string, effect Action, reason string, lasting time.Duration) {
	t.Helper()
	d := s.decide()
	i := slices.IndexFunc(d.Guards, func(g Guard) bool { return g.Name == name })
	g := d.Guards[i]
	var until time.Time
	if lasting != all {
		until = s.in.Now.Add(lasting)
	}
	if g.Holds != (effect != "") || g.Effect != effect || g.Reason != reason || !g.Until.Equal(until) || g.Message == "" {
		t.Fatalf("got guard %+v\nwant effect %q (%s) until %s", g, effect, reason, until)
	}
	if g.Holds && g.Until.IsZero() && g.Change == "" {
		t.Errorf("got guard %+v, want it to say what would lift it", g)
	}
	if !g.Holds {
		if !d.Action.Acts() {
			t.Errorf("got %s (%s): %s, want it done: nothing holds", d.Action, d.Reason, d.Message)
		}
		return
	}
	if d.Action != effect || d.Reason != reason || !d.Wanted.Acts() || !d.Until.Equal(until) {
		t.Errorf("got %s (%s), wanted %s, until %s: %s\nwant %s (%s) until %s", d.Action, d.Reason, d.Wanted, d.Until, d.Message, effect, reason, until)
	}
	if lasting == all {
		return
	}
	if d.NextLook.IsZero() || d.NextLook.After(until) {
		t.Errorf("got the next look at %s, want it by %s", d.NextLook, until)
	}
	s.after(lasting)
	if g := s.decide().Guards[i]; g.Holds {
		t.Errorf("got %+v when its time was over, want it free", g)
	}
}

func splitWords(s string) (words []string) {
	for len(s) > 0 {
		i := slices.Index([]byte(s), ' ')
		if i < 0 {
			return append(words, s)
		}
		words, s = append(words, s[:i]), s[i+1:]
	}
	return words
}

func TestWhatHoldsWeighsMoreThanWhatWaits(t *testing.T) {
	s := wanting["restart"](t)
	s.in.Remedy = &Remedy{Name: "restart", Since: noon}
	s.in.Pauses = []Pause{{By: "command", Until: s.in.Now.Add(time.Hour)}}
	s.in.DryRun = true
	d := s.wants(Hold, "Paused")
	if d.Wanted != Restart || !d.Until.IsZero() {
		t.Errorf("got %s until %s, want no end: a remedy has none that is known", d.Wanted, d.Until)
	}
	if want := []string{"its end", "aks-flex-node resume, or remove the pause file", "agent.dryRun: false in the configuration"}; !slices.Equal(d.Changes, []string{want[1], want[0], want[2]}) {
		t.Errorf("got the changes %q, want those of all guards that hold", d.Changes)
	}
	s.in.Pauses = nil
	s.wants(Hold, "DryRun") // though the remedy is told first
	s.in.Pauses = []Pause{{By: "command", Until: s.in.Now.Add(time.Hour)}}
	s.in.Remedy, s.in.DryRun = nil, false
	s.in.Window = &Window{From: s.in.Now.Add(2 * time.Hour), To: s.in.Now.Add(3 * time.Hour)}
	if d := s.decide(); !d.Until.Equal(s.in.Now.Add(2*time.Hour)) || !d.NextLook.Before(s.in.Now.Add(time.Hour)) {
		t.Errorf("got until %s, next look %s; want the end of the last guard, and a look before", d.Until, d.NextLook)
	}
}

func TestTheEndOfAWindowIsAnnounced(t *testing.T) {
	s := wanting["restart"](t)
	s.in.Window = &Window{From: noon, To: s.in.Now.Add(time.Second)}
	if d := s.wants(Restart, "Failed"); !d.NextLook.Equal(s.in.Window.To) {
		t.Errorf("got the next look at %s, want it when the window ends, at %s", d.NextLook, s.in.Window.To)
	}
	s.after(time.Second)
	s.wants(Hold, "OutsideWindow")
}

func TestGuardsDoNotTouchWhatIsNoAction(t *testing.T) {
	s := newScene(t)
	s.in.Mode, s.in.DryRun, s.in.Pauses, s.in.History.Broken = ObserveOnly, true, []Pause{{By: "file"}}, "disk full"
	if d := s.wants(None, "Healthy"); d.Wanted != "" || !d.Guards[0].Holds {
		t.Errorf("got wanted %q, guards %+v; want guards that hold and nothing that they keep from being done", d.Wanted, d.Guards)
	}
	s.has(0, kubelet(failed))
	s.wants(Wait, "Confirming")
}

// What is seen of other things while a remedy is at work is no end of the ladder.
func TestNothingIsHeldDuringARemedy(t *testing.T) {
	s := newScene(t).has(5*time.Minute, runtime("RuntimeNotReady"))
	s.wants(Hold, "RuntimeUnhealthy")
	s.in.Remedy = &Remedy{Name: "restart", Unit: ContainerdUnit, Since: s.in.Now}
	s.wants(Wait, "RemedyInProgress")
}

// What a remedy does to its unit, and to the budget, is no finding while it is at work.
func TestARemedyIsNotHeldAgainstItself(t *testing.T) {
	s := wanting["restart"](t)
	s.in.Remedy = &Remedy{Name: "restart", Unit: KubeletUnit, Step: "start", Since: s.in.Now}
	s.has(0, kubelet(stoppedAt(s.in.Now))) // after its failure was reset
	s.wants(Wait, "RemedyInProgress")

	s = wanting["missing"](t)
	for range MaxBootstraps {
		s.in.History.Bootstraps = append(s.in.History.Bootstraps, Attempt{Began: s.in.Now})
	}
	s.in.Remedy = &Remedy{Name: "bootstrap", Unit: KubeletUnit, Step: "command", Since: s.in.Now}
	s.wants(Wait, "RemedyInProgress")
	s.in.Remedy = nil
	s.after(time.Second)
	s.look()
	s.wants(Hold, "BudgetUsedUp")
}

func TestALostJournalHoldsUntilItsTimeIsOver(t *testing.T) {
	for name, given := range wanting {
		s := given(t)
		s.in.History.Unknown = time.Hour
		d := s.wants(Hold, "BudgetUnknown")
		if want := s.in.Now.Add(time.Hour); !d.Until.Equal(want) {
			t.Errorf("%s: got a hold until %s, want %s", name, d.Until, want)
		}
		s.in.History.Broken = "disk full"
		s.wants(Hold, "JournalBroken")
		s.in.History.Broken, s.in.History.Unknown = "", 0
		if d := s.decide(); !d.Action.Acts() {
			t.Errorf("%s: after it: got %s (%s)", name, d.Action, d.Reason)
		}
	}
}

// containerdUnit changes the unit alone: what is known of its program stays.
func containerdUnit(u observe.Unit) change {
	return func(set *observe.Set) {
		u.Name = ContainerdUnit
		set.ContainerdUnit = observe.JudgeUnit(u)
	}
}

// A bootstrap is of the whole host: whoever took the kubelet out of service is not overruled because containerd is what failed.
func TestABootstrapThatContainerdLeadsToHeedsTheKubelet(t *testing.T) {
	for _, c := range []struct {
		name   string
		of     observe.Unit
		action Action
		reason string
	}{
		{"a kubelet that failed too", failed, Bootstrap, "RestartsUsedUp"},
		{"a masked kubelet", masked, Hold, "UnitMasked"},
		{"a disabled kubelet", disabled(failed), Hold, "UnitDisabled"},
		{"a kubelet that somebody stopped a while ago", stoppedAt(noon), Bootstrap, "RestartsUsedUp"},
		{"a kubelet that somebody has just stopped", stoppedAt(noon.Add(6 * time.Minute)), Hold, "UnitStopped"},
		{"a kubelet that was never started", stoppedAt(time.Time{}), Bootstrap, "RestartsUsedUp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t).has(time.Minute, containerd(failed), kubelet(c.of), node(observe.NotReady, "NodeNotReady"))
			for range 3 {
				s.restarts(ContainerdUnit, time.Second)
			}
			s.lasts(BootstrapAfter + 5*time.Minute)
			s.wants(c.action, c.reason)
		})
	}
}

func TestAStopWhileARestartOnlyWatchesIsSomebodys(t *testing.T) {
	for _, c := range []struct {
		name   string
		after  time.Duration // of the restart's begin
		action Action
		reason string
	}{
		{"while the restart moved the unit", 2 * time.Second, Restart, "Stopped"},
		{"while it only watched", 5 * time.Second, Hold, "UnitStopped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t).has(time.Minute, kubelet(failed), node(observe.NotReady, "NodeNotReady"))
			began := s.in.Now
			s.restarts(KubeletUnit, 12*time.Second)
			s.in.History.Restarts[0].Moved = began.Add(3 * time.Second)
			s.has(2*time.Minute, kubelet(stoppedAt(began.Add(c.after))))
			s.wants(c.action, c.reason)
		})
	}
}
