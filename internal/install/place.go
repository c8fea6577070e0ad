package install

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// staffGroup is Debian's group of people who may install programs for all users, below /usr/local only. They are trusted there anyway:
// the directory is in root's PATH.
const staffGroup = 50

// folder is an open folder that was reached without following a link, and that only root can change. What is done in it is done to that
// very folder, whatever happens to its name meanwhile.
type folder struct {
	file *os.File
	path string // as people know it, without the root
}

func (f folder) close()  { f.file.Close() } // it was only read
func (f folder) fd() int { return int(f.file.Fd()) }

// openFolder opens a folder below root, which stands for /. With create it makes the last part, with that mode, if it is not there.
func openFolder(root, name string, create os.FileMode) (folder, error) {
	file, err := os.Open(cmp.Or(root, "/"))
	if err != nil {
		return folder{}, err
	}
	f := folder{file, "/"}
	parts := strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	for n, part := range parts {
		if create != 0 && n == len(parts)-1 {
			if err := unix.Mkdirat(f.fd(), part, uint32(create)); err != nil && !errors.Is(err, fs.ErrExist) {
				f.close()
				return folder{}, fmt.Errorf("make the folder %s: %w", name, err)
			}
		}
		next, err := f.open(part)
		f.close()
		if err != nil {
			return folder{}, err
		}
		f = next
	}
	return f, nil
}

// open opens a folder in this one.
func (f folder) open(name string) (folder, error) {
	where := path.Join(f.path, name)
	fd, err := unix.Openat(f.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return folder{}, fmt.Errorf("%s is a link or no folder: what is installed lies in folders of its own, never behind links", where)
	}
	if err != nil {
		return folder{}, &fs.PathError{Op: "open", Path: where, Err: err}
	}
	next := folder{os.NewFile(uintptr(fd), where), where}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		next.close()
		return folder{}, &fs.PathError{Op: "stat", Path: where, Err: err}
	}
	if err := trusted(where, st.Uid, st.Gid, st.Mode); err != nil {
		next.close()
		return folder{}, err
	}
	return next, nil
}

// trusted says who else than root could change what lies in a folder.
func trusted(where string, uid, gid, mode uint32) error {
	switch {
	case uid != 0 && int(uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d: what root runs must lie in a folder of root", where, uid)
	case mode&unix.S_IWOTH != 0:
		return fmt.Errorf("%s can be written by everyone (mode %04o): chmod o-w it first", where, mode&0o7777)
	case mode&unix.S_IWGRP != 0 && gid != 0 && int(gid) != os.Getegid() && (gid != staffGroup || !strings.HasPrefix(where+"/", "/usr/local/")):
		return fmt.Errorf("%s can be written by group %d (mode %04o): chmod g-w it first", where, gid, mode&0o7777)
	}
	return nil
}

// found is what lies at a place. The zero value is nothing.
type found struct {
	exists   bool
	sum      string // SHA-256 in hexadecimal
	size     int64
	mode     uint32 // permissions
	uid, gid uint32
}

// as says whether it is what is to be there, down to its owner and permissions.
func (f found) as(sum string, mode os.FileMode) bool {
	return f.exists && f.sum == sum && f.mode == uint32(mode) && int(f.uid) == os.Geteuid() && int(f.gid) == os.Getegid()
}

// look looks at a file in the folder. A link, a mount point or anything else but a regular file is an error.
func (f folder) look(name string) (found, error) {
	where := path.Join(f.path, name)
	var st unix.Statx_t
	err := unix.Statx(f.fd(), name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return found{}, nil
	case err != nil:
		return found{}, &fs.PathError{Op: "stat", Path: where, Err: err}
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return found{}, f.linkError(name)
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return found{}, fmt.Errorf("%s is a mount point: something else is mounted there; unmount it first", where)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return found{}, fmt.Errorf("%s is not a regular file", where)
	}
	file, err := f.read(name)
	if err != nil {
		return found{}, err
	}
	defer file.Close() // only read
	h := sha256.New()
	size, err := io.Copy(h, file)
	if err != nil {
		return found{}, fmt.Errorf("read %s: %w", where, err)
	}
	return found{
		exists: true, sum: hex.EncodeToString(h.Sum(nil)), size: size,
		mode: uint32(st.Mode) & 0o7777, uid: st.Uid, gid: st.Gid,
	}, nil
}

// errMasked says that a unit file is a link to /dev/null.
var errMasked = errors.New("the unit is masked, so somebody does not want it to run")

func (f folder) linkError(name string) error {
	where := path.Join(f.path, name)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(f.fd(), name, buf)
	if err != nil {
		return fmt.Errorf("%s is a link", where)
	}
	if string(buf[:n]) == "/dev/null" && where == UnitPath {
		return fmt.Errorf("%s is a link to /dev/null: %w; systemctl unmask it first", where, errMasked)
	}
	return fmt.Errorf("%s is a link to %s: links are not followed and not replaced; remove it first", where, buf[:n])
}

// read opens a regular file in the folder.
func (f folder) read(name string) (*os.File, error) {
	where := path.Join(f.path, name)
	fd, err := unix.Openat(f.fd(), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: where, Err: err}
	}
	return os.NewFile(uintptr(fd), where), nil
}

// put puts a file there, in place of what is there, in one step that a crash at any point leaves whole: the new content is on the disk
// before it gets the name. With a sum, content that has another is not put there. The file belongs to whoever runs this.
func (f folder) put(name string, content io.Reader, sum string, mode os.FileMode) error {
	where := path.Join(f.path, name)
	temporary := "." + name + ".new" // one name, so that what a crash left is swept by the next run
	if err := unix.Unlinkat(f.fd(), temporary, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", where, hinted(err))
	}
	fd, err := unix.Openat(f.fd(), temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", where, hinted(err))
	}
	err = fill(os.NewFile(uintptr(fd), where), content, sum, mode)
	if err == nil {
		err = unix.Renameat(f.fd(), temporary, f.fd(), name)
	}
	if err != nil {
		_ = unix.Unlinkat(f.fd(), temporary, 0) // the next run tries again
		return fmt.Errorf("write %s: %w", where, hinted(err))
	}
	return f.sync()
}

// fill writes, syncs and closes a new file.
func fill(file *os.File, content io.Reader, sum string, mode os.FileMode) error {
	defer file.Close() // after an error; else it is closed below
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(file, h), content); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); sum != "" && got != sum {
		return fmt.Errorf("its content changed meanwhile (sha256 %.12s…, want %.12s…): run this again", got, sum)
	}
	// The folder may hand down its own group; a new mode comes after the owner, whose change clears bits.
	if err := file.Chown(os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	if err := file.Chmod(mode); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}

// remove removes a file; one that is not there is fine.
func (f folder) remove(name string) error {
	if err := unix.Unlinkat(f.fd(), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path.Join(f.path, name), hinted(err))
	}
	return f.sync()
}

func (f folder) sync() error {
	if err := f.file.Sync(); err != nil {
		return fmt.Errorf("sync the folder %s: %w", f.path, err)
	}
	return nil
}

// hinted adds what to do about an error that the file system itself gives.
func hinted(err error) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w: this machine's image keeps the folder read-only; the program and its unit must be part of the image", err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: make room, and run this again", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: look for an immutable flag (lsattr)", err)
	}
	return err
}
