// Package host is the agent's hands on this machine: it runs commands, talks to systemd over D-Bus, and identifies files.
//
// It is the only room that may import os/exec, so that every command of the agent has a deadline, a bounded output, a short environment
// and a process group that ends with it. It knows nothing of kubelets or runtimes, and it judges nothing.
package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MaxOutput is how much a command may print on each of its two streams, in bytes. Everything we read is a few KiB.
const MaxOutput = 1 << 20

// waitDelay is how long after its end, or after it was killed, a command's pipes may stay open: a child that escaped from the process
// group would hold them for ever, and so would one that can't be killed.
const waitDelay = 200 * time.Millisecond

// DefaultPath is the search path for programs, whatever the environment says: the directories where nodes have them, local ones first.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ErrTooMuchOutput is returned by Run for a command that printed more than MaxOutput; it was killed.
var ErrTooMuchOutput = errors.New("printed too much")

// Command is what to run. It is never given to a shell.
type Command struct {
	Path string   // absolute path of the program
	Args []string // without the program's name
	Env  []string // KEY=VALUE, added to the short environment every command gets
}

// String returns the command as a person would type it; for messages only.
func (c Command) String() string { return strings.Join(append([]string{c.Path}, c.Args...), " ") }

// Output is what a command printed, its two streams apart.
type Output struct {
	Stdout, Stderr []byte
}

// ExitError says that a command ran and ended badly.
type ExitError struct {
	Command string
	Code    int    // exit status; -1 when a signal ended it
	Signal  string // name of that signal, else empty
	Stderr  string // the last line it printed there
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != "" {
		how = "ended by signal: " + e.Signal
	}
	if e.Stderr != "" {
		how += ": " + e.Stderr
	}
	return e.Command + ": " + how
}

// Run runs a command to its end and returns what it printed, also beside an error.
//
// It ends when the command does, when ctx does, or when the output grows too large; whatever is left of the command's process group is
// then killed. The error is context.Cause's, or ErrTooMuchOutput; for a command that ended badly it is an *ExitError. A process in
// uninterruptible sleep can't be killed: then Run does not come back before the kernel lets it go, and callers must be ready for that.
func Run(ctx context.Context, c Command) (Output, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	cmd := exec.CommandContext(ctx, c.Path, c.Args...) //nolint:gosec // running programs is what this package is for; callers pass checked paths
	cmd.Env = append(append([]string{"LC_ALL=C", "PATH=" + DefaultPath}, PassedEnvironment()...), c.Env...)
	cmd.Dir = "/"
	cmd.WaitDelay = waitDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	tooMuch := func() { end(ErrTooMuchOutput) }
	stdout, stderr := boundedBuffer{full: tooMuch}, boundedBuffer{full: tooMuch}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	err := cmd.Start()
	if err == nil {
		// What the command left behind in its group ends with it. Until cmd.Wait has fetched its exit status, no other process or group
		// can have its number.
		_ = ignoreEINTR(func() error { return unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) })
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		err = cmd.Wait()
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the command is gone, and what it printed is whole: only something that escaped from its group held a pipe open
	}
	out := Output{Stdout: stdout.buf.Bytes(), Stderr: stderr.buf.Bytes()}
	return out, runError(ctx, c, err, out)
}

func runError(ctx context.Context, c Command, err error, out Output) error {
	// Asked first: a command whose pipe was closed ends in some way of its own.
	if errors.Is(context.Cause(ctx), ErrTooMuchOutput) {
		return fmt.Errorf("%s: %w (over %d bytes)", c, ErrTooMuchOutput, MaxOutput)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", c, context.Cause(ctx))
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("run %s: %w", c, err)
	}
	e := &ExitError{Command: c.String(), Code: exit.ExitCode(), Stderr: lastLine(out.Stderr)}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal().String()
	}
	return e
}

// PassedEnvironment is what commands get of this process's environment, as KEY=VALUE: enough to find their files and a proxy. In particular
// not NOTIFY_SOCKET, over which a child could speak to systemd in our name, and no language settings that change what is printed. A proxy's
// URL may hold a password.
func PassedEnvironment() (env []string) {
	for _, key := range []string{
		"HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}

// boundedBuffer keeps up to MaxOutput bytes; then it calls full and fails, which makes os/exec close the pipe. That alone would not end
// a command that ignores SIGPIPE.
type boundedBuffer struct {
	buf  bytes.Buffer
	full func()
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > MaxOutput {
		b.full()
		return 0, ErrTooMuchOutput
	}
	return b.buf.Write(p)
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	const most = 300
	if len(line) > most {
		line = line[:most] + "…"
	}
	return strings.ToValidUTF8(line, "\uFFFD")
}
