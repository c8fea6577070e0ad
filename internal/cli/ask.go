package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

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

// errSilent: something has the journal, but nobody answers. An agent that lost its socket makes it anew within seconds, unless it can't.
var errSilent = errors.New("an agent seems to run here, but it does not answer; to restart it: systemctl restart aks-flex-node-agent")

// agentView returns what the running agent knows. With none running both are nil; an error says why one that may run can't be asked, and is
// errSilent where only its lock tells of it.
func (c *common) agentView(ctx context.Context) (*agent.View, error) {
	v, err := c.ask().View(ctx, 0)
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, localapi.ErrNotRunning) && c.journalHeld():
		return nil, errSilent
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

// journalHeld reports whether another process has the journal to itself, as an agent does for as long as it lives. It does not know of a
// journal that this user may not read.
func (c *common) journalHeld() bool {
	f, err := os.OpenFile(c.journal(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // which lets go of the lock
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
