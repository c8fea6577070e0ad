package agent

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
)

// titled makes a CamelCase word of a small one.
func titled(word string) string {
	if word == "" {
		return ""
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

// statusLine is what `systemctl status` shows of the agent.
func statusLine(v *View) string {
	text := "all is well"
	if c, found := health.Worst(v.Conditions); found {
		text = fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason)
	}
	if v.Decision.Action != "" && v.Decision.Action != decision.None {
		text += fmt.Sprintf("; decision: %s (%s)", deed(v.Decision), v.Decision.Reason)
	}
	return text
}

// within counts the attempts that are still in the budget's window.
func within(attempts []decision.Attempt, now time.Time, t decision.Thresholds) (n int) {
	window := cmp.Or(t.BudgetWindow, decision.BudgetWindow)
	for _, a := range attempts {
		if now.Sub(a.Began) < window {
			n++
		}
	}
	return n
}

func maxBootstraps(t decision.Thresholds) int { return cmp.Or(t.MaxBootstraps, decision.MaxBootstraps) }

// holdText says why nothing is done, without what changes by itself: the cluster need not be told again that time has passed.
func holdText(d decision.Decision) string {
	text := "the agent does nothing about "
	switch {
	case d.Unit != "":
		text += d.Unit
	default:
		text += "this node"
	}
	if d.Wanted != "" {
		text += ", and would else " + string(d.Wanted) + " it"
	}
	var why []string
	for _, g := range d.Guards {
		if g.Holds {
			why = append(why, g.Name)
		}
	}
	if len(why) > 0 && d.Wanted != "" {
		text += " (held by: " + strings.Join(why, ", ") + ")"
	}
	if len(d.Changes) > 0 {
		text += "; what would change that: " + strings.Join(d.Changes, "; ")
	}
	return text
}
