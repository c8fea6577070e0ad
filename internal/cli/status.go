package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/pkg/status"
)

// fresh is how old a snapshot may be to be shown as the node's state; needs-bootstrap has the same limit.
const fresh = 5 * time.Minute

func newStatus(c *common) *cobra.Command {
	var output string
	var live, watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what runs on this node and whether it is healthy",
		Long: `status shows what the agent knows: the components, conditions that need attention, and what the agent does about them.
Where no agent runs it shows the snapshot file, which programs that import pkg/status can keep too. With --live, or when
there is neither an agent to ask nor a snapshot younger than five minutes that this user may read, it looks at the
machine itself, and says so. It changes nothing.

The forms json and yaml print exactly the snapshot; wide prints everything known, with reasons. For programs that want
more: aks-flex-node explain -o json.

With --watch it goes on until it is interrupted: on a terminal it keeps the table up to date, into a pipe it prints the
present state and then a line for each change.

Exit status: 0 healthy, 10 unhealthy, 11 unknown or no node, 1 error, 2 wrong usage. With --watch: 0.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if watch && output != "table" {
				return errors.New("--watch prints a table or lines: leave out --output")
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.loadConfig(cmd)
			if err != nil {
				return err
			}
			if watch {
				return c.watch(cmd.Context(), s, live)
			}
			r, err := c.takeReport(cmd.Context(), s, live)
			if err != nil {
				return err
			}
			if err := c.printReport(r, output, live); err != nil {
				return err
			}
			if code := r.view.exit(); code != ExitHealthy {
				return exitStatus(code)
			}
			return nil
		},
	}
	outputFlag(cmd, &output, "table", "wide", "json", "yaml")
	cmd.Flags().BoolVar(&live, "live", false, "look at the machine now, whatever the agent or the snapshot says")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on and show every change")
	return cmd
}

// printReport prints r in one of its forms. Those for programs hold no word on where the snapshot is from, so standard error tells when
// it is not from the file.
func (c *common) printReport(r report, output string, live bool) error {
	text, err := r.render(output, width(c.stdout))
	if err != nil {
		return err
	}
	if output != "json" && output != "yaml" {
		return printStyled(c.stdout, text)
	}
	switch {
	case live:
	case r.agent != nil && r.problem != "":
		c.note("From the agent, since %s.", r.problem)
	case r.agent == nil && r.set != nil:
		c.note("%s", r.view.source)
	}
	return c.print(text)
}

// report is what status has to tell: the snapshot, where it comes from, and what it means.
type report struct {
	snapshot *status.NodeStatus
	set      *observe.Set // nil when the snapshot was read from the file and no agent told more
	agent    *agent.View  // nil without an agent
	problem  string       // why the snapshot file is of no use; empty when it is, or was not looked at
	view     view
	now      time.Time
}

// takeReport asks the agent, or reads the snapshot, or looks at the machine.
func (c *common) takeReport(ctx context.Context, s settings, live bool) (report, error) {
	if live {
		return look(ctx, s, "as asked")
	}
	a, err := c.agentView(ctx)
	switch {
	case a != nil:
		return reportOfAgent(a, s, c.snapshot(), time.Now()), nil
	case errors.Is(err, fs.ErrPermission):
		return look(ctx, s, "this user may not ask the agent; root may")
	case ctx.Err() != nil:
		return report{}, errInterrupted
	case err != nil:
		c.note("The agent can't be asked: %s", oneLine(err))
	}
	now := time.Now()
	snapshot, problem := snapshotOf(c.snapshot(), s, now)
	if problem == "" {
		return report{snapshot: snapshot, view: viewOfSnapshot(snapshot, s, now), now: now}, nil
	}
	if err == nil {
		problem = "no agent runs here, and " + problem
	}
	return look(ctx, s, problem)
}

// reportOfAgent is the report of a running agent. The snapshot is nevertheless the file's, which other programs may have changed.
func reportOfAgent(a *agent.View, s settings, path string, now time.Time) report {
	r := report{set: &a.Set, agent: a, view: viewOfAgent(a, s, now), now: now}
	if r.snapshot, r.problem = readSnapshot(path, now); r.problem == "" {
		return r
	}
	if r.snapshot = a.Snapshot; r.snapshot == nil {
		r.snapshot = status.FromObservations(&a.Set, a.AgentVersion, a.At)
	}
	return r
}

// errInterrupted: whoever did it knows what the program was doing.
var errInterrupted = errors.New("interrupted")

// look looks at the machine; why says why nothing else was asked.
func look(ctx context.Context, s settings, why string) (report, error) {
	suite := probe.New(s.cfg, agentVersion())
	defer suite.Close()
	set := suite.Look(ctx)
	if ctx.Err() != nil {
		return report{}, errInterrupted
	}
	now := time.Now()
	v := viewOfSet(&set, s, now)
	v.source = "Looked live just now (" + why + ")."
	return report{snapshot: status.FromObservations(&set, agentVersion(), now), set: &set, view: v, now: now}, nil
}

// snapshotOf returns the snapshot as the state of a node. One that knows of no kubelet, on a machine that nobody wants to be a node, does
// not say whether it is one.
func snapshotOf(path string, s settings, now time.Time) (snapshot *status.NodeStatus, problem string) {
	snapshot, problem = readSnapshot(path, now)
	if problem == "" && !s.wanted() && !snapshot.KubeletRunning && snapshot.KubeletVersion == "unknown" {
		return nil, "the snapshot at " + path + " knows of no kubelet"
	}
	return snapshot, problem
}

// readSnapshot returns the snapshot file's content, or why it is of no use.
func readSnapshot(path string, now time.Time) (s *status.NodeStatus, problem string) {
	s, err := status.LoadStatusFromFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "there is no snapshot at " + path
	case errors.Is(err, fs.ErrPermission):
		return nil, "this user may not read the snapshot " + path + "; root may"
	case err != nil:
		return nil, "the snapshot can't be used: " + oneLine(err)
	case s.LastUpdated.IsZero():
		return nil, "the snapshot at " + path + " has no time"
	case now.Sub(s.LastUpdated) > fresh:
		return nil, fmt.Sprintf("the snapshot at %s is %s old: the agent does not keep it fresh", path, age(now.Sub(s.LastUpdated)))
	case s.LastUpdated.Sub(now) > fresh:
		return nil, fmt.Sprintf("the snapshot at %s is from %s in the future: did the clock jump?", path, age(s.LastUpdated.Sub(now)))
	}
	return s, ""
}

func (r report) render(output string, columns int) (string, error) {
	switch output {
	case "json":
		b, err := json.MarshalIndent(r.snapshot, "", "  ")
		return string(b) + "\n", err
	case "yaml":
		b, err := yaml.Marshal(r.snapshot)
		return string(b), err
	case "wide":
		return r.view.table(columns) + r.wide(columns), nil
	}
	return r.view.table(columns), nil
}

// wide adds everything that is known: every condition and observation and the decision, or every field of a snapshot that was read.
func (r report) wide(columns int) string {
	if r.set == nil {
		b, err := yaml.Marshal(r.snapshot)
		if err != nil {
			return err.Error() + "\n"
		}
		lines := strings.Split(string(b), "\n")
		for i := range lines {
			lines[i] = clean(lines[i], long)
		}
		return "\n" + strings.Join(lines, "\n")
	}
	var host *observe.Host
	var b strings.Builder
	if a := r.agent; a != nil {
		host = &a.Host
		b.WriteString("\n" + conditionsTable(a.Conditions, r.now, columns))
	}
	b.WriteString("\n" + observationsTable(r.set, host, r.now, columns))
	if a := r.agent; a != nil {
		b.WriteString("\n" + decisionText(a.Decision, columns))
	}
	return b.String()
}

// age words a duration the way kubectl does, in its largest unit, or two of them where one alone would hide half of the time.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "this machine"
	}
	return name
}
