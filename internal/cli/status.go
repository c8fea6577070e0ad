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

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/pkg/status"
)

// fresh is how old a snapshot may be to be shown as the node's state; needs-bootstrap has the same limit.
const fresh = 5 * time.Minute

func newStatus(c *common) *cobra.Command {
	var output string
	var live bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what runs on this node and whether it is healthy",
		Long: `status shows the snapshot file, which the program that collects status keeps. This release has no service that does:
programs that import pkg/status write it (see docs). With --live, or when there is no snapshot younger than five minutes
that this user may read, it looks at the machine itself, and says so. It changes nothing.

The forms json and yaml print exactly the snapshot; wide prints everything known, with reasons.

Exit status: 0 healthy, 10 unhealthy, 11 unknown or no node, 1 error, 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.loadConfig(cmd)
			if err != nil {
				return err
			}
			r, err := takeReport(cmd.Context(), s, status.GetStatusFilePath(), live)
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
	cmd.Flags().BoolVar(&live, "live", false, "look at the machine now, whatever the snapshot says")
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
	if r.set != nil && !live {
		c.note("%s", r.view.source)
	}
	return c.print(text)
}

// report is what status has to tell: the snapshot, where it comes from, and what it means.
type report struct {
	snapshot *status.NodeStatus
	set      *observe.Set // nil when the snapshot was read from the file
	view     view
	now      time.Time
}

// takeReport reads the snapshot, or looks at the machine.
func takeReport(ctx context.Context, s settings, path string, live bool) (report, error) {
	why := "as asked"
	if !live {
		now := time.Now()
		snapshot, problem := readSnapshot(path, now)
		if problem == "" {
			return report{snapshot: snapshot, view: viewOfSnapshot(snapshot, s, now), now: now}, nil
		}
		why = problem
	}
	suite := probe.New(s.cfg, agentVersion())
	defer suite.Close()
	set := suite.Look(ctx)
	if ctx.Err() != nil {
		return report{}, errors.New("interrupted") // whoever did it knows what the program was doing
	}
	now := time.Now()
	v := viewOfSet(&set, s, now)
	v.source = "Looked live just now (" + why + ")."
	return report{snapshot: status.FromObservations(&set, agentVersion(), now), set: &set, view: v, now: now}, nil
}

// readSnapshot returns the snapshot file's content, or why it is of no use.
func readSnapshot(path string, now time.Time) (s *status.NodeStatus, problem string) {
	s, err := status.LoadStatusFromFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "there is no snapshot at " + path + ": no agent runs here"
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

// wide adds what each probe saw, or every field of a snapshot that was read.
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
	rows := [][]string{{"SUBJECT", "HEALTH", "REASON", "AGE", "MESSAGE"}}
	for _, s := range r.set.Subjects() {
		rows = append(rows, []string{clean(s.Name, short), s.Health.String(), clean(s.Reason, short), age(r.now.Sub(s.At)), clean(s.Message, long)})
	}
	return "\n" + columnsOf(rows, columns)
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
