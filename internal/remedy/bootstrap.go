package remedy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
)

const (
	commandTimeout = 30 * time.Minute
	// commandGrace is how long after its time-out a command's result may take to be seen: systemd has to end it first.
	commandGrace = time.Minute
	commandEvery = time.Second
	kubeletLimit = time.Minute
	kubeletEvery = 500 * time.Millisecond
)

// bootstrap are the steps that make this host a node again: the configured command, once, and a kubelet that runs after it. The command
// runs as a unit of systemd's, named after the remedy, so that it neither ends with the agent nor is lost to the next one.
func (w *work) bootstrap() []step {
	w.outlives = true
	w.cleanUp = func(ctx context.Context) error { return w.Systemd.Forget(ctx, w.commandUnit()) }
	return []step{
		{"command", cmp.Or(w.Timeout, commandTimeout) + commandGrace, w.command},
		{"kubelet", cmp.Or(w.KubeletLimit, kubeletLimit), w.kubelet},
	}
}

func (w *work) commandUnit() string {
	return fmt.Sprintf("aks-flex-node-bootstrap-%d.service", w.rem.ID)
}

func (w *work) outputPath() string { return filepath.Join(w.OutputDir, outputName(w.rem.ID)) }

// command runs the command, or goes on waiting for one that an earlier agent started. It is never run twice.
func (w *work) command(ctx context.Context, before journal.Step) (string, error) {
	run, err := w.launch(ctx, before)
	if err != nil {
		return "", err
	}
	if run.Running {
		run, err = w.ask(ctx, func(r host.UnitRun) bool { return !r.Running })
		if err != nil {
			err = fmt.Errorf("the command was not seen to end in time: %w", err)
		}
	}
	// What it printed tells more than how it ended, whatever that was.
	output, unread := w.output()
	if err == nil {
		err = judgeRun(run, w.Command, cmp.Or(w.Timeout, commandTimeout))
	}
	if unread != nil {
		w.problems = append(w.problems, unread)
	}
	return output, err
}

// launch starts the command unless an earlier agent did, and returns its run.
func (w *work) launch(ctx context.Context, before journal.Step) (host.UnitRun, error) {
	asking, cancel := ctx, func() {}
	if before.State == journal.StepPending {
		asking, cancel = context.WithTimeout(ctx, maxAge) // else it may be running, and is waited for
	}
	run, err := w.ask(asking, func(host.UnitRun) bool { return true })
	cancel()
	if err != nil && before.State == journal.StepPending {
		return run, superseded("nothing was done: %v", err)
	}
	if err != nil {
		return run, fmt.Errorf("what became of the command can't be told: %w", err)
	}
	if run.Exists {
		return run, nil
	}
	present, err := exists(w.outputPath())
	switch {
	case err != nil:
		return run, err
	case otherBoot(before.Changed, w.Now()):
		return run, errors.New("the host went down while the command ran, or before it did: nobody knows how far it got")
	case present && before.State == journal.StepPending:
		return run, fmt.Errorf("there is something in the place of the command's output, %s: remove it", w.outputPath())
	case present:
		// It may have run: systemd is asked for it right after this file is made.
		return run, errors.New("the command was started, and its result is lost: systemd no longer knows " + w.commandUnit())
	case len(w.Command) == 0:
		return run, errNoCommand
	}
	if err := w.stillDecided(ctx); err != nil {
		return run, err
	}
	if err := w.fresh(); err != nil {
		return run, err
	}
	if err := w.stillBroken(ctx); err != nil {
		return run, err
	}
	if err := prepareOutput(w.OutputDir); err != nil {
		return run, err
	}
	return w.startCommand(ctx)
}

// stillDecided returns an error when nothing asks for a bootstrap any more, or nobody can tell in time.
func (w *work) stillDecided(ctx context.Context) error {
	if w.Wanted == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, maxAge)
	defer cancel()
	wanted, err := w.Wanted(limited)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return superseded("nothing was done: %v", err)
	case !wanted:
		return unneeded("what is seen now asks for no bootstrap")
	}
	return nil
}

// stillBroken returns an error when what led to the bootstrap is no longer so: the unit runs by now, or somebody changed it since.
func (w *work) stillBroken(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resetLimit)
	defer cancel()
	u, err := w.settled(ctx)
	switch {
	case err != nil:
		return superseded("nothing was done: %v", err)
	case u.Running() && w.after(u, w.d.At):
		return unneeded("%s runs again", u.Name)
	case !u.Exists() && !u.Running():
		return nil // there still is none
	}
	return w.stillWanted(u, journal.Step{})
}

// startCommand has systemd start the command. When its answer is lost it may have done so; the name of the unit keeps a second request
// from starting a second one, and that it is asked in turn from starting it after it was found missing.
func (w *work) startCommand(ctx context.Context) (host.UnitRun, error) {
	t := host.Transient{
		Name: w.commandUnit(), Description: "Makes this host a Kubernetes node (aks-flex-node bootstrap)",
		Command: w.Command, Timeout: cmp.Or(w.Timeout, commandTimeout), OutputPath: w.outputPath(),
		Environment: commandEnvironment(),
	}
	err := w.Systemd.StartTransient(ctx, t)
	if err == nil || errors.Is(err, host.ErrUnitExists) {
		return host.UnitRun{Exists: true, Running: true}, nil
	}
	run, unknown := w.ask(ctx, func(host.UnitRun) bool { return true })
	switch {
	case unknown != nil:
		return run, errors.Join(err, unknown)
	case !run.Exists:
		return run, err
	}
	return run, nil
}

// commandEnvironment is what the command gets beside what systemd gives every service: the proxy of the agent, and a home, which systemd
// sets for no service of root.
func commandEnvironment() []string {
	env := host.PassedEnvironment()
	if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		env = append(env, "HOME=/root")
	}
	return env
}

// ask asks how the command's unit is until systemd's answer is enough.
func (w *work) ask(ctx context.Context, enough func(host.UnitRun) bool) (run host.UnitRun, err error) {
	var last error
	stopped := poll(ctx, commandEvery, func() (bool, error) {
		run, err = w.Systemd.Run(ctx, w.commandUnit())
		if ctx.Err() == nil { // else it was cut short, and says nothing
			last = err
		}
		return err == nil && enough(run), nil
	})
	if stopped != nil {
		return run, cmp.Or(last, stopped)
	}
	return run, nil
}

// judgeRun says how a command that has ended failed; nil when it did not.
func judgeRun(run host.UnitRun, command []string, timeout time.Duration) error {
	program := "the command"
	if len(command) > 0 {
		program = command[0] // its arguments may hold secrets
	}
	switch {
	case !run.Exists:
		return errors.New("the command's result is lost: while it ran, somebody removed its unit")
	case run.Succeeded():
		return nil
	case run.Result == "timeout":
		return fmt.Errorf("%s did not end within %s and was ended", program, timeout)
	case run.ExitStatus == 203:
		return fmt.Errorf("%s could not be executed: does it exist, and is it an executable program of this machine?", program)
	case run.Signal != "":
		return fmt.Errorf("%s was ended by %s (%s)", program, run.Signal, run.Result)
	}
	return fmt.Errorf("%s failed with status %d (%s)", program, run.ExitStatus, run.Result)
}

// kubelet waits until the kubelet runs as a unit: without that, no command was a success.
func (w *work) kubelet(ctx context.Context, _ journal.Step) (string, error) {
	var last string
	err := poll(ctx, kubeletEvery, func() (bool, error) {
		u, err := w.look(ctx, decision.KubeletUnit, &last)
		return err == nil && u.Running(), nil
	})
	if err != nil {
		return "", fmt.Errorf("the command succeeded, but after that the kubelet did not run in time: %s", last)
	}
	return "the command succeeded, and " + last, nil
}
