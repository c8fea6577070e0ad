package status

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
)

const (
	snapshotMode = 0o600
	// openFolderMode is that of a RuntimeDirectory: readers may be others, the
	// files themselves are 0600.
	openFolderMode    = 0o755
	guardedFolderMode = 0o700
)

// WriteStatusToFile puts nodeStatus in the place of the snapshot at path, for
// good: a reader sees the old file or the new one, and the new one survives a
// crash of the host. The file gets mode 0600. A missing folder is created with
// mode 0755, /tmp/aks-flex-node with 0700.
//
// On an error the old file stays as it was, with one exception: when only the
// last step fails, which makes the replacement durable, the new file is in
// place but may be lost in a crash. Errors are a nil nodeStatus, one of more than
// 1 MiB, a lock that another process holds for more than 2 s, in
// /tmp/aks-flex-node whatever isn't trusted (see [LoadStatusFromFile]), and
// what the operating system refuses.
//
// To change a part of a snapshot use [Update].
func WriteStatusToFile(path string, nodeStatus *NodeStatus) error {
	return write(placeOf(path), nodeStatus)
}

func write(p place, s *NodeStatus) error {
	data, err := encode(s)
	if err != nil {
		return fmt.Errorf("write status file %s: %w", p.path, err)
	}
	return whileLocked(p, func(f *folder) error {
		return f.replace(data)
	})
}

// Update changes the snapshot at path: it reads it, lets change alter it, and
// writes the result as [WriteStatusToFile] does, all under one lock, so that no
// other writer's change is lost. Where there is no snapshot or the file doesn't
// hold one, change gets a minimal one: versions "unknown", readiness "Unknown",
// times zero.
//
// When change returns an error the file is left alone and that error is
// returned as it is. A file that exists but can't be read is an error, and is
// not replaced. change must not write to the same path: it would wait for its
// own lock, and fail after 2 s.
func Update(path string, change func(*NodeStatus) error) error {
	return update(placeOf(path), change)
}

func update(p place, change func(*NodeStatus) error) error {
	if change == nil {
		return fmt.Errorf("update status file %s: no change was given (nil)", p.path)
	}
	return whileLocked(p, func(f *folder) error {
		s, err := loadOrMinimal(p)
		if err != nil {
			return fmt.Errorf("update status file %s: %w", p.path, err)
		}
		if err := change(s); err != nil {
			return err // unwrapped: the caller's own
		}
		data, err := encode(s)
		if err != nil {
			return fmt.Errorf("update status file %s: %w", p.path, err)
		}
		return f.replace(data)
	})
}

func loadOrMinimal(p place) (*NodeStatus, error) {
	s, err := load(p)
	if err == nil {
		return s, nil
	}
	_, broken := errors.AsType[*notSnapshotError](err)
	if broken || errors.Is(err, fs.ErrNotExist) {
		return minimalSnapshot(), nil
	}
	return nil, err
}

// whileLocked runs work in the snapshot's folder while no other writer does.
func whileLocked(p place, work func(*folder) error) error {
	if err := p.checkName(); err != nil {
		return err
	}
	if err := createFolder(p); err != nil {
		return fmt.Errorf("create the folder of status file %s: %w%s", p.path, err, advice(err))
	}
	f, err := openFolder(p)
	if err != nil {
		return fmt.Errorf("open the folder of status file %s: %w%s", p.path, err, advice(err))
	}
	defer f.close()
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return work(f)
}

// createFolder makes the guessable folder without its parents: a missing /tmp
// is not ours to create with mode 0700.
func createFolder(p place) error {
	if !p.guarded {
		return os.MkdirAll(p.dir, openFolderMode)
	}
	if err := os.Mkdir(p.dir, guardedFolderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// replace puts data in the snapshot's place. The caller holds the lock.
func (f *folder) replace(data []byte) error {
	if err := f.replaceable(); err != nil {
		return fmt.Errorf("write status file: %w", err)
	}
	f.sweep()
	if err := f.swapIn(data); err != nil {
		return fmt.Errorf("write status file %s (the old one is kept): %w%s", f.path, err, advice(err))
	}
	// renameio makes the content durable, but not the name.
	if err := f.dir.Sync(); err != nil {
		return fmt.Errorf("status file %s is written but may be lost in a crash: fsync of its folder: %w", f.path, err)
	}
	return nil
}

func (f *folder) swapIn(data []byte) error {
	pending, err := renameio.NewPendingFile(f.base,
		renameio.WithRoot(f.root), renameio.WithStaticPermissions(snapshotMode))
	if err != nil {
		return err
	}
	// Does nothing after success. If it fails too, the next writer sweeps.
	defer func() { _ = pending.Cleanup() }()
	if _, err := pending.Write(data); err != nil {
		return err
	}
	return pending.CloseAtomicallyReplace()
}

// replaceable refuses to touch what someone planted in the guessable folder.
func (f *folder) replaceable() error {
	if !f.guarded {
		return nil
	}
	info, err := f.root.Lstat(f.base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return checkTrust(f.path, info)
}

// sweep removes the temporary files of writers that died. Each writer holds the
// lock, so under it every such file is an orphan. What can't be removed is left
// for the next writer: it harms nobody.
func (f *folder) sweep() {
	names, err := f.dir.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, name := range names {
		if !isTemporary(name, f.base) {
			continue
		}
		if info, err := f.root.Lstat(name); err == nil && info.Mode().IsRegular() {
			_ = f.root.Remove(name)
		}
	}
}

// isTemporary recognises the names that renameio gives: a dot, the name of the
// file to replace, a decimal number without sign.
func isTemporary(name, base string) bool {
	digits, ok := strings.CutPrefix(name, "."+base)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// advice adds what to do about the failures that an operator can mend.
func advice(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "; free some space there"
	case errors.Is(err, syscall.EROFS):
		return "; make that file system writable"
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EEXIST):
		return "; remove the folder that stands in the file's place"
	case errors.Is(err, fs.ErrPermission):
		return "; run as root or as the owner of that folder"
	default:
		return ""
	}
}
