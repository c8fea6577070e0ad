package remedy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
)

func TestRestart(t *testing.T) {
	const name = "a.service"
	masked := func(u *observe.Unit) { u.LoadState, u.UnitFileState = "masked", "masked" }
	for _, c := range []struct {
		when string
		// set makes the unit; the decision is made a minute after that, and carried out when later has happened.
		set     func(w *world)
		later   func(w *world, u *unit)
		outcome string
		message string
		calls   []string
	}{
		{when: "it failed", set: func(w *world) { w.add(down(name, "failed", time.Now())) },
			outcome: Succeeded, message: "stayed up for 10s", calls: []string{"reset-failed", "start"}},
		{when: "it was stopped before the decision", set: func(w *world) { w.add(down(name, "inactive", time.Now())) },
			outcome: Succeeded, calls: []string{"reset-failed", "start"}},
		{when: "it runs, and ran when that was decided", set: func(w *world) { w.add(up(name, time.Now())) },
			outcome: Succeeded, calls: []string{"reset-failed", "restart"}},
		{when: "systemd restarts it again and again", set: func(w *world) {
			u := w.add(down(name, "activating", time.Now()))
			u.SubState, u.NRestarts = "auto-restart", 7
		}, later: func(_ *world, u *unit) { u.StateChange = time.Now() },
			outcome: Succeeded, calls: []string{"reset-failed", "restart"}},
		{when: "the clock was set back since it failed", set: func(w *world) { w.add(down(name, "failed", time.Now().Add(time.Hour))) },
			outcome: Succeeded, calls: []string{"reset-failed", "start"}},
		{when: "it runs again", set: func(w *world) { w.add(down(name, "failed", time.Now())) },
			later:   func(w *world, _ *unit) { w.add(up(name, time.Now())) },
			outcome: Unneeded, message: "runs again"},
		{when: "systemd is about to start it, and does", set: func(w *world) { w.add(down(name, "failed", time.Now())) },
			later: func(_ *world, u *unit) {
				u.Job, u.next, u.due = "start", u.then, time.Now().Add(5*time.Second)
			},
			outcome: Unneeded, message: "runs again"},
		{when: "systemd starts it, and has no job for that any more", set: func(w *world) { w.add(down(name, "failed", time.Now())) },
			later: func(_ *world, u *unit) {
				u.ActiveState, u.SubState, u.StateChange = "activating", "start", time.Now()
				u.next, u.due = u.then, time.Now().Add(5*time.Second)
			},
			outcome: Unneeded, message: "runs again"},
		{when: "systemd is about to stop it, and does", set: func(w *world) { w.add(up(name, time.Now())) },
			later: func(_ *world, u *unit) {
				u.Job, u.next, u.due = "stop", []change{becomes(0, "inactive", "dead")}, time.Now().Add(5*time.Second)
			},
			outcome: Superseded, message: "changed after this was decided"},
		{when: "systemd works on it without end", set: func(w *world) { w.add(down(name, "failed", time.Now())) },
			later:   func(_ *world, u *unit) { u.Job = "start" },
			outcome: Superseded, message: "has a job for it: start"},
		{when: "somebody stopped it meanwhile", set: func(w *world) { w.add(up(name, time.Now())) },
			later:   func(w *world, _ *unit) { w.add(down(name, "inactive", time.Now())) },
			outcome: Superseded, message: "changed after this was decided"},
		{when: "it failed anew meanwhile", set: func(w *world) { w.add(up(name, time.Now())) },
			later:   func(w *world, _ *unit) { w.add(down(name, "failed", time.Now())) },
			outcome: Superseded},
		{when: "somebody masked it meanwhile", set: func(w *world) { w.add(down(name, "failed", time.Now())) },
			later:   func(_ *world, u *unit) { masked(&u.Unit) },
			outcome: Superseded, message: "masked"},
		{when: "somebody masked it until the next boot, and systemd has yet to load that", set: func(w *world) { w.add(down(name, "failed", time.Now())) },
			later:   func(_ *world, u *unit) { u.UnitFileState = "masked-runtime" },
			outcome: Superseded, message: "masked"},
		{when: "somebody disabled it meanwhile", set: func(w *world) { w.add(down(name, "failed", time.Now())) },
			later:   func(_ *world, u *unit) { u.UnitFileState = "disabled" },
			outcome: Superseded, message: "disabled"},
		{when: "it is gone", set: func(*world) {}, outcome: Superseded, message: "no longer exists"},
		{when: "somebody masks it when its failure has been reset", set: func(w *world) {
			u := w.add(down(name, "failed", time.Now()))
			w.point = func(what string) {
				if what == "after reset-failed" {
					masked(&u.Unit)
				}
			}
		}, outcome: Superseded, message: "masked", calls: []string{"reset-failed"}},
		{when: "somebody starts it when its failure has been reset", set: func(w *world) {
			u := w.add(down(name, "failed", time.Now()))
			w.point = func(what string) {
				if what == "after reset-failed" {
					u.Unit = up(name, time.Now())
				}
			}
		}, outcome: Succeeded, calls: []string{"reset-failed"}},
		{when: "it runs, and the decision is old", set: func(w *world) { w.add(up(name, time.Now())) },
			later:   func(*world, *unit) { wait(3 * time.Minute) },
			outcome: Superseded, message: "the decision is 3m1s old"},
		{when: "it failed long ago, and the decision is old", set: func(w *world) { w.add(down(name, "failed", time.Now())) },
			later:   func(*world, *unit) { wait(3 * time.Minute) },
			outcome: Succeeded, calls: []string{"reset-failed", "start"}},
		{when: "it fails again at once", set: func(w *world) { w.add(down(name, "failed", time.Now()), becomes(time.Second, "failed", "failed")) },
			outcome: Failed, message: "step stable: a.service failed (exit-code)", calls: []string{"reset-failed", "start"}},
		{when: "it does not stay up", set: func(w *world) {
			w.add(down(name, "failed", time.Now()), runs(time.Second), becomes(9*time.Second, "inactive", "dead"))
		}, outcome: Failed, message: "is stopped", calls: []string{"reset-failed", "start"}},
		{when: "it comes up at the second try", set: func(w *world) {
			w.add(down(name, "failed", time.Now()), runs(time.Second), becomes(5*time.Second, "activating", "auto-restart"), runs(5*time.Second))
		}, outcome: Succeeded, calls: []string{"reset-failed", "start"}},
		{when: "it is replaced by a new process again and again", set: func(w *world) {
			var loop []change
			for range 30 {
				loop = append(loop, runs(7*time.Second))
			}
			w.add(down(name, "failed", time.Now()), loop...)
		}, outcome: Failed, message: "not up for 10s at a stretch in time: a.service is active", calls: []string{"reset-failed", "start"}},
		{when: "systemd restarts it again and again, and it has no main process", set: func(w *world) {
			loop := []change{runs(time.Second)}
			for range 30 {
				loop = append(loop, change{7 * time.Second, func(u *observe.Unit) { u.NRestarts++ }})
			}
			w.add(down(name, "failed", time.Now()), loop...)
		}, outcome: Failed, message: "not up for 10s at a stretch in time", calls: []string{"reset-failed", "start"}},
		{when: "it runs twice for less than it should, and it has no main process", set: func(w *world) {
			bare := func(u *observe.Unit) { u.ActiveState, u.SubState, u.Job = "active", "running", "" }
			w.add(down(name, "failed", time.Now()), change{time.Second, bare}, becomes(5*time.Second, "activating", "start"), change{5 * time.Second, bare},
				becomes(7*time.Second, "failed", "failed"))
		}, outcome: Failed, message: "step stable: a.service failed", calls: []string{"reset-failed", "start"}},
		{when: "it takes its time", set: func(w *world) { w.add(down(name, "failed", time.Now()), runs(70*time.Second)) },
			outcome: Succeeded, calls: []string{"reset-failed", "start"}},
		{when: "it takes too long", set: func(w *world) { w.add(down(name, "failed", time.Now()), runs(85*time.Second)) },
			outcome: Failed, message: "in time", calls: []string{"reset-failed", "start"}},
		{when: "systemd refuses to start it", set: func(w *world) {
			w.add(down(name, "failed", time.Now()))
			w.fault = failing("start")
		}, outcome: Failed, message: "step start: systemd is busy", calls: []string{"reset-failed"}},
		{when: "systemd refuses to reset its failure", set: func(w *world) {
			w.add(down(name, "failed", time.Now()))
			w.fault = failing("reset-failed")
		}, outcome: Failed, message: "step reset-failed: systemd is busy"},
		{when: "systemd does not answer", set: func(w *world) {
			w.add(down(name, "failed", time.Now()))
			w.fault = failing("look")
		}, outcome: Superseded, message: "systemd is busy"},
		{when: "systemd does not answer for a while", set: func(w *world) {
			w.add(down(name, "failed", time.Now()))
			until := time.Now().Add(90 * time.Second)
			w.fault = func(string) error {
				if time.Now().Before(until) {
					return errSystemd
				}
				return nil
			}
		}, outcome: Succeeded, calls: []string{"reset-failed", "start"}},
	} {
		t.Run(c.when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c.set(w)
				wait(time.Minute)
				d := restartOf(name)
				wait(time.Second)
				if c.later != nil {
					c.later(w, w.units[name])
				}
				wait(time.Millisecond)
				o, err := w.runner().Do(t.Context(), d)
				must(t, err)
				if o.Name != "restart" || o.Unit != name || o.Outcome != c.outcome || !strings.Contains(o.Message, c.message) {
					t.Errorf("got %+v, want it %s with %q", o, c.outcome, c.message)
				}
				if !slices.Equal(w.calls, c.calls) {
					t.Errorf("got calls %q, want %q", w.calls, c.calls)
				}
				if r := w.last(); r.Name != "restart a.service" || r.Outcome != o.Outcome || r.Message != o.Message || r.Budget != "restart:a.service" {
					t.Errorf("the journal has %+v, want what was told", r)
				}
				if !Acted(o.Outcome) && slices.Contains(w.calls, "start") {
					t.Errorf("got %s, which says that nothing was done; calls were %q", o.Outcome, w.calls)
				}
			})
		})
	}
}

func failing(what string) func(string) error {
	return func(call string) error {
		if call == what {
			return errSystemd
		}
		return nil
	}
}

func TestAnAgentThatComesLateOverrulesNobody(t *testing.T) {
	for _, c := range []struct {
		when    string
		point   string // where the agent is killed
		since   func(w *world, u *unit)
		outcome string
		starts  int
	}{
		{"killed before anything, and somebody stops the unit", "before reset-failed", func(_ *world, u *unit) {
			u.ActiveState, u.StateChange = "inactive", time.Now()
		}, Superseded, 0},
		{"killed after the reset, and somebody starts and stops the unit", "after reset-failed", func(_ *world, u *unit) {
			u.StateChange = time.Now()
		}, Superseded, 0},
		{"killed after the reset, and nobody touches the unit", "after reset-failed", func(*world, *unit) {}, Succeeded, 1},
		{"killed after the start, and somebody stops the unit", "after start", func(_ *world, u *unit) {
			u.ActiveState, u.Job, u.next, u.StateChange = "inactive", "", nil, time.Now()
		}, Failed, 1},
		{"killed after the start, and nobody touches the unit", "after start", func(*world, *unit) {}, Succeeded, 1},
		{"killed after the reset, and the host is started anew", "after reset-failed", func(w *world, u *unit) {
			w.boot, u.Unit = "boot-2", up(u.Name, time.Now())
		}, Abandoned, 0},
	} {
		t.Run(c.when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				u := w.add(down("a.service", "failed", time.Now().Add(-time.Hour)))
				w.kill(c.point, restartOf(u.Name))
				wait(10 * time.Minute)
				c.since(w, u)
				wait(time.Second)
				w.open()
				o, err := w.runner().Resume(t.Context())
				must(t, err)
				if o == nil || o.Outcome != c.outcome || count2(w.calls) != c.starts {
					t.Errorf("got %+v and %d starts, want outcome %s and %d", o, count2(w.calls), c.outcome, c.starts)
				}
			})
		})
	}
}

// kill carries a decision out until the first point of that name, where the agent is killed.
func (w *world) kill(point string, d decision.Decision) {
	w.t.Helper()
	if !w.killedAt(func(what string) bool { return what == point }, func() { _, _ = w.runner().Do(w.t.Context(), d) }) {
		w.t.Fatalf("there is no point %q", point)
	}
}

func TestNothingIsBegunThatCanNotBeDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		for name, try := range map[string]func(r *Runner) error{
			"no action":             func(r *Runner) error { return do(t.Context(), r, decision.Decision{Action: decision.Hold}) },
			"restart of no unit":    func(r *Runner) error { return do(t.Context(), r, restartOf("")) },
			"bootstrap by nothing":  func(r *Runner) error { r.Command = nil; return do(t.Context(), r, bootstrapNow()) },
			"bootstrap by no path":  func(r *Runner) error { r.Command = []string{"join"}; return do(t.Context(), r, bootstrapNow()) },
			"bootstrap to no where": func(r *Runner) error { r.OutputDir = ""; return do(t.Context(), r, bootstrapNow()) },
			"at the agent's end":    func(r *Runner) error { return do(dead, r, bootstrapNow()) },
		} {
			if err := try(w.runner()); err == nil {
				t.Errorf("%s: got no error", name)
			}
		}
		if all, err := w.j.Remedies(0); err != nil || len(all) > 0 || w.ran > 0 || w.calls != nil {
			t.Errorf("got remedies %+v, %v, calls %q, want nothing begun", all, err, w.calls)
		}
		must(t, w.j.Close())
		if o, err := w.runner().Do(t.Context(), restartOf("a.service")); !errors.Is(err, journal.ErrReadOnly) || o.Outcome != "" || w.calls != nil {
			t.Errorf("without a journal: got %+v, error %v and calls %q, want ErrReadOnly and nothing done", o, err, w.calls)
		}
	})
}

func do(ctx context.Context, r *Runner, d decision.Decision) error {
	_, err := r.Do(ctx, d)
	return err
}

func TestWhatAnotherVersionBeganIsAbandoned(t *testing.T) {
	for name, plan := range map[string]journal.Plan{
		"another name":     {Name: "upgrade", Steps: []string{"drain"}, Decision: []byte(`{"action":"upgrade","at":"2026-01-01T00:00:00Z"}`)},
		"other steps":      {Name: "bootstrap", Steps: []string{"download", "command"}, Decision: recorded(bootstrapNow())},
		"no decision":      {Name: "bootstrap", Steps: []string{"command", "kubelet"}},
		"another decision": {Name: "bootstrap", Steps: []string{"command", "kubelet"}, Decision: []byte(`{"action":7}`)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				_, err := w.j.Begin(w.moment(), plan)
				must(t, err)
				o, err := w.runner().Resume(t.Context())
				must(t, err)
				if o == nil || o.Outcome != Abandoned || o.Name != plan.Name || w.ran > 0 {
					t.Errorf("got %+v, want %s abandoned", o, plan.Name)
				}
				if o, err := w.runner().Resume(t.Context()); o != nil || err != nil {
					t.Errorf("once more: got %+v and error %v, want nothing to resume", o, err)
				}
			})
		})
	}
}

func TestProgressTellsTheStepAndUntilWhenItMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(down("a.service", "failed", time.Now().Add(-time.Hour)))
		began := time.Now()
		_, err := w.runner().Do(t.Context(), restartOf("a.service"))
		must(t, err)
		var steps []string
		for i, p := range w.told {
			steps = append(steps, p.Step)
			if i == len(w.told)-1 {
				if p != (Progress{}) {
					t.Errorf("at the end: got %+v, want none", p)
				}
				break
			}
			if p.Name != "restart" || p.Unit != "a.service" || !p.Since.Equal(began) || !p.Deadline.After(began.Add(margin-1)) || p.Deadline.After(began.Add(5*time.Minute)) {
				t.Errorf("got %+v, want the remedy, since %s, and a deadline soon", p, began)
			}
		}
		if want := []string{"reset-failed", "", "start", "", "stable", "", ""}; !slices.Equal(steps, want) {
			t.Errorf("got steps %q, want %q", steps, want)
		}
	})
}

func TestBudgets(t *testing.T) {
	for action, want := range map[decision.Action]string{decision.Restart: "restart:a.service", decision.Bootstrap: "bootstrap", decision.Hold: ""} {
		if got := BudgetOf(action, "a.service"); got != want {
			t.Errorf("%s: got %q, want %q", action, got, want)
		}
	}
}

func TestALongDecisionIsRecordedAllTheSame(t *testing.T) {
	d := bootstrapNow()
	d.Message = strings.Repeat("ä", 20<<10)
	b := recorded(d)
	if len(b) > maxDecision || !strings.Contains(string(b), `"action":"bootstrap"`) {
		t.Errorf("got %d bytes: %.200s", len(b), b)
	}
}
