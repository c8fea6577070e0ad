package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// roleVariable tells the test binary, when a test runs it as a command, how to behave; its arguments are those of the role.
const roleVariable = "HOST_TEST_ROLE"

// roles are the commands that tests run. Each first prints "pid N", from which the test knows the process group to look for.
var roles = map[string]func(args []string){
	"exit": func(args []string) {
		say("out", "some more")
		sayErr("first line", "last line\n")
		syscall.Exit(number(args[0]))
	},
	"signal":  func(args []string) { raise(syscall.Signal(number(args[0]))) },
	"print":   func(args []string) { printBytes(os.Stdout, number(args[0])) },
	"flood":   func(args []string) { flood(args) },
	"environ": func([]string) { say(os.Environ()...) },
	"stdin": func([]string) {
		link, _ := os.Readlink("/proc/self/fd/0")
		b, err := io.ReadAll(os.Stdin)
		say(link, fmt.Sprint(len(b), err))
	},
	"folder": func([]string) { dir, err := os.Getwd(); say(dir, fmt.Sprint(err)) },
	"hang":   func(args []string) { hang(args) },
	"stay":   func([]string) { <-time.After(time.Hour) },
	"fork":   func(args []string) { fork(args) },
	"ask":    func(args []string) { askAboutUnit(args) },
	"look":   func(args []string) { look(args) },
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		play, ok := roles[role]
		if !ok {
			fmt.Fprintf(os.Stderr, "unknown role %q\n", role)
			os.Exit(2)
		}
		say(fmt.Sprint("pid ", os.Getpid()))
		play(os.Args[1:])
		syscall.Exit(0) // at once: os.Exit lets the race detector wait for a second and coverage complain
	}
	// Processes that lose their parent come to this one, so that tests can see how they ended and no zombie is left.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "become the reaper of lost children:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func say(lines ...string)    { fmt.Println(strings.Join(lines, "\n")) }
func sayErr(lines ...string) { fmt.Fprintln(os.Stderr, strings.Join(lines, "\n")) }

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func raise(sig syscall.Signal) {
	signal.Reset(sig)
	_ = syscall.Kill(os.Getpid(), sig)
	<-time.After(time.Hour)
}

// printBytes prints so many bytes altogether, those of the pid among them.
func printBytes(w io.Writer, n int) {
	n -= len(fmt.Sprint("pid ", os.Getpid(), "\n"))
	_, _ = io.WriteString(w, strings.Repeat("x", n))
}

// flood prints 100 MB on each of the named streams. One that is "stubborn" can't be ended by a broken pipe.
func flood(args []string) {
	line := strings.Repeat("flood ", 10_000) + "\n"
	for _, arg := range args {
		switch arg {
		case "stubborn":
			signal.Ignore(syscall.SIGPIPE)
			defer func() { <-time.After(time.Hour) }() //nolint:gocritic // once: it hangs at the end
		case "stdout", "stderr":
			w := map[string]*os.File{"stdout": os.Stdout, "stderr": os.Stderr}[arg]
			for range 100_000_000 / len(line) {
				_, _ = w.WriteString(line)
			}
		}
	}
}

// hang ignores what would end it politely, says in a file that it does, and stays.
func hang(args []string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	sayErr("will hang now")
	if len(args) > 0 {
		writeWhole(args[0], strconv.Itoa(os.Getpid()))
	}
	<-time.After(time.Hour)
}

// fork starts a child that hangs and says its pid. The words say how: "setsid" escapes from the group, "quiet" does not hold the pipes,
// "stay" waits for the child.
func fork(args []string) {
	has := func(word string) bool { return strings.Contains(" "+strings.Join(args[1:], " ")+" ", " "+word+" ") }
	child := exec.Command("/proc/self/exe", args[0])
	child.Env = inRoleEnv("hang")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: has("setsid")}
	if !has("quiet") {
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
	}
	if err := child.Start(); err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(args[0]); err == nil {
			break
		}
		<-time.After(time.Millisecond)
	}
	say(fmt.Sprint("child ", child.Process.Pid))
	if has("stay") {
		hang(args[2:])
	}
}

func writeWhole(path, content string) {
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		panic(err)
	}
}

// look reads things as another user may and prints the errors.
func look(args []string) {
	pid := number(args[1])
	id, err := Identify(args[0])
	say("identify: " + fmt.Sprint(err))
	say("check: " + fmt.Sprint(CheckProgram(args[0], id)))
	_, err = Environ(pid)
	say("environ: " + fmt.Sprint(err))
	_, _, err = Executable(pid)
	say("executable: " + fmt.Sprint(err))
	_, err = CommandLine(pid)
	say("command line: " + fmt.Sprint(err))
	_, err = FindProcess(pid)
	say("process: " + fmt.Sprint(err))
}

// askAboutUnit asks the systemd in a folder about a unit.
func askAboutUnit(args []string) {
	s := Systemd{folder: args[0]}
	defer s.Close()
	units, err := s.Units(context.Background(), args[1])
	for _, u := range units {
		say(fmt.Sprint(u.Name, " ", u.ActiveState))
	}
	say(fmt.Sprint(err))
}

// inRole is the test binary as a command.
func inRole(role string, args ...string) Command {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Command{Path: exe, Args: args, Env: inRoleEnv(role)}
}

func inRoleEnv(role string) []string { return []string{roleVariable + "=" + role} }

// start starts the test binary in a role without Run, and ends it with the test.
func start(t *testing.T, exe, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(exe, args...)
	cmd.Env = inRoleEnv(role)
	begin(t, cmd)
	return cmd
}

// begin starts a command and ends it with the test.
func begin(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// leavesNothing checks, when the test is over, that it left neither goroutines nor file descriptors.
func leavesNothing(t *testing.T) {
	t.Helper()
	// The first command of a process opens descriptors that stay, of Go's runtime.
	if out, err := exec.CommandContext(t.Context(), "/bin/true").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	others := goleak.IgnoreCurrent()
	before := openFiles(t)
	t.Cleanup(func() {
		goleak.VerifyNone(t, others)
		eventually(t, func() bool { return len(openFiles(t)) <= len(before) }, func() string {
			return fmt.Sprintf("open files: got %q, want no more than before: %q", openFiles(t), before)
		})
	})
}

func openFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil { // not the one that read the folder
			open = append(open, e.Name()+" "+to)
		}
	}
	return open
}

// eventually waits until something is so, and fails with what is instead.
func eventually(t *testing.T, isSo func() bool, instead func() string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !isSo() {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-deadline:
			t.Fatal(instead())
		}
	}
}

// saidNumber returns the number that a command printed behind a word, at the beginning of a line.
func saidNumber(t *testing.T, out []byte, word string) int {
	t.Helper()
	for line := range strings.Lines(string(out)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			return number(n)
		}
	}
	t.Fatalf("the command did not say its %s: %.200q", word, out)
	return 0
}

// groupEnds waits until no process of a group is left.
func groupEnds(t *testing.T, group int) {
	t.Helper()
	eventually(t, func() bool {
		for {
			if pid, _ := unix.Wait4(-group, nil, unix.WNOHANG, nil); pid <= 0 { // children that came to us when they lost their parent
				break
			}
		}
		return unix.Kill(-group, 0) == unix.ESRCH // a plain errno
	}, func() string { return fmt.Sprintf("a process of group %d is still there", group) })
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives files to other users, or talks to systemd as only root may")
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}
