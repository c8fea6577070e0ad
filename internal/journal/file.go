package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	journalMode = 0o600
	folderMode  = 0o700
	// nextSuffix names a journal that is being made. It takes its place only when it is whole.
	nextSuffix = ".new"
	// asideSuffix, followed by the time, names a journal that was set aside.
	asideSuffix = ".corrupt-"
	keptAside   = 3
)

// notTrustedError says why a file or folder is not believed: anyone could have put there what it holds.
type notTrustedError struct {
	path string
	why  string
}

func (e *notTrustedError) Error() string { return fmt.Sprintf("not trusting %s: it %s", e.path, e.why) }

// unusable reports whether an error of find means that what lies at the path must give way to a new journal.
func unusable(err error) bool {
	_, distrusted := errors.AsType[*notTrustedError](err)
	return distrusted || errors.Is(err, errCorrupt)
}

func checkOwner(path string, info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return &notTrustedError{path, "has no owner that could be read"}
	case owner.Uid != 0 && int64(owner.Uid) != int64(os.Geteuid()):
		return &notTrustedError{path, fmt.Sprintf("belongs to user %d, who is neither root nor user %d", owner.Uid, os.Geteuid())}
	case info.Mode().Perm()&0o022 != 0 && info.Mode()&(fs.ModeSticky|fs.ModeDir) != fs.ModeSticky|fs.ModeDir: // not a folder like /tmp
		return &notTrustedError{path, fmt.Sprintf("can be written by others (mode %04o)", info.Mode().Perm())}
	}
	return nil
}

// lockFolder makes the journal's folder if there is none, and takes its lock: whoever holds it may make, move and replace journals there.
// It is not the lock on the journal, which lasts as long as that is open.
func lockFolder(dir string, noSync bool) (*os.File, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, folderMode); err != nil {
			return nil, err
		}
		if err := syncFolder(filepath.Dir(dir), noSync); err != nil {
			return nil, err
		}
	}
	folder, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	info, err := folder.Stat()
	if err == nil {
		err = checkOwner(dir, info)
	}
	if err == nil {
		err = lock(folder, syscall.LOCK_EX)
	}
	if err != nil {
		_ = folder.Close()
		return nil, err
	}
	return folder, nil
}

// openFolder follows a link: /var/lib may lie elsewhere. The folder is judged by what was opened.
func openFolder(dir string) (*os.File, error) {
	return os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0) //nolint:gosec // the caller says where the journal is
}

func syncFolder(dir string, noSync bool) error {
	if noSync {
		return nil
	}
	folder, err := openFolder(dir)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	return folder.Sync()
}

// found is a journal that was opened, locked, judged and read through.
type found struct {
	file *os.File
	// readOnly says why it could not be opened for writing.
	readOnly error
	// damage says that it may be in its state before the last change.
	damage error
}

// find opens the file at path if it is a journal that can be used. An error is fs.ErrNotExist, ErrLocked, one that is unusable, or says
// why none of that can be told.
func find(path string, toRead bool) (found, error) {
	f, err := openFile(path, toRead)
	if err != nil {
		return found{}, err
	}
	f.damage, err = inspect(f.file, toRead)
	if err != nil {
		_ = f.file.Close()
		return found{}, err
	}
	return f, nil
}

func openFile(path string, toRead bool) (found, error) {
	// Looking first keeps devices from being opened. Nobody but us can swap the file in between, since the folder is trusted.
	info, err := os.Lstat(path)
	if err != nil {
		return found{}, err
	}
	if !info.Mode().IsRegular() {
		return found{}, corrupt("it is no file but has mode %v", info.Mode())
	}
	if err := checkOwner(path, info); err != nil {
		return found{}, err
	}
	var readOnly error
	if !toRead {
		file, err := openGuarded(path, os.O_RDWR)
		if err == nil || (!errors.Is(err, syscall.EROFS) && !errors.Is(err, fs.ErrPermission)) {
			return found{file: file}, err
		}
		readOnly = err
	}
	file, err := openGuarded(path, os.O_RDONLY)
	return found{file: file, readOnly: readOnly}, err
}

func openGuarded(path string, flags int) (*os.File, error) {
	return os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, journalMode) //nolint:gosec // the caller says where the journal is
}

func inspect(file *os.File, toRead bool) (damage, err error) {
	how := syscall.LOCK_EX
	if toRead {
		how = syscall.LOCK_SH
	}
	if err := lock(file, how); err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if named, err := os.Lstat(file.Name()); err != nil || !os.SameFile(info, named) {
		return nil, fmt.Errorf("%s was replaced while it was being opened; try again", file.Name())
	}
	if info.Mode().Perm() != journalMode && !toRead {
		_ = file.Chmod(journalMode) // others could only read it; what a read-only file system refuses does no harm
	}
	return checkContent(file, info.Size())
}

// checkContent reads a file through. An error is errCorrupt.
func checkContent(file *os.File, size int64) (damage, err error) {
	formatKnown := false
	damage, err = checkFile(file, size, func(bucket, key, value []byte) error {
		data, err := unseal(bucket, key, value)
		if err == nil && string(bucket) == stateBucket && string(key) == formatKey {
			formatKnown, err = true, checkFormat(data)
		}
		return err
	})
	switch {
	case err != nil && !errors.Is(err, errCorrupt):
		// What the disk doesn't give back is as lost as what is wrong.
		return nil, corrupt("%w", err)
	case err != nil:
		return nil, err
	case !formatKnown:
		return nil, corrupt("it is a bbolt file but no journal of this agent")
	}
	return damage, nil
}

// adopt completes what a crash interrupted: a journal that was whole but had not taken its place yet. The caller holds the folder's lock.
func adopt(path string, noSync bool) error {
	next := path + nextSuffix
	if _, err := os.Lstat(next); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if f, err := find(next, false); err == nil {
			defer func() { _ = f.file.Close() }()
			return replace(next, path, noSync)
		}
	}
	_ = os.Remove(next) // where it can't be removed, making a new one will say so
	return nil
}

func replace(from, to string, noSync bool) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(to), noSync)
}

// setAside moves what lies at path out of the way, under a name with the time, and removes the oldest of more than keptAside such. The
// caller holds the folder's lock.
func setAside(path string, now time.Time) (aside string, err error) {
	stem := path + asideSuffix + now.UTC().Format("20060102T150405Z")
	aside = stem
	for i := 2; ; i++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s-%d", stem, i)
	}
	if err := os.Rename(path, aside); err != nil {
		return "", err
	}
	pruneAside(path, filepath.Base(aside))
	return aside, nil
}

// pruneAside never removes newest, whatever its name says: the clock may be wrong. What can't be removed, like a folder with something
// in it, stays.
func pruneAside(path, newest string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	var others []string // in the order of their names
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+asideSuffix) && e.Name() != newest {
			others = append(others, e.Name())
		}
	}
	slices.Sort(others)
	for len(others) > keptAside-1 {
		_ = os.Remove(filepath.Join(filepath.Dir(path), others[0]))
		others = others[1:]
	}
}

// advice adds what to do about the failures that an operator can mend.
func advice(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "; free some space there"
	case errors.Is(err, syscall.EROFS):
		return "; make that file system writable"
	case errors.Is(err, fs.ErrPermission):
		return "; run as root or as the owner of that file and its folder"
	}
	if _, distrusted := errors.AsType[*notTrustedError](err); distrusted {
		return "; see who changed it, and give it to root with mode 0700"
	}
	return ""
}
