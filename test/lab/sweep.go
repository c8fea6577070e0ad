//go:build linux

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Sweep removes what test processes that are dead left behind: their hosts' processes, cgroups, mounts and folders. Hosts
// of living processes, this one's included, are not touched. StartHost sweeps by itself; any number may sweep at once.
func Sweep(ctx context.Context) error {
	p, err := defaultPlace()
	if err != nil {
		return err
	}
	return sweep(ctx, p)
}

func sweep(ctx context.Context, p place) error {
	unlock, err := p.lockBase(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(p.Base)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	var failed []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := sweepOne(ctx, p, e.Name()); err != nil {
			failed = append(failed, fmt.Errorf("sweep host %s: %w", e.Name(), err))
		}
	}
	return errors.Join(failed...)
}

// sweepOne removes one host if its owner is dead. Lock and record must both say so: the lock knows nothing of a process
// that has just been started from the owner and still shares its files, the record nothing of owners in other pid namespaces.
func sweepOne(ctx context.Context, p place, id string) error {
	s := &state{place: p, ID: id, Dir: filepath.Join(p.Base, id)}
	lock, err := tryLock(filepath.Join(s.Dir, "lock"))
	if errors.Is(err, errLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil // in use, or removed by its owner just now
	}
	if err != nil {
		return err
	}
	s.lock = lock
	var o owner
	// A folder without a readable record is one whose owner died while it made it.
	text, err := os.ReadFile(filepath.Join(s.Dir, "owner"))
	if err == nil && json.Unmarshal(text, &o) == nil && o.alive() {
		return lock.Close()
	}
	return errors.Join(s.remove(ctx), s.unlock())
}
