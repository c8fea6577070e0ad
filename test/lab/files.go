//go:build linux

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadFile reads a file of the host. The error tells with errors.Is(err, fs.ErrNotExist) that there is none.
func (h *Host) ReadFile(name string) ([]byte, error) {
	f, err := h.open(name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}

// WriteFile writes a file of the host with exactly this mode, and makes the folders above it if need be. The file is
// rewritten in place: containerd 1.6, for one, does not see a CNI configuration that was renamed into place.
func (h *Host) WriteFile(ctx context.Context, name string, content []byte, mode fs.FileMode) error {
	return h.write(ctx, name, bytes.NewReader(content), mode)
}

// CopyIn copies a file of the machine, such as a program, to a path of the host. It replaces in one step what is there,
// which may be running.
func (h *Host) CopyIn(ctx context.Context, from, to string, mode fs.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy to host %s: %w", h.name, err)
	}
	defer src.Close()
	if err := h.write(ctx, to+".new", src, mode); err != nil {
		return err
	}
	_, err = h.run(ctx, "mv", "-fT", to+".new", to)
	return err
}

func (h *Host) write(ctx context.Context, name string, content io.Reader, mode fs.FileMode) error {
	err := h.writeNow(name, content, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := h.run(ctx, "mkdir", "-p", path.Dir(name)); err != nil {
			return err
		}
		err = h.writeNow(name, content, mode)
	}
	return err
}

func (h *Host) writeNow(name string, content io.Reader, mode fs.FileMode) error {
	// A process that another test starts meanwhile would have the file open for writing until it executes its program, and a
	// program that is open for writing can't be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := h.open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = io.Copy(f, content)
	// The mode given to open is subject to the umask and holds for new files only.
	if err = errors.Join(err, f.Chmod(mode.Perm()), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// open opens a file of the host from outside. Links are resolved as they are inside: followed by way of /proc/PID/root
// alone, an absolute one would lead to the machine's own files.
func (h *Host) open(name string, flags int, mode fs.FileMode) (*os.File, error) {
	p := h.running()
	if p == nil {
		return nil, &fs.PathError{Op: "open", Path: h.name + ":" + name, Err: errOff}
	}
	root, err := os.Open(fmt.Sprintf("/proc/%d/root", p.pid))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm())
	}
	for {
		fd, err := unix.Openat2(int(root.Fd()), name, &how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue // something was renamed meanwhile
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: h.name + ":" + name, Err: err}
		}
		return os.NewFile(uintptr(fd), h.name+":"+name), nil
	}
}
