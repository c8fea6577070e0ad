package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
)

// viewOfAgent makes the view of what the running agent knows: its look as rows, what its conditions add, and what it does about it.
func viewOfAgent(a *agent.View, s settings, now time.Time) view {
	if s.unreadable != nil {
		s = settings{cfg: &config.Config{}} // the agent knows what it asks for
	}
	v := viewOfSet(&a.Set, s, now)
	v.node = cmp.Or(a.Node, v.node)
	for _, c := range a.Conditions {
		if r, ok := conditionRow(c, v.rows, now); ok {
			v.conditions = append(v.conditions, r)
		}
	}
	v.conclude()
	v.agent = agentLines(a, now)
	v.source = fmt.Sprintf("From the agent %s, which has been running for %s, as of %s ago. More: aks-flex-node explain",
		a.AgentVersion, age(now.Sub(a.Started)), age(now.Sub(a.At)))
	if old := now.Sub(a.At); old > fresh && v.notANode == "" {
		v.health, v.doubt = observe.Unknown, "the agent answers, but has looked at nothing for "+age(old)+": journalctl -u aks-flex-node-agent -n 50"
	}
	return v
}

// rowOf names the row in which a condition shows; empty when it shows in none.
func rowOf(conditionType string) string {
	switch conditionType {
	case health.ContainerdRunning, health.RuntimeReady:
		return "containerd"
	case health.RuncPresent:
		return "runc"
	case health.KubeletRunning, health.KubeletHealthy:
		return "kubelet"
	case health.APIServerReachable, health.NodeReady:
		return "node"
	case health.ArcConnected:
		return "arc"
	}
	return ""
}

// shown reports whether a row shows by itself that something is wrong with what the condition is about, or that there is no such thing.
func shown(conditionType string, rows []row) bool {
	name := rowOf(conditionType)
	return name != "" && slices.ContainsFunc(rows, func(r row) bool {
		component, _, _ := strings.Cut(r.component, " ")
		return component == name && (r.absent || r.health != observe.Healthy)
	})
}

// rule is what the table of conditions says of one type; the zero row where it has none, as for one of a newer agent.
func rule(conditionType string) health.Row {
	all := health.Table()
	if i := slices.IndexFunc(all, func(r health.Row) bool { return r.Type == conditionType }); i >= 0 {
		return all[i]
	}
	return health.Row{Type: conditionType}
}

// isBad reports whether a status is the bad one of its condition.
func isBad(s health.Status, r health.Row) bool { return s == cmp.Or(r.Bad, health.False) }

// conditionRow is the row of a condition that people should see although no row above shows it: bad, unknown, warning, or about to change.
func conditionRow(c health.Condition, rows []row, now time.Time) (r row, ok bool) {
	about := rule(c.Type)
	r = row{
		component: c.Type, health: observe.Healthy, since: age(now.Sub(c.LastTransitionTime)), detail: c.Message,
		next: "aks-flex-node explain " + c.Type,
	}
	if text := pendingText(c, now); text != "" {
		r.detail += "; " + text
	}
	switch {
	case shown(c.Type, rows), c.Reason == health.ReasonDependencyUnhealthy:
		return row{}, false
	case c.Status == health.Unknown && about.Severity == health.Info:
		return row{}, false // that it can't be told is no news either
	case c.Type != health.APIServerReachable && about.Severity == health.Warning && c.Status == health.Unknown:
		r.state = "unknown" // worth a line; the node does its work all the same
	case c.Status == health.Unknown, isBad(c.Status, about) && c.Type == health.APIServerReachable: // a lost link says nothing about the node
		r.health = observe.Unknown
	case isBad(c.Status, about) && about.Severity != health.Info:
		r.health = observe.Unhealthy
	case c.Severity != health.None:
		r.state = strings.ToLower(string(c.Severity))
	case c.Pending != nil:
		r.state = "pending"
	default:
		return row{}, false
	}
	return r, true
}

// pendingText says what is about to be shown; empty when nothing is, or when the message says it.
func pendingText(c health.Condition, now time.Time) string {
	p := c.Pending
	if p == nil || c.Reason == health.ReasonConfirming {
		return ""
	}
	text := fmt.Sprintf("now seen as %s (%s: %s)", p.Status, p.Reason, p.Message)
	if p.Shown.IsZero() {
		return text + ", which counts once what it depends on is well"
	}
	return text + ", which counts in " + age(p.Shown.Sub(now)) + " if it lasts"
}

// agentLines says what the agent does and would do, one thing a line, the decision first.
func agentLines(a *agent.View, now time.Time) []string {
	lines := []string{"Agent: " + stance(a) + "; decision: " + decided(a.Decision)}
	if a.ConfigProblem != "" {
		lines = append(lines, "Configuration: "+a.ConfigProblem)
	}
	if r := a.Remedy; r != nil {
		lines = append(lines, "In progress: "+remedyText(r, now))
	}
	if b := budgetText(a.Budget); b != "" {
		lines = append(lines, "Budget: "+b)
	}
	if a.JournalProblem != "" {
		lines = append(lines, "Journal: "+a.JournalProblem)
	}
	return lines
}

// stance says whether the agent acts, and if not, why not.
func stance(a *agent.View) string {
	var text string
	switch {
	case a.Mode != decision.Act:
		text = "observing only"
		if a.ModeReason != "" {
			text += ", because " + a.ModeReason
		}
	case a.DryRun:
		text = "acting in words only (dry-run)"
	case a.JournalProblem != "":
		text = "observing only, because what it did could not be recorded"
	default:
		text = "acting"
	}
	for i, p := range a.Pauses {
		switch {
		case i > 0:
			text += " and by "
		case a.Mode == decision.Act:
			text = "paused by " // it does not act then
		default:
			text += ", and paused by "
		}
		text += pauseText(p)
	}
	return text
}

func pauseText(p decision.Pause) string {
	text := p.By
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	if !p.Until.IsZero() {
		text += " until " + clock(p.Until)
	}
	return text
}

// decided is a decision in one line.
func decided(d decision.Decision) string {
	if d.Action == "" {
		return "none yet"
	}
	text := decision.Deed(d.Action, d.Unit)
	if d.Wanted != "" {
		text += " (would " + decision.Deed(d.Wanted, d.Unit) + ")"
	}
	return text + " — " + d.Message
}

func remedyText(r *decision.Remedy, now time.Time) string {
	text := strings.TrimSpace(r.Name + " " + r.Unit)
	if r.Step != "" {
		text += ", step " + r.Step
	}
	if !r.Since.IsZero() {
		text += ", for " + age(now.Sub(r.Since))
	}
	return text
}

// budgetText says how much of the budget is used; empty when nothing is.
func budgetText(b agent.Budget) string {
	var parts []string
	if b.Bootstraps > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s used", b.Bootstraps, count(b.MaxBootstraps, "bootstrap")))
	}
	if b.Unknown > 0 {
		parts = append(parts, "counts as used up for another "+age(b.Unknown)+", since an earlier journal was lost")
	}
	return strings.Join(parts, "; ")
}

// conditionsTable lists every condition.
func conditionsTable(conditions []health.Condition, now time.Time, columns int) string {
	rows := [][]string{{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for _, c := range conditions {
		message := c.Message
		if c.Status == health.Unknown && c.LastKnown != "" {
			message += fmt.Sprintf("; it was %s %s ago", c.LastKnown, age(now.Sub(c.LastKnownTime)))
		}
		if text := pendingText(c, now); text != "" {
			message += "; " + text
		}
		rows = append(rows, []string{
			clean(c.Type, short), statusWord(c), age(now.Sub(c.LastTransitionTime)), clean(c.Reason, short), clean(message, long),
		})
	}
	return columnsOf(rows, columns)
}

// statusWord is a condition's status, coloured by what it means.
func statusWord(c health.Condition) string {
	return statusStyle(c).Render(clean(string(c.Status), short))
}

func statusStyle(c health.Condition) lipgloss.Style {
	switch {
	case c.Severity == health.Critical || c.Severity == health.Warning && isBad(c.Status, rule(c.Type)):
		return bad
	case c.Severity != health.None || c.Status == health.Unknown:
		return unsure
	}
	return good
}

// observationsTable lists what each probe saw.
func observationsTable(set *observe.Set, host *observe.Host, now time.Time, columns int) string {
	subjects := set.Subjects()
	if host != nil {
		subjects = append(subjects,
			observe.Subject{Name: "certificate", Verdict: host.Certificate.Verdict()},
			observe.Subject{Name: "clock", Verdict: host.Clock.Verdict()},
			observe.Subject{Name: "disk", Verdict: host.Disk.Verdict()})
	}
	rows := [][]string{{"SUBJECT", "HEALTH", "REASON", "AGE", "MESSAGE"}}
	for _, s := range subjects {
		seen := "-"
		if !s.At.IsZero() {
			seen = age(now.Sub(s.At))
		}
		rows = append(rows, []string{clean(s.Name, short), s.Health.String(), dash(clean(s.Reason, short)), seen, clean(s.Message, long)})
	}
	return columnsOf(rows, columns)
}
