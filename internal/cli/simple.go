package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/aks-flex-node/agent/internal/version"
	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
)

func newVersion(c *common) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := version.Info()
			if output == "json" {
				text, err := json.MarshalIndent(b, "", "  ")
				if err != nil {
					return err
				}
				return c.print(string(text) + "\n")
			}
			commit := ""
			if b.Commit != "" {
				commit = ", commit " + b.Commit
			}
			return c.print(fmt.Sprintf("aks-flex-node %s (%s, %s%s)\n", b.Version, b.GoVersion, b.Platform, commit))
		},
	}
	outputFlag(cmd, &output, "text", "json")
	return cmd
}

func newNeedsBootstrap(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "needs-bootstrap",
		Short: "Say whether the snapshot asks for this node to be set up anew",
		Long: `needs-bootstrap judges the snapshot file alone, which the agent keeps: yes when it is missing, broken or older than five
minutes, when the kubelet doesn't run or a version isn't known, or when Arc is enabled and not connected. It looks at
nothing else and changes nothing. What the agent makes of the answer, aks-flex-node explain says.

Exit status: 0 no, 10 yes, 1 can't tell (the snapshot or the configuration can't be read), 2 wrong usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.loadConfig(cmd)
			if err != nil {
				return err
			}
			path := status.GetStatusFilePath()
			_, err = status.LoadStatusFromFile(path)
			return c.answerBootstrap(path, err, s, func(logger *logrus.Logger) bool {
				return status.NewCollector(s.cfg, logger, agentVersion()).NeedsBootstrap(cmd.Context())
			})
		},
	}
}

// answerBootstrap gives the answer of needed, unless it would be a guess: loadErr is what came of reading the snapshot at path. A node set
// up anew because the wrong user asked, or left alone because nobody could see that Arc is wanted, is worse than no answer.
func (c *common) answerBootstrap(path string, loadErr error, s settings, needed func(*logrus.Logger) bool) error {
	if errors.Is(loadErr, fs.ErrPermission) {
		return fmt.Errorf("this user may not read the snapshot %s: run as root", path)
	}
	var reason bytes.Buffer // told only if it is the answer
	logger := logrus.New()
	logger.SetOutput(&reason)
	logger.SetLevel(logrus.DebugLevel)
	logger.SetFormatter(sentences{})
	yes := needed(logger)
	if !yes && s.unreadable != nil {
		return fmt.Errorf("can't tell whether Arc is enabled: %s; run as root", oneLine(s.unreadable))
	}
	if err := c.print(reason.String()); err != nil {
		return err
	}
	if yes {
		return exitStatus(ExitUnhealthy)
	}
	return nil
}

// sentences prints the text of a log entry alone: for a command the log is the answer.
type sentences struct{}

// Format implements logrus.Formatter.
func (sentences) Format(e *logrus.Entry) ([]byte, error) {
	return []byte(clean(e.Message, longest) + "\n"), nil
}

func newConfig(c *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Work with the configuration file",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheck(c), newConfigKeys(c))
	return cmd
}

func newConfigKeys(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "keys [PREFIX]",
		Short: "Explain the keys of the configuration file",
		Long: `keys lists what a configuration can say: each key, its type, what applies without it, and what it means. With PREFIX it
lists the keys that begin with it, in any letter case, such as agent or agent.thresholds.

An environment variable overrides a key: AKS_NODE_CONTROLLER_AGENT_LOGLEVEL is the one of agent.logLevel.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeKeys,
		RunE: func(_ *cobra.Command, args []string) error {
			return c.printKeys(strings.Join(args, ""))
		},
	}
}

// completeKeys offers the paths that begin as what is typed.
func completeKeys(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	var paths []string
	for _, k := range config.Keys() {
		if len(args) == 0 && strings.HasPrefix(k.Path, typed) {
			paths = append(paths, k.Path)
		}
	}
	return paths, cobra.ShellCompDirectiveNoFileComp
}

func (c *common) printKeys(prefix string) error {
	rows := [][]string{{"KEY", "TYPE", "DEFAULT", "MEANING"}}
	for _, k := range config.Keys() {
		if strings.HasPrefix(strings.ToLower(k.Path), strings.ToLower(prefix)) {
			rows = append(rows, []string{k.Path, k.Type, dash(k.Default), k.Meaning()})
		}
	}
	if len(rows) == 1 {
		return fmt.Errorf("no key begins with %q; all of them: aks-flex-node config keys", prefix)
	}
	return c.print(columnsOf(rows, width(c.stdout)))
}

func newConfigCheck(c *common) *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Find every mistake in a configuration file",
		Long: `check reads a configuration file the way the agent does, with the overrides of the environment, and lists all mistakes
and warnings at once, each with the key it is about. Without FILE it checks the one that --config names.
All this goes to standard output; with --show it goes to standard error, and standard output gets just the JSON.

Exit status: 0 no mistakes (warnings are fine), 1 mistakes, or the file can't be read.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			path := c.configPath
			if len(args) == 1 {
				path = args[0]
			}
			return c.checkConfig(path, show)
		},
	}
	cmd.Flags().BoolVar(&show, "show", false, "print the effective configuration as JSON, secrets left out")
	return cmd
}

func (c *common) checkConfig(path string, show bool) error {
	findings := c.stdout
	if show {
		findings = c.stderr // standard output is for the program that reads the JSON
	}
	result, err := config.Load(path)
	mistakes, wrong := errors.AsType[config.KeyErrors](err)
	if err != nil && !wrong {
		return err
	}
	var text strings.Builder
	say := func(format string, args ...any) {
		text.WriteString(clean(fmt.Sprintf(format, args...), longest) + "\n")
	}
	for _, w := range result.Warnings {
		say("warning: %s", w)
	}
	for _, m := range mistakes {
		say("error: %s", m)
	}
	if wrong {
		say("%s: %s", path, count(len(mistakes), "mistake"))
	} else {
		say("%s is valid (authentication: %s)", path, authentication(result.Config))
	}
	if _, err := io.WriteString(findings, text.String()); err != nil {
		return err
	}
	if wrong {
		return exitStatus(ExitError)
	}
	if !show {
		return nil
	}
	effective, err := json.MarshalIndent(result.Config.Redacted(), "", "  ")
	if err != nil {
		return err
	}
	return c.print(string(effective) + "\n")
}

func authentication(cfg *config.Config) string {
	switch {
	case cfg.IsARCEnabled():
		return "Azure Arc"
	case cfg.IsSPConfigured():
		return "service principal"
	case cfg.IsMIConfigured():
		return "managed identity"
	case cfg.IsBootstrapTokenConfigured():
		return "bootstrap token"
	}
	return "none"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// outputFlag adds -o with the allowed words, the first of which is the default. A wrong word is an error of usage.
func outputFlag(cmd *cobra.Command, value *string, words ...string) {
	*value = words[0]
	cmd.Flags().VarP(&wordFlag{value, words}, "output", "o", "form of the answer: "+strings.Join(words, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that isn't there
}

// wordFlag is a flag that takes one of a few words.
type wordFlag struct {
	value *string
	words []string
}

func (f *wordFlag) String() string { return *f.value }

// Type names the flag's argument in the help.
func (f *wordFlag) Type() string { return "form" }

// Set takes one of the words.
func (f *wordFlag) Set(s string) error {
	if !slices.Contains(f.words, s) {
		return fmt.Errorf("want one of %s", strings.Join(f.words, ", "))
	}
	*f.value = s
	return nil
}
