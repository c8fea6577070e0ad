package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/internal/remedy"
	"github.com/aks-flex-node/agent/pkg/status"
)

// systemdWait is how long systemd may take to say how the host as a whole is.
const systemdWait = 2 * time.Second

// readJournal opens the journal to look at it, while no agent has it.
func (c *common) readJournal() (*journal.Journal, error) {
	path := c.journal()
	j, _, err := journal.Open(path, moment(), journal.Options{ReadOnly: true})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no agent has run here: there is no journal at %s", path)
	case errors.Is(err, journal.ErrLocked):
		return nil, fmt.Errorf("another process has the journal %s, but no agent answers: systemctl status aks-flex-node-agent", path)
	case err != nil:
		return nil, forbidden(fmt.Errorf("read the journal %s: %w", path, err), "read the journal "+path)
	}
	return j, nil
}

// moment is the present one, as far as this host tells it: what it can't tell makes budgets age more slowly, never faster.
func moment() journal.Moment {
	m := journal.Moment{Wall: time.Now()}
	boot, bootErr := host.BootID()
	if up, err := host.Uptime(); err == nil && bootErr == nil {
		m.Boot, m.Uptime = boot, up
	}
	if clock, err := host.Clock(); err == nil {
		m.Synced = clock.Synchronized
	}
	return m
}

// memory is what the journal tells of the time before. The zero value knows nothing.
type memory struct {
	pauses  []decision.Pause
	remedy  *decision.Remedy
	history decision.History
	budget  agent.Budget
}

// remember reads what decisions need from the journal; problem says why that was not possible.
func (c *common) remember() (m memory, problem string) {
	j, err := c.readJournal()
	if err != nil {
		return memory{}, oneLine(err)
	}
	defer func() { _ = j.Close() }() // it was only read
	now := moment()
	pause, err := j.Paused(now)
	if pause != nil {
		m.pauses = append(m.pauses, pauseOf(*pause))
	}
	unfinished, err2 := j.Unfinished()
	if unfinished != nil {
		m.remedy = &decision.Remedy{Name: unfinished.Name, Since: unfinished.Begun.Wall, Step: "left by an earlier agent"}
	}
	attempts := func(action decision.Action, unit string) []decision.Attempt {
		known, err3 := j.Attempts(now, remedy.BudgetOf(action, unit), decision.BudgetWindow)
		err = errors.Join(err, err3)
		var all []decision.Attempt
		for _, a := range known {
			all = append(all, decision.Attempt{Unit: unit, Began: now.Wall.Add(-a.Age)})
		}
		return all
	}
	m.history.Restarts = append(attempts(decision.Restart, decision.KubeletUnit), attempts(decision.Restart, decision.ContainerdUnit)...)
	m.history.Bootstraps = attempts(decision.Bootstrap, "")
	m.budget = agent.Budget{Bootstraps: len(m.history.Bootstraps), MaxBootstraps: decision.MaxBootstraps, Unknown: j.BudgetUnknown(now)}
	if err = errors.Join(err, err2); err != nil {
		problem = oneLine(err)
	}
	return m, problem
}

func pauseOf(p journal.Pause) decision.Pause {
	d := decision.Pause{By: p.By, Reason: p.Reason, Since: p.Since}
	if p.Until != nil {
		d.Until = *p.Until
	}
	return d
}

// lookWithoutAgent makes the view that an agent which only observes would have after one look. problem says why what was done before is
// not known. The journal is left alone where an agent has it.
func (c *common) lookWithoutAgent(ctx context.Context, s settings, free bool) (v *agent.View, problem string, err error) {
	var past memory
	if free {
		past, problem = c.remember()
	}
	if _, err := os.Lstat(c.pauseFile()); err == nil {
		past.pauses = append(past.pauses, decision.Pause{By: "the file " + c.pauseFile()})
	}
	suite := probe.New(s.cfg, agentVersion())
	defer suite.Close()
	set := suite.Look(ctx)
	hst := suite.LookAtHost(ctx)
	system := systemOf(ctx)
	if ctx.Err() != nil {
		return nil, "", errInterrupted
	}
	now := time.Now()
	in := decision.Input{
		Now: now, Mode: decision.ObserveOnly, ModeReason: "no agent runs here", Set: &set, System: system,
		Pauses: past.pauses, Remedy: past.remedy, History: past.history, CanBootstrap: s.cfg != nil && len(s.cfg.Agent.Bootstrap.Command) > 0,
	}
	node := set.Node.Value.Name
	if node == "" {
		node = s.nodeName()
	}
	return &agent.View{
		At: now, AgentVersion: agentVersion(), Node: node, Mode: in.Mode, ModeReason: in.ModeReason,
		Conditions: conditionsOf(now, health.Input{Set: &set, Certificate: hst.Certificate, Clock: hst.Clock, Disk: hst.Disk}),
		Decision:   decision.Decide(in), Remedy: past.remedy, Pauses: past.pauses, Budget: past.budget,
		Snapshot: status.FromObservations(&set, agentVersion(), now), Set: set, Host: hst, Probes: suite.Stats(),
	}, problem, nil
}

// conditionsOf are the conditions after one look. There is none of the snapshot's file: nobody writes it.
func conditionsOf(now time.Time, in health.Input) []health.Condition {
	all := []health.Condition{}
	for _, c := range health.NewTracker().Update(now, in) {
		if c.Type != health.StatusFileWritable {
			all = append(all, c)
		}
	}
	return all
}

func systemOf(ctx context.Context) decision.System {
	ctx, cancel := context.WithTimeout(ctx, systemdWait)
	defer cancel()
	systemd := &host.Systemd{}
	defer systemd.Close()
	var s decision.System
	if state, err := systemd.State(ctx); err == nil { // else it is not known
		s.State = state
	}
	if up, err := host.Uptime(); err == nil {
		s.Uptime = up
	}
	return s
}
