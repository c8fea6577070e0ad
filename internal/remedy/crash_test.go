package remedy

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
)

// scenes are hosts, and what was decided on each.
func scenes() []scene {
	old := -time.Hour
	return []scene{
		{"restart of a failed unit", Succeeded, func(w *world) decision.Decision {
			w.add(down("a.service", "failed", time.Now().Add(old)))
			return restartOf("a.service")
		}},
		{"restart of a unit that was stopped long ago", Succeeded, func(w *world) decision.Decision {
			w.add(down("a.service", "inactive", time.Now().Add(old)))
			return restartOf("a.service")
		}},
		{"restart of a frozen unit", Succeeded, func(w *world) decision.Decision {
			w.add(up("a.service", time.Now().Add(old)), becomes(time.Second, "deactivating", "stop"), runs(time.Second))
			return restartOf("a.service")
		}},
		{"restart of a unit that fails again", Failed, func(w *world) decision.Decision {
			w.add(down("a.service", "failed", time.Now().Add(old)), runs(time.Second), becomes(3*time.Second, "failed", "failed"))
			return restartOf("a.service")
		}},
		{"restart of a unit that takes its time", Succeeded, func(w *world) decision.Decision {
			w.add(down("a.service", "failed", time.Now().Add(old)), runs(70*time.Second))
			return restartOf("a.service")
		}},
		{"restart of a unit that was stopped meanwhile", Superseded, func(w *world) decision.Decision {
			d := restartOf("a.service")
			wait(time.Second)
			w.add(down("a.service", "inactive", time.Now()))
			wait(time.Second)
			return d
		}},
		{"restart of a unit that runs again", Unneeded, func(w *world) decision.Decision {
			d := restartOf("a.service")
			wait(time.Second)
			w.add(up("a.service", time.Now()))
			return d
		}},
		{"bootstrap", Succeeded, func(*world) decision.Decision { return bootstrapNow() }},
		{"bootstrap by a command that fails", Failed, func(w *world) decision.Decision {
			w.command = command{takes: time.Second, result: host.UnitRun{Exists: true, Result: "exit-code", ExitStatus: 3}}
			return bootstrapNow()
		}},
		{"bootstrap by a command that hangs", Failed, func(w *world) decision.Decision {
			w.command = command{takes: 1000 * time.Hour}
			return bootstrapNow()
		}},
		{"bootstrap by a command that brings no kubelet", Failed, func(w *world) decision.Decision {
			w.command.effect = nil
			return bootstrapNow()
		}},
	}
}

type scene struct {
	name    string
	outcome string
	set     func(w *world) decision.Decision
}

// undisturbed plays a scene to its end, and returns the final state and how many points there are to be killed at.
func (s scene) undisturbed(t *testing.T) (final string, points int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := s.set(w)
		w.point = func(string) { points++ }
		o, err := w.runner().Do(t.Context(), d)
		w.point = nil
		must(t, err)
		if o.Outcome != s.outcome {
			t.Fatalf("%s: got %+v, want outcome %s", s.name, o, s.outcome)
		}
		final = w.final(d)
	})
	return final, points
}

// agent is what an agent does at its start, and then: finish what was left, or carry the decision out when nothing was begun.
func (w *world) agent(ctx context.Context, d decision.Decision) error {
	w.open()
	o, err := w.runner().Resume(ctx)
	if err != nil || o != nil {
		return err
	}
	if all, err := w.j.Remedies(0); err != nil || len(all) > 0 {
		return err
	}
	_, err = w.runner().Do(ctx, d)
	return err
}

func TestAnAgentThatIsKilledAnywhereLeavesTheSameInTheEnd(t *testing.T) {
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			want, points := s.undisturbed(t)
			if points < 6 {
				t.Fatalf("got %d points, want more", points)
			}
			// A command that is waited for gives many points that are all alike: the first and the last are enough.
			for n := 1; n <= points; n++ {
				if n > 30 && n < points-30 {
					continue
				}
				for _, away := range []time.Duration{0, 20 * time.Second} {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						d := s.set(w)
						if !w.killed(n, func() { _ = w.agent(t.Context(), d) }) && n < points-1 { // a look at the very end of a limit may be made or not
							t.Fatalf("point %d of %d was not reached", n, points)
						}
						wait(away)
						must(t, w.agent(t.Context(), d))
						if got := w.final(d); got != want {
							t.Errorf("killed at point %d of %d, resumed after %s: got\n%swant\n%s", n, points, away, got, want)
						}
					})
				}
			}
		})
	}
}

func TestAnAgentThatIsKilledAgainAndAgainLeavesTheSameInTheEnd(t *testing.T) {
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			want, _ := s.undisturbed(t)
			for first := 1; first <= 20; first++ {
				for _, second := range []int{1, 2, 3, 5, 8} {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						d := s.set(w)
						for _, n := range []int{first, second, 1} {
							w.killed(n, func() { _ = w.agent(t.Context(), d) })
						}
						must(t, w.agent(t.Context(), d))
						if got := w.final(d); got != want {
							t.Errorf("killed at points %d and %d: got\n%swant\n%s", first, second, got, want)
						}
					})
				}
			}
		})
	}
}

func TestAnAgentThatIsToldToEndAnywhereLeavesTheSameInTheEnd(t *testing.T) {
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			want, points := s.undisturbed(t)
			for n := 1; n <= min(points, 40); n++ {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					d := s.set(w)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					count := 0
					w.point = func(string) {
						if count++; count == n {
							cancel()
						}
					}
					err := w.agent(ctx, d)
					w.point = nil
					left, unread := w.j.Unfinished()
					must(t, unread)
					if (left != nil) != errors.Is(err, ErrInterrupted) {
						t.Errorf("told to end at point %d: got error %v, and unfinished is %v", n, err, left)
					}
					must(t, w.agent(t.Context(), d))
					if got := w.final(d); got != want {
						t.Errorf("told to end at point %d of %d: got\n%swant\n%s", n, points, got, want)
					}
				})
			}
		})
	}
}

func TestAJournalThatBreaksAnywhereKeepsNothingFromEndingWell(t *testing.T) {
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			_, points := s.undisturbed(t)
			for n := 1; n <= min(points, 40); n++ {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					d := s.set(w)
					count := 0
					w.point = func(string) {
						if count++; count == n {
							must(t, w.j.Close())
						}
					}
					o, err := w.runner().Do(t.Context(), d)
					w.point = nil
					acted := w.ran > 0 || len(w.calls) > 0
					if n < points && err == nil && o.Outcome != "" && w.broken() {
						t.Errorf("broken at point %d: got %+v and no error", n, o)
					}
					if acted && o.Outcome != s.outcome {
						t.Errorf("broken at point %d: got %+v, want what was begun to be ended as %s", n, o, s.outcome)
					}
					if !acted && o.Outcome != "" && Acted(o.Outcome) {
						t.Errorf("broken at point %d: got %+v, but nothing was done", n, o)
					}
					w.open()
					resumed, err := w.runner().Resume(t.Context())
					must(t, err)
					if acted && s.outcome == Succeeded && resumed != nil && resumed.Outcome != Succeeded {
						t.Errorf("broken at point %d: the next agent got %+v, want the same as this one", n, *resumed)
					}
					if w.ran > 1 || len(w.runs) > 0 || count2(w.calls) > 1 {
						t.Errorf("broken at point %d: the command ran %d times, %d units are left, calls were %v", n, w.ran, len(w.runs), w.calls)
					}
					if left, err := w.j.Unfinished(); err != nil || left != nil {
						t.Errorf("broken at point %d: still unfinished: %v %v", n, left, err)
					}
				})
			}
		})
	}
}

func TestWhatCouldNotBeRecordedIsToldAndTidiedUpAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.point = func(what string) {
			if what == "after command" { // then the journal refuses to have the step done
				must(t, w.j.Step(w.moment(), w.last().ID, journal.Progress{Step: "command", State: journal.StepFailed}))
			}
		}
		o, err := w.runner().Do(t.Context(), bootstrapNow())
		if err == nil || o.Outcome != Succeeded || w.last().Outcome != Succeeded || len(w.runs) > 0 {
			t.Errorf("got %+v, error %v and %d units left, want a success, an error and none", o, err, len(w.runs))
		}
	})
}

func (w *world) broken() bool { return w.j.Record(w.moment(), journal.Entry{Kind: "test"}) != nil }

func count2(calls []string) int { return count(calls, "start") + count(calls, "restart") }

func TestAPanicEndsTheRemedyAndNotTheAgent(t *testing.T) {
	for _, what := range []string{"look", "before reset-failed", "after reset-failed", "before start", "after start", "look at the command", "before command", "after command"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.add(down("a.service", "failed", time.Now().Add(-time.Hour)))
				d := restartOf("a.service")
				if what == "look at the command" || what == "before command" || what == "after command" {
					d = bootstrapNow()
				}
				w.point = func(at string) {
					if at == what {
						panic("no such luck")
					}
				}
				o, err := w.runner().Do(t.Context(), d)
				w.point = nil
				if o.Outcome != Failed || err == nil {
					t.Errorf("got %+v and error %v, want it failed, and the fault told", o, err)
				}
				if r := w.last(); r.InProgress() || r.Outcome != Failed {
					t.Errorf("the journal has %+v, want it failed", r)
				}
				if len(w.runs) > 0 {
					t.Errorf("units of commands are left: %v", w.runs)
				}
			})
		})
	}
}

func TestOneRemedyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(down("a.service", "failed", time.Now().Add(-time.Hour)))
		d := bootstrapNow()
		first, second := w.runner(), w.runner()
		done := make(chan error)
		go func() {
			_, err := first.Do(t.Context(), d)
			done <- err
		}()
		wait(10 * time.Second)
		for name, try := range map[string]func() error{
			"another runner": func() error { _, err := second.Do(t.Context(), restartOf("a.service")); return err },
			"the same":       func() error { _, err := first.Do(t.Context(), restartOf("a.service")); return err },
			"to resume":      func() error { _, err := first.Resume(t.Context()); return err },
		} {
			if err := try(); !errors.Is(err, journal.ErrInProgress) {
				t.Errorf("%s: got error %v, want %v", name, err, journal.ErrInProgress)
			}
		}
		if _, _, err := journal.Open(w.dir+"/journal.db", w.moment(), journal.Options{}); !errors.Is(err, journal.ErrLocked) {
			t.Errorf("another process: got error %v, want %v", err, journal.ErrLocked)
		}
		must(t, <-done)
		if len(w.calls) > 0 || w.ran != 1 {
			t.Errorf("got calls %v and %d runs of the command, want one run only", w.calls, w.ran)
		}
		if _, err := second.Do(t.Context(), restartOf("a.service")); err != nil {
			t.Errorf("after the first has ended: got error %v, want none", err)
		}
	})
}

// killed lets f run until its point number n, where it is killed as by SIGKILL: it just ends. It reports whether it came that far.
func (w *world) killed(n int, f func()) bool {
	points := 0
	return w.killedAt(func(string) bool {
		points++
		return points == n
	}, f)
}

func (w *world) killedAt(here func(what string) bool, f func()) (killed bool) {
	w.point = func(what string) {
		if here(what) {
			killed = true
			w.point = nil // what is deferred would not run in a killed process
			runtime.Goexit()
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
	w.point = nil
	return killed
}
