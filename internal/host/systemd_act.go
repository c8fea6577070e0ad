package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"
)

// actLimit is how long systemd may take to answer a request; 25 s is what its own clients give it.
const actLimit = 25 * time.Second

var errNoAnswer = fmt.Errorf("systemd did not answer within %v; it hangs or is very busy", actLimit)

// State returns what systemd calls the state of the whole system: "initializing" and "starting" while it boots, then "running",
// "degraded" (a unit has failed), "maintenance" or "stopping".
func (s *Systemd) State(ctx context.Context) (string, error) {
	var state string
	err := s.act(ctx, passing, func(ctx context.Context) error {
		p, err := s.conn.SystemStateContext(ctx)
		if err == nil {
			state, _ = p.Value.Value().(string)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("ask systemd for the state of the system: %w", err)
	}
	return state, nil
}

// ResetFailed makes systemd forget that a unit has failed and how often it was started lately. A unit that has not failed, or that
// systemd does not know, is no error.
func (s *Systemd) ResetFailed(ctx context.Context, unit string) error {
	err := s.act(ctx, passing, func(ctx context.Context) error { return s.conn.ResetFailedUnitContext(ctx, unit) })
	if err == nil || isAnswer(err, noSuchUnit) {
		return nil
	}
	return actError("reset the failure of", unit, err)
}

// Start makes systemd start a unit and does not wait until it has: nil says that the job is queued. Starting one that runs does nothing.
func (s *Systemd) Start(ctx context.Context, unit string) error {
	return actError("start", unit, s.act(ctx, passing, func(ctx context.Context) error {
		_, err := s.conn.StartUnitContext(ctx, unit, "replace", nil)
		return err
	}))
}

// Restart makes systemd stop and start a unit, or start it if it does not run, and does not wait until it has: nil says that the job is
// queued. An error may also mean that the answer was lost: look at the unit before asking again.
func (s *Systemd) Restart(ctx context.Context, unit string) error {
	return actError("restart", unit, s.act(ctx, unheard, func(ctx context.Context) error {
		_, err := s.conn.RestartUnitContext(ctx, unit, "replace", nil)
		return err
	}))
}

// act is ask with a limit of its own, so that whoever acts without a deadline can't keep all others from asking.
func (s *Systemd) act(ctx context.Context, again func(error) bool, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, actLimit, errNoAnswer)
	defer cancel()
	return s.ask(ctx, again, func() error { return request(ctx) })
}

// unitExists is systemd's error for a transient unit whose name is taken.
const unitExists = "org.freedesktop.systemd1.UnitExists"

// hints tell what to do about an answer, by its name.
//
//nolint:gochecknoglobals // a table that nobody changes
var hints = map[string]string{
	noSuchUnit:                                                    "is it installed? see: systemctl list-unit-files",
	"org.freedesktop.systemd1.LoadFailed":                         "see: systemctl status, and after mending its file: systemctl daemon-reload",
	"org.freedesktop.systemd1.BadUnitSetting":                     "mend its file, then: systemctl daemon-reload",
	"org.freedesktop.systemd1.UnitMasked":                         "someone masked it on purpose; to undo that: systemctl unmask",
	"org.freedesktop.systemd1.TransactionIsDestructive":           "another job is in the way, perhaps a shutdown; see: systemctl list-jobs",
	"org.freedesktop.DBus.Error.AccessDenied":                     "run as root",
	"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": "run as root",
	"org.freedesktop.DBus.Error.Spawn.ServiceNotFound":            "is systemd running? see: systemctl is-system-running",
	"org.freedesktop.systemd1.ShuttingDown":                       "the system shuts down",
	"org.freedesktop.PolicyKit1.Error.NotAuthorized":              "run as root",
}

// actError says what could not be done to what unit, and what to do about it; nil stays nil.
func actError(doing, unit string, err error) error {
	if err == nil {
		return nil
	}
	if answer, ok := errors.AsType[dbus.Error](err); ok && hints[answer.Name] != "" {
		return fmt.Errorf("%s unit %s: %w (%s)", doing, unit, err, hints[answer.Name])
	}
	return fmt.Errorf("%s unit %s: %w", doing, unit, err)
}

func isAnswer(err error, name string) bool {
	answer, ok := errors.AsType[dbus.Error](err)
	return ok && answer.Name == name
}
