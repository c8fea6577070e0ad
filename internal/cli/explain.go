package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
)

func newExplain(c *common) *cobra.Command {
	var output string
	var types []string
	for _, r := range health.Table() {
		types = append(types, r.Type)
	}
	cmd := &cobra.Command{
		Use:   "explain [CONDITION]",
		Short: "Say what the agent does about this node and why",
		Long: `explain says what the agent has decided, what it saw, every guard that could keep it from acting, what would change the
decision, and what each condition that needs attention means and asks for. With CONDITION it says all about that one.
Where no agent runs it looks at the machine once and says what an agent that only observes would make of it.
It changes nothing.

The form json is one document with everything the agent knows, for programs.

Conditions: ` + strings.Join(types, ", "),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !slices.ContainsFunc(types, func(t string) bool { return strings.EqualFold(t, args[0]) }) {
				return fmt.Errorf("unknown condition %q: want one of %s", args[0], strings.Join(types, ", "))
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
		ValidArgs: types,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := c.loadConfig(cmd)
			if err != nil {
				return err
			}
			e, err := c.explanation(cmd.Context(), s)
			if err != nil {
				return err
			}
			return c.printExplanation(e, output, args)
		},
	}
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

// explanation is what explain has to tell, and how it came to know.
type explanation struct {
	view *agent.View
	// without says why this is not from an agent; empty when it is.
	without string
	now     time.Time
}

// explanation asks the agent, or looks at the machine and decides as an agent would that only observes.
func (c *common) explanation(ctx context.Context, s settings) (explanation, error) {
	v, err := c.agentView(ctx)
	if v != nil {
		return explanation{view: v, now: time.Now()}, nil
	}
	why := "No agent runs here"
	switch {
	case errors.Is(err, errSilent):
		why = strings.ToUpper(err.Error()[:1]) + err.Error()[1:]
	case errors.Is(err, fs.ErrPermission):
		why = "This user may not ask the agent (root may)"
	case err != nil:
		why = "The agent can't be asked (" + oneLine(err) + ")"
	}
	v, problem, err := c.lookWithoutAgent(ctx, s, err)
	if err != nil {
		return explanation{}, err
	}
	text := why + ": looked live just now. This is what an agent that only observes would make of one look."
	if problem != "" {
		text += " What was done before is not known: " + problem + "."
	}
	return explanation{view: v, without: text, now: v.At}, nil
}

func (c *common) printExplanation(e explanation, output string, args []string) error {
	columns := width(c.stdout)
	switch {
	case output == "json" && len(args) == 1:
		d, err := json.MarshalIndent(newDepth(e.view, args[0]), "", "  ")
		if err != nil {
			return err
		}
		c.noteUnless(e.without)
		return c.print(string(d) + "\n")
	case output == "json":
		d, err := json.MarshalIndent(e.view, "", "  ")
		if err != nil {
			return err
		}
		c.noteUnless(e.without)
		return c.print(string(d) + "\n")
	case len(args) == 1:
		return printStyled(c.stdout, e.head(columns)+newDepth(e.view, args[0]).text(e.now, columns))
	}
	return printStyled(c.stdout, e.text(columns))
}

// noteUnless tells on standard error what a form for programs has no place for.
func (c *common) noteUnless(text string) {
	if text != "" {
		c.note("%s", text)
	}
}

// head is the first line where it is not the agent that tells all this.
func (e explanation) head(columns int) string {
	if e.without == "" {
		return ""
	}
	return wrap(clean(e.without, longest), columns) + "\n\n"
}

func (e explanation) text(columns int) string {
	v := e.view
	var b strings.Builder
	b.WriteString(e.head(columns))
	b.WriteString(strong.Render(clean("Node "+v.Node, short)) + "\n")
	lines := agentLines(v, e.now)
	if e.without != "" {
		lines = lines[1:] // of no agent nothing is to be said
	} else {
		lines[0] = fmt.Sprintf("Agent: %s (%s, running for %s, as of %s ago)", stance(v), v.AgentVersion, age(e.now.Sub(v.Started)), age(e.now.Sub(v.At)))
	}
	for _, l := range lines {
		b.WriteString(sentence(clean(l, longest/4), columns))
	}
	b.WriteString("\n" + decisionText(v.Decision, columns))
	b.WriteString(conditionsText(v, e.now, columns))
	return b.String()
}

// conditionsText explains the conditions that need attention, and names the others.
func conditionsText(v *agent.View, now time.Time, columns int) string {
	var b strings.Builder
	var fine, covered []string
	for _, c := range v.Conditions {
		about := rule(c.Type)
		switch {
		case c.Reason == health.ReasonDependencyUnhealthy:
			covered = append(covered, clean(c.Type, short))
		case c.Severity != health.None, c.Status == health.Unknown, c.Pending != nil, isBad(c.Status, about):
			b.WriteString("\n" + attention(c, about, now, columns))
		default:
			fine = append(fine, clean(c.Type, short))
		}
	}
	if len(covered)+len(fine) > 0 {
		b.WriteString("\n")
	}
	if len(covered) > 0 {
		b.WriteString(hang("Nothing is said, since what they depend on is bad: "+strings.Join(covered, ", "), columns-min(columns, 2), 2) + "\n")
	}
	if len(fine) > 0 {
		b.WriteString(hang("As they should be: "+strings.Join(fine, ", "), columns-min(columns, 2), 2) + "\n")
	}
	return b.String()
}

// attention is a condition with what it means and what to do, as far as it is bad or looks so.
func attention(c health.Condition, about health.Row, now time.Time, columns int) string {
	var b strings.Builder
	head := fmt.Sprintf("%s is %s since %s, for %s", clean(c.Type, short), clean(string(c.Status), short), clock(c.LastTransitionTime), age(now.Sub(c.LastTransitionTime)))
	b.WriteString(paint(statusStyle(c).Bold(true), hang(head, columns-min(columns, 2), 2)) + "\n")
	b.WriteString(sentence(clean(c.Reason, short)+": "+clean(c.Message, long), columns))
	if c.Status == health.Unknown && c.LastKnown != "" {
		b.WriteString(sentence(clean(fmt.Sprintf("It was %s %s ago.", c.LastKnown, age(now.Sub(c.LastKnownTime))), long), columns))
	}
	if text := pendingText(c, now); text != "" {
		b.WriteString(sentence(clean("It is "+text+".", long), columns))
	}
	looksBad := c.Severity != health.None || isBad(c.Status, about) || c.Pending != nil && isBad(c.Pending.Status, about)
	if looksBad && about.Means != "" {
		b.WriteString(sentence("What it means: "+about.Means, columns))
		b.WriteString(sentence("What to do: "+about.Do, columns))
	}
	return b.String()
}

// decisionText is decision.Explain, fit for a terminal of so many columns.
func decisionText(d decision.Decision, columns int) string {
	if d.Action == "" {
		return "Decision: none yet\n"
	}
	var b strings.Builder
	for line := range strings.Lines(decision.Explain(cleanDecision(d))) {
		b.WriteString(aligned(strings.TrimSuffix(line, "\n"), columns) + "\n")
	}
	return b.String()
}

// cleanDecision returns the decision with every text fit for a terminal.
func cleanDecision(d decision.Decision) decision.Decision {
	d.Action, d.Wanted = decision.Action(clean(string(d.Action), short)), decision.Action(clean(string(d.Wanted), short))
	d.Unit, d.Reason, d.Message = clean(d.Unit, short), clean(d.Reason, short), clean(d.Message, longest/4)
	d.Evidence, d.Thresholds, d.Guards = slices.Clone(d.Evidence), slices.Clone(d.Thresholds), slices.Clone(d.Guards)
	d.Grounds, d.Changes = slices.Clone(d.Grounds), slices.Clone(d.Changes)
	for i := range d.Evidence {
		e := &d.Evidence[i]
		e.Subject, e.Health, e.Reason, e.Message = clean(e.Subject, short), clean(e.Health, short), clean(e.Reason, short), clean(e.Message, long)
	}
	for i := range d.Thresholds {
		t := &d.Thresholds[i]
		t.Name, t.Have, t.Want = clean(t.Name, short), clean(t.Have, short), clean(t.Want, short)
	}
	for i := range d.Guards {
		g := &d.Guards[i]
		g.Name, g.Effect, g.Message = clean(g.Name, short), decision.Action(clean(string(g.Effect), short)), clean(g.Message, long)
	}
	for i := range d.Grounds {
		d.Grounds[i] = clean(d.Grounds[i], short)
	}
	for i := range d.Changes {
		d.Changes[i] = clean(d.Changes[i], long)
	}
	return d
}

// depth is one condition with all that is to be said about it.
type depth struct {
	Type string `json:"type"`
	// Condition is nil where the condition does not apply, or nobody has looked.
	Condition *health.Condition  `json:"condition"`
	Means     string             `json:"means"`
	Do        string             `json:"do"`
	DependsOn []health.Condition `json:"dependsOn,omitempty"`
	NeededBy  []string           `json:"neededBy,omitempty"`

	rule health.Row
}

// newDepth gathers what is known of the condition of that name, in whatever case.
func newDepth(v *agent.View, name string) depth {
	find := func(conditionType string) *health.Condition {
		i := slices.IndexFunc(v.Conditions, func(c health.Condition) bool { return strings.EqualFold(c.Type, conditionType) })
		if i < 0 {
			return nil
		}
		return &v.Conditions[i]
	}
	d := depth{Type: name, Condition: find(name)}
	for _, r := range health.Table() {
		if strings.EqualFold(r.Type, name) {
			d.rule, d.Type, d.Means, d.Do = r, r.Type, r.Means, r.Do
		}
		if slices.Contains(r.DependsOn, d.Type) {
			d.NeededBy = append(d.NeededBy, r.Type)
		}
	}
	for _, t := range d.rule.DependsOn {
		if c := find(t); c != nil {
			d.DependsOn = append(d.DependsOn, *c)
		}
	}
	return d
}

func (d depth) text(now time.Time, columns int) string {
	var b strings.Builder
	if d.Condition == nil {
		b.WriteString(hang(d.Type+" does not apply to this node, or nobody has looked yet", columns-min(columns, 2), 2) + "\n")
	} else {
		b.WriteString(attention(*d.Condition, health.Row{Type: d.Type, Bad: d.rule.Bad}, now, columns))
	}
	b.WriteString("\n")
	bad := cmp.Or(d.rule.Bad, health.False)
	b.WriteString(sentence(fmt.Sprintf("What %s means: %s", bad, d.Means), columns))
	b.WriteString(sentence("What to do: "+d.Do, columns))
	b.WriteString(sentence(fmt.Sprintf("Severity: %s. %s", d.rule.Severity, d.times(bad)), columns))
	for _, c := range d.DependsOn {
		b.WriteString(sentence("Depends on "+clean(c.Text(now), long), columns))
	}
	if len(d.NeededBy) > 0 {
		b.WriteString(sentence("While it is bad, nothing is said about: "+strings.Join(d.NeededBy, ", "), columns))
	}
	return b.String()
}

// times words how long the condition takes to change.
func (d depth) times(bad health.Status) string {
	text := fmt.Sprintf("It shows as %s at once", bad)
	if d.rule.TimeToVisible > 0 {
		text = fmt.Sprintf("It shows as %s once that has lasted %s", bad, age(d.rule.TimeToVisible))
	}
	if d.rule.TimeToSettle > 0 {
		text += fmt.Sprintf("; what comes back within %s is the same fault", age(d.rule.TimeToSettle))
	}
	return text + "."
}
