package host

import (
	"context"
	"fmt"
	"time"
)

// noSuchUnit is systemd's error for a unit that is not loaded, which one that does not exist is neither.
const noSuchUnit = "org.freedesktop.systemd1.NoSuchUnit"

// reloadLimit is how long systemd may take to read all unit files: it runs generators for that, and does nothing else meanwhile.
const reloadLimit = 90 * time.Second

// EnableUnit makes a unit start with the machine, as the [Install] section of its file says. One that is enabled already is no error.
// ReloadUnits must follow.
func (s *Systemd) EnableUnit(ctx context.Context, unit string) error {
	return actError("enable", unit, s.act(ctx, passing, func(ctx context.Context) error {
		_, _, err := s.conn.EnableUnitFilesContext(ctx, []string{unit}, false, false)
		return err
	}))
}

// DisableUnit is the opposite of EnableUnit. A unit that is not enabled, or that has no file, is no error. ReloadUnits must follow.
func (s *Systemd) DisableUnit(ctx context.Context, unit string) error {
	return actError("disable", unit, s.act(ctx, passing, func(ctx context.Context) error {
		_, err := s.conn.DisableUnitFilesContext(ctx, []string{unit}, false)
		return err
	}))
}

// ReloadUnits makes systemd read all unit files anew, and returns when it has.
func (s *Systemd) ReloadUnits(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reloadLimit, fmt.Errorf("systemd did not read its unit files within %v", reloadLimit))
	defer cancel()
	if err := s.ask(ctx, passing, func() error { return s.conn.ReloadContext(ctx) }); err != nil {
		return fmt.Errorf("make systemd read its unit files anew: %w", err)
	}
	return nil
}

// Stop makes systemd stop a unit and does not wait until it has: nil says that the job is queued. A unit that is not loaded is no error.
func (s *Systemd) Stop(ctx context.Context, unit string) error {
	err := s.act(ctx, passing, func(ctx context.Context) error {
		_, err := s.conn.StopUnitContext(ctx, unit, "replace", nil)
		return err
	})
	if err == nil || isAnswer(err, noSuchUnit) {
		return nil
	}
	return actError("stop", unit, err)
}

// UnitIsStale reports whether the file of a unit, or a drop-in of it, is another than when systemd read it.
func (s *Systemd) UnitIsStale(ctx context.Context, unit string) (stale bool, err error) {
	err = s.act(ctx, passing, func(ctx context.Context) error {
		p, err := s.conn.GetUnitPropertyContext(ctx, unit, "NeedDaemonReload")
		if err == nil {
			stale, _ = p.Value.Value().(bool)
		}
		return err
	})
	return stale, actError("look at", unit, err)
}
