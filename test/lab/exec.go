//go:build linux

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Output is what a command in a host left. Code is its exit code, or 128 plus the number of the signal that ended it.
type Output struct {
	Stdout, Stderr string
	Code           int
}

// errOff says that a host cannot do something because it is switched off.
var errOff = errors.New("the host is off")

// selfPath is where the test binary lies in a host.
const selfPath = "/usr/local/lib/aks-flex-node-lab/test"

// hostEnv is the environment of commands in a host: none of it comes from the test's.
func hostEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LC_ALL=C.UTF-8", "SYSTEMD_PAGER=", "TERM=dumb",
	}
}

// Command prepares a command that runs in the host: in its namespaces and its cgroup, as root, in /, with a short
// environment that may be appended to. When ctx ends, the command and all that it started in its process group are
// killed. If the host is off, starting the command fails.
func (h *Host) Command(ctx context.Context, argv ...string) *exec.Cmd {
	p := h.running()
	if p == nil {
		return &exec.Cmd{Err: errOff}
	}
	args := append([]string{"--target", strconv.Itoa(p.pid), "--all", "--"}, argv...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.Dir, cmd.Env = "/", hostEnv()
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, UseCgroupFD: true, CgroupFD: int(p.execs.Fd())}
	// nsenter waits for the command in another pid namespace: killing it alone would leave the command running.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// Exec runs a command in the host and waits for it. An exit code other than 0 is no error; an error means that it could
// not be run or that ctx ended first. What the command left running in the background is not waited for, and what that
// writes later is lost.
func (h *Host) Exec(ctx context.Context, argv ...string) (Output, error) {
	var stdout, stderr bytes.Buffer
	cmd := h.Command(ctx, argv...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	out := Output{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return out, nil
	case ctx.Err() != nil:
		return out, fmt.Errorf("run %q on host %s: %w", argv, h.name, ctx.Err())
	case !errors.As(err, &exit):
		return out, fmt.Errorf("run %q on host %s: %w", argv, h.name, err)
	}
	out.Code = exit.ExitCode()
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		out.Code = 128 + int(ws.Signal())
	}
	return out, nil
}

// run is Exec for the lab's own steps: a command that fails is an error.
func (h *Host) run(ctx context.Context, argv ...string) (string, error) {
	out, err := h.Exec(ctx, argv...)
	if err == nil && out.Code != 0 {
		err = fmt.Errorf("%q on host %s: exit code %d: %s", argv, h.name, out.Code, strings.TrimSpace(out.Stderr+out.Stdout))
	}
	return out.Stdout, err
}

// MustExec runs a command in the host and returns its standard output. The test fails at once if the command does.
func (h *Host) MustExec(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := h.run(t.Context(), argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Signal sends a signal to a process of the host, by the id that it has in there.
func (h *Host) Signal(ctx context.Context, pid int, sig syscall.Signal) error {
	_, err := h.run(ctx, "sh", "-c", `kill "-$1" "$2"`, "sh", strconv.Itoa(int(sig)), strconv.Itoa(pid))
	return err
}

// Self prepares a command that runs this test binary in the host, for instance with -test.run=^TestX$ and a variable in
// its Env by which TestMain tells that it is inside. Failures to put the binary there show when the command is started.
func (h *Host) Self(ctx context.Context, args ...string) *exec.Cmd {
	if err := h.copySelf(ctx); err != nil {
		return &exec.Cmd{Err: err}
	}
	return h.Command(ctx, append([]string{selfPath}, args...)...)
}

func (h *Host) copySelf(ctx context.Context) error {
	h.mu.Lock()
	there := h.self
	h.mu.Unlock()
	if there {
		return nil
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the test binary: %w", err)
	}
	if err := h.CopyIn(ctx, filepath.Clean(binary), selfPath, 0o755); err != nil {
		return err
	}
	h.mu.Lock()
	h.self = true
	h.mu.Unlock()
	return nil
}
