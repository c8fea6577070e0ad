//go:build linux

package lab

import (
	"bytes"
	"context"
	_ "embed" // boot.sh
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed boot.sh
var bootScript string

// bootWithin is how long a boot may take. It takes half a second on an idle machine.
const bootWithin = time.Minute

// initProcess is one boot of a host: its PID 1, from the outside.
type initProcess struct {
	pid   int
	execs *os.File       // the cgroup for commands that are run from outside
	gate  io.WriteCloser // standard input of boot.sh
	up    atomic.Bool    // it has become systemd
	done  chan struct{}  // closed when the process is reaped; with it went all others of its pid namespace
}

func (p *initProcess) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Boot switches the host on and returns when systemd has started everything, also if a unit of it failed. Starting a host
// that is on is an error. On an error the host is off.
func (h *Host) Boot(ctx context.Context) error {
	h.power.Lock()
	defer h.power.Unlock()
	if err := h.boot(ctx); err != nil {
		return fmt.Errorf("boot host %s: %w", h.name, err)
	}
	return nil
}

func (h *Host) boot(ctx context.Context) error {
	if h.state == nil {
		return errors.New("it was stopped and has no disk any more")
	}
	if h.running() != nil {
		return errors.New("it is on")
	}
	// A host that ended by itself left its cgroups: cadvisor would spend seconds on each of an old pod.
	if err := h.cut(ctx); err != nil {
		return err
	}
	p, err := h.launch()
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.init = p
	h.mu.Unlock()
	if err := h.awaitBoot(ctx, p); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), shortly)
		defer cancel()
		if !p.ended() {
			err = fmt.Errorf("%w\n%s\n%s", err, h.failedUnits(cleanup), h.logTail(cleanup, 20))
		}
		return errors.Join(fmt.Errorf("%w\n%s", err, h.consoleTail()), h.cut(cleanup))
	}
	return nil
}

// launch starts boot.sh in namespaces and a cgroup of its own. It waits there at its gate.
func (h *Host) launch() (_ *initProcess, err error) {
	top, err := openCgroup(h.state.cgroup(h.state.ID))
	if err != nil {
		return nil, err
	}
	defer top.Close()
	// Commands from outside get a leaf: cgroup v2 allows no processes beside the groups that systemd makes.
	execs, err := openCgroup(filepath.Join(top.Name(), "lab-exec"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, execs.Close())
		}
	}()
	console, err := os.OpenFile(h.consolePath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer console.Close()

	address := ""
	if h.link != nil {
		address = h.link.Address.String()
	}
	argv := append([]string{"-eu", "-c", bootScript, "lab-boot", h.state.Dir, h.hostname, address}, h.binds...)
	cmd := exec.Command("/bin/sh", argv...) //nolint:noctx // lives until the host is switched off
	cmd.Dir, cmd.Env = "/", hostEnv()
	cmd.Stdout, cmd.Stderr = console, console
	gate, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL, // the host dies with this process; killing PID 1 kills all of its namespace
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
		// Not by clone: the cgroup namespace takes as its root the cgroup that the child is in by then, and for a mount
		// namespace made in this way Go makes all mounts private.
		Unshareflags: unix.CLONE_NEWCGROUP | unix.CLONE_NEWNS,
		UseCgroupFD:  true,
		CgroupFD:     int(top.Fd()),
	}
	p := &initProcess{execs: execs, gate: gate, done: make(chan struct{})}
	if err := startAndReap(cmd, p.done); err != nil {
		return nil, fmt.Errorf("enter namespaces: %w", err)
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// startAndReap starts a process and closes done when it has ended and is reaped. The kernel sends the parent-death signal
// when the thread ends that started the process, so that thread is kept for as long.
func startAndReap(cmd *exec.Cmd, done chan<- struct{}) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how init ended tells nothing
			close(done)
		}
	}()
	return <-started
}

// awaitBoot wires the host's network, opens the gate, and waits until systemd is through.
func (h *Host) awaitBoot(ctx context.Context, p *initProcess) error {
	if h.link != nil {
		if err := h.link.plug(ctx, p.pid); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(p.gate, "go\n"); err != nil {
		return fmt.Errorf("open gate: %w", err)
	}
	err := WaitFor(ctx, bootWithin, "host "+h.name+" has booted", func(ctx context.Context) (bool, string) {
		if p.ended() {
			return true, ""
		}
		// Until boot.sh has become systemd, commands in its namespaces would talk to the machine's own systemd.
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid)); err != nil || string(comm) != "systemd\n" {
			return false, "setting up mounts"
		}
		p.up.Store(true)
		out, err := h.Exec(ctx, "systemctl", "is-system-running")
		if err != nil {
			return false, err.Error()
		}
		saw := strings.TrimSpace(out.Stdout + out.Stderr)
		return saw == "running" || saw == "degraded", saw
	})
	if err == nil && p.ended() {
		return errors.New("init ended")
	}
	return err
}

// PowerCut switches the host off as pulling the plug does: nothing inside gets a chance to do anything. What was written
// to files is kept, synced or not. Cutting a host that is off does nothing.
func (h *Host) PowerCut(ctx context.Context) error {
	h.power.Lock()
	defer h.power.Unlock()
	if err := h.cut(ctx); err != nil {
		return fmt.Errorf("cut power of host %s: %w", h.name, err)
	}
	return nil
}

// Shutdown switches the host off in an orderly way: systemd stops all units. If that does not succeed before ctx ends,
// the error says so and the host is still on. Shutting down a host that is off does nothing.
func (h *Host) Shutdown(ctx context.Context) error {
	h.power.Lock()
	defer h.power.Unlock()
	p := h.running()
	if p == nil {
		return h.cut(ctx)
	}
	// Its exit code tells nothing: it is often killed by what it asked for.
	if _, err := h.Exec(ctx, "systemctl", "--no-block", "poweroff"); err != nil && !p.ended() {
		return fmt.Errorf("shut down: %w", err)
	}
	select {
	case <-p.done:
		return h.cut(ctx)
	case <-ctx.Done():
		return fmt.Errorf("shut down host %s: %w", h.name, ctx.Err())
	}
}

// Reboot shuts the host down in an orderly way and boots it again.
func (h *Host) Reboot(ctx context.Context) error {
	if err := h.Shutdown(ctx); err != nil {
		return err
	}
	return h.Boot(ctx)
}

// cut kills init, and with it all processes of its pid namespace, and removes the cgroups.
func (h *Host) cut(ctx context.Context) error {
	h.mu.Lock()
	p := h.init
	h.mu.Unlock()
	if p != nil {
		if !p.ended() {
			if err := unix.Kill(p.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill init: %w", err)
			}
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of init: %w", ctx.Err())
		}
		_ = p.gate.Close()
		_ = p.execs.Close()
		h.mu.Lock()
		h.init = nil
		h.mu.Unlock()
	}
	if h.state == nil {
		return nil
	}
	return removeCgroup(ctx, h.state.cgroup(h.state.ID))
}

func (h *Host) consolePath() string { return filepath.Join(h.state.Dir, "console.log") }

// consoleTail returns the end of what boot.sh and systemd wrote before the log was there to write to.
func (h *Host) consoleTail() string {
	text, err := os.ReadFile(h.consolePath())
	if err != nil {
		return err.Error()
	}
	const most = 4096
	return "console: " + string(bytes.TrimSpace(text[max(0, len(text)-most):]))
}
