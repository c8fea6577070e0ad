package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/pkg/status"
)

// systemdWait is how long systemd may take to say how the host as a whole is.
const systemdWait = 2 * time.Second

// readJournal opens the journal to look at it, while no agent has it.
func (c *common) readJournal() (*journal.Journal, error) {
	path := c.journal()
	j, _, err := journal.Open(path, agent.Moment(), journal.Options{ReadOnly: true})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no agent has run here: there is no journal at %s", path)
	case errors.Is(err, journal.ErrLocked):
		return nil, fmt.Errorf("another process has the journal %s, but no agent answers: systemctl status aks-flex-node-agent; where it is active: systemctl restart aks-flex-node-agent", path)
	case err != nil:
		return nil, forbidden(fmt.Errorf("read the journal %s: %w", path, err), "read the journal "+path)
	}
	return j, nil
}

// remember reads what decisions need from what an agent left; problem says why its journal could not be read.
func (c *common) remember(s settings, free bool) (past agent.Past, problem string) {
	if !free {
		return agent.Recall(nil, c.pauseFile(), s.cfg), ""
	}
	j, err := c.readJournal()
	if err != nil {
		return agent.Recall(nil, c.pauseFile(), s.cfg), oneLine(err)
	}
	defer func() { _ = j.Close() }() // it was only read
	past = agent.Recall(j, c.pauseFile(), s.cfg)
	return past, past.History.Broken
}

// lookWithoutAgent makes the view that an agent which only observes would have after one look. problem says why what was done before is
// not known. noAgent is nil where none runs, or says why one that may run does not tell; then its journal is left alone.
func (c *common) lookWithoutAgent(ctx context.Context, s settings, noAgent error) (v *agent.View, problem string, err error) {
	past, problem := c.remember(s, noAgent == nil)
	reason := "no agent runs here"
	if noAgent != nil {
		reason = "the agent could not be asked"
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
		Now: now, Mode: decision.ObserveOnly, ModeReason: reason, Set: &set, System: system,
		Pauses: past.Pauses, Remedy: past.Remedy, History: past.History, Thresholds: past.Thresholds, Window: past.Window, DryRun: past.DryRun,
		CanBootstrap: s.cfg != nil && len(s.cfg.Agent.Bootstrap.Command) > 0,
	}
	node := set.Node.Value.Name
	if node == "" {
		node = s.nodeName()
	}
	return &agent.View{
		At: now, AgentVersion: agentVersion(), Node: node, Mode: in.Mode, ModeReason: in.ModeReason,
		Conditions: conditionsOf(now, health.Input{Set: &set, Certificate: hst.Certificate, Clock: hst.Clock, Disk: hst.Disk}),
		Decision:   decision.Decide(in), Remedy: past.Remedy, Pauses: past.Pauses, Budget: past.Budget,
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
