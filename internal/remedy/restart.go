package remedy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
)

const (
	resetLimit  = time.Minute // with the time for which systemd may have a job for the unit
	startLimit  = time.Minute
	stableLimit = 90 * time.Second
	stable      = 10 * time.Second
	unitEvery   = 500 * time.Millisecond
)

// restart are the steps that make a unit run that should: it is wanted running, so one that somebody stopped, masked, disabled or started
// since the decision is left as it is.
func (w *work) restart() []step {
	return []step{
		{"reset-failed", resetLimit, w.resetFailed},
		{"start", startLimit, w.start},
		{"stable", cmp.Or(w.StableLimit, stableLimit), w.stable},
	}
}

// resetFailed lets systemd start a unit that failed too often.
func (w *work) resetFailed(ctx context.Context, before journal.Step) (string, error) {
	u, err := w.settled(ctx)
	if err != nil {
		return "", superseded("nothing was done: %v", err)
	}
	begun := before.State == journal.StepStarted && w.after(u, before.Changed.Wall) // the change may be the work of all our steps
	switch {
	case begun && u.Running():
		return "it runs already", nil
	case begun && u.ActiveState == "failed":
		return "", fmt.Errorf("it was started and failed again: %s", state(u, nil))
	case u.Running() && w.after(u, w.d.At):
		return "", unneeded("%s runs again", u.Name)
	}
	if err := w.stillWanted(u, before); err != nil {
		return "", err
	}
	return "", w.Systemd.ResetFailed(ctx, u.Name)
}

// start has a unit started that does not run, and one restarted that ran already when that was decided.
func (w *work) start(ctx context.Context, before journal.Step) (string, error) {
	u, err := w.settled(ctx)
	switch {
	case err != nil && u.Job != "" && before.State == journal.StepStarted:
		return "systemd is at it", nil // our own job, most likely; the next step waits for its end
	case err != nil:
		return "", err
	case before.State == journal.StepStarted && w.after(u, before.Changed.Wall):
		return "started before", nil // whether it stays up is for the next step to say
	case u.Running() && w.after(u, w.d.At):
		return "it runs already", nil
	}
	if err := w.stillWanted(u, w.rem.Steps[0]); err != nil {
		return "", err
	}
	if u.ActiveState == "inactive" || u.ActiveState == "failed" {
		return "started", w.Systemd.Start(ctx, u.Name)
	}
	return "restarted", w.Systemd.Restart(ctx, u.Name) // also one that systemd would start only after a while
}

// stable waits until the unit has been up for a while, as one and the same process.
func (w *work) stable(ctx context.Context, _ journal.Step) (string, error) {
	enough := cmp.Or(w.Stable, stable)
	var first observe.Unit
	var since time.Time
	var last string
	err := poll(ctx, unitEvery, func() (bool, error) {
		u, err := w.look(ctx, w.d.Unit, &last)
		quiet := err == nil && u.Job == ""
		switch {
		case !quiet:
		case u.Running():
			if since.IsZero() || u.MainPID != first.MainPID || u.MainStart != first.MainStart || u.NRestarts != first.NRestarts {
				first, since = u, time.Now()
			}
			return time.Since(since) >= enough, nil
		case u.ActiveState != "activating" && u.ActiveState != "deactivating":
			return false, errors.New(last)
		}
		since = time.Time{}
		return false, nil
	})
	switch {
	case err == nil:
		return fmt.Sprintf("%s runs and stayed up for %s", w.d.Unit, enough), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("it was not up for %s at a stretch in time: %s", enough, last)
	}
	return "", err
}

// settled waits until systemd has no job for the unit and is not starting or stopping it. A unit that waits to be restarted is settled.
// On an error the unit is as it was seen last.
func (w *work) settled(ctx context.Context) (u observe.Unit, err error) {
	var last string
	err = poll(ctx, unitEvery, func() (bool, error) {
		seen, err := w.look(ctx, w.d.Unit, &last)
		if err == nil { // else systemd may answer the next time
			u = seen
		}
		moving := seen.ActiveState == "deactivating" || (seen.ActiveState == "activating" && !waits(seen))
		return err == nil && seen.Job == "" && !moving, nil
	})
	if err != nil {
		return u, fmt.Errorf("systemd did not come to rest: %s", last)
	}
	return u, nil
}

// stillWanted returns an error when somebody has changed the unit since the decision, or when it can no longer be told that it should be
// touched. Reset is how the journal knows the first step.
func (w *work) stillWanted(u observe.Unit, reset journal.Step) error {
	switch {
	case !u.Exists() && !u.Running():
		return superseded("%s no longer exists", u.Name)
	case u.LoadState == "masked" || strings.HasPrefix(u.UnitFileState, "masked"):
		return superseded("%s is masked by now: somebody does not want it to run", u.Name)
	case u.UnitFileState == "disabled":
		return superseded("%s is disabled by now: somebody does not want it to start", u.Name)
	case u.Running():
		return w.fresh() // it may work again
	case !waits(u) && w.theirs(u, reset):
		return superseded("%s changed after this was decided: %s", u.Name, state(u, nil))
	}
	return nil
}

// theirs reports whether somebody else changed the unit since the decision. By its time a change may be our own, by what is known of the
// step that resets a failure: a failed unit is inactive after that. What came before that step is none of ours, and when the step is
// done it had been found that nothing came before.
func (w *work) theirs(u observe.Unit, reset journal.Step) bool {
	from, until := w.d.At, w.d.At
	switch reset.State {
	case journal.StepDone:
		until = reset.Changed.Wall
	case journal.StepStarted: // by an earlier agent, which got no further
		from, until = reset.Changed.Wall, reset.Changed.Wall.Add(reset.Limit)
	}
	if u.StateChange.Before(from) {
		return w.after(u, w.d.At)
	}
	return w.after(u, w.d.At) && u.StateChange.After(until)
}

// after reports whether the unit changed its state after then. A time that is yet to come, since the clock was set back, tells nothing.
func (w *work) after(u observe.Unit, then time.Time) bool {
	return u.StateChange.After(then) && !u.StateChange.After(w.Now().Wall)
}

// look asks systemd about a unit, and says in last what was seen; a look that was cut short by the end of all looking says nothing.
func (w *work) look(ctx context.Context, name string, last *string) (u observe.Unit, err error) {
	units, err := w.Systemd.Units(ctx, name)
	switch {
	case err == nil && len(units) != 1:
		err = fmt.Errorf("asked systemd about %s, and was told about %d units", name, len(units))
	case err == nil:
		u = units[0]
	}
	if err == nil || ctx.Err() == nil || *last == "" {
		*last = state(u, err)
	}
	return u, err
}

// waits reports whether the unit ended and systemd waits before it starts it again.
func waits(u observe.Unit) bool {
	return u.ActiveState == "activating" && strings.HasPrefix(u.SubState, "auto-restart")
}

// state says how a unit was seen.
func state(u observe.Unit, err error) string {
	if err != nil {
		return err.Error()
	}
	s := observe.JudgeUnit(u).Message
	if u.Job != "" {
		s += ", and systemd has a job for it: " + u.Job
	}
	return s
}
