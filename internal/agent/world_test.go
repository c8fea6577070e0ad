package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
)

// command is what the bootstrap's command does.
type command struct {
	takes  time.Duration
	fails  bool
	prints string // beside that it is joining
	// leaves is what it leaves behind, also where it fails; nil for a host that is a node again.
	leaves func(*machine)
}

// run is a transient unit.
type run struct {
	command
	ended bool
}

// act is something that was done to the machine by way of systemd.
type act struct {
	what, unit string // reset-failed, start, restart, command
	at         time.Time
}

// machine is one simulated host in a bubble of time. All that the agent sees of it and does to it goes through here.
type machine struct {
	t     *testing.T
	quick bool      // looks take no time unless something hangs: for simulations
	acted func(act) // told of each act, before it has an effect; it may not call the machine

	mu       sync.Mutex // guards the fields below
	boot     int
	booted   time.Time
	unsynced bool
	kubelet  service
	runtime  service
	sick     map[string]string // by unit: why it is not well though it runs
	dark     bool              // systemd can't be asked
	linkCut  bool
	arcCut   bool
	notReady bool
	noRunc   bool
	diskFree uint64        // in percent
	stuck    chan struct{} // all that asks systemd hangs until it is closed, whatever becomes of its context; nil for nothing
	hangs    map[string]chan struct{}
	command  command
	runs     map[string]*run
	acts     []act
	looks    int // whole rounds
	sights   map[*sight]bool
	shown    [2]signal // what systemd last told of its units
	timer    *time.Timer
	since    map[string]time.Time // since when something is so; zero while it is not
	well     time.Time            // when both units had last been up for as long as it takes to have recovered
}

// newMachine must be called in a bubble: there it is midnight, 2000-01-01 UTC. The host is a node that is well, and has been up for an hour.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, boot: 1, booted: time.Now().Add(-time.Hour), sick: map[string]string{}, diskFree: 50, hangs: map[string]chan struct{}{},
		runs: map[string]*run{}, sights: map[*sight]bool{}, command: command{takes: time.Minute}, since: map[string]time.Time{}}
	for name, d := range m.daemons() {
		d.Unit = observe.Unit{Name: name, LoadState: "loaded", UnitFileState: "enabled"}
		d.becomes("active", "running", "success", "")
		d.StateChange, d.MainPID = m.booted, 100
	}
	return m
}

func (m *machine) daemons() map[string]*service {
	return map[string]*service{kubelet: &m.kubelet, containerd: &m.runtime}
}

func (m *machine) unit(unit string) *service {
	if unit == containerd {
		return &m.runtime
	}
	return &m.kubelet
}

// happens changes the machine. Who watches its units is told when one of them changed.
func (m *machine) happens(what func(*machine)) {
	m.mu.Lock()
	what(m)
	changed := m.changed()
	m.mu.Unlock()
	for _, tell := range changed {
		tell("")
	}
}

// signal is that of which systemd tells those who watch; it tells nobody that a unit was masked.
type signal struct {
	active, sub, job string
	pid              int
	change           time.Time
}

// changed returns whom to tell, and sees to what is due next.
func (m *machine) changed() (watchers []func(string)) {
	now, next := time.Now(), time.Time{}
	for _, d := range m.daemons() {
		d.tick(now)
		if !d.due.IsZero() && (next.IsZero() || d.due.Before(next)) {
			next = d.due
		}
	}
	m.note(now)
	if m.timer != nil {
		m.timer.Stop()
	}
	if !next.IsZero() {
		m.timer = time.AfterFunc(next.Sub(now), func() { m.happens(func(*machine) {}) })
	}
	var shown [2]signal
	for i, d := range []*service{&m.kubelet, &m.runtime} {
		shown[i] = signal{d.ActiveState, d.SubState, d.Job, d.MainPID, d.StateChange}
	}
	if m.dark || shown == m.shown {
		return nil
	}
	m.shown = shown
	for s := range m.sights {
		if s.unitChanged != nil {
			watchers = append(watchers, s.unitChanged)
		}
	}
	return watchers
}

func (m *machine) moment() journal.Moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return journal.Moment{Wall: time.Now(), Boot: fmt.Sprintf("boot-%d", m.boot), Uptime: time.Since(m.booted), Synced: !m.unsynced}
}

// reboot stops everything and starts what is enabled. The agent must have ended.
func (m *machine) reboot() {
	m.happens(func(m *machine) {
		m.boot++
		m.booted, m.dark, m.runs, m.sick = time.Now(), false, map[string]*run{}, map[string]string{}
		for _, d := range m.daemons() {
			d.NRestarts, d.stoppedAt = 0, time.Time{}
			d.becomes("inactive", "dead", "success", "")
			d.StateChange = time.Time{}
			if d.UnitFileState == "enabled" {
				d.begin()
			}
		}
	})
}

// repair is what a person does in the end.
func (m *machine) repair() {
	m.happens(func(m *machine) {
		m.sick, m.dark, m.linkCut, m.arcCut, m.notReady, m.noRunc, m.diskFree, m.command = map[string]string{}, false, false, false, false, false, 50, command{takes: time.Minute}
		m.mend()
	})
}

// mend makes of this host a node again.
func (m *machine) mend() {
	for _, d := range m.daemons() {
		d.LoadState, d.UnitFileState, d.broken, d.loops, d.NRestarts = "loaded", "enabled", false, false, 0
		if d.Running() {
			d.due = time.Time{}
		}
		d.begin()
	}
	m.sick = map[string]string{}
}

// note keeps since when something is so.
func (m *machine) note(now time.Time) {
	up := m.kubelet.Running() && m.runtime.Running()
	if !up && m.longer("up", decision.Recovered) {
		m.well = now
	}
	for what, so := range map[string]bool{
		"up": up, "works": m.works(), "dark": m.dark, "masked": m.kubelet.LoadState == "masked" || m.kubelet.LoadState == "loaded" && m.kubelet.UnitFileState == "disabled",
	} {
		if !so {
			m.since[what] = time.Time{}
		} else if m.since[what].IsZero() {
			m.since[what] = now
		}
	}
}

// longer reports whether something has been so for longer than d.
func (m *machine) longer(what string, d time.Duration) bool {
	return !m.since[what].IsZero() && time.Since(m.since[what]) > d
}

// works reports whether the host is truly a node that works.
func (m *machine) works() bool {
	return m.kubelet.Running() && m.runtime.Running() && m.sick[kubelet] == "" && m.sick[containerd] == ""
}

var (
	errDark      = errors.New("systemd does not answer")
	errNoSuch    = errors.New("unit not found")
	errNotLoaded = errors.New("unit is masked")
)

// ask is a question to systemd, or an order.
func (m *machine) ask(ctx context.Context, what func() error) error {
	m.mu.Lock()
	stuck, dark := m.stuck, m.dark
	m.mu.Unlock()
	switch {
	case stuck != nil:
		<-stuck
		return errDark
	case dark:
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
		}
		return errDark
	case ctx.Err() != nil:
		return ctx.Err()
	}
	err := errDark
	m.happens(func(*machine) { err = what() })
	return err
}

// order is one that changes something.
func (m *machine) order(ctx context.Context, what, unit string, effect func() error) error {
	return m.ask(ctx, func() error {
		a := act{what, unit, time.Now()}
		if m.acted != nil {
			m.acted(a)
		}
		m.acts = append(m.acts, a)
		return effect()
	})
}

func (m *machine) State(ctx context.Context) (state string, err error) {
	return state, m.ask(ctx, func() error {
		state = "running"
		if time.Since(m.booted) < 40*time.Second {
			state = "starting"
		}
		return nil
	})
}

func (m *machine) Units(ctx context.Context, names ...string) (all []observe.Unit, err error) {
	return all, m.ask(ctx, func() error {
		for _, name := range names {
			all = append(all, m.unit(name).Unit)
		}
		return nil
	})
}

func (m *machine) ResetFailed(ctx context.Context, unit string) error {
	return m.order(ctx, "reset-failed", unit, func() error {
		if d := m.unit(unit); d.ActiveState == "failed" {
			d.becomes("inactive", "dead", "success", "")
			d.NRestarts = 0
		}
		return nil
	})
}

func (m *machine) Start(ctx context.Context, unit string) error {
	return m.order(ctx, "start", unit, func() error { return m.start(unit) })
}

func (m *machine) start(unit string) error {
	d := m.unit(unit)
	switch d.LoadState {
	case "not-found":
		return errNoSuch
	case "masked":
		return errNotLoaded
	}
	d.NRestarts = 0
	d.begin()
	return nil
}

func (m *machine) Restart(ctx context.Context, unit string) error {
	return m.order(ctx, "restart", unit, func() error {
		d := m.unit(unit)
		d.becomes("inactive", "dead", "success", "")
		if !d.broken {
			delete(m.sick, unit)
		}
		return m.start(unit)
	})
}

func (m *machine) StartTransient(ctx context.Context, t host.Transient) error {
	return m.order(ctx, "command", t.Name, func() error {
		if m.runs[t.Name] != nil {
			return host.ErrUnitExists
		}
		if err := os.WriteFile(t.OutputPath, []byte("joining\n"+m.command.prints), 0o600); err != nil {
			return err
		}
		r := &run{command: m.command}
		m.runs[t.Name] = r
		time.AfterFunc(r.takes, func() {
			m.happens(func(m *machine) {
				if m.runs[t.Name] != r {
					return // the host went down meanwhile
				}
				if r.ended = true; r.leaves != nil {
					r.leaves(m)
				} else {
					m.mend()
				}
			})
		})
		return nil
	})
}

func (m *machine) Run(ctx context.Context, name string) (u host.UnitRun, err error) {
	return u, m.ask(ctx, func() error {
		switch r := m.runs[name]; {
		case r == nil:
		case !r.ended:
			u = host.UnitRun{Exists: true, Running: true}
		case r.fails:
			u = host.UnitRun{Exists: true, Result: "exit-code", ExitStatus: 1}
		default:
			u = host.UnitRun{Exists: true, Result: "success"}
		}
		return nil
	})
}

func (m *machine) Forget(ctx context.Context, name string) error {
	return m.ask(ctx, func() error {
		delete(m.runs, name)
		return nil
	})
}

// did is what was done by way of systemd since the last call, in order.
func (m *machine) did() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.acts {
		if a.what == "command" {
			all = append(all, a.what)
			continue
		}
		all = append(all, a.what+" "+a.unit)
	}
	m.acts = nil
	return all
}

// commandRuns reports whether a bootstrap's command is running. The caller holds mu.
func (m *machine) commandRuns() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(m.runs)), func(r *run) bool { return !r.ended })
}
