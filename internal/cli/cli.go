// Package cli is the agent's command line: commands that read what the rooms above say, and printers for people and programs.
//
// It decides nothing about the node. Answers go to standard output and everything about getting them to standard error, so that a pipe
// gets just the answer; the exit status tells programs what people read in the first line.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aks-flex-node/agent/internal/localapi"
	"github.com/aks-flex-node/agent/internal/version"
	"github.com/aks-flex-node/agent/pkg/config"
)

// Exit statuses. Programs rely on them.
const (
	ExitHealthy   = 0  // done; for status: healthy; for needs-bootstrap: no
	ExitError     = 1  // the command could not do its work
	ExitUsage     = 2  // the command line is wrong
	ExitUnhealthy = 10 // status: unhealthy; needs-bootstrap: yes
	ExitUnknown   = 11 // status: unknown, or no node
)

// DefaultConfigPath is where nodes have their configuration.
const DefaultConfigPath = "/etc/aks-flex-node/config.json"

// exitStatus is an "error" that is an answer: the command has printed all there is to say.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Run carries out one command line, without the program's name, and returns the exit status. It comes back soon after ctx ends.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return (&common{stdout: stdout, stderr: stderr}).run(ctx, args)
}

func (c *common) run(ctx context.Context, args []string) int {
	root := c.root()
	root.SetArgs(args)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	cmd, err := root.ExecuteContextC(ctx)
	var status exitStatus
	switch {
	case err == nil:
		return ExitHealthy
	case errors.As(err, &status):
		return int(status)
	case !started:
		fmt.Fprintf(c.stderr, "aks-flex-node: %s\nSee '%s --help'.\n", clean(oneLine(err), long), cmd.CommandPath()) // nowhere to say so
		return ExitUsage
	}
	fmt.Fprintf(c.stderr, "aks-flex-node: %s\n", clean(err.Error(), longest)) // nowhere to say so
	return ExitError
}

// oneLine drops the layout of a text of several lines, such as cobra's suggestions, and keeps its words.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// common is what every command has.
type common struct {
	stdout, stderr io.Writer
	configPath     string

	// For tests; nil and empty mean the real thing.
	agent                              localapi.Agent
	snapshotPath, journalPath, pausing string
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	return (&common{stdout: stdout, stderr: stderr}).root()
}

func (c *common) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "aks-flex-node",
		Short: "Node agent of machines that work as Kubernetes nodes of an AKS cluster",
		Long: `aks-flex-node says what runs on this node, whether it is healthy, if not why not, and what is being done about it.

Begin with:
  aks-flex-node status --live    look at this machine now; changes nothing
  aks-flex-node explain          what the agent does about it, and why`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.PersistentFlags().StringVar(&c.configPath, "config", DefaultConfigPath, "configuration `file`; without one, defaults are used")
	root.AddCommand(newStatus(c), newAgent(c), newExplain(c), newHistory(c), newPause(c), newResume(c), newNeedsBootstrap(c), newConfig(c), newToken(c), newInstall(c), newUninstall(c), newVersion(c))
	for _, cmd := range root.Commands() {
		cmd.DisableFlagsInUseLine = true
	}
	return root
}

// settings is what is known of the configuration, in one of three states: loaded, absent (both nil), or there but unreadable.
type settings struct {
	cfg        *config.Config // nil unless it was loaded
	unreadable error          // why it could not be read: then nobody can tell what it asks for
}

// wanted says that somebody means this machine to be a node: it has a configuration, be it readable or not.
func (s settings) wanted() bool { return s.cfg != nil || s.unreadable != nil }

// nodeName is what this machine is called in the cluster as far as the configuration and the host tell: kubelets use lower case.
func (s settings) nodeName() string {
	if s.cfg != nil && s.cfg.Node.Name != "" {
		return s.cfg.Node.Name
	}
	return strings.ToLower(hostName())
}

// loadConfig reads the configuration. Its mistakes are told on standard error and do not stop a command that only looks: who asks what is
// wrong with a node must get an answer also when the configuration is what is wrong. Only a named file that is not there is an error.
func (c *common) loadConfig(cmd *cobra.Command) (settings, error) {
	named := cmd.Flags().Changed("config")
	result, err := config.Load(c.configPath)
	switch {
	case result != nil:
		for _, w := range result.Warnings {
			c.note("%s: %s", c.configPath, w)
		}
		if err != nil {
			c.note("The configuration has mistakes, list them with: aks-flex-node config check %s", c.configPath)
		}
		return settings{cfg: result.Config}, nil
	case errors.Is(err, fs.ErrNotExist) && named:
		return settings{}, err
	case errors.Is(err, fs.ErrNotExist):
		return settings{}, nil
	}
	c.note("The configuration was not used: %s", oneLine(err))
	return settings{unreadable: err}, nil
}

// note tells something about getting the answer, apart from the answer.
func (c *common) note(format string, args ...any) {
	fmt.Fprintln(c.stderr, clean(fmt.Sprintf(format, args...), longest)) // nowhere to say so
}

// print writes to standard output. A reader that went away ends the program by SIGPIPE,
// as the runtime does for standard output; an error is something else, such as a full disk.
func (c *common) print(text string) error {
	_, err := io.WriteString(c.stdout, text)
	return err
}

// agentVersion is written into snapshots and sent to the API server.
func agentVersion() string { return version.String() }
