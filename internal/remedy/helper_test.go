package remedy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// world is a host whose systemd is a stand-in, with a real journal.
type world struct {
	t    *testing.T
	dir  string
	boot string
	born time.Time
	j    *journal.Journal

	mu    sync.Mutex
	units map[string]*unit
	runs  map[string]*run
	// command is what the bootstrap's command does.
	command command
	// point is called at each point where a crash makes a difference; nil for nothing. It may end the goroutine, or panic.
	point func(what string)
	// fault makes a call of systemd fail; nil for none.
	fault func(what string) error
	lost  error    // what StartTransient returns, though the command was started
	calls []string // those that change something
	ran   int      // how often the command was executed
	told  []Progress
}

// unit is a unit, and what becomes of it when it is started.
type unit struct {
	observe.Unit
	// then are its states, one after another, each after a time; a started unit begins with the first.
	then []change
	next []change
	due  time.Time
}

type change struct {
	after time.Duration
	to    func(u *observe.Unit)
}

type command struct {
	takes  time.Duration
	result host.UnitRun // once it has ended
	output string
	effect func(w *world)
}

type run struct {
	command
	ends time.Time
	done bool
}

// newWorld must be called in a bubble of synctest: there it is midnight, 2000-01-01 UTC.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "remedy")
	if err != nil {
		dir = t.TempDir()
	}
	w := &world{t: t, dir: dir, boot: "boot-1", born: time.Now(), units: map[string]*unit{}, runs: map[string]*run{}}
	w.command = command{takes: time.Minute, result: host.UnitRun{Exists: true, Result: "success"}, output: "joined\n", effect: func(w *world) {
		w.units[decision.KubeletUnit] = &unit{Unit: up(decision.KubeletUnit, time.Now())}
	}}
	t.Cleanup(func() {
		_ = w.j.Close()
		_ = os.RemoveAll(dir)
	})
	w.open()
	return w
}

// open opens the journal, again if need be, as a new agent would.
func (w *world) open() {
	w.t.Helper()
	if w.j != nil {
		_ = w.j.Close()
	}
	j, _, err := journal.Open(filepath.Join(w.dir, "journal.db"), w.moment(), journal.Options{NoSync: true})
	must(w.t, err)
	w.j = j
}

func (w *world) moment() journal.Moment {
	return journal.Moment{Wall: time.Now(), Boot: w.boot, Uptime: time.Hour + time.Since(w.born)}
}

// runner returns that of a new agent.
func (w *world) runner() *Runner {
	return &Runner{
		Systemd: w, Journal: w.j, OutputDir: filepath.Join(w.dir, "output"), Command: []string{"/opt/join", "--token", "s3cret"},
		Now: func() journal.Moment {
			w.at("the journal")
			return w.moment()
		},
		Redact: func(s string) string { return strings.ReplaceAll(s, "s3cret", "(secret)") },
		Progress: func(p Progress) {
			w.told = append(w.told, p)
			w.at("progress")
		},
	}
}

func (w *world) at(what string) {
	if w.point != nil {
		w.point(what)
	}
}

// act is a call that changes something.
func (w *world) act(ctx context.Context, what string, effect func()) error {
	w.at("before " + what)
	wait(time.Millisecond) // else what is done would have the time of what was done before
	if err := w.call(ctx, what, effect); err != nil {
		return err
	}
	w.at("after " + what)
	return nil
}

func (w *world) call(ctx context.Context, what string, effect func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if w.fault != nil {
		if err := w.fault(what); err != nil {
			return err
		}
	}
	effect()
	return nil
}

// pass lets happen what is due.
func (w *world) pass() {
	now := time.Now()
	for _, u := range w.units {
		for len(u.next) > 0 && !now.Before(u.due) {
			u.next[0].to(&u.Unit)
			u.StateChange = u.due
			if u.next = u.next[1:]; len(u.next) > 0 {
				u.due = u.due.Add(u.next[0].after)
			}
		}
	}
	for _, r := range w.runs {
		if !r.done && !now.Before(r.ends) {
			r.done = true
			if r.effect != nil {
				r.effect(w)
			}
		}
	}
}

func (w *world) Units(ctx context.Context, names ...string) (all []observe.Unit, err error) {
	w.at("look")
	err = w.call(ctx, "look", func() {
		for _, name := range names {
			u := observe.Unit{Name: name, LoadState: "not-found", ActiveState: "inactive"}
			if have, ok := w.units[name]; ok {
				u = have.Unit
			}
			all = append(all, u)
		}
	})
	return all, err
}

func (w *world) ResetFailed(ctx context.Context, name string) error {
	return w.act(ctx, "reset-failed", func() {
		w.calls = append(w.calls, "reset-failed")
		if u := w.units[name]; u != nil && u.ActiveState == "failed" {
			u.ActiveState, u.SubState, u.Result, u.NRestarts, u.StateChange = "inactive", "dead", "success", 0, time.Now()
		}
	})
}

func (w *world) Start(ctx context.Context, name string) error {
	return w.act(ctx, "start", func() { w.begin(name, "start") })
}

func (w *world) Restart(ctx context.Context, name string) error {
	return w.act(ctx, "restart", func() { w.begin(name, "restart") })
}

func (w *world) begin(name, job string) {
	w.calls = append(w.calls, job)
	u := w.units[name]
	u.Job, u.next, u.due = job, u.then, time.Now().Add(u.then[0].after)
}

func (w *world) StartTransient(ctx context.Context, t host.Transient) error {
	exists := false
	err := w.act(ctx, "command", func() {
		if _, exists = w.runs[t.Name]; exists {
			return
		}
		w.ran++
		w.runs[t.Name] = &run{command: w.command, ends: time.Now().Add(min(w.command.takes, t.Timeout))}
		if w.command.takes > t.Timeout {
			w.runs[t.Name].result = host.UnitRun{Exists: true, Result: "timeout", Signal: "SIGTERM", ExitStatus: -1}
		}
		must(w.t, os.WriteFile(t.OutputPath, []byte(w.command.output), 0o600))
	})
	if exists {
		return host.ErrUnitExists
	}
	return cmp.Or(err, w.lost)
}

func (w *world) Run(ctx context.Context, name string) (r host.UnitRun, err error) {
	w.at("look at the command")
	err = w.call(ctx, "look at the command", func() {
		have, ok := w.runs[name]
		switch {
		case ok && have.done:
			r = have.result
		case ok:
			r = host.UnitRun{Exists: true, Running: true}
		}
	})
	return r, err
}

func (w *world) Forget(ctx context.Context, name string) error {
	return w.act(ctx, "forget", func() { delete(w.runs, name) })
}

// set changes the world from another goroutine.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// up is a unit that has been running since.
func up(name string, since time.Time) observe.Unit {
	return observe.Unit{Name: name, LoadState: "loaded", ActiveState: "active", SubState: "running", UnitFileState: "enabled", MainPID: 100, StateChange: since}
}

// down is a unit that is inactive or failed since.
func down(name, state string, since time.Time) observe.Unit {
	u := up(name, since)
	u.ActiveState, u.SubState, u.MainPID, u.Result = state, "dead", 0, "success"
	if state == "failed" {
		u.SubState, u.Result = "failed", "exit-code"
	}
	return u
}

// runs lets a unit run from some time after its start on.
func runs(after time.Duration) change {
	return change{after, func(u *observe.Unit) {
		u.ActiveState, u.SubState, u.Job, u.MainPID = "active", "running", "", u.MainPID+1
	}}
}

// becomes lets a unit fall into a state.
func becomes(after time.Duration, state, sub string) change {
	return change{after, func(u *observe.Unit) {
		u.ActiveState, u.SubState, u.Job, u.MainPID, u.Result = state, sub, "", 0, "exit-code"
		if sub == "auto-restart" {
			u.NRestarts++
		}
	}}
}

// add adds a unit; then is what it does when it is started.
func (w *world) add(u observe.Unit, then ...change) *unit {
	if then == nil {
		then = []change{runs(time.Second)}
	}
	w.units[u.Name] = &unit{Unit: u, then: then}
	return w.units[u.Name]
}

func restartOf(name string) decision.Decision {
	return decision.Decision{At: time.Now(), Action: decision.Restart, Unit: name, Reason: "Failed", Message: "it failed"}
}

func bootstrapNow() decision.Decision {
	return decision.Decision{At: time.Now(), Action: decision.Bootstrap, Unit: decision.KubeletUnit, Reason: "KubeletMissing", Message: "there is none"}
}

// final is all that must be the same however often an agent was killed.
func (w *world) final(d decision.Decision) string {
	w.t.Helper()
	var b strings.Builder
	_, err := w.Units(context.Background(), d.Unit) // lets happen what is due
	must(w.t, err)
	var names []string
	for name := range w.units {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		u := w.units[name]
		fmt.Fprintln(&b, name, u.ActiveState, u.SubState, u.MainPID, u.Job)
	}
	fmt.Fprintln(&b, "the command ran", w.ran, "times; units of commands:", len(w.runs))
	fmt.Fprintln(&b, "started", count(w.calls, "start"), "restarted", count(w.calls, "restart"))
	remedies, err := w.j.Remedies(0)
	must(w.t, err)
	for _, r := range remedies {
		fmt.Fprintln(&b, r.Name, r.Outcome, r.Message)
		for _, s := range r.Steps {
			fmt.Fprintln(&b, s.Name, s.State, s.Error)
		}
	}
	fmt.Fprintln(&b, "attempts", w.attempts(d))
	return b.String()
}

func (w *world) attempts(d decision.Decision) int {
	w.t.Helper()
	all, err := w.j.Attempts(w.moment(), BudgetOf(d.Action, d.Unit), journal.MaxBudgetWindow)
	must(w.t, err)
	return len(all)
}

// last is the newest remedy in the journal.
func (w *world) last() journal.Remedy {
	w.t.Helper()
	all, err := w.j.Remedies(1)
	must(w.t, err)
	if len(all) != 1 {
		w.t.Fatalf("the journal has %d remedies, want one", len(all))
	}
	return all[0]
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// wait lets time pass in a bubble.
func wait(d time.Duration) { <-time.After(d) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errSystemd = errors.New("systemd is busy")
