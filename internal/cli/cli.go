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
	"os"
	"strings"

	"github.com/spf13/cobra"

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
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.ExecuteContext(ctx)
	var status exitStatus
	switch {
	case err == nil:
		return ExitHealthy
	case errors.As(err, &status):
		return int(status)
	case !started:
		fmt.Fprintf(stderr, "aks-flex-node: %v\nSee 'aks-flex-node --help'.\n", firstLine(err)) // nowhere to say so
		return ExitUsage
	}
	fmt.Fprintf(stderr, "aks-flex-node: %v\n", err) // nowhere to say so
	return ExitError
}

// firstLine drops the layout of a text of several lines, such as cobra's suggestions, and keeps its words.
func firstLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// common is what every command has.
type common struct {
	stdout, stderr io.Writer
	configPath     string
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	c := &common{stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use:   "aks-flex-node",
		Short: "Node agent of machines that work as Kubernetes nodes of an AKS cluster",
		Long: `aks-flex-node says what runs on this node, whether it is healthy, and if not why not.

Begin with:
  aks-flex-node status --live    look at this machine now; changes nothing`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.PersistentFlags().StringVar(&c.configPath, "config", DefaultConfigPath, "configuration `file`; without one, defaults are used")
	root.AddCommand(newStatus(c), newNeedsBootstrap(c), newConfig(c), newToken(c), newVersion(c))
	for _, cmd := range root.Commands() {
		cmd.DisableFlagsInUseLine = true
	}
	return root
}

// loadConfig returns the configuration, or nil where there is none. Its mistakes are told on standard error and do not stop a command
// that only looks: who asks what is wrong with a node must get an answer also when the configuration is what is wrong.
func (c *common) loadConfig(cmd *cobra.Command) (*config.Config, error) {
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
		return result.Config, nil
	case errors.Is(err, os.ErrNotExist) && !named:
		return nil, nil
	case named:
		return nil, err
	}
	c.note("The configuration was not used: %s", firstLine(err))
	return nil, nil
}

// note tells something about getting the answer, apart from the answer.
func (c *common) note(format string, args ...any) {
	fmt.Fprintf(c.stderr, format+"\n", args...) // nowhere to say so
}

// print writes to standard output. A reader that went away is no failure of the command.
func (c *common) print(text string) error {
	_, err := io.WriteString(c.stdout, text)
	return err
}

// agentVersion is written into snapshots and sent to the API server.
func agentVersion() string { return version.String() }
