package agent

import (
	"encoding/json"
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

func TestAViewKeepsWhatWasCountedWhenItWasMade(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.happens(fails)
		b.restarts(kubelet)
		after(20 * time.Second)
		old := b.view()
		b.happens(func(m *machine) { m.runtime.fail() })
		after(3 * time.Minute)
		b.hasDone("reset-failed "+containerd, "start "+containerd)
		for what, v := range map[string]*View{"the old view": old, "the new view": b.view()} {
			if got, want := v.Counters.Remedies["restart"]["succeeded"], map[bool]uint64{true: 1, false: 2}[v == old]; got != want {
				t.Errorf("%s: got %d restarts, want %d", what, got, want)
			}
		}
		if got := b.eventsTold(); !slices.ContainsFunc(got, func(e string) bool {
			return strings.Contains(e, "restart containerd.service (attempt 1 within")
		}) {
			t.Errorf("the cluster was told %q, want that it is the first restart of containerd", got)
		}
		b.stop()
	})
}

func TestARestartThatIsNotNeededIsNoAttemptAndNoWarning(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		comes := true
		b.log.heard = func(message string) {
			if comes && strings.HasPrefix(message, "Begin: ") { // somebody is faster
				comes = false
				b.happens(func(m *machine) { m.kubelet.begin() })
			}
		}
		b.runs()
		b.happens(fails)
		after(2 * time.Minute)
		b.hasDone()
		b.wants(decision.None, "Healthy")
		b.happens(fails)
		after(2 * time.Minute)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		var got []string
		for _, e := range b.eventsTold() {
			text, _, _ := strings.Cut(e, " within")
			got = append(got, text)
		}
		want := []string{
			"Warning RemedyBegun Restart: restart kubelet.service (attempt 1",
			"Normal RemedyUnneeded restart: restart kubelet.service (attempt 1",
			// The same again is not told.
			"Normal RemedySucceeded restart: restart kubelet.service (attempt 1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("the cluster was told %q, want %q", got, want)
		}
		b.stop()
	})
}

func TestEverythingIsLookedAtWhenARemedyHasEnded(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.happens(fails)
		b.restarts(kubelet)
		before := 0
		for b.view().Remedy != nil {
			before = b.rounds()
			after(100 * time.Millisecond)
		}
		if b.rounds() == before {
			t.Error("got no look at everything when the restart had ended, want one")
		}
		b.stop()
	})
}

func TestTheCommandGetsTheTimeThatIsConfigured(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.cfg.Agent.Bootstrap.Timeout = config.Duration(5 * time.Minute)
		b.command.takes = time.Hour
		b.runs()
		b.happens(loses)
		after(9 * time.Minute)
		if got := b.recorded(journal.KindRemedy); len(got) < 2 || !strings.Contains(got[1], "failed") {
			t.Errorf("got recorded %q, want that the bootstrap failed", got)
		}
		b.stop()
	})
}

func TestSecretsStayOutOfTheJournal(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		secret := "hunter" + "2hunter2"
		b.cfg.Azure.ManagedIdentity, b.cfg.Azure.ServicePrincipal = nil, &config.ServicePrincipalConfig{TenantID: "t", ClientID: "c", ClientSecret: secret}
		b.command.prints = "with " + secret
		b.runs()
		b.happens(loses)
		after(5 * time.Minute)
		b.hasDone("command")
		b.stop()
		j, _, err := journal.Open(filepath.Join(b.stateDir(), JournalName), b.moment(), journal.Options{ReadOnly: true})
		must(t, err)
		all, err := j.Remedies(0)
		must(t, err)
		must(t, j.Close())
		if len(all) != 1 || all[0].Steps[0].Output != "joining\nwith "+redacted {
			t.Errorf("the journal has %+v, want the command's output without the secret", all)
		}
	})
}

func TestAfterABootstrapThatFailedTheNextComesAfterAPauseAndWithoutRestarts(t *testing.T) {
	at(t, func(_ *testing.T, b *bed) {
		b.command = command{takes: 10 * time.Minute, fails: true, leaves: func(*machine) {}}
		b.runs()
		b.happens(func(m *machine) {
			m.kubelet.broken, m.kubelet.fails = true, 20*time.Second
			m.kubelet.fail()
		})
		for range 20 {
			after(time.Minute)
			if b.view().Remedy != nil && b.view().Remedy.Name == "bootstrap" {
				break
			}
		}
		b.did()
		for b.view().Remedy != nil {
			after(time.Second)
		}
		after(decision.CoolDown - 2*time.Second)
		b.hasDone()
		after(time.Minute)
		b.hasDone("command")
		b.wants(decision.Wait, "RemedyInProgress")
		b.stop()
	})
}

// loses is a host whose kubelet was removed.
func loses(m *machine) {
	m.kubelet.stop()
	m.kubelet.LoadState, m.kubelet.UnitFileState = "not-found", ""
}

// Somebody stops the kubelet seconds after the agent restarted it, while the agent only watches whether it stays up.
func TestAStopWhileARestartIsWatchedIsAPersons(t *testing.T) {
	at(t, func(_ *testing.T, b *bed) {
		b.runs()
		b.happens(fails)
		b.restarts(kubelet)
		after(4 * time.Second)
		b.happens(stops)
		after(9 * time.Minute)
		b.hasDone()
		b.wants(decision.Hold, "UnitStopped")
		after(2 * time.Minute)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		b.stop()
	})
}

// Ages are counted by the uptime, and so a host whose clock is never right forgets the hours that it is switched off.
func TestAttemptsThatWereForgottenStayForgotten(t *testing.T) {
	for name, change := range map[string]func(b *bed){
		"after a night switched off, with a clock that is never right": func(b *bed) { b.unsynced = true },
		"after a night switched off":                                   func(*bed) {},
	} {
		t.Run(name, func(t *testing.T) {
			at(t, func(t *testing.T, b *bed) {
				change(b)
				b.runs()
				b.happens(func(m *machine) {
					m.kubelet.broken, m.kubelet.fails = true, 20*time.Second
					m.kubelet.fail()
				})
				after(7 * time.Minute)
				b.repair()
				after(2 * time.Hour)
				if got := b.recorded(KindRecovered); len(got) != 1 {
					t.Fatalf("got %q recorded, want that it has recovered", got)
				}
				b.stop()
				after(12 * time.Hour)
				b.reboot()
				b.start()
				after(20 * time.Second)
				b.did()
				b.happens(fails)
				after(10 * time.Minute)
				b.hasDone("reset-failed "+kubelet, "start "+kubelet)
				b.stop()
			})
		})
	}
}

// An agent was killed right after it had written down that a bootstrap begins; by the time of the next one the node works.
func TestABootstrapThatIsNotNeededAnyMoreIsNotGoneOnWith(t *testing.T) {
	for name, steps := range map[string][]journal.Progress{
		"no step was taken":   nil,
		"one was to be taken": {{Step: "command", State: journal.StepStarted, Limit: 31 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			at(t, func(t *testing.T, b *bed) {
				d := decision.Decision{At: time.Now(), Action: decision.Bootstrap, Unit: kubelet, Reason: "RestartsUsedUp", Message: "3 restarts did not help"}
				data, err := json.Marshal(d)
				must(t, err)
				must(t, os.MkdirAll(b.stateDir(), 0o700))
				j, _, err := journal.Open(filepath.Join(b.stateDir(), JournalName), b.moment(), journal.Options{NoSync: true})
				must(t, err)
				id, err := j.Begin(b.moment(), journal.Plan{Name: "bootstrap", Budget: "bootstrap", Decision: data, Steps: []string{"command", "kubelet"}})
				must(t, err)
				for _, s := range steps {
					must(t, j.Step(b.moment(), id, s))
				}
				must(t, j.Close())
				after(20 * time.Second)
				b.start()
				after(3 * time.Minute)
				b.hasDone()
				b.wants(decision.None, "Healthy")
				b.stop()
			})
		})
	}
}

func TestTheHistoryKnowsWhenTheAgentWasPaused(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		until := time.Now().Add(time.Hour)
		must(t, b.a.Pause(t.Context(), journal.Pause{By: "alice", Reason: "disk swap", Until: &until}))
		after(2 * time.Hour)
		b.write(b.pauseFile(), "new rack")
		after(time.Hour)
		b.stop()
		b.start() // which is no other pause
		after(time.Hour)
		b.remove(b.pauseFile())
		after(time.Minute)
		must(t, b.a.Pause(t.Context(), journal.Pause{By: "bob", Reason: "later"}))
		must(t, b.a.Resume(t.Context(), "bob"))
		after(time.Minute)
		var got []string
		for _, e := range b.history() {
			if e.Kind == journal.KindPause {
				got = append(got, strings.TrimSpace(strings.Replace(e.Subject, b.pauseFile(), "FILE", 1)+" "+e.To+": "+e.Message))
			}
		}
		want := []string{
			"alice paused: disk swap, until " + until.UTC().Format(time.RFC3339), "alice ended:", "the file FILE paused: new rack",
			"the file FILE resumed: the file is gone", "bob paused: later", "bob resumed:",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		b.stop()
	})
}
