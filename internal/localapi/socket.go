package localapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockSuffix = ".lock"
	// probeWait bounds the question whether somebody listens. The kernel answers it, not that process.
	probeWait = time.Second
)

// listen opens the agent's socket at path, with mode 0600 from its first moment. A missing folder is created with mode 0755, one in /tmp
// with 0700; one that is a link, belongs to somebody else or can be written by others is refused. A socket on which nobody listens any
// more is replaced. The error is ErrInUse when another agent serves it; whatever is at path and is no socket is left alone.
//
// The listener turns away all processes but those of root and of this process's user. Closing it removes the socket, unless something else
// lies at path by then. Beside the socket lies a lock file, which stays.
func listen(path string) (*listener, error) {
	l, err := lockAndBind(path)
	if err != nil {
		return nil, fmt.Errorf("open the agent's socket %s: %w", path, err)
	}
	return l, nil
}

func lockAndBind(path string) (*listener, error) {
	dir := filepath.Dir(path)
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	if err := checkFolder(dir); err != nil {
		return nil, err
	}
	lock, err := takeLock(path + lockSuffix)
	if err != nil {
		return nil, err
	}
	l, err := replace(path)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	l.lock = lock
	return l, nil
}

// makeFolder makes a folder that is missing. A umask, such as the service's, takes nothing from its mode.
func makeFolder(dir string) error {
	if filepath.Dir(dir) == "/tmp" {
		return os.MkdirAll(dir, 0o700)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // as systemd makes it: what lies there has modes of its own
		return err
	}
	err := os.Mkdir(dir, 0o755) //nolint:gosec // likewise
	if errors.Is(err, fs.ErrExist) {
		return nil // checkFolder looks at what it is
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, 0o755) //nolint:gosec // likewise
}

// restoreMode gives a folder that took the place of an earlier one the earlier one's mode. Within this process too others make the folder
// where it is missing, and the umask narrows what they make. Only a folder of this user is changed; the error is no news.
func restoreMode(dir string, earlier fs.FileInfo) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0) //nolint:gosec // the caller's path
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }() // it was only looked at
	info, err := f.Stat()
	if err != nil || os.SameFile(info, earlier) {
		return
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int64(owner.Uid) == int64(os.Geteuid()) {
		_ = f.Chmod(earlier.Mode().Perm())
	}
}

// checkFolder holds that nobody but root and this user can have put what lies in dir there, or replace it: the rules of pkg/status for the
// folder whose name anyone can guess. Elsewhere they cost nothing.
func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	var why string
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		why = "is a link"
	case !info.IsDir():
		why = "is no folder"
	case !ok:
		why = "has no owner that could be read"
	case owner.Uid != 0 && int64(owner.Uid) != int64(os.Geteuid()):
		why = fmt.Sprintf("belongs to user %d, who is neither root nor user %d", owner.Uid, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		why = fmt.Sprintf("can be written by others (mode %04o)", info.Mode().Perm())
	default:
		return nil
	}
	return fmt.Errorf("not trusting %s: it %s; look at it, remove it and try again", dir, why)
}

// takeLock makes agents that start at once take turns, and shows one that runs even when it is too busy to take connections. The file
// is never removed: another process may be about to lock it.
func takeLock(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600) //nolint:gosec // the caller's path, in a folder that was checked
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	_ = lock.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: it holds %s", ErrInUse, path)
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// replace removes a dead socket and listens in its place. The lock is held.
func replace(path string) (*listener, error) {
	if err := removeDead(path); err != nil {
		return nil, err
	}
	l, err := bind(path)
	if err != nil {
		return nil, err
	}
	err = os.Chmod(path, 0o600) // a umask may have taken more away than it should
	var file fs.FileInfo
	if err == nil {
		file, err = os.Lstat(path)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would remove whatever has that name by then
	return &listener{UnixListener: l, path: path, file: file, own: os.Geteuid()}, nil
}

func removeDead(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is in the way, and is no socket (%s): look at it, remove it and try again", path, info.Mode())
	}
	conn, err := (&net.Dialer{Timeout: probeWait}).DialContext(context.Background(), "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%w: it listens there", ErrInUse)
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		return os.Remove(path)
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, os.ErrDeadlineExceeded) { // its queue is full
		return fmt.Errorf("%w: it listens there, and is too busy to answer", ErrInUse)
	}
	return fmt.Errorf("ask whether an agent listens: %w", err)
}

// bind listens at path. The kernel gives a socket's file the mode that the socket itself has when it is bound, less the umask: setting it
// before leaves no moment at which others could connect, and does not touch the umask, which all threads share.
func bind(path string) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var chmodErr error
		err := raw.Control(func(fd uintptr) { chmodErr = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmodErr)
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	unixListener, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("got a listener of type %T", l), l.Close())
	}
	return unixListener, nil
}

// listener is the agent's socket with the lock that belongs to it.
type listener struct {
	*net.UnixListener
	path string
	file fs.FileInfo // what was bound at path
	lock *os.File
	own  int
	once sync.Once
}

// stands reports whether the socket still lies at its path. While it is open no other file can be taken for it: the kernel keeps its inode.
func (l *listener) stands() bool {
	now, err := os.Lstat(l.path)
	return err == nil && os.SameFile(now, l.file)
}

// Accept returns the next connection of somebody who may ask. File modes keep others out already; this holds where they failed, for example
// because somebody changed them.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peer(conn)
		if err == nil && allowed(uid, l.own) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// Close removes the socket before it lets go of the lock, so that it can't remove a successor's; and not at all when what lies there is not
// this one any more.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		if l.stands() {
			_ = os.Remove(l.path) // a socket that is left is replaced by the next agent
		}
		err = l.UnixListener.Close()
		_ = l.lock.Close()
	})
	return err
}

// allowed: only root and the user of this process may be on the other side.
func allowed(uid, own int) bool { return uid == 0 || uid == own }

// peer returns the user on the other side: who connected, or who began to listen.
func peer(conn *net.UnixConn) (uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return 0, fmt.Errorf("ask who is on the other side: %w", err)
	}
	return int(cred.Uid), nil
}
