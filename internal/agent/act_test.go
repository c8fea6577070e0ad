package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/pkg/config"
)

func TestAFailedKubeletIsRestartedOnceThatIsConfirmed(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.happens(fails)
		b.restarts(kubelet)
		after(20 * time.Second)
		b.wants(decision.None, "Healthy")
		if got := b.view().Counters.Remedies["restart"]["succeeded"]; got != 1 {
			t.Errorf("got %d restarts counted, want 1", got)
		}
		want := []string{
			"Warning RemedyBegun Restart: restart kubelet.service (attempt 1 within 24h0m0s): Failed",
			"Normal RemedySucceeded restart: restart kubelet.service (attempt 1 within 24h0m0s): kubelet.service runs and stayed up for 10s",
		}
		if got := b.eventsTold(); !slices.Equal(got, want) {
			t.Errorf("the cluster was told %q, want %q", got, want)
		}
		after(time.Hour)
		b.hasDone()
		b.stop()
	})
}

func TestAKubeletThatRestartsDontHelpIsBootstrapped(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.happens(func(m *machine) {
			m.kubelet.broken, m.kubelet.fails = true, 20*time.Second
			m.kubelet.fail()
		})
		after(17 * time.Minute)
		once := []string{"reset-failed " + kubelet, "start " + kubelet}
		b.hasDone(slices.Concat(once, once, once, []string{"command"})...)
		b.wants(decision.None, "Healthy")
		if v := b.view(); v.Budget.Bootstraps != 1 || v.Remedy != nil {
			t.Errorf("got the budget %+v and the remedy %+v, want one bootstrap, which has ended", v.Budget, v.Remedy)
		}
		b.stop()
	})
}

func TestTheBudgetOutlivesAgentsAndClocks(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.command = command{takes: 10 * time.Second, fails: true, leaves: func(*machine) {}}
		b.runs()
		b.happens(func(m *machine) {
			m.kubelet.stop()
			m.kubelet.LoadState, m.kubelet.UnitFileState = "not-found", ""
		})
		for i := range 12 {
			after(time.Hour)
			b.stop()
			b.happens(func(*machine) { b.skew = time.Duration(i%3-1) * 100 * time.Hour })
			b.runs()
		}
		b.hasDone("command", "command", "command")
		b.wants(decision.Hold, "BudgetUsedUp")
		b.happens(func(*machine) { b.skew = 0 })
		after(12 * time.Hour)
		if got := b.did(); len(got) == 0 || len(got) > 3 {
			t.Errorf("a day after the first attempts: got done %q, want up to three more", got)
		}
		b.stop()
	})
}

func TestOneWhoOnlyObservesTouchesNothing(t *testing.T) {
	for name, set := range map[string]func(b *bed){
		"by its flag":                            func(b *bed) { b.observeOnly = true },
		"for want of a configuration":            func(b *bed) { b.cfg = nil },
		"for a configuration that can't be read": func(b *bed) { b.cfgErr = errors.New("line 3: unexpected }") },
		"for a configuration with a mistake":     func(b *bed) { b.cfg.Agent.LogLevel = "loud" },
	} {
		t.Run(name, func(t *testing.T) {
			at(t, func(t *testing.T, b *bed) {
				set(b)
				b.runs()
				b.happens(fails)
				after(30 * time.Minute)
				b.hasDone()
				b.wants(decision.Hold, "ObserveOnly")
				if d := b.view().Decision; d.Wanted != decision.Restart {
					t.Errorf("got wanted %q, want that it says what it would do", d.Wanted)
				}
				if b.toldTimes() != 0 || len(b.eventsTold()) != 0 || b.sight.clients != 0 {
					t.Errorf("the cluster was told %d conditions and %q; want nothing", b.toldTimes(), b.eventsTold())
				}
				if b.snapshot().KubeletRunning {
					t.Error("got a snapshot that says that the kubelet runs, want it kept also by one who only observes")
				}
				b.stop()
			})
		})
	}
}

func TestADryRunSaysWhatItWouldDo(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.cfg.Agent.DryRun = true
		b.runs()
		b.happens(fails)
		after(30 * time.Minute)
		b.hasDone()
		b.wants(decision.Hold, "DryRun")
		if log := b.log.take(); strings.Count(log, "Else it would restart kubelet.service") != 1 {
			t.Errorf("got logged\n%s\nwant it to say once what it would do", log)
		}
		if told := b.eventsTold(); len(told) != 1 || !strings.Contains(told[0], "would else restart") {
			t.Errorf("the cluster was told %q, want what it would do", told)
		}
		b.stop()
	})
}

func TestAPauseHoldsUntilItIsLifted(t *testing.T) {
	for name, c := range map[string]struct{ pause, resume func(t *testing.T, b *bed) }{
		"by command": {
			func(t *testing.T, b *bed) { must(t, b.a.Pause(t.Context(), journal.Pause{By: "eva", Reason: "disk"})) },
			func(t *testing.T, b *bed) { must(t, b.a.Resume(t.Context(), "eva")) },
		},
		"by file": {
			func(_ *testing.T, b *bed) { b.write(b.pauseFile(), "disk") },
			func(_ *testing.T, b *bed) { b.remove(b.pauseFile()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			at(t, func(t *testing.T, b *bed) {
				b.runs()
				c.pause(t, b)
				after(lookAtFilesEvery)
				if got := b.view().Pauses; len(got) != 1 || got[0].Reason != "disk" {
					t.Errorf("got the pauses %+v, want the one for the disk", got)
				}
				b.happens(fails)
				after(10 * time.Minute)
				b.wants(decision.Hold, "Paused")
				b.stop()
				b.runs() // a new agent heeds it too
				after(10 * time.Minute)
				b.wants(decision.Hold, "Paused")
				b.hasDone()
				c.resume(t, b)
				after(lookAtFilesEvery)
				b.hasDone("reset-failed "+kubelet, "start "+kubelet)
				after(time.Minute)
				b.wants(decision.None, "Healthy")
				b.stop()
			})
		})
	}
}

func TestAPauseWithAnEndEnds(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		until := time.Now().Add(20 * time.Minute)
		must(t, b.a.Pause(t.Context(), journal.Pause{By: "eva", Until: &until}))
		b.happens(fails)
		after(20*time.Minute - time.Second)
		b.hasDone()
		after(3 * time.Second)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		b.stop()
	})
}

func TestAReload(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		conditions := b.recorded(journal.KindCondition)
		var seen []bool
		watch := func() { // the snapshot must not say for a moment that nothing is known
			for range 70 {
				after(100 * time.Millisecond)
				seen = append(seen, b.snapshot().KubeletRunning)
			}
		}
		time.AfterFunc(3*time.Second, b.hang(hangNode))
		b.configures(func(c *config.Config) { c.Agent.DryRun = true }, nil)
		watch()
		after(time.Minute)
		if v := b.view(); !v.DryRun || v.ConfigProblem != "" {
			t.Errorf("after a reload: got dry-run %v and %q, want it, and no problem", v.DryRun, v.ConfigProblem)
		}
		b.configures(func(c *config.Config) { c.Agent.DryRun = false }, errors.New("line 3: unexpected }"))
		watch()
		if v := b.view(); !v.DryRun || v.Mode != decision.Act || !strings.Contains(v.ConfigProblem, "unexpected }") {
			t.Errorf("after a reload of a broken configuration: got dry-run %v, mode %s and %q, want them as before, and that it is so", v.DryRun, v.Mode, v.ConfigProblem)
		}
		if log := b.log.take(); !strings.Contains(log, "unexpected }") {
			t.Errorf("got logged\n%s\nwant what is wrong with the configuration", log)
		}
		if slices.Contains(seen, false) {
			t.Error("during a reload the snapshot said that the kubelet did not run")
		}
		if got := b.recorded(journal.KindCondition); !slices.Equal(got, conditions) {
			t.Errorf("got recorded %q after %q, want no more: a reload is no change of the node", got[len(conditions):], conditions)
		}
		b.configures(func(c *config.Config) { c.Agent.DryRun = false }, nil)
		after(time.Minute)
		if v := b.view(); v.DryRun || v.ConfigProblem != "" {
			t.Errorf("after a reload of a mended configuration: got dry-run %v and %q, want neither", v.DryRun, v.ConfigProblem)
		}
		var told []string
		for _, e := range b.history() {
			if e.Kind == KindAgent {
				told = append(told, e.To)
			}
		}
		if want := []string{"started", "reloaded", "not reloaded", "reloaded"}; !slices.Equal(told, want) {
			t.Errorf("got the history %q of the agent itself, want %q", told, want)
		}
		b.stop()
	})
}

func TestAReloadWaitsForTheRemedyInProgress(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.happens(fails)
		b.restarts(kubelet)
		first := b.sight
		b.configures(func(c *config.Config) { c.Agent.DryRun = true }, nil)
		after(5 * time.Second)
		if b.sight != first || b.view().Remedy == nil {
			t.Errorf("in the midst of a restart: got new senses %v and the remedy %+v, want the old ones and the restart", b.sight != first, b.view().Remedy)
		}
		after(20 * time.Second)
		if v := b.view(); !v.DryRun || v.Remedy != nil {
			t.Errorf("after it: got dry-run %v and the remedy %+v, want the new configuration", v.DryRun, v.Remedy)
		}
		b.wants(decision.None, "Healthy")
		b.stop()
	})
}

func TestWhatAnEarlierAgentLeftIsFinished(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.command.takes = 10 * time.Minute
		b.runs()
		b.happens(func(m *machine) {
			m.kubelet.stop()
			m.kubelet.LoadState = "not-found"
		})
		after(2 * time.Minute)
		b.hasDone("command")
		b.stop()
		after(time.Minute)
		b.runs()
		if r := b.view().Remedy; r == nil || r.Name != "bootstrap" {
			t.Errorf("got the remedy %+v, want the bootstrap that the earlier agent began", r)
		}
		after(10 * time.Minute)
		b.hasDone() // the command is not run again
		b.wants(decision.None, "Healthy")
		if got := b.recorded(journal.KindRemedy); len(got) != 2 || !strings.Contains(got[1], "succeeded") {
			t.Errorf("got recorded %q, want the bootstrap's beginning and its success", got)
		}
		b.stop()
	})
}

func TestWithoutAJournalTheAgentOnlyObserves(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, b *bed) (mend func()){
		"its folder can't be made": func(_ *testing.T, b *bed) func() {
			b.write(b.stateDir(), "in the way")
			return func() { b.remove(b.stateDir()) }
		},
		"others may write in its folder": func(t *testing.T, b *bed) func() {
			must(t, os.Mkdir(b.stateDir(), 0o700))
			must(t, os.Chmod(b.stateDir(), 0o777))
			return func() { must(t, os.Chmod(b.stateDir(), 0o700)) }
		},
		"another process has it": func(t *testing.T, b *bed) func() {
			must(t, os.Mkdir(b.stateDir(), 0o700))
			j, _, err := journal.Open(filepath.Join(b.stateDir(), JournalName), b.moment(), journal.Options{NoSync: true})
			must(t, err)
			return func() { must(t, j.Close()) }
		},
		"it hangs": func(_ *testing.T, b *bed) func() {
			c := make(chan struct{})
			b.keeperHangs = c
			return func() { b.happens(func(*machine) { b.keeperHangs = nil }); close(c) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			at(t, func(t *testing.T, b *bed) {
				mend := spoil(t, b)
				b.runs()
				b.happens(fails)
				after(30 * time.Minute)
				b.hasDone()
				b.wants(decision.Hold, "JournalBroken")
				problem := b.view().JournalProblem
				if problem == "" || strings.Count(problem, "can't be written") > 1 || b.snapshot().KubeletRunning {
					t.Errorf("got the problem %q and running %v, want one, and a snapshot that is kept all the same", problem, b.snapshot().KubeletRunning)
				}
				if log := b.log.take(); strings.Contains(log, "Record in the journal") {
					t.Errorf("got logged\n%s\nwant nothing of entries: they are kept", log)
				}
				mend()
				if name == "its folder can't be made" {
					b.stop() // it is made at the start
					b.runs()
				}
				after(3 * time.Minute)
				b.hasDone("reset-failed "+kubelet, "start "+kubelet)
				b.wants(decision.None, "Healthy")
				b.stop()
			})
		})
	}
}

func TestAfterALostJournalTheBudgetCountsAsUsed(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.stop()
		b.write(filepath.Join(b.stateDir(), JournalName), strings.Repeat("garbage", 10000))
		b.log.take()
		b.runs()
		if log := b.log.take(); !strings.Contains(log, "can't be used") {
			t.Errorf("got logged\n%s\nwant what became of the journal", log)
		}
		b.happens(fails)
		after(30 * time.Minute)
		b.hasDone()
		b.wants(decision.Hold, "BudgetUnknown")
		if v := b.view(); v.JournalProblem != "" || v.Budget.Unknown == 0 || v.Decision.Until.IsZero() {
			t.Errorf("got the problem %q, the budget %+v and a hold until %s; want no problem with the new journal, and until when it holds", v.JournalProblem, v.Budget, v.Decision.Until)
		}
		after(24 * time.Hour)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		b.stop()
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
