package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const (
	// stopLimit is how long a transient unit has to end after it was asked to; then it is killed.
	stopLimit = 10 * time.Second
	// forgetPause is how long to wait before looking again whether systemd has dropped a unit.
	forgetPause = 50 * time.Millisecond
)

// ErrUnitExists is returned by StartTransient when there already is a unit of that name, running or remembered. It is left as it is.
var ErrUnitExists = errors.New("there already is a unit of this name")

// Transient is a command that systemd runs as a unit of its own: outside of the caller's sandbox and cgroup, so that it survives the
// caller, and with a result that systemd keeps until Forget.
type Transient struct {
	Name        string // ends in .service
	Description string // for people, in the output of systemctl; empty: the unit's name
	// Command is the absolute path of a program and its arguments. Nothing in it is expanded.
	Command []string
	// Timeout is how long the command may run; then systemd ends all processes of the unit, and the result is "timeout". Zero: no limit.
	Timeout time.Duration
	// Environment holds KEY=VALUE, added to what systemd gives every service.
	Environment []string
	// OutputPath is the absolute path of a file to which the command's output is appended; it is made, for root's eyes only, if there is
	// none. Its folder must exist. Empty: the journal has the output.
	OutputPath string
}

// check finds what systemd would refuse, or take for something else than is meant.
func (t Transient) check() error {
	switch {
	case !strings.HasSuffix(t.Name, ".service") || t.Name == ".service":
		return errors.New("its name must end in .service")
	case len(t.Command) == 0 || !filepath.IsAbs(t.Command[0]):
		return errors.New("its command needs the absolute path of a program")
	case t.OutputPath != "" && !filepath.IsAbs(t.OutputPath):
		return errors.New("its output needs an absolute path")
	case t.Timeout < 0:
		return fmt.Errorf("its timeout is negative: %v", t.Timeout)
	}
	return nil
}

// StartTransient makes systemd run a command as a unit and does not wait until it has: nil says that the job is queued, and Run tells what
// became of it, also that the program could not be executed (exit status 203). The error is ErrUnitExists if there already is such a
// unit. Another error may also mean that the answer was lost: ask Run before starting again.
func (s *Systemd) StartTransient(ctx context.Context, t Transient) error {
	const doing = "start transient"
	if err := t.check(); err != nil {
		return actError(doing, t.Name, err)
	}
	if t.OutputPath != "" {
		// systemd would make it for everyone to read, and the output of commands may hold secrets.
		f, err := os.OpenFile(t.OutputPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return actError(doing, t.Name, fmt.Errorf("make the file for its output: %w", err))
		}
		f.Close() // nothing was written
	}
	err := s.act(ctx, unheard, func(ctx context.Context) error {
		_, err := s.conn.StartTransientUnitContext(ctx, t.Name, "fail", t.properties(), nil)
		return err
	})
	if isAnswer(err, unitExists) {
		err = ErrUnitExists
	}
	return actError(doing, t.Name, err)
}

// execCommand is an element of the property ExecStart.
type execCommand struct {
	Path          string
	Argv          []string
	IgnoreFailure bool
}

// literal keeps systemd from expanding variables in arguments. The flag that says so would need the property ExecStartEx, which systemd
// 252 can't read back when it is told to reload while the unit exists, as whoever sets up a kubelet tells it.
func literal(argv []string) []string {
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = strings.ReplaceAll(a, "$", "$$")
	}
	return out
}

// properties are understood by systemd from version 247 on.
func (t Transient) properties() []sd.Property {
	all := []sd.Property{
		value("Type", "exec"), // the unit has started when the program has, not before
		value("ExecStart", []execCommand{{t.Command[0], literal(t.Command), false}}),
		value("RemainAfterExit", true),   // else nothing would be left of a success
		value("CollectMode", "inactive"), // a failure stays until it is reset
		value("KillMode", "control-group"),
		value("TimeoutStopUSec", usecs(stopLimit)),
	}
	if t.Description != "" {
		all = append(all, value("Description", t.Description))
	}
	if t.Timeout > 0 {
		all = append(all, value("RuntimeMaxUSec", usecs(t.Timeout)))
	}
	if len(t.Environment) > 0 {
		all = append(all, value("Environment", t.Environment))
	}
	if t.OutputPath != "" {
		// Appending, because version 247 can't truncate.
		all = append(all, value("StandardOutputFileToAppend", t.OutputPath), value("StandardErrorFileToAppend", t.OutputPath))
	}
	return all
}

func value(name string, v any) sd.Property {
	return sd.Property{Name: name, Value: dbus.MakeVariant(v)}
}

func usecs(d time.Duration) uint64 { return uint64(max(1, d.Microseconds())) }

// UnitRun is what became of a transient unit.
type UnitRun struct {
	// Exists: systemd knows the unit. If not, all else is zero: it was never started, was forgotten, or the machine was booted since.
	Exists bool
	// Running: it has not ended; it may not have begun.
	Running bool
	// Result is systemd's word for how it ended: "success", "exit-code", "signal", "core-dump", "timeout", "resources", …; empty while
	// it runs.
	Result string
	// ExitStatus is that of the command; -1 when a signal ended it. systemd's own begin at 200: 203 says that the program could not be
	// executed, 209 that the file for its output could not be opened.
	ExitStatus int
	// Signal is the name of the signal that ended it, like "SIGKILL", or empty.
	Signal string
	// Started and Ended are when the command began and ended; zero for what has not happened. What ended without a command begun has
	// only Ended.
	Started, Ended time.Time
}

// Succeeded reports whether it ended well.
func (r UnitRun) Succeeded() bool { return r.Exists && !r.Running && r.Result == "success" }

// Run tells what became of a transient unit. One that does not exist is no error.
func (s *Systemd) Run(ctx context.Context, name string) (UnitRun, error) {
	p, err := s.properties(ctx, name)
	if err != nil {
		return UnitRun{}, actError("ask systemd for the result of", name, err)
	}
	return unitRun(p), nil
}

// properties are all of a unit's of one moment.
func (s *Systemd) properties(ctx context.Context, name string) (map[string]any, error) {
	var p map[string]any
	err := s.act(ctx, passing, func(ctx context.Context) (err error) {
		p, err = s.conn.GetAllPropertiesContext(ctx, name)
		return err
	})
	return p, err
}

func unitRun(p map[string]any) UnitRun {
	active := property[string](p, "ActiveState")
	if !unitThere(p) {
		return UnitRun{}
	}
	r := UnitRun{Exists: true, Started: usec(property[uint64](p, "ExecMainStartTimestamp"))}
	switch active {
	case "active":
		r.Running = property[string](p, "SubState") != "exited"
	case "inactive", "failed":
		r.Running = hasJob(p) // not begun
	default: // activating, deactivating, …
		r.Running = true
	}
	if r.Running {
		return r
	}
	r.Result = property[string](p, "Result")
	status := property[int32](p, "ExecMainStatus")
	switch property[int32](p, "ExecMainCode") {
	case cldKilled, cldDumped:
		r.ExitStatus, r.Signal = -1, unix.SignalName(syscall.Signal(status))
	default:
		r.ExitStatus = int(status)
	}
	r.Ended = usec(property[uint64](p, "ExecMainExitTimestamp"))
	if r.Ended.IsZero() {
		r.Ended = usec(property[uint64](p, "StateChangeTimestamp"))
	}
	return r
}

// How a process ended, see waitid(2).
const (
	cldKilled = 2
	cldDumped = 3
)

func unitThere(p map[string]any) bool {
	return property[string](p, "LoadState") != "not-found" || property[string](p, "ActiveState") != "inactive" || hasJob(p)
}

func hasJob(p map[string]any) bool {
	job := property[[]any](p, "Job") // number and path
	if len(job) == 0 {
		return false
	}
	id, _ := job[0].(uint32)
	return id != 0
}

// Forget makes systemd drop a transient unit with its result, and returns when it has, so that the name is free. What still runs of it is
// ended, within seconds, first. A unit that does not exist is no error, one that is not transient is.
func (s *Systemd) Forget(ctx context.Context, name string) error {
	const doing = "forget transient"
	for {
		p, err := s.properties(ctx, name)
		switch {
		case err != nil:
			return actError(doing, name, err)
		case !unitThere(p):
			return nil
		case !property[bool](p, "Transient"):
			return actError(doing, name, errors.New("it has a file of its own; stop it with systemctl if that is wanted"))
		}
		if err := s.drop(ctx, name); err != nil {
			return actError(doing, name, err)
		}
		select {
		case <-time.After(forgetPause):
		case <-ctx.Done():
			return actError(doing, name, context.Cause(ctx))
		}
	}
}

// drop asks for a unit to be stopped and its failure to be reset. What is neither running nor failed has no reason to stay.
func (s *Systemd) drop(ctx context.Context, name string) error {
	err := s.act(ctx, passing, func(ctx context.Context) error {
		_, err := s.conn.StopUnitContext(ctx, name, "replace", nil)
		return err
	})
	if err != nil && !isAnswer(err, noSuchUnit) {
		return err
	}
	return s.ResetFailed(ctx, name)
}
