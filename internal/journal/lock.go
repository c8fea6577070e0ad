package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	// lockWait is how long an opener waits for its turn. Agents keep a journal for as long as they live, so a longer wait would not help.
	lockWait  = time.Second
	lockRetry = 20 * time.Millisecond
)

// lock takes the lock of an open file or folder; it is let go of when that is closed. how is syscall.LOCK_EX or LOCK_SH. It is the lock
// that bbolt takes too, which on the same open file is no second one.
func lock(f *os.File, how int) error {
	limit := time.NewTimer(lockWait)
	defer limit.Stop()
	retry := time.NewTicker(lockRetry)
	defer retry.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		select {
		case <-retry.C:
		case <-limit.C:
			return fmt.Errorf("%w: another agent, or a command that reads the journal, has held %s for %v; find it with 'fuser -v %s', and wait for it or end it",
				ErrLocked, f.Name(), lockWait, f.Name())
		}
	}
}
