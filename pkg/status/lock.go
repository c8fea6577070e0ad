package status

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

const (
	// lockWait is how long a writer waits for its turn. Writers hold the lock
	// for milliseconds, so whoever has it for longer hangs.
	lockWait = 2 * time.Second
	// lockRetry is short, so that a writer gets its turn beside one that
	// writes without pause.
	lockRetry = 5 * time.Millisecond
)

// lock waits for the snapshot's lock file and returns what releases it. The
// lock file is a separate one because the snapshot itself is replaced by each
// write; it is never removed, for a waiter may hold it open.
func (f *folder) lock() (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	for {
		held, err := f.tryLock(ctx)
		if err != nil {
			return nil, err
		}
		ok, err := f.isOurs(held)
		if err != nil {
			_ = held.Unlock()
			return nil, fmt.Errorf("lock status file %s: %w", f.path, err)
		}
		if ok {
			return func() { _ = held.Unlock() }, nil
		}
		_ = held.Unlock()
	}
}

func (f *folder) tryLock(ctx context.Context) (*flock.Flock, error) {
	// A link could lead to any file, and opening a FIFO could hang.
	flags := os.O_CREATE | os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	held := flock.New(f.lockPath(), flock.SetFlag(flags), flock.SetPermissions(snapshotMode))
	_, err := held.TryLockContext(ctx, lockRetry)
	switch {
	case err == nil:
		return held, nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("status file %s is busy: another process has held its lock %s for %v; find it with 'fuser -v %s', end it if it hangs, and try again",
			f.path, f.lockPath(), lockWait, f.lockPath())
	case errors.Is(err, syscall.ELOOP):
		return nil, fmt.Errorf("lock status file %s: %s is a link; remove it and try again", f.path, f.lockPath())
	default:
		return nil, fmt.Errorf("lock status file %s: %w%s", f.path, err, advice(err))
	}
}

// isOurs reports whether the held file is still the one that others will find
// in the folder. If somebody removed it while we waited, the lock keeps nobody
// out.
func (f *folder) isOurs(held *flock.Flock) (bool, error) {
	info, err := held.Stat()
	if err != nil {
		return false, err
	}
	if f.guarded {
		if err := checkTrust(f.lockPath(), info); err != nil {
			return false, err
		}
	}
	named, err := f.root.Lstat(f.lockName())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(info, named), nil
}
