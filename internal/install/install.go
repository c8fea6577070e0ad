// Package install puts this program and its service on a machine, and takes them away again.
//
// It has three goals. It never takes away what is not ours: what it puts somewhere is recorded with its checksum, only that is replaced or
// removed, and of anything else a copy is kept first. It never cuts a node off: where the kubelet gets its credentials from the program at
// our place, another one goes there only after it has got them too. And it can be stopped at any point and run again: every file is
// replaced in one step, and a second run finds nothing to do.
//
// It first makes a plan, of plain steps, from what it finds; carrying it out is all that changes the machine.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/deploy"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

// Where things lie. Nodes in the field have them there.
const (
	ProgramPath = "/usr/local/bin/aks-flex-node"
	UnitPath    = "/etc/systemd/system/" + deploy.UnitName
	StateDir    = "/var/lib/aks-flex-node"
	// FormerDir is where copies are kept of what was there before and was not put there by this program.
	FormerDir = StateDir + "/former"
)

const (
	programMode = 0o755
	unitMode    = 0o644
	stateMode   = 0o700
)

// Systemd is what the service is managed with: a *host.Systemd.
type Systemd interface {
	Units(ctx context.Context, names ...string) ([]observe.Unit, error)
	UnitIsStale(ctx context.Context, unit string) (bool, error)
	ReloadUnits(ctx context.Context) error
	EnableUnit(ctx context.Context, unit string) error
	DisableUnit(ctx context.Context, unit string) error
	Restart(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
}

// Installer is what an installation is made of. It is for one goroutine.
type Installer struct {
	// Program is the program to install; /proc/self/exe is the one that runs.
	Program string
	Version string // of that program
	Systemd Systemd
	// Config is the configuration file, which is read and never changed.
	Config string
	// Start has the service started, or restarted when something of it was replaced. Without it a service that runs goes on as it was.
	Start bool
	// StartWait is how long the service may take to say that it is ready; 0 means a minute.
	StartWait time.Duration
	// Force takes over what nobody knows, and goes on where credentials can't be had now by either program.
	Force bool

	// Root is a folder that stands for / in all paths, for tests; empty means /. Systemd and Program are not below it.
	Root string
	// Run runs a program; nil means host.Run. Now is the time; nil means time.Now.
	Run func(context.Context, host.Command) (host.Output, error)
	Now func() time.Time
}

// Plan is what is to be done, and what is worth knowing before. A Plan without steps says that nothing is left to do.
type Plan struct {
	Steps []Step
	Notes []string
}

// Step is one thing to do.
type Step struct {
	Text string // as an order, such as "start aks-flex-node-agent.service"
	do   func(context.Context) error
}

func (p *Plan) step(do func(context.Context) error, format string, args ...any) {
	p.Steps = append(p.Steps, Step{fmt.Sprintf(format, args...), do})
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// Install plans, shows the plan and, unless dryRun, carries it out. show may refuse with an error. Nothing is changed when the plan can't
// be made; when a step fails, those before it stay done, and the error says which one it was.
func (i *Installer) Install(ctx context.Context, dryRun bool, show func(*Plan) error) error {
	return i.carryOut(ctx, dryRun, i.planInstall, show)
}

// Uninstall does the same for taking away what Install put there. With purge it also removes the agent's own records and logs.
func (i *Installer) Uninstall(ctx context.Context, dryRun, purge bool, show func(*Plan) error) error {
	return i.carryOut(ctx, dryRun, func(ctx context.Context) (*Plan, error) { return i.planUninstall(ctx, purge) }, show)
}

func (i *Installer) carryOut(ctx context.Context, dryRun bool, plan func(context.Context) (*Plan, error), show func(*Plan) error) error {
	if !dryRun {
		unlock, err := i.lock()
		if err != nil {
			return err
		}
		defer unlock()
	}
	p, err := plan(ctx)
	if err != nil {
		return err
	}
	if err := show(p); err != nil || dryRun {
		return err
	}
	for _, s := range p.Steps {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped before: %s: %w; run this again to go on", s.Text, context.Cause(ctx))
		}
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.Text, err)
		}
	}
	return nil
}

// lock keeps others who install from doing it at once. The lock is on the folder of the unit, which is there before anything is.
func (i *Installer) lock() (unlock func(), err error) {
	dir, err := openFolder(i.Root, path.Dir(UnitPath), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: this machine has no systemd, which runs the service", err)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(dir.fd(), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.close()
		return nil, fmt.Errorf("someone else is installing or uninstalling right now: try again when that has ended (lock %s: %w)", dir.path, err)
	}
	return dir.close, nil
}

func (i *Installer) now() time.Time {
	if i.Now != nil {
		return i.Now()
	}
	return time.Now().UTC()
}

func (i *Installer) run(ctx context.Context, c host.Command) (host.Output, error) {
	if i.Run != nil {
		return i.Run(ctx, c)
	}
	return host.Run(ctx, c)
}

// at returns the path below the root of what people know by that name.
func (i *Installer) at(name string) string { return path.Join("/", i.Root, name) }

// lookAt looks at the file of that path. A folder that is missing means that the file is.
func (i *Installer) lookAt(name string) (found, error) {
	dir, err := openFolder(i.Root, path.Dir(name), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return found{}, nil
	}
	if err != nil {
		return found{}, err
	}
	defer dir.close()
	return dir.look(path.Base(name))
}
