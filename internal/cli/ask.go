package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/install"
	"github.com/aks-flex-node/agent/internal/localapi"
	"github.com/aks-flex-node/agent/pkg/status"
)

// ask returns the agent of this host, be it there or not.
func (c *common) ask() localapi.Agent {
	if c.agent != nil {
		return c.agent
	}
	return localapi.NewClient(localapi.SocketPath())
}

// agentView returns what the running agent knows. With none running both are nil; an error says why one that may run can't be asked.
func (c *common) agentView(ctx context.Context) (*agent.View, error) {
	v, err := c.ask().View(ctx, 0)
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, localapi.ErrNotRunning):
		return nil, nil //nolint:nilnil // as the comment says: there is none, and that is no mistake
	}
	return nil, err
}

// forbidden says who may do what this user may not, whatever the operating system calls it; other errors stay as they are.
func forbidden(err error, what string) error {
	if errors.Is(err, fs.ErrPermission) {
		return errors.New("this user may not " + what + ": run as root")
	}
	return err
}

func (c *common) snapshot() string { return cmp.Or(c.snapshotPath, status.GetStatusFilePath()) }

// pauseFile is the file that pauses the agent while it exists.
func (c *common) pauseFile() string { return cmp.Or(c.pausing, agent.PauseFile) }

// journal is where the agent that this user means keeps its journal: the service, unless only one of the user's own has ever run.
func (c *common) journal() string {
	if c.journalPath != "" {
		return c.journalPath
	}
	own := filepath.Join(defaultStateDir(), agent.JournalName)
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return filepath.Join(install.StateDir, agent.JournalName)
}
