package localapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockSuffix = ".lock"
	// probeWait bounds the question whether somebody listens. The kernel answers it, not that process.
	probeWait = time.Second
)

// Listen opens the agent's socket at path, with mode 0600 from its first moment. A missing folder is created with mode 0755, one in /tmp
// with 0700; one that is a link, belongs to somebody else or can be written by others is refused. A socket on which nobody listens any
// more is replaced. The error is ErrInUse when another agent serves it; whatever is at path and is no socket is left alone.
//
// The listener turns away all processes but those of root and of this process's user. Closing it removes the socket. Beside the socket
// lies a lock file, which stays.
func Listen(path string) (net.Listener, error) {
	l, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("open the agent's socket %s: %w", path, err)
	}
	return l, nil
}

func listen(path string) (net.Listener, error) {
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
	return &listener{UnixListener: l, lock: lock, own: os.Geteuid()}, nil
}

func makeFolder(dir string) error {
	mode := fs.FileMode(0o755)
	if filepath.Dir(dir) == "/tmp" {
		mode = 0o700
	}
	return os.MkdirAll(dir, mode)
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
func replace(path string) (*net.UnixListener, error) {
	if err := removeDead(path); err != nil {
		return nil, err
	}
	l, err := bind(path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil { // a umask may have taken more away than it should
		_ = l.Close()
		return nil, err
	}
	return l, nil
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
	lock *os.File
	own  int
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

// Close removes the socket before it lets go of the lock, so that it can't remove a successor's.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	_ = l.lock.Close()
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
