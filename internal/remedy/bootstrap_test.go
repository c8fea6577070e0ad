package remedy

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
)

func TestBootstrap(t *testing.T) {
	for _, c := range []struct {
		when     string
		set      func(w *world)
		outcome  string
		message  string
		output   string // of the step, if it says something
		problems bool
		ran      int
	}{
		{when: "the command makes it a node", set: func(*world) {},
			outcome: Succeeded, message: "the command succeeded, and kubelet.service is active", output: "joined\n", ran: 1},
		{when: "the kubelet comes up a while later", set: func(w *world) {
			w.command.effect = func(w *world) {
				u := w.add(down(decision.KubeletUnit, "activating", time.Now()))
				u.next, u.due = u.then, time.Now().Add(50*time.Second)
			}
		}, outcome: Succeeded, ran: 1},
		{when: "the kubelet does not come up", set: func(w *world) {
			w.command.effect = func(w *world) { w.add(down(decision.KubeletUnit, "failed", time.Now())) }
		}, outcome: Failed, message: "step kubelet: the command succeeded, but after that the kubelet did not run in time: kubelet.service failed", ran: 1},
		{when: "the command fails", set: func(w *world) {
			w.command.result = host.UnitRun{Exists: true, Result: "exit-code", ExitStatus: 3}
		}, outcome: Failed, message: "step command: /opt/join failed with status 3 (exit-code)", output: "joined\n", ran: 1},
		{when: "the command is killed", set: func(w *world) {
			w.command.result = host.UnitRun{Exists: true, Result: "oom-kill", ExitStatus: -1, Signal: "SIGKILL"}
		}, outcome: Failed, message: "/opt/join was ended by SIGKILL (oom-kill)", ran: 1},
		{when: "the command can't be executed", set: func(w *world) {
			w.command.result = host.UnitRun{Exists: true, Result: "exit-code", ExitStatus: 203}
		}, outcome: Failed, message: "/opt/join could not be executed", ran: 1},
		{when: "the command takes too long", set: func(w *world) { w.command.takes = 31 * time.Minute },
			outcome: Failed, message: "/opt/join did not end within 30m0s and was ended", ran: 1},
		{when: "systemd does not end what takes too long", set: func(w *world) {
			began := time.Now()
			w.fault = func(what string) error {
				if what == "look at the command" && time.Since(began) > time.Second {
					return errSystemd
				}
				return nil
			}
		}, outcome: Failed, message: "the command was not seen to end in time: systemd is busy", ran: 1},
		{when: "it prints a secret", set: func(w *world) { w.command.output = "\x1b[31mtoken=s3cret\x1b[0m\r\x07done\n" },
			outcome: Succeeded, output: "token=(secret)\ndone\n", ran: 1},
		{when: "systemd refuses to start the command", set: func(w *world) { w.fault = failing("command") },
			outcome: Failed, message: "step command: systemd is busy"},
		{when: "systemd can't be asked", set: func(w *world) { w.fault = failing("look at the command") },
			outcome: Superseded, message: "nothing was done: systemd is busy"},
		{when: "the answer to its start is lost", set: func(w *world) {
			w.lost = errSystemd
			w.point = func(what string) {
				if what == "after command" { // and systemd does not answer for a while
					w.fault = failing("look at the command")
					time.AfterFunc(10*time.Second, func() { w.set(func() { w.fault = nil }) })
				}
			}
		}, outcome: Succeeded, ran: 1},
		{when: "somebody removes its unit", set: func(w *world) {
			w.command.takes = time.Hour
			time.AfterFunc(time.Minute, func() { w.set(func() { clear(w.runs) }) })
		}, outcome: Failed, message: "the command's result is lost", ran: 1},
		{when: "the folder for its output is a link", set: func(w *world) {
			must(w.t, os.Symlink(w.dir, filepath.Join(w.dir, "output")))
		}, outcome: Failed, message: "must be no link"},
		{when: "somebody put a link where its output goes", set: func(w *world) {
			w.point = func(what string) {
				if what == "look at the command" {
					dir := filepath.Join(w.dir, "output")
					must(w.t, os.MkdirAll(dir, 0o700))
					_ = os.Symlink("/etc/passwd", filepath.Join(dir, outputName(w.last().ID)))
				}
			}
		}, outcome: Failed, message: "something in the place of the command's output"},
		{when: "what it printed was removed", set: func(w *world) {
			w.command.effect = func(w *world) {
				w.add(up(decision.KubeletUnit, time.Now()))
				must(w.t, os.RemoveAll(filepath.Join(w.dir, "output")))
			}
		}, outcome: Succeeded, ran: 1},
		{when: "its unit can't be removed", set: func(w *world) { w.fault = failing("forget") },
			outcome: Succeeded, problems: true, ran: 1},
	} {
		t.Run(c.when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				d := bootstrapNow()
				c.set(w)
				o, err := w.runner().Do(t.Context(), d)
				if (err != nil) != c.problems {
					t.Errorf("got error %v, want one: %v", err, c.problems)
				}
				if o.Name != "bootstrap" || o.Outcome != c.outcome || !strings.Contains(o.Message, c.message) {
					t.Errorf("got %+v, want it %s with %q", o, c.outcome, c.message)
				}
				r := w.last()
				if r.Name != "bootstrap" || r.Outcome != o.Outcome || r.Message != o.Message || r.Budget != "bootstrap" {
					t.Errorf("the journal has %+v, want what was told", r)
				}
				if got := r.Steps[0].Output; c.output != "" && got != c.output {
					t.Errorf("got output %q, want %q", got, c.output)
				}
				if w.ran != c.ran || (len(w.runs) > 0 && !c.problems) {
					t.Errorf("the command ran %d times and %d units are left, want %d times and none", w.ran, len(w.runs), c.ran)
				}
			})
		})
	}
}

func TestABootstrapIsGoneOnWith(t *testing.T) {
	for _, c := range []struct {
		when    string
		point   string // where the agent was killed
		since   func(w *world)
		outcome string
		message string
		ran     int
	}{
		{"the command still runs", "after command", func(*world) { wait(10 * time.Second) }, Succeeded, "the command succeeded", 1},
		{"the command has ended", "after command", func(*world) { wait(time.Hour) }, Succeeded, "the command succeeded", 1},
		{"the command hung and was ended", "after command", func(w *world) {
			for _, r := range w.runs {
				r.result, r.effect = host.UnitRun{Exists: true, Result: "timeout"}, nil
			}
			wait(time.Hour)
		}, Failed, "did not end within 30m0s", 1},
		{"the command was not started yet", "before command", func(*world) {}, Succeeded, "the command succeeded", 1},
		{"the command was not started yet, a while ago", "before command", func(*world) { wait(time.Hour) }, Superseded, "the decision is 1h0m0s old", 0},
		{"the command was not started yet, a while ago, and the clock was set back by as much", "before command", func(w *world) {
			w.born = w.born.Add(-time.Hour)
		}, Superseded, "the decision is 1h0m0s old", 0},
		{"the command was not started yet, and no longer is configured", "before command", func(w *world) { w.command.takes = -1 }, Failed, "no command is configured", 0},
		{"nothing was begun, a while ago", "progress", func(*world) { wait(time.Hour) }, Superseded, "the decision is 1h0m0s old", 0},
		{"the command was not started yet, and the kubelet runs again", "before command", func(w *world) {
			wait(10 * time.Second)
			w.add(up(decision.KubeletUnit, time.Now()))
		}, Unneeded, "runs again", 0},
		{"nothing was begun, and the kubelet runs again", "progress", func(w *world) {
			wait(10 * time.Second)
			w.add(up(decision.KubeletUnit, time.Now()))
		}, Unneeded, "runs again", 0},
		{"the command was not started yet, and somebody masked the kubelet", "before command", func(w *world) {
			u := down(decision.KubeletUnit, "inactive", time.Now())
			u.LoadState, u.UnitFileState = "masked", "masked"
			w.add(u)
		}, Superseded, "is masked", 0},
		{"the command was not started yet, and somebody stopped the kubelet", "before command", func(w *world) {
			wait(10 * time.Second)
			w.add(down(decision.KubeletUnit, "inactive", time.Now()))
		}, Superseded, "changed after this was decided", 0},
		{"only the file for its output was made", "before command", func(w *world) {
			must(w.t, os.WriteFile(filepath.Join(w.dir, "output", outputName(w.last().ID)), nil, 0o600))
		}, Failed, "its result is lost", 0},
		{"its unit is gone", "after command", func(w *world) { clear(w.runs) }, Failed, "its result is lost", 1},
		{"the host went down", "after command", func(w *world) {
			w.boot = "boot-2"
			clear(w.runs)
		}, Failed, "the host went down", 1},
		{"the host went down before it was started", "before command", func(w *world) { w.boot = "boot-2" }, Failed, "the host went down", 0},
		{"the host went down after it", "before forget", func(w *world) {
			w.boot = "boot-2"
			clear(w.runs)
		}, Succeeded, "the command succeeded", 1},
		{"systemd does not answer for a while", "after command", func(w *world) {
			w.fault = failing("look at the command")
			time.AfterFunc(5*time.Minute, func() { w.set(func() { w.fault = nil }) })
		}, Succeeded, "the command succeeded", 1},
		{"systemd answers no more", "after command", func(w *world) {
			w.fault = failing("look at the command")
			w.command.effect = nil
			time.AfterFunc(time.Hour, func() { w.set(func() { clear(w.runs) }) })
		}, Failed, "what became of the command can't be told: systemd is busy", 1},
	} {
		t.Run(c.when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.kill(c.point, bootstrapNow())
				c.since(w)
				w.open()
				r := w.runner()
				if w.command.takes < 0 {
					r.Command = nil
				}
				o, err := r.Resume(t.Context())
				must(t, err)
				if o == nil || o.Outcome != c.outcome || !strings.Contains(o.Message, c.message) || w.ran != c.ran || len(w.runs) > 0 {
					t.Errorf("got %+v, %d runs and %d units left, want outcome %s with %q and %d runs", o, w.ran, len(w.runs), c.outcome, c.message, c.ran)
				}
				if s := w.last().Steps[0]; s.Tries != 1 { // the time it may take counts from when it was begun
					t.Errorf("the journal has %+v, want it begun once", s)
				}
				if got := w.attempts(bootstrapNow()); got != 1 {
					t.Errorf("got %d attempts, want 1", got)
				}
			})
		})
	}
}

func TestAStepThatIsGoneOnWithHasOnlyTheTimeThatIsLeft(t *testing.T) {
	for _, c := range []struct{ away, want time.Duration }{
		{20 * time.Minute, commandTimeout + commandGrace - 20*time.Minute},
		{commandTimeout + commandGrace - time.Second, leastLimit},
		{2 * time.Hour, leastLimit},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			began := time.Now()
			w.kill("after command", bootstrapNow())
			wait(time.Until(began.Add(c.away)))
			w.open()
			w.fault = failing("look at the command") // so that nobody sees it end
			w.told = nil
			_, err := w.runner().Resume(t.Context())
			must(t, err)
			if got := w.told[0].Deadline.Sub(began.Add(c.away)) - margin; got > c.want || got < c.want-time.Second {
				t.Errorf("gone on with after %s: got %s for the step, want %s", c.away, got, c.want)
			}
		})
	}
}

func TestABootstrapThatWasNotBegunBeforeTheHostWentDownIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d := bootstrapNow()
		_, err := w.j.Begin(w.moment(), journal.Plan{Name: "bootstrap", Budget: "bootstrap", Decision: recorded(d), Steps: []string{"command", "kubelet"}})
		must(t, err)
		w.boot = "boot-2"
		o, err := w.runner().Resume(t.Context())
		must(t, err)
		if o == nil || o.Outcome != Superseded || w.ran > 0 {
			t.Errorf("got %+v and %d runs, want it superseded", o, w.ran)
		}
	})
}

// silentForget is a systemd that does not answer when it is to forget a unit.
type silentForget struct{ *world }

func (silentForget) Forget(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestTheEndOfABootstrapWaitsForSystemdOnlyAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.runner()
		r.Systemd = silentForget{w}
		o, err := r.Do(t.Context(), bootstrapNow())
		if o.Outcome != Succeeded || !errors.Is(err, context.DeadlineExceeded) || w.last().Outcome != Succeeded {
			t.Errorf("got %+v and error %v, want a success, and what could not be cleaned up", o, err)
		}
	})
}

func TestAnAgentAtItsEndLeavesTheCommandRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		time.AfterFunc(10*time.Second, cancel)
		o, err := w.runner().Do(ctx, bootstrapNow())
		if !errors.Is(err, ErrInterrupted) || o.Outcome != "" || time.Since(began) != 10*time.Second {
			t.Errorf("got %+v and error %v after %s, want it interrupted at once", o, err, time.Since(began))
		}
		if r := w.last(); !r.InProgress() || r.Steps[0].State != journal.StepStarted || len(w.runs) != 1 {
			t.Errorf("the journal has %+v and %d commands run, want it in progress", r, len(w.runs))
		}
	})
}

func TestABootstrapIsBegunOnlyWhileItIsWanted(t *testing.T) {
	for name, c := range map[string]struct {
		wanted  func(context.Context) (bool, error)
		outcome string
		ran     int
	}{
		"it is":     {func(context.Context) (bool, error) { return true, nil }, Succeeded, 1},
		"it is not": {func(context.Context) (bool, error) { return false, nil }, Unneeded, 0},
		"nobody can tell": {func(ctx context.Context) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}, Superseded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.runner()
				r.Wanted = c.wanted
				o, err := r.Do(t.Context(), bootstrapNow())
				must(t, err)
				if o.Outcome != c.outcome || w.ran != c.ran {
					t.Errorf("got %+v and %d runs, want %s and %d", o, w.ran, c.outcome, c.ran)
				}
			})
		})
	}
}

func TestTheCommandGetsTheProxyAndAHome(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128/%20$x")
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	for _, home := range []string{"", "/home/jo"} {
		t.Setenv("HOME", home)
		if home == "" {
			must(t, os.Unsetenv("HOME"))
		}
		want := cmp.Or(home, "/root")
		got := commandEnvironment()
		if !slices.Contains(got, "HTTPS_PROXY=http://proxy.example:3128/%20$x") || !slices.Contains(got, "HOME="+want) || slices.ContainsFunc(got, func(kv string) bool { return strings.HasPrefix(kv, "NOTIFY_SOCKET") }) {
			t.Errorf("got %q, want the proxy, the home %s, and no socket of systemd's", got, want)
		}
	}
}
