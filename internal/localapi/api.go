package localapi

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/pkg/status"
)

// Agent is what the API serves: the running agent, and on the other side the Client. It may be called by several goroutines; calls end
// when their context does.
type Agent interface {
	// View returns the present view. With after > 0 it waits for one whose Generation is greater, until ctx ends.
	View(ctx context.Context, after uint64) (*agent.View, error)
	// History returns the last limit entries (0: all) from from to to (zero: no bound), oldest first.
	History(ctx context.Context, from, to time.Time, limit int) ([]journal.Entry, error)
	// Pause makes the agent change nothing until p.Until or Resume, in place of a pause that there may be. Of p only By, Reason and Until
	// count.
	Pause(ctx context.Context, p journal.Pause) error
	// Resume ends the pause that Pause began; by is who wants that. Without one it does nothing.
	Resume(ctx context.Context, by string) error
}

var (
	// ErrNotRunning says that no agent runs on this host, or that it has no socket where it was looked for.
	ErrNotRunning = errors.New("no agent is running")
	// ErrInUse says that another agent serves the socket.
	ErrInUse = errors.New("another agent is running")
)

// Error is an answer that says why something was not done.
type Error struct {
	Status  int    `json:"-"`              // of HTTP
	Message string `json:"error"`          // what failed
	Hint    string `json:"hint,omitempty"` // what to do next; may be empty
}

// Error is the message and the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + ": " + e.Hint
}

const socketName = "agent.sock"

// SocketPath returns where the agent of this host has its socket: beside the snapshot (see status.GetStatusFilePath).
func SocketPath() string {
	return filepath.Join(filepath.Dir(status.GetStatusFilePath()), socketName)
}
