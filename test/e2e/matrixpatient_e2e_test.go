//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/localapi"
	"github.com/aks-flex-node/agent/pkg/status"
	"github.com/aks-flex-node/agent/test/lab"
)

const pendingWord = ", pending"

// patient is a node in one row of the matrix, and all that was seen of it there.
type patient struct {
	node
	c *lab.Cluster
	// static are conditions that say more about this machine than about the host.
	static map[string]bool

	base        *status.NodeStatus // before the fault; nil until then
	looks       uint64             // whole rounds before the fault
	invocations map[string]string  // of the units before the fault
	began       time.Time
	lifted      time.Time
	seen        map[string]bool // facts in words
	last        sightOfAgent
	release     func() // ends what a row began outside of the host
}

// sightOfAgent is one look at what the agent says. What can't be had is nil.
type sightOfAgent struct {
	view     *agent.View
	history  []journal.Entry
	snapshot *status.NodeStatus
	err      error
}

func (p *patient) look(ctx context.Context) (s sightOfAgent) {
	c := localapi.NewClient(filepath.Join(p.Root(), "/run/aks-flex-node/agent.sock"))
	if s.view, s.err = c.View(ctx, 0); s.err == nil && !p.began.IsZero() {
		s.history, s.err = c.History(ctx, p.began, time.Time{}, 0)
	}
	s.snapshot, _ = p.node.snapshot() // one that is missing shows as a snapshot that is not well
	if p.base != nil {
		p.note(s)
	}
	return s
}

// begin takes down how all was before the fault.
func (p *patient) begin() {
	p.base, p.looks, p.seen = p.last.snapshot, p.last.view.Counters.Looks, map[string]bool{}
	p.began, p.lifted = time.Now(), time.Time{}
	p.invocations = map[string]string{}
	for _, unit := range []string{decision.KubeletUnit, decision.ContainerdUnit} {
		p.invocations[unit] = p.invocation(unit)
	}
}

func (p *patient) invocation(unit string) string {
	p.t.Helper()
	return strings.TrimSpace(p.MustExec(p.t, "systemctl", "show", "-P", "InvocationID", unit))
}

func (p *patient) stopAgent() { p.MustExec(p.t, "systemctl", "stop", agentUnit) }
func (p *patient) startAgent() {
	p.t.Helper()
	p.sh("systemctl reset-failed " + agentUnit + " || true; systemctl start " + agentUnit)
}

// well: nothing is wrong, nothing is done, and the snapshot is fresh and as it was.
func (p *patient) well(s sightOfAgent) (bool, string) {
	switch {
	case s.err != nil:
		return false, s.err.Error()
	case s.view.Decision.Action != decision.None || s.view.Remedy != nil:
		return false, summary(s.view)
	case s.snapshot == nil || s.snapshot.LastUpdated.Before(p.lifted) || s.view.Snapshot == nil || s.view.Snapshot.LastUpdated.Before(p.lifted):
		return false, "the snapshot is not there or of before"
	}
	for _, c := range s.view.Conditions {
		if !p.static[c.Type] && (c.Status == health.Unknown || isBad(c.Type, c.Status)) {
			return false, c.Text(time.Now())
		}
	}
	if p.base == nil {
		ok := s.snapshot.KubeletRunning && s.snapshot.ContainerdRunning && s.snapshot.KubeletReady == "Ready"
		return ok, fmt.Sprintf("%+v", *s.snapshot)
	}
	changed := differences(p.base, s.snapshot)
	return len(changed) == 0, fmt.Sprint(changed)
}

func isBad(kind string, is health.Status) bool {
	for _, row := range health.Table() {
		if row.Type == kind && row.Bad == health.True {
			return is == health.True
		}
	}
	return is == health.False
}

// note adds what a look shows to what was seen.
func (p *patient) note(s sightOfAgent) {
	if s.snapshot != nil {
		for _, d := range differences(p.base, s.snapshot) {
			p.seen[d] = true
		}
	}
	if s.view == nil || s.view.Started.IsZero() {
		return
	}
	p.noteDecision(string(s.view.Decision.Action), s.view.Decision.Reason)
	for _, c := range s.view.Conditions {
		p.noteCondition(c.Type, c.Status, c.Reason, "")
		if c.Pending != nil {
			p.noteCondition(c.Type, c.Pending.Status, c.Pending.Reason, pendingWord)
		}
	}
	for _, e := range s.history {
		if e.At.Before(p.began) {
			continue
		}
		switch e.Kind {
		case journal.KindDecision:
			p.noteDecision(e.To, e.Reason)
		case journal.KindCondition:
			p.noteCondition(e.Subject, health.Status(e.To), e.Reason, "")
		}
	}
}

func (p *patient) noteDecision(action, reason string) {
	if action != string(decision.None) {
		p.seen[action+" "+reason] = true
	}
}

func (p *patient) noteCondition(kind string, is health.Status, reason, suffix string) {
	nothing := is == health.Unknown && slices.Contains([]string{health.ReasonConfirming, "NotLooked", "NotLookedYet"}, reason)
	if !p.static[kind] && !nothing && (is == health.Unknown || isBad(kind, is)) {
		p.seen[fmt.Sprintf("%s %s %s%s", kind, is, reason, suffix)] = true
	}
}

func (p *patient) allSeen() []string { return slices.Sorted(maps.Keys(p.seen)) }

// begun lists the remedies that were begun since the fault, each kind once.
func (p *patient) begun(s sightOfAgent) []string {
	kinds := map[string]bool{}
	for _, e := range s.history {
		if e.Kind != journal.KindRemedy || e.To != "begun" {
			continue
		}
		var d decision.Decision
		if err := json.Unmarshal(e.Data, &d); err != nil {
			p.t.Fatalf("history: %v in %+v", err, e)
		}
		if d.Action == decision.Restart {
			kinds["restart "+d.Unit] = true
			continue
		}
		kinds[string(d.Action)] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// differences are the fields of a snapshot that are not as they were, in words.
func differences(before, after *status.NodeStatus) []string {
	fields := func(s *status.NodeStatus) []string {
		return []string{
			"kubeletVersion " + s.KubeletVersion, "runcVersion " + s.RuncVersion, "containerdVersion " + s.ContainerdVersion,
			fmt.Sprint("kubeletRunning ", s.KubeletRunning), "kubeletReady " + s.KubeletReady, fmt.Sprint("containerdRunning ", s.ContainerdRunning),
			fmt.Sprint("arcStatus.connected ", s.ArcStatus.Connected), fmt.Sprint("arcStatus.registered ", s.ArcStatus.Registered),
		}
	}
	var all []string
	was := fields(before)
	for i, f := range fields(after) {
		if f != was[i] {
			all = append(all, f)
		}
	}
	return all
}
