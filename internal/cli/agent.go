package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/install"
	"github.com/aks-flex-node/agent/internal/localapi"
	"github.com/aks-flex-node/agent/pkg/config"
)

// runtimeDir is the folder that systemd makes for the service.
const runtimeDir = "/run/aks-flex-node"

func newAgent(c *common) *cobra.Command {
	var observeOnly bool
	var stateDir string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent: keep the snapshot, decide, and act when that is safe",
		Long: `agent runs in the foreground until it is told to end (SIGTERM, SIGINT). It keeps the snapshot, says what is wrong with
this node and why, and restarts units or runs the configured bootstrap command where that is safe. Without a
configuration, or with --observe-only, it changes nothing and only observes.

The service aks-flex-node-agent.service runs it; see 'aks-flex-node install'. There SIGHUP reads the configuration anew.
Ask it with: status, explain, history; stop it from acting with: pause.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ownRuntimeDir()
			o := agent.Options{ObserveOnly: observeOnly, Version: agentVersion(), StateDir: stateDir}
			return c.runAgent(cmd.Context(), cmd.Flags().Changed("config"), localapi.SocketPath(), o)
		},
	}
	cmd.Flags().BoolVar(&observeOnly, "observe-only", false, "change nothing on this host or in its cluster")
	cmd.Flags().StringVar(&stateDir, "state-dir", defaultStateDir(), "`folder` of the journal")
	return cmd
}

// defaultStateDir is the service's for root, and the user's own for others.
func defaultStateDir() string {
	if os.Geteuid() == 0 {
		return install.StateDir
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(cmp.Or(os.Getenv("XDG_STATE_HOME"), filepath.Join(home, ".local", "state")), "aks-flex-node")
	}
	return install.StateDir
}

// runAgent runs an agent that reads the configuration, which must be there when it was named, and can be asked at a socket.
func (c *common) runAgent(ctx context.Context, named bool, socketPath string, o agent.Options) error {
	hup := reloads()
	if named {
		if _, err := os.Stat(c.configPath); errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	logs := agent.NewLogs(c.stderr)
	defer logs.Close()
	ports := make(chan int, 1) // the last one counts
	// The agent alone reads the configuration: it goes on where that hangs.
	o.Load, o.Log = c.agentConfig(logs), logs.Logger
	o.Reloaded = func(cfg *config.Config) {
		logs.Follow(cfg)
		select {
		case <-ports:
		default:
		}
		ports <- cfg.Agent.MetricsPort
	}
	a := agent.New(o)
	socket, err := localapi.Open(socketPath, localapi.Handler(a, logs.Logger), logs.Logger)
	if err != nil {
		return fmt.Errorf("%w; ask it with: aks-flex-node status", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { socket.Serve(ctx) })
	all.Go(func() { localapi.ServePort(ctx, ports, localapi.MetricsHandler(a), logs.Logger) })
	all.Go(func() {
		for {
			select {
			case <-hup:
				a.Reload()
			case <-ctx.Done():
				return
			}
		}
	})
	return a.Run(ctx)
}

// reloads takes SIGHUP for a wish to reload where a service manager started us. In a terminal it means, as ever, that the terminal is gone.
func reloads() <-chan os.Signal {
	if os.Getenv("INVOCATION_ID") == "" {
		return nil
	}
	hup := make(chan os.Signal, 1)
	signal.Reset(syscall.SIGHUP) // main lets it end every command
	signal.Notify(hup, syscall.SIGHUP)
	return hup
}

// ownRuntimeDir makes the folder of the snapshot where the service is installed and the folder is not there (yet): root must not believe
// the guessable one then.
func ownRuntimeDir() {
	if os.Geteuid() != 0 {
		return
	}
	if _, err := os.Lstat(install.UnitPath); err != nil {
		return
	}
	if os.Mkdir(runtimeDir, 0o755) == nil { //nolint:gosec // as systemd makes it; without it the snapshot says where it lies
		_ = os.Chmod(runtimeDir, 0o755) //nolint:gosec // likewise, whatever the umask
	}
}

// agentConfig returns the function that reads the configuration, at start and at each reload. Without a file there is none.
func (c *common) agentConfig(logs *agent.Logs) func() (*config.Config, error) {
	return func() (*config.Config, error) {
		result, err := config.Load(c.configPath)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil //nolint:nilnil // as agent.Options says: there is none, and that is no mistake
		}
		if result != nil {
			for _, w := range result.Warnings {
				logs.Warnf("%s: %s", c.configPath, w)
			}
		}
		if err != nil {
			return nil, err
		}
		if err := trusted(c.configPath, result.Config); err != nil {
			return nil, err
		}
		return result.Config, nil
	}
}

// trusted says why root must not do what a configuration says: somebody else could have written it, or the program that it names. A
// program that is not there (yet) is no reason.
func trusted(path string, cfg *config.Config) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("look at the configuration %s: %w", path, err)
	}
	if st.Uid != 0 || st.Mode&unix.S_IWOTH != 0 || st.Mode&unix.S_IWGRP != 0 && st.Gid != 0 {
		return fmt.Errorf("root does what the configuration says, so only root may be able to write %s: chown root %s && chmod go-w %s", path, path, path)
	}
	command := cfg.Agent.Bootstrap.Command
	if len(command) == 0 {
		return nil
	}
	id, err := host.Identify(command[0])
	if err != nil {
		return nil //nolint:nilerr // it is not there, or can't be looked at: then it can't be run either
	}
	if err := host.CheckProgram(command[0], id); err != nil {
		return fmt.Errorf("agent.bootstrap.command: %w", err)
	}
	return nil
}
