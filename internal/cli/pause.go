package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/localapi"
)

func newPause(c *common) *cobra.Command {
	var span spanFlag
	var until timeFlag
	var reason string
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Keep the agent from changing anything",
		Long: `pause makes the agent change nothing until 'aks-flex-node resume', or until the end that is given. It goes on observing and
reporting. The pause lasts over restarts of the agent and the host, and takes the place of an earlier one. A remedy that
is in progress goes on to its end. Where no agent runs, the pause is for the next one that does.

The file ` + agent.PauseFile + ` pauses too, while it exists: for configuration management.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch now := time.Now(); {
			case span > 0 && !until.IsZero():
				return errors.New("give --for or --until, not both")
			case len(reason) > localapi.MaxReason:
				return fmt.Errorf("--reason has %d bytes: use %d at most", len(reason), localapi.MaxReason)
			case !until.IsZero() && !until.After(now):
				return fmt.Errorf("--until: %s is over", clock(until.Time))
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := journal.Pause{By: byWhom("pause"), Reason: cmp.Or(reason, "no reason given")}
			end := until.Time
			if span > 0 {
				end = time.Now().Add(time.Duration(span))
			}
			if !end.IsZero() {
				end = end.Round(time.Second)
				p.Until = &end
			}
			return c.pause(cmd.Context(), p)
		},
	}
	cmd.Flags().Var(&span, "for", "end the pause after this `span`, such as 2h")
	cmd.Flags().Var(&until, "until", "end the pause at this `time`, such as 17:30")
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that says why, for whoever wonders later")
	return cmd
}

func newResume(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Let the agent act again",
		Long:  "resume ends the pause that 'aks-flex-node pause' began. It says what still pauses the agent, if something does.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.resume(cmd.Context()) },
	}
}

// byWhom names the person behind a command, also one who became root to run it.
func byWhom(command string) string {
	name := os.Getenv("SUDO_USER")
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		} else {
			name = fmt.Sprintf("user %d", os.Geteuid())
		}
	}
	return clean(name, short) + " (aks-flex-node " + command + ")"
}

func (c *common) pause(ctx context.Context, p journal.Pause) error {
	running, err := c.tell(
		func(a localapi.Agent) error { return a.Pause(ctx, p) },
		func(j *journal.Journal) error { return j.Pause(agent.Moment(), p) },
	)
	if err != nil {
		return err
	}
	text := "Paused"
	if p.Until != nil {
		text += fmt.Sprintf(" until %s (for %s)", clock(*p.Until), age(time.Until(*p.Until)+time.Second/2))
	} else {
		text += " until: aks-flex-node resume"
	}
	text += ", by " + p.By + ": " + clean(p.Reason, long) + "\n"
	if running {
		text += "The agent goes on observing and changes nothing."
		if v, err := c.agentView(ctx); err == nil && v != nil && v.Remedy != nil {
			text += " What is in progress goes on to its end: " + remedyText(v.Remedy, time.Now()) + "."
		}
	} else {
		text += "No agent runs here now; the next one that does will be paused."
	}
	return c.say(text, c.pauseFileText("The file "+c.pauseFile()+" pauses too, while it exists."))
}

func (c *common) resume(ctx context.Context) error {
	by := byWhom("resume")
	running, err := c.tell(
		func(a localapi.Agent) error { return a.Resume(ctx, by) },
		func(j *journal.Journal) error { return j.Resume(agent.Moment(), by) },
	)
	if err != nil {
		return err
	}
	text := "No command pauses the agent any more."
	if !running {
		text += " No agent runs here now."
	}
	return c.say(text, c.pauseFileText(""))
}

// pauseFileText says that the pause file holds the agent, or else what is given.
func (c *common) pauseFileText(otherwise string) string {
	if _, err := os.Lstat(c.pauseFile()); err == nil {
		return "The file " + c.pauseFile() + " pauses the agent as well: remove it to let the agent act."
	}
	return otherwise
}

// say prints lines, without those that are empty.
func (c *common) say(lines ...string) error {
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	return c.print(cleanLines(strings.Join(lines, "\n") + "\n"))
}

// tell has the running agent do something or, where none runs, does it in the journal.
func (c *common) tell(ask func(localapi.Agent) error, do func(*journal.Journal) error) (running bool, err error) {
	err = ask(c.ask())
	if errors.Is(err, context.DeadlineExceeded) {
		return true, fmt.Errorf("%w; it may take effect all the same. What pauses in any case: touch %s", err, c.pauseFile())
	}
	if refusal, ok := errors.AsType[*localapi.Error](err); ok && refusal.Status >= http.StatusInternalServerError {
		return true, fmt.Errorf("%w. What pauses in any case: touch %s", err, c.pauseFile())
	}
	if !errors.Is(err, localapi.ErrNotRunning) {
		return true, forbidden(err, "tell the agent what to do")
	}
	path := c.journal()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil { // as an agent does that runs for the first time
		return false, forbidden(fmt.Errorf("make the folder of the journal: %w", err), "write the journal "+path)
	}
	j, opened, err := journal.Open(path, agent.Moment(), journal.Options{})
	switch {
	case errors.Is(err, journal.ErrLocked):
		return false, fmt.Errorf("another process has the journal %s, but no agent answers: an agent without its socket may run. Try again in a few seconds, then restart it: systemctl restart aks-flex-node-agent. What pauses in any case: touch %s",
			path, c.pauseFile())
	case err != nil:
		return false, err
	}
	if opened.SetAside != nil {
		c.note("%s", opened.SetAside)
	}
	err = do(j)
	if closeErr := j.Close(); err == nil {
		err = closeErr
	}
	return false, forbidden(err, "write the journal "+path)
}
