package status

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// distrustError says why something in the guessable folder is not believed. It
// is neither "missing" nor "broken": what it concerns must be left alone.
type distrustError struct {
	path string
	why  string
}

func (e *distrustError) Error() string {
	return fmt.Sprintf("not trusting %s: it %s; anyone could have put it there, so look at it, remove it and try again", e.path, e.why)
}

// checkTrust applies the rules of the guessable folder to one thing in it, or
// to the folder itself. Group and others count alike: neither may write.
func checkTrust(path string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		return &distrustError{path, "is a link"}
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &distrustError{path, "has no owner that could be read"}
	}
	if owner.Uid != 0 && int64(owner.Uid) != int64(os.Geteuid()) {
		return &distrustError{path, fmt.Sprintf("belongs to user %d, who is neither root nor user %d", owner.Uid, os.Geteuid())}
	}
	if perm := info.Mode().Perm(); perm&0o022 != 0 {
		return &distrustError{path, fmt.Sprintf("can be written by others (mode %04o)", perm)}
	}
	return nil
}

// folder is an open folder of a snapshot. All work in it goes through these
// handles, so that swapping the path for another folder changes nothing.
type folder struct {
	place
	dir  *os.File
	root *os.Root
}

// openFolder opens the snapshot's folder for writing in it; a guarded one only
// if it can be trusted.
func openFolder(p place) (*folder, error) {
	dir, err := openDir(p)
	if err != nil {
		return nil, err
	}
	f := &folder{place: p, dir: dir}
	f.root, err = os.OpenRoot(p.dir)
	if err == nil {
		err = f.sameFolder()
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// sameFolder holds that both handles are of one folder: os.OpenRoot follows
// links, the handle that was checked does not.
func (f *folder) sameFolder() error {
	checked, err := f.dir.Stat()
	if err != nil {
		return err
	}
	opened, err := f.root.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(checked, opened) {
		return &distrustError{f.place.dir, "was replaced while it was being opened"}
	}
	return nil
}

func (f *folder) close() {
	_ = f.dir.Close() // read-only handle: nothing can be lost
	if f.root != nil {
		_ = f.root.Close()
	}
}

// openDir opens the folder of p; a guarded one is opened without following a
// link and then judged by what was opened.
func openDir(p place) (*os.File, error) {
	flags := os.O_RDONLY | syscall.O_DIRECTORY
	if p.guarded {
		flags |= syscall.O_NOFOLLOW
	}
	dir, err := os.OpenFile(p.dir, flags, 0)
	if err != nil {
		// Linux reports a link as either of these, depending on the version.
		if p.guarded && (errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)) {
			return nil, &distrustError{p.dir, "is a link, or no folder at all"}
		}
		return nil, err
	}
	if !p.guarded {
		return dir, nil
	}
	if err := trustOpened(dir); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// openGuarded opens the snapshot in a guarded folder for reading. What the
// operating system refuses comes back as os.Open would put it.
func openGuarded(p place) (*os.File, error) {
	dir, err := openDir(p)
	if err != nil {
		return nil, asOpenError(p.path, err)
	}
	defer func() { _ = dir.Close() }()

	fd, err := openat(dir, p.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if errors.Is(err, unix.ELOOP) {
		return nil, &distrustError{p.path, "is a link"}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p.path, Err: err}
	}
	file := os.NewFile(uintptr(fd), filepath.Join(p.dir, p.base))
	if err := trustOpened(file); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// openat is needed because os.Root follows links inside the folder whatever
// flags it is given.
func openat(dir *os.File, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func trustOpened(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return checkTrust(file.Name(), info)
}

// asOpenError puts the snapshot's path on an error about its folder: a caller
// who asked for a file and uses os.IsNotExist is told about that file.
func asOpenError(path string, err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: "open", Path: path, Err: pathErr.Err}
	}
	return err
}
