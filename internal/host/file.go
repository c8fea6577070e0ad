package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Identity tells one content of a file from another without reading it: any replacement or change of the file changes it.
// The zero value is no file.
type Identity struct {
	Dev, Ino     uint64
	Size         int64
	Mtime, Ctime unix.Timespec
	Mode, UID    uint32
	GID          uint32
}

// Identify returns the identity of the file that path leads to, links followed. The error is the operating system's, as *fs.PathError.
func Identify(path string) (Identity, error) {
	var st unix.Stat_t
	if err := ignoreEINTR(func() error { return unix.Stat(path, &st) }); err != nil {
		return Identity{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return identityOf(&st), nil
}

func identityOf(st *unix.Stat_t) Identity {
	return Identity{
		Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim, Ctime: st.Ctim, Mode: st.Mode, UID: st.Uid, GID: st.Gid,
	}
}

func ignoreEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// ErrNotTrusted is wrapped by the errors of CheckProgram.
var ErrNotTrusted = errors.New("won't be run as root")

// CheckProgram says whether the file at path may be run by this process. Root runs only what nobody but root could have put there:
// a regular file, owned by root, that others can't write. Anybody else runs what they may run, at their own risk.
func CheckProgram(path string, id Identity) error {
	if id.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s is not a regular file: %w", path, ErrNotTrusted)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	if id.UID != 0 {
		return fmt.Errorf("%s belongs to user %d, not to root: %w", path, id.UID, ErrNotTrusted)
	}
	if id.Mode&unix.S_IWOTH != 0 || (id.Mode&unix.S_IWGRP != 0 && id.GID != 0) {
		return fmt.Errorf("%s can be written by others than root (mode %04o): %w", path, id.Mode&0o7777, ErrNotTrusted)
	}
	return nil
}

// IsELF reports whether the file at path is a Linux program, by its first bytes.
func IsELF(path string) bool {
	f, err := openRegular(path)
	if err != nil {
		return false
	}
	defer f.Close() // only read
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == "\x7fELF"
}

// FindProgram looks for an executable regular file of that name in the directories of a PATH value and returns its path, or "".
// Relative directories are passed over: what they mean depends on where we were started.
func FindProgram(name, searchPath string) string {
	for dir := range strings.SplitSeq(searchPath, ":") {
		if !filepath.IsAbs(dir) {
			continue
		}
		p := filepath.Join(dir, name)
		if id, err := Identify(p); err == nil && id.Mode&unix.S_IFMT == unix.S_IFREG && id.Mode&0o111 != 0 {
			return p
		}
	}
	return ""
}

// ReadFile reads a regular file of at most limit bytes. Unlike os.ReadFile it can't be made to hang or to fill the memory by what lies
// there: a FIFO or device is refused, and so is a larger file. Errors of opening are the operating system's, unwrapped.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", path, limit)
	}
	return b, nil
}

// openRegular opens a regular file for reading. To open a FIFO as os.Open does would wait for a writer.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) //nolint:gosec // the callers name the file on purpose
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("read %s: not a regular file", path)
	}
	if err != nil {
		f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}
