package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aks-flex-node/agent/deploy"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/install"
)

func newInstall(c *common) *cobra.Command {
	i := install.Installer{Program: "/proc/self/exe", Version: agentVersion()}
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put this program and its service on this machine",
		Long: `install puts this very program at ` + install.ProgramPath + ` and its unit file at
` + install.UnitPath + `, enables the service and starts it. It prints what it will
do, does it, and finds nothing to do when it is run again.

It follows no links and takes over no mount points. A former agent in the same places is taken over: of its files copies
are kept in ` + install.FormerDir + `, its configuration stays. Where the kubelet gets its credentials from the program
there, the new one must first show that it gets them too.

Exit status: 0 installed, or nothing to do; 1 refused or failed, standard error says why; 2 wrong usage.`,
		Args: c.onlyDefaultConfig,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.changeService(cmd.Context(), &i, dryRun, "installed already, and as it is to be", func(ctx context.Context, show func(*install.Plan) error) error {
				return i.Install(ctx, dryRun, show)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and change nothing")
	cmd.Flags().BoolVar(&i.Start, "start", true, "start the service, or restart it when something of it was replaced")
	cmd.Flags().BoolVar(&i.Force, "force", false, "replace a unit file that was changed here, and go on where neither program gets the kubelet's credentials")
	return cmd
}

func newUninstall(c *common) *cobra.Command {
	i := install.Installer{Program: "/proc/self/exe", Version: agentVersion()}
	var dryRun, purge bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take the service and this program off this machine",
		Long: `uninstall stops and disables the service and removes its unit file and the program, each only if it is what install put
there. The program stays where the kubelet gets its credentials from it. Configuration, records and logs stay too.

Exit status: 0 done, or nothing to do; 1 failed, standard error says why; 2 wrong usage.`,
		Args: c.onlyDefaultConfig,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.changeService(cmd.Context(), &i, dryRun, "nothing is left that install put here and that can go", func(ctx context.Context, show func(*install.Plan) error) error {
				return i.Uninstall(ctx, dryRun, purge, show)
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and change nothing")
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the agent's journal and logs too")
	return cmd
}

// onlyDefaultConfig refuses arguments, and a configuration that the service would not read.
func (c *common) onlyDefaultConfig(cmd *cobra.Command, args []string) error {
	if c.configPath != DefaultConfigPath {
		return fmt.Errorf("--config %s: the service reads %s: put the configuration there, and leave out --config", c.configPath, DefaultConfigPath)
	}
	return cobra.NoArgs(cmd, args)
}

// changeService carries out a plan and tells about it.
func (c *common) changeService(ctx context.Context, i *install.Installer, dryRun bool, idle string, do func(context.Context, func(*install.Plan) error) error) error {
	if os.Geteuid() != 0 {
		return errors.New("this changes the machine and needs its administrator: run it as root, for instance with sudo")
	}
	systemd := &host.Systemd{}
	defer systemd.Close()
	i.Systemd, i.Config = systemd, DefaultConfigPath
	steps := 0
	err := do(ctx, func(p *install.Plan) error {
		steps = len(p.Steps)
		return c.print(planText(p, idle))
	})
	switch {
	case err != nil:
		return err
	case dryRun:
		return c.print("Nothing was changed (--dry-run).\n")
	case steps == 0:
		return nil
	}
	return c.print("Done.\n")
}

// planText is a plan as people read it.
func planText(p *install.Plan, idle string) string {
	var text strings.Builder
	say := func(format string, args ...any) {
		text.WriteString(clean(fmt.Sprintf(format, args...), longest) + "\n")
	}
	for _, n := range p.Notes {
		say("Note: %s", n)
	}
	if len(p.Steps) == 0 {
		say("Nothing to do: %s (%s).", idle, deploy.UnitName)
	}
	for n, s := range p.Steps {
		say("%d. %s", n+1, s.Text)
	}
	return text.String()
}
