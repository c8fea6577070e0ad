package remedy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
)

const (
	// leastLimit is what a step may take at least when it is gone on with, however long the agent was away.
	leastLimit = time.Minute
	// margin is what a deadline grants for the journal and a busy host beyond a step's own limit.
	margin = time.Minute
	// maxAge is how old a decision may be for something to be done to a host that may work again by now.
	maxAge = decision.EvidenceGap
	// cleanUpLimit is for how long the end of a remedy may wait for systemd.
	cleanUpLimit = 10 * time.Second
)

// step is one step. There is no undo here: a restart or a bootstrap has none.
type step struct {
	name  string
	limit time.Duration
	// do looks, moves what is not as it should be, and returns when it has seen that it is: with what came out, for people, also beside
	// an error. Before is how the journal knew the step before this try; in state StepStarted any part of it may have happened already.
	do func(ctx context.Context, before journal.Step) (output string, err error)
}

// work is one remedy while it is carried out.
type work struct {
	*Runner
	d     decision.Decision
	steps []step
	rem   journal.Remedy // what the journal has, or would have if it could be written
	// outlives: what was begun still has a meaning after a start of the host.
	outlives bool
	// cleanUp removes what is of no use once all is recorded; nil for nothing. It may be called again.
	cleanUp  func(ctx context.Context) error
	problems []error // that don't change the outcome
	unsaid   bool    // something could not be recorded
}

// verdict is the error of a step that showed that nothing is to be done.
type verdict struct{ outcome, message string }

func (v *verdict) Error() string { return v.message }

func unneeded(format string, args ...any) error {
	return &verdict{Unneeded, fmt.Sprintf(format, args...)}
}

func superseded(format string, args ...any) error {
	return &verdict{Superseded, fmt.Sprintf(format, args...)}
}

func (w *work) name() string {
	if w.d.Action == decision.Restart {
		return "restart " + w.d.Unit
	}
	return string(w.d.Action)
}

func (w *work) names() (all []string) {
	for _, s := range w.steps {
		all = append(all, s.name)
	}
	return all
}

// run takes the steps that have not been taken, and ends the remedy.
func (w *work) run(ctx context.Context) (Outcome, error) {
	defer w.tell(Progress{})
	if otherBoot(w.rem.Begun, w.Now()) {
		switch {
		case w.rem.Steps[0].State == journal.StepPending:
			return w.finish(ctx, Superseded, "the host was started anew before anything was done")
		case !w.outlives:
			return w.finish(ctx, Abandoned, "the host was started anew meanwhile, and its units with it")
		}
	}
	outcome, message := Succeeded, ""
	for i := range w.steps {
		if ctx.Err() != nil {
			return w.interrupted(ctx)
		}
		before := w.rem.Steps[i]
		if before.State == journal.StepPending || before.State == journal.StepStarted {
			if err := w.take(ctx, i, before); err != nil && ctx.Err() != nil {
				return w.interrupted(ctx)
			}
		}
		s := w.rem.Steps[i]
		message = s.Output
		if s.State == journal.StepFailed {
			outcome, message = outcomeOf(s), w.explain(s)
			break
		}
	}
	return w.finish(ctx, outcome, message)
}

func (w *work) interrupted(ctx context.Context) (Outcome, error) {
	return Outcome{Name: string(w.d.Action), Unit: w.d.Unit},
		errors.Join(append([]error{fmt.Errorf("%s: %w: %w", w.rem.Name, ErrInterrupted, context.Cause(ctx))}, w.problems...)...)
}

// take takes one step, and records that it was done or failed. The error is the step's; when ctx has ended too it means nothing, and
// nothing is recorded.
func (w *work) take(ctx context.Context, i int, before journal.Step) error {
	s, now := w.steps[i], w.Now()
	limit := limitOf(s, before, now)
	if before.State == journal.StepPending { // else the intent is on record, and so is when it began
		ok := w.record(now, i, journal.Progress{Step: s.name, State: journal.StepStarted, Limit: s.limit})
		if !ok && i == 0 {
			// Nothing has been done yet, and what isn't on record must not be.
			err := errors.New("nothing was done, because it could not be recorded")
			w.record(w.Now(), i, journal.Progress{Step: s.name, State: journal.StepFailed, Error: err.Error(), Data: dataOf(Superseded)})
			return err
		}
	}
	w.tell(Progress{Step: s.name, Deadline: time.Now().Add(limit + margin)})
	limited, cancel := context.WithTimeout(ctx, limit)
	output, err := w.guarded(limited, s, before)
	cancel()
	w.tell(Progress{Deadline: time.Now().Add(margin)})
	if err != nil && ctx.Err() != nil {
		return err
	}
	p := journal.Progress{Step: s.name, State: journal.StepDone, Output: w.redact(output)}
	if err != nil {
		p.State, p.Error = journal.StepFailed, w.redact(err.Error())
		if v, ok := errors.AsType[*verdict](err); ok {
			p.Data = dataOf(v.outcome)
		}
	}
	w.record(w.Now(), i, p)
	return err
}

// limitOf is how long a step may take from now on.
func limitOf(s step, before journal.Step, now journal.Moment) time.Duration {
	if before.State != journal.StepStarted || before.Changed.Boot == "" || now.Boot == "" {
		return s.limit
	}
	return max(before.TimeLeft(now), min(s.limit, leastLimit))
}

// guarded does a step. A panic in it is the step's failure and not the agent's.
func (w *work) guarded(ctx context.Context, s step, before journal.Step) (output string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the agent has a fault: %v", p)
			w.problems = append(w.problems, fmt.Errorf("step %s: panic: %v\n%s", s.name, p, debug.Stack()))
		}
	}()
	return s.do(ctx, before)
}

// record records progress. Where that fails the remedy goes on, since to stop half-way would be worse, and tells at its end.
func (w *work) record(now journal.Moment, i int, p journal.Progress) (ok bool) {
	err := w.Journal.Step(now, w.rem.ID, p)
	if err != nil {
		w.unsaid = true
		w.problems = append(w.problems, err)
	}
	s := &w.rem.Steps[i]
	s.State, s.Changed, s.Limit, s.Output, s.Error, s.Data = p.State, now, p.Limit, p.Output, p.Error, p.Data
	return err == nil
}

// finish ends the remedy. It cleans up only after all is on record: until then a later agent may need what would be removed.
func (w *work) finish(ctx context.Context, outcome, message string) (Outcome, error) {
	message = w.redact(message)
	if !w.unsaid {
		if w.tidy(ctx); w.cleanUp != nil && ctx.Err() != nil {
			return w.interrupted(ctx) // perhaps not tidy: all is on record, so that the next agent has only this left to do
		}
	}
	err := w.Journal.Finish(w.Now(), w.rem.ID, outcome, message)
	switch {
	case err != nil:
		w.problems = append(w.problems, err)
	case w.unsaid:
		w.tidy(ctx)
	}
	return Outcome{Name: string(w.d.Action), Unit: w.d.Unit, Outcome: outcome, Message: message}, errors.Join(w.problems...)
}

func (w *work) tidy(ctx context.Context) {
	if w.cleanUp == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanUpLimit)
	defer cancel()
	if err := w.cleanUp(ctx); err != nil {
		w.problems = append(w.problems, fmt.Errorf("clean up after %s: %w", w.rem.Name, err))
	}
}

func (w *work) tell(p Progress) {
	if w.Progress == nil {
		return
	}
	if p != (Progress{}) {
		p.Name, p.Unit, p.Since = string(w.d.Action), w.d.Unit, w.rem.Begun.Wall
	}
	w.Progress(p)
}

func (w *work) redact(s string) string {
	if w.Redact == nil {
		return s
	}
	return w.Redact(s)
}

// explain is the message of a remedy that a step ended.
func (w *work) explain(s journal.Step) string {
	if outcomeOf(s) != Failed {
		return s.Error
	}
	return "step " + s.Name + ": " + strings.TrimSpace(s.Error)
}

// stepData is what is kept with a step that ended a remedy, for an agent that has to end it once more.
type stepData struct {
	Outcome string `json:"outcome"`
}

func dataOf(outcome string) json.RawMessage {
	b, err := json.Marshal(stepData{outcome})
	if err != nil {
		return nil // can't be: it is a word
	}
	return b
}

func outcomeOf(s journal.Step) string {
	var d stepData
	if len(s.Data) == 0 || json.Unmarshal(s.Data, &d) != nil || d.Outcome == "" {
		return Failed
	}
	return d.Outcome
}

// age is how long ago the decision was made, as far as can be told: by the uptime where it is known, since a clock may have been set.
func (w *work) age() time.Duration {
	now, begun := w.Now(), w.rem.Begun
	passed := now.Wall.Sub(begun.Wall)
	if now.Boot != "" && now.Boot == begun.Boot {
		passed = now.Uptime - begun.Uptime
	}
	return max(begun.Wall.Sub(w.d.At), 0) + max(passed, 0)
}

// fresh returns an error when the decision is too old to be acted upon.
func (w *work) fresh() error {
	if age := w.age(); age > maxAge {
		return superseded("the decision is %s old, and things may have changed since", age.Round(time.Second))
	}
	return nil
}

// otherBoot reports whether the host is known to have been started anew since then.
func otherBoot(then, now journal.Moment) bool {
	return then.Boot != "" && now.Boot != "" && then.Boot != now.Boot
}

// poll looks every so often until the look is done or fails, or ctx ends.
func poll(ctx context.Context, every time.Duration, look func() (done bool, err error)) error {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		done, err := look()
		if done || err != nil {
			return err
		}
		timer.Reset(every)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
