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
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// place is where hosts keep what lies outside of them.
type place struct {
	Base    string // one folder a host, by host id
	Cgroups string // root of the cgroup v2 tree
}

// defaultPlace is the place that all test processes of this machine share. It is on a disk, since /tmp may be a tmpfs and
// container images take room.
func defaultPlace() (place, error) {
	root, err := cgroupRoot()
	return place{Base: "/var/tmp/aks-flex-node-lab", Cgroups: root}, err
}

func (p place) cgroup(id string) string { return filepath.Join(p.Cgroups, cgroupPrefix+id) }

// state is what one host, or the control plane of a cluster, keeps outside: a folder with its disk, and a lock held as long
// as its owner lives.
type state struct {
	place
	ID  string // name of the folder, unique on this machine
	Dir string

	lock *os.File
}

// owner tells which process a host belongs to. A process id alone would not do: ids are used again.
type owner struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"` // clock ticks since boot, field 22 of /proc/PID/stat
	BootID string `json:"bootID"`
}

// newState makes folder and disk of a new host. The folder exists, owned and locked, before anything else of the host
// does and is deleted last: whatever a killed process leaves is found by it.
func newState(ctx context.Context, p place, name string) (*state, error) {
	unlock, err := p.lockBase(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir, err := os.MkdirTemp(p.Base, name+"-")
	if err != nil {
		return nil, fmt.Errorf("make host folder: %w", err)
	}
	s := &state{place: p, ID: filepath.Base(dir), Dir: dir}
	if err := s.fill(); err != nil {
		return nil, errors.Join(fmt.Errorf("set up host folder %s: %w", dir, err), s.remove(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *state) fill() error {
	lock, err := tryLock(filepath.Join(s.Dir, "lock"))
	if err != nil {
		return err
	}
	s.lock = lock
	me, err := ownerOf(os.Getpid())
	if err != nil {
		return err
	}
	text, err := json.Marshal(me)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "owner"), text, 0o600); err != nil {
		return err
	}
	// The upper layer of a host cannot lie on the file system that / is on: it would be part of its own lower layer.
	disk := filepath.Join(s.Dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("lab", disk, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount %s: %w", disk, err)
	}
	return nil
}

// makeDirs makes folders in the folder, parents first.
func (s *state) makeDirs(names ...string) error {
	for _, d := range names {
		if err := os.Mkdir(filepath.Join(s.Dir, d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// remove kills and removes all that is left of the host, the folder last. It can be called again after an error.
func (s *state) remove(ctx context.Context) error {
	if err := removeCgroup(ctx, s.cgroup(s.ID)); err != nil {
		return err
	}
	// What is killed may write a last line while the folder is being emptied.
	err := WaitFor(ctx, 5*time.Second, "the folder is gone", func(context.Context) (bool, string) {
		err := errors.Join(unmountUnder(s.Dir), os.RemoveAll(s.Dir))
		return err == nil, fmt.Sprint(err)
	})
	if err != nil {
		return fmt.Errorf("remove host folder: %w", err)
	}
	return s.unlock()
}

// unlock gives the lock back if it is still held.
func (s *state) unlock() error {
	if s.lock == nil {
		return nil
	}
	err := s.lock.Close()
	s.lock = nil
	return err
}

// lockBase makes the base folder if need be and holds the lock under which host folders come into being and are swept.
func (p place) lockBase(ctx context.Context) (unlock func(), err error) {
	if err := os.Mkdir(p.Base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make lab folder: %w", err)
	}
	// Its name is known and others can write to the folder above.
	if err := checkOwn(p.Base); err != nil {
		return nil, err
	}
	lock, err := waitLock(ctx, filepath.Join(p.Base, ".lock"), time.Minute)
	if err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, nil
}

// checkOwn refuses a folder that someone else could have put there.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("check lab folder: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("lab folder %s must be a folder of this user that no one else can write: remove it", dir)
	}
	return nil
}

// errLocked says that another process, or another place in this one, holds a lock.
var errLocked = errors.New("is locked")

// tryLock takes the lock on a file, making it if need be; errLocked if it is taken. Closing the file gives it back, and so
// does the death of this process.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// waitLock is tryLock with patience.
func waitLock(ctx context.Context, path string, within time.Duration) (lock *os.File, err error) {
	waited := WaitFor(ctx, within, path+" is unlocked", func(context.Context) (bool, string) {
		if lock, err = tryLock(path); errors.Is(err, errLocked) {
			return false, err.Error()
		}
		return true, ""
	})
	if waited != nil {
		return nil, waited
	}
	return lock, err
}

// ownerOf describes a running process.
func ownerOf(pid int) (owner, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return owner{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	start, err := parseStartTime(string(stat))
	if err != nil {
		return owner{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return owner{}, fmt.Errorf("look at boot id: %w", err)
	}
	return owner{PID: pid, Start: start, BootID: strings.TrimSpace(string(boot))}, nil
}

// alive tells whether this very process still runs.
func (o owner) alive() bool {
	now, err := ownerOf(o.PID)
	return err == nil && now == o
}

// parseStartTime takes field 22 from the text of /proc/PID/stat. Field 2, the program's name, may hold anything.
func parseStartTime(stat string) (uint64, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("unexpected process state %q", stat)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("unexpected process state %q: %w", stat, err)
	}
	return start, nil
}
