package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// result is what Run returned.
type result struct {
	out Output
	err error
}

// runIn calls Run, fails the test when that does not come back, and checks that no process of the command's group is left.
func runIn(ctx context.Context, t *testing.T, c Command) result {
	t.Helper()
	done := make(chan result, 1)
	go func() {
		out, err := Run(ctx, c)
		done <- result{out, err}
	}()
	select {
	case r := <-done:
		if strings.HasPrefix(string(r.out.Stdout), "pid ") {
			groupEnds(t, saidNumber(t, r.out.Stdout, "pid"))
		}
		return r
	case <-time.After(time.Minute):
		t.Fatalf("Run(%s) did not come back", c)
		return result{}
	}
}

func TestRunToItsEnd(t *testing.T) {
	for _, tc := range []struct {
		name      string
		command   Command
		wantError *ExitError // without the command; nil for none
	}{
		{"given a command that ends well, there is no error", inRole("exit", "0"), nil},
		{"given exit status 1, the error holds it and the last line of stderr", inRole("exit", "1"), &ExitError{Code: 1, Stderr: "last line"}},
		{"given exit status 255, it is not taken for a signal", inRole("exit", "255"), &ExitError{Code: 255, Stderr: "last line"}},
		{"given SIGKILL, the error names it", inRole("signal", "9"), &ExitError{Code: -1, Signal: "killed"}},
		{"given SIGTERM, the error names it", inRole("signal", "15"), &ExitError{Code: -1, Signal: "terminated"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			r := runIn(t.Context(), t, tc.command)
			if tc.wantError == nil && r.err != nil {
				t.Fatalf("got error %v, want none", r.err)
			}
			if tc.wantError != nil {
				var got *ExitError
				if !errors.As(r.err, &got) {
					t.Fatalf("got error %#v, want an ExitError", r.err)
				}
				want := *tc.wantError
				want.Command = tc.command.String()
				if *got != want {
					t.Errorf("got %+v, want %+v", *got, want)
				}
			}
			if tc.command.Env[0] == roleVariable+"=exit" {
				wantSuffix(t, "stdout", r.out.Stdout, "\nout\nsome more\n") // also beside an error
				wantSuffix(t, "stderr", r.out.Stderr, "first line\nlast line\n\n")
			}
		})
	}
}

func wantSuffix(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if !strings.HasSuffix(string(got), want) {
		t.Errorf("%s: got %q, want it to end with %q", what, got, want)
	}
}

func TestExitErrorReadsWell(t *testing.T) {
	for _, tc := range []struct {
		err  ExitError
		want string
	}{
		{ExitError{Command: "/bin/x --version", Code: 3}, "/bin/x --version: exit status 3"},
		{ExitError{Command: "/bin/x", Code: 3, Stderr: "no such flag"}, "/bin/x: exit status 3: no such flag"},
		{ExitError{Command: "/bin/x", Code: -1, Signal: "killed"}, "/bin/x: ended by signal: killed"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestRunWhatCannotBeStarted(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tc := range []struct {
		name, path string
		want       error
	}{
		{"given no file", filepath.Join(dir, "missing"), fs.ErrNotExist},
		{"given a file that may not be executed", file("plain", "#!/bin/sh\n", 0o644), fs.ErrPermission},
		{"given a folder", dir, fs.ErrPermission},
		{"given an empty file", file("empty", "", 0o755), syscall.ENOEXEC},
		{"given a text without a first line that names its shell, none is started", file("text", "echo hello\n", 0o755), syscall.ENOEXEC},
		{"given a script whose shell is missing", file("script", "#!/no/such/shell\n", 0o755), fs.ErrNotExist},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			r := runIn(t.Context(), t, Command{Path: tc.path, Args: []string{"--version"}})
			var exit *ExitError
			if !errors.Is(r.err, tc.want) || errors.As(r.err, &exit) {
				t.Errorf("got error %#v (%v), want %v", r.err, r.err, tc.want)
			}
			if r.err != nil && !strings.Contains(r.err.Error(), tc.path+" --version") {
				t.Errorf("got %q, want it to name the command", r.err)
			}
			if len(r.out.Stdout)+len(r.out.Stderr) > 0 {
				t.Errorf("got output %q, want none", r.out)
			}
		})
	}
}

func TestRunBoundsTheOutput(t *testing.T) {
	for _, tc := range []struct {
		name    string
		command Command
		tooMuch bool
	}{
		{"given exactly as much as allowed, all of it is kept", inRole("print", strconv.Itoa(MaxOutput)), false},
		{"given one byte more, it is too much", inRole("print", strconv.Itoa(MaxOutput+1)), true},
		{"given a flood on stdout", inRole("flood", "stdout"), true},
		{"given a flood on stderr", inRole("flood", "stderr"), true},
		{"given a flood on both", inRole("flood", "stdout", "stderr"), true},
		{"given a command that does not care about a broken pipe, it is killed", inRole("flood", "stubborn", "stdout", "stderr"), true},
		{"given the same on stderr, it is killed", inRole("flood", "stubborn", "stderr"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			r := runIn(t.Context(), t, tc.command)
			if got := errors.Is(r.err, ErrTooMuchOutput); got != tc.tooMuch {
				t.Errorf("got error %v; is it ErrTooMuchOutput: got %v, want %v", r.err, got, tc.tooMuch)
			}
			if !tc.tooMuch && (r.err != nil || len(r.out.Stdout) != MaxOutput) {
				t.Errorf("got %d bytes and error %v, want %d and none", len(r.out.Stdout), r.err, MaxOutput)
			}
			if len(r.out.Stdout) > MaxOutput || len(r.out.Stderr) > MaxOutput {
				t.Errorf("kept %d and %d bytes, want at most %d", len(r.out.Stdout), len(r.out.Stderr), MaxOutput)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	errCause := errors.New("the caller's own reason")
	for _, tc := range []struct {
		name  string
		role  []string // of a command that hangs and says so in the file named by the last argument
		cause error
		want  error
	}{
		{"given a command that ignores SIGTERM, when the context is cancelled, then it is killed and the error is the cause",
			[]string{"hang"}, errCause, errCause},
		{"given no cause, then the error is context.Canceled", []string{"hang"}, nil, context.Canceled},
		{"given a child in the same group, when the context is cancelled, then the child is killed too",
			[]string{"fork", "CHILD", "stay"}, errCause, errCause},
		{"given a child that escaped and holds the pipes, when the context is cancelled, then Run comes back all the same",
			[]string{"fork", "CHILD", "setsid stay"}, errCause, errCause},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			dir := t.TempDir()
			ready, child := filepath.Join(dir, "ready"), filepath.Join(dir, "child")
			role := append(slices.Clone(tc.role), ready)
			for i := range role {
				role[i] = strings.Replace(role[i], "CHILD", child, 1)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				for ctx.Err() == nil {
					if _, err := os.Stat(ready); err == nil {
						cancel(tc.cause)
					}
					<-time.After(time.Millisecond)
				}
			}()
			r := runIn(ctx, t, inRole(role[0], role[1:]...))
			if !errors.Is(r.err, tc.want) {
				t.Errorf("got error %v, want %v", r.err, tc.want)
			}
			wantSuffix(t, "stderr", r.out.Stderr, "will hang now\n")
			if b, err := os.ReadFile(child); err == nil {
				endEscaped(t, number(string(b)), strings.Contains(tc.role[2], "setsid"))
			}
		})
	}
}

// endEscaped checks whether a child lives, as only one that escaped may, and ends it.
func endEscaped(t *testing.T, pid int, escaped bool) {
	t.Helper()
	if alive := unix.Kill(pid, 0) == nil; alive != escaped { // a plain errno
		t.Errorf("child %d lives: got %v, want %v", pid, alive, escaped)
	}
	if escaped {
		_ = unix.Kill(-pid, unix.SIGKILL)
		groupEnds(t, pid)
	}
}

func TestRunEndsAtItsDeadline(t *testing.T) {
	errCause := errors.New("no answer in time")
	t.Run("given a deadline, then the error is DeadlineExceeded", func(t *testing.T) {
		leavesNothing(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if r := runIn(ctx, t, inRole("hang")); !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want DeadlineExceeded", r.err)
		}
	})
	t.Run("given a deadline with a cause, then the error is the cause", func(t *testing.T) {
		leavesNothing(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errCause)
		defer cancel()
		if r := runIn(ctx, t, inRole("hang")); !errors.Is(r.err, errCause) {
			t.Errorf("got error %v, want %v", r.err, errCause)
		}
	})
	t.Run("given a context that has ended, then nothing is started", func(t *testing.T) {
		leavesNothing(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errCause)
		ready := filepath.Join(t.TempDir(), "ready")
		if r := runIn(ctx, t, inRole("hang", ready)); !errors.Is(r.err, errCause) || len(r.out.Stdout) > 0 {
			t.Errorf("got error %v and output %q, want %v and none", r.err, r.out.Stdout, errCause)
		}
		if _, err := os.Stat(ready); err == nil {
			t.Error("the command was started")
		}
	})
}

func TestRunEndsWhatTheCommandLeavesBehind(t *testing.T) {
	for _, tc := range []struct {
		name, how string
		escaped   bool
	}{
		{"given a child in its group that holds the pipes, when the command ends, then the child is killed", "", false},
		{"given a child in its group that does not, when the command ends, then the child is killed", "quiet", false},
		{"given a child that escaped and holds the pipes, when the command ends, then Run comes back and the child lives", "setsid", true},
		{"given a child that escaped and does not, when the command ends, then the child lives", "setsid quiet", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			r := runIn(t.Context(), t, inRole("fork", filepath.Join(t.TempDir(), "child"), tc.how))
			child := saidNumber(t, r.out.Stdout, "child")
			if r.err != nil {
				t.Errorf("got error %v, want none: the command itself ended well", r.err)
			}
			endEscaped(t, child, tc.escaped)
		})
	}
}

func TestRunGivesAShortEnvironment(t *testing.T) {
	for _, key := range []string{"HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"} {
		t.Setenv(key, "") // restored after the test
		if err := os.Unsetenv(key); err != nil {
			t.Fatal(err)
		}
	}
	for _, set := range []string{
		"NOTIFY_SOCKET=/run/systemd/notify", "WATCHDOG_USEC=1", "LANG=de_DE.UTF-8", "LC_ALL=de_DE.UTF-8", "LC_MESSAGES=de", "PATH=/tmp/evil:/bin",
		"LD_PRELOAD_OF_SOMEONE=x", "HOME=/root", "https_proxy=http://proxy:3128", "NO_PROXY=10.0.0.0/8", "HTTP_PROXY=",
	} {
		key, value, _ := strings.Cut(set, "=")
		t.Setenv(key, value)
	}
	for _, tc := range []struct {
		name string
		add  []string
		want []string
	}{
		{"given nothing to add, then it holds language, PATH, HOME and the proxies that are set, and nothing else", nil, []string{
			"HOME=/root", "HTTP_PROXY=", "LC_ALL=C", "NO_PROXY=10.0.0.0/8", "PATH=" + DefaultPath, "https_proxy=http://proxy:3128",
		}},
		{"given more, then that is added and wins", []string{"KUBECONFIG=/k", "HOME=/other", "EMPTY="}, []string{
			"EMPTY=", "HOME=/other", "HTTP_PROXY=", "KUBECONFIG=/k", "LC_ALL=C", "NO_PROXY=10.0.0.0/8", "PATH=" + DefaultPath,
			"https_proxy=http://proxy:3128",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := inRole("environ")
			c.Env = append(c.Env, tc.add...)
			r := runIn(t.Context(), t, c)
			if r.err != nil {
				t.Fatal(r.err)
			}
			_, lines, _ := strings.Cut(string(r.out.Stdout), "\n")
			got := slices.DeleteFunc(strings.Fields(lines), func(e string) bool { return slices.Contains(inRoleEnv("environ"), e) })
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestRunGivesNoInputAndAFolderThatIsAlwaysThere(t *testing.T) {
	t.Chdir(t.TempDir())
	for role, want := range map[string]string{"stdin": "\n/dev/null\n0 <nil>\n", "folder": "\n/\n<nil>\n"} {
		r := runIn(t.Context(), t, inRole(role))
		if r.err != nil {
			t.Error(r.err)
		}
		wantSuffix(t, role, r.out.Stdout, want)
	}
}

func TestRunByManyAtOnce(t *testing.T) {
	leavesNothing(t)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			var exit *ExitError
			out, err := Run(t.Context(), inRole("exit", strconv.Itoa(i)))
			if i > 0 && (!errors.As(err, &exit) || exit.Code != i) || i == 0 && err != nil {
				t.Errorf("command %d: got error %v", i, err)
			}
			wantSuffix(t, fmt.Sprint("command ", i), out.Stdout, "\nout\nsome more\n")
		})
	}
	all.Wait()
}

func TestLastLine(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"given nothing", "", ""},
		{"given blank lines only", " \n\n", ""},
		{"given one line without an end", "error", "error"},
		{"given blank lines behind it", "first\n  last \r\n\n", "last"},
		{"given a long line, it is cut", strings.Repeat("x", 301), strings.Repeat("x", 300) + "…"},
		{"given 300 bytes, they are kept", strings.Repeat("x", 300), strings.Repeat("x", 300)},
		{"given a cut through a letter, the rest of the letter is replaced", "x" + strings.Repeat("é", 200), "x" + strings.Repeat("é", 149) + "\uFFFD…"},
		{"given bytes that are no text", "bad \xff\xfe byte", "bad \uFFFD byte"},
	} {
		got := lastLine([]byte(tc.in))
		if got != tc.want || !utf8.ValidString(got) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
