package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aks-flex-node/agent/deploy"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

const (
	lookEvery = 100 * time.Millisecond
	// stopWait is longer than the unit gives the agent for its end.
	stopWait = 30 * time.Second
)

// planService plans what systemd is to do. The unit is as it was before anything is changed.
func (i *Installer) planService(ctx context.Context, p *Plan, unit observe.Unit, newProgram, newUnit bool) error {
	stale := false
	if unit.Exists() && !newUnit {
		var err error
		if stale, err = i.Systemd.UnitIsStale(ctx, deploy.UnitName); err != nil {
			return err
		}
	}
	missing := !unit.Exists()
	if unit.UnitFileState != "enabled" {
		p.step(func(ctx context.Context) error { return i.Systemd.EnableUnit(ctx, deploy.UnitName) }, "enable %s: it starts with the machine", deploy.UnitName)
	}
	if newUnit || stale || missing || unit.UnitFileState != "enabled" {
		p.step(i.Systemd.ReloadUnits, "have systemd read its unit files anew")
	}
	old := newProgram || newUnit || stale || i.runsAnother(unit)
	switch {
	case !i.Start && unit.Running() && old:
		p.note("The service that runs is left as it is (--start=false): it goes on with what it was started with.")
	case !i.Start, unit.Running() && !old:
	case unit.Running():
		p.step(func(ctx context.Context) error { return i.restart(ctx) }, "restart %s", deploy.UnitName)
	default:
		p.step(func(ctx context.Context) error { return i.restart(ctx) }, "start %s", deploy.UnitName)
	}
	return nil
}

// runsAnother says whether the service runs another program than the one that lies in its place: it was replaced and never restarted.
func (i *Installer) runsAnother(unit observe.Unit) bool {
	if unit.MainPID == 0 {
		return false
	}
	running, _, err := host.Executable(unit.MainPID)
	if err != nil {
		return false
	}
	one, err1 := os.Stat(running)
	two, err2 := os.Stat(i.at(ProgramPath))
	return err1 == nil && err2 == nil && !os.SameFile(one, two)
}

// restart starts the service, or restarts it, and waits until it is up.
func (i *Installer) restart(ctx context.Context) error {
	before, err := i.unit(ctx)
	if err != nil {
		return err
	}
	if err := i.Systemd.Restart(ctx, deploy.UnitName); err != nil {
		return err
	}
	wait := i.StartWait
	if wait == 0 {
		wait = time.Minute
	}
	last, err := i.waitUntil(ctx, wait, func(u observe.Unit) bool {
		another := u.MainPID != before.MainPID || u.MainStart != before.MainStart || !before.Running()
		return u.Running() && u.Job == "" && another
	})
	if err != nil {
		return fmt.Errorf("%w. It is installed, and systemd goes on trying. Look at: journalctl -u %s; it is now %s (%s), last result %s",
			err, deploy.UnitName, last.ActiveState, last.SubState, last.Result)
	}
	return nil
}

// stop stops the service and waits for its end.
func (i *Installer) stop(ctx context.Context) error {
	if err := i.Systemd.Stop(ctx, deploy.UnitName); err != nil {
		return err
	}
	last, err := i.waitUntil(ctx, stopWait, func(u observe.Unit) bool {
		return u.MainPID == 0 && u.Job == "" && (u.ActiveState == "inactive" || u.ActiveState == "failed")
	})
	if err != nil {
		return fmt.Errorf("%w: it is still %s (%s)", err, last.ActiveState, last.SubState)
	}
	return nil
}

func (i *Installer) unit(ctx context.Context) (observe.Unit, error) {
	units, err := i.Systemd.Units(ctx, deploy.UnitName)
	if err != nil {
		return observe.Unit{}, err
	}
	return units[0], nil
}

var errTooLong = errors.New("the service does not do so in time")

// waitUntil looks at the unit until it is as wanted, and returns how it was last.
func (i *Installer) waitUntil(ctx context.Context, atMost time.Duration, wanted func(observe.Unit) bool) (observe.Unit, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, atMost, fmt.Errorf("%w (%s)", errTooLong, atMost))
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last observe.Unit
	for {
		u, err := i.unit(ctx)
		if err == nil {
			last = u
			if wanted(u) {
				return u, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}
