// Package remedy is doing it: it carries a decision out, as a few named steps, and nothing but what was decided.
//
// Its goals: a crash of the agent at any point leaves nothing half done and repeats nothing that must not be repeated; and it never
// overrules people. It reaches the first by writing intent and progress into the journal before and after each step, and by steps that
// look at what is before they move it, so that they can be taken again. It reaches the second by looking at the unit once more before
// anything is done: who changed it since the decision wins.
//
// Nothing here decides whether something should be done. No os/exec enters: what runs, systemd runs, outside the agent.
package remedy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
)

// The outcomes of remedies.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	// Unneeded: before anything was done it showed that the unit runs again.
	Unneeded = "unneeded"
	// Superseded: before anything was done it showed that somebody changed the unit since the decision, or that the decision is too old.
	Superseded = "superseded"
	// Abandoned: what an earlier agent began can't be gone on with, and no longer matters.
	Abandoned = "abandoned"
)

// Acted reports whether a remedy with this outcome did, or may have done, something. The others are no attempts: nothing was tried.
func Acted(outcome string) bool { return outcome != Unneeded && outcome != Superseded }

// ErrInterrupted says that the context ended before the remedy did. The journal still has it in progress: see [Runner.Resume].
var ErrInterrupted = errors.New("interrupted while a remedy is in progress; the next agent goes on with it")

var errNoCommand = errors.New("bootstrap: no command is configured: set agent.bootstrap.command")

// Systemd is what remedies act through: [host.Systemd].
type Systemd interface {
	Units(ctx context.Context, names ...string) ([]observe.Unit, error)
	ResetFailed(ctx context.Context, unit string) error
	Start(ctx context.Context, unit string) error
	Restart(ctx context.Context, unit string) error
	StartTransient(ctx context.Context, t host.Transient) error
	Run(ctx context.Context, name string) (host.UnitRun, error)
	Forget(ctx context.Context, name string) error
}

// Runner carries decisions out, one at a time. Between processes and between Runners the journal sees to that; the only thing that is
// left to callers is not to resume, with another Runner, what one of theirs is doing.
type Runner struct {
	Systemd Systemd
	Journal *journal.Journal
	Now     func() journal.Moment
	// Command is what makes this host a node: program and arguments. Without it there is no bootstrap. Timeout is how long it may take;
	// zero is 30 minutes.
	Command []string
	Timeout time.Duration
	// OutputDir is where the output of bootstraps is kept, for root only: it is made, or its mode set, before the first.
	OutputDir string
	// Redact removes secrets from a text before it is recorded; nil leaves texts as they are.
	Redact func(string) string
	// Wanted waits until it is known whether what is seen now still asks for a bootstrap, and is asked before the command is started: the
	// remedy may be one that an earlier agent began. Nil wants it.
	Wanted func(context.Context) (bool, error)
	// Progress is told before and after each step, from the goroutine that calls Do or Resume; nil for nobody.
	Progress func(Progress)
	// Stable is for how long a restarted unit must stay up, 10 s when zero; StableLimit is within which time it must have done so, 90 s
	// when zero. KubeletLimit is how long after a bootstrap the kubelet may take to be active; zero is a minute.
	Stable, StableLimit, KubeletLimit time.Duration

	busy sync.Mutex
}

// Progress is how far the remedy in progress is. The zero value: none is.
type Progress struct {
	// Name is restart or bootstrap.
	Name string
	Unit string
	// Step is empty between steps, while the journal is written.
	Step string
	// Since is when the remedy began, as the wall clock said then.
	Since time.Time
	// Deadline is until when the step is over, unless something hangs.
	Deadline time.Time
}

// Outcome is how a remedy ended.
type Outcome struct {
	// Name is restart or bootstrap; where an earlier agent's remedy is not known, it is what that called it.
	Name string
	Unit string
	// Outcome is one of the constants above; empty when the remedy was not begun or has not ended.
	Outcome string
	Message string
}

// BudgetOf is the kind of attempt, in the journal, that an action on a unit counts as; empty for one that changes nothing.
func BudgetOf(action decision.Action, unit string) string {
	switch action {
	case decision.Restart:
		return "restart:" + unit
	case decision.Bootstrap:
		return "bootstrap" // whatever unit led to it: it is about the whole host
	}
	return ""
}

// Do carries a decision out and blocks until that has ended, well or not, or until ctx ends; then the error is ErrInterrupted.
//
// An error with an empty Outcome.Outcome and without ErrInterrupted means that nothing was begun: the journal can't be written, or another
// remedy is in progress (journal.ErrInProgress). An error beside an outcome tells what went wrong besides: that the journal could not be
// written, or a fault of the agent.
func (r *Runner) Do(ctx context.Context, d decision.Decision) (Outcome, error) {
	none := Outcome{Name: string(d.Action), Unit: d.Unit}
	if !r.busy.TryLock() {
		return none, fmt.Errorf("%s: %w", d.Action, journal.ErrInProgress)
	}
	defer r.busy.Unlock()
	if err := r.check(d); err != nil {
		return none, err
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	w := r.plan(d)
	plan := journal.Plan{Name: w.name(), Budget: BudgetOf(d.Action, d.Unit), Decision: recorded(d), Steps: w.names()}
	begun := r.Now()
	id, err := r.Journal.Begin(begun, plan)
	if err != nil {
		return none, err
	}
	w.rem = journal.Remedy{ID: id, Name: plan.Name, Begun: begun}
	for _, name := range plan.Steps {
		w.rem.Steps = append(w.rem.Steps, journal.Step{Name: name, State: journal.StepPending})
	}
	return w.run(ctx)
}

// Resume finishes what an earlier agent left in progress, and returns nil when there is nothing. Otherwise it is like Do.
func (r *Runner) Resume(ctx context.Context) (*Outcome, error) {
	if !r.busy.TryLock() {
		return nil, fmt.Errorf("resume a remedy: %w", journal.ErrInProgress)
	}
	defer r.busy.Unlock()
	left, err := r.Journal.Unfinished()
	if err != nil {
		return nil, fmt.Errorf("look for an unfinished remedy: %w", err)
	}
	if left == nil {
		return nil, nil //nolint:nilnil // as documented: there was nothing
	}
	var d decision.Decision
	w := (*work)(nil)
	if json.Unmarshal(left.Decision, &d) == nil && d.Action.Acts() {
		w = r.plan(d)
	}
	if w == nil || !slices.EqualFunc(left.Steps, w.steps, func(a journal.Step, b step) bool { return a.Name == b.name }) {
		w = &work{Runner: r, d: decision.Decision{Action: decision.Action(left.Name)}, rem: *left}
		o, err := w.finish(ctx, Abandoned, "this version of the agent does not know such a remedy")
		return &o, err
	}
	w.rem = *left
	o, err := w.run(ctx)
	return &o, err
}

func (r *Runner) check(d decision.Decision) error {
	switch {
	case !d.Action.Acts():
		return fmt.Errorf("carry out %q: it is no action on this node", d.Action)
	case d.Action == decision.Restart && d.Unit == "":
		return errors.New("restart: the decision names no unit")
	case d.Action == decision.Bootstrap && len(r.Command) == 0:
		return errNoCommand
	case d.Action == decision.Bootstrap && !filepath.IsAbs(r.Command[0]):
		return fmt.Errorf("bootstrap: agent.bootstrap.command must begin with a program's absolute path, and begins with %.100q", r.Command[0])
	case d.Action == decision.Bootstrap && r.OutputDir == "":
		return errors.New("bootstrap: there is no folder for the command's output")
	}
	return nil
}

// plan returns the steps that carry a decision out.
func (r *Runner) plan(d decision.Decision) *work {
	w := &work{Runner: r, d: d}
	if d.Action == decision.Bootstrap {
		w.steps = w.bootstrap()
	} else {
		w.steps = w.restart()
	}
	return w
}

const (
	maxDecision = 16 << 10 // what the journal takes
	maxWords    = 1 << 10
)

// recorded is the decision for the journal. One that is too long is cut down to what a remedy needs to be resumed.
func recorded(d decision.Decision) json.RawMessage {
	if b, err := json.Marshal(d); err == nil && len(b) <= maxDecision {
		return b
	}
	short := decision.Decision{At: d.At, Action: d.Action, Unit: d.Unit, Reason: tail(d.Reason, maxWords), Message: tail(d.Message, maxWords)}
	b, err := json.Marshal(short)
	if err != nil {
		return nil // a time that JSON can't hold: then nobody can resume it, and Resume abandons it
	}
	return b
}
