package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// execAs is the program exe in a role, as another user.
func execAs(t *testing.T, uid uint32, exe, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = inRoleEnv(role)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// ticks is the time since boot in the unit of Process.Start.
func ticks(t *testing.T) uint64 {
	t.Helper()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &now))
	return uint64(now.Nano() / 10_000_000) // a clock tick is 10 ms on every Linux that this project is built for
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	return exe
}

func TestFindProcess(t *testing.T) {
	before := ticks(t)
	child := start(t, self(t), "hang").Process.Pid
	after := ticks(t)
	p, err := FindProcess(child)
	if err != nil || p.PID != child || p.Start < before || p.Start > after {
		t.Errorf("got %+v and error %v, want process %d begun in the ticks %d to %d", p, err, child, before, after)
	}
	if again, err := FindProcess(child); again != p || err != nil {
		t.Errorf("asked again: got %+v, %v, want %+v", again, err, p)
	}
	if own, err := FindProcess(os.Getpid()); err != nil || own.Start > p.Start || own.PID != os.Getpid() {
		t.Errorf("got %+v, %v for this process, want it to be older than its child %+v", own, err, p)
	}
}

func TestFindProcessThatIsNone(t *testing.T) {
	dead := exec.CommandContext(t.Context(), "/bin/true")
	must(t, dead.Run())
	for name, pid := range map[string]int{"one that ended": dead.Process.Pid, "zero": 0, "negative": -1, "more than there can be": 1 << 30} {
		if p, err := FindProcess(pid); !errors.Is(err, fs.ErrNotExist) || p != (Process{}) {
			t.Errorf("given a pid that is %s: got %+v, %v, want ErrNotExist", name, p, err)
		}
		if pid <= 0 {
			continue
		}
		if line, err := CommandLine(pid); !errors.Is(err, fs.ErrNotExist) || line != nil {
			t.Errorf("given a pid that is %s: got command line %q, %v, want ErrNotExist", name, line, err)
		}
		if _, _, err := Executable(pid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("given a pid that is %s: got error %v of its executable, want ErrNotExist", name, err)
		}
	}
}

// A process may end between the opening and the reading of its file, and then reading fails with another error.
func TestFindProcessWhileItEnds(t *testing.T) {
	for range 300 {
		child := exec.CommandContext(t.Context(), "/bin/true")
		must(t, child.Start())
		ended := make(chan error, 1)
		go func() { ended <- child.Wait() }()
		for {
			_, err := FindProcess(child.Process.Pid)
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			must(t, err)
		}
		must(t, <-ended)
	}
}

func TestFindProcessOfAnyName(t *testing.T) {
	own := comm(t)
	want, err := FindProcess(os.Getpid())
	must(t, err)
	t.Cleanup(func() { must(t, os.WriteFile("/proc/self/comm", []byte(strings.TrimSuffix(own, "\n")), 0)) })
	for _, name := range []string{
		"kubelet", "a b c", ")", "(", "))) S 1 1", "x) R 1 2 3", "new\nline", "tab\tand\rmore", "(sd-pam)", "\xff\xfe", " ", "1 2 3 4 5 6 7 8",
	} {
		must(t, os.WriteFile("/proc/self/comm", []byte(name), 0))
		if stat, _ := os.ReadFile("/proc/self/stat"); !bytes.Contains(stat, []byte("("+name+")")) {
			t.Fatalf("this process did not take the name %q: %q", name, stat)
		}
		if got, err := FindProcess(os.Getpid()); got != want || err != nil {
			t.Errorf("given the name %q: got %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func FuzzStartTime(f *testing.F) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(stat), "", "1", "1 (", "1 ()", ")", "1 (x) S", "1 (x) " + strings.Repeat("0 ", 19), "1 (x) " + strings.Repeat("0 ", 20),
		"1 (x) " + strings.Repeat("a ", 30), "1 (x) " + strings.Repeat("-1 ", 30), "1 (x) " + strings.Repeat("99999999999999999999 ", 30),
	} {
		f.Add([]byte(seed), "kubelet", uint64(1234))
	}
	f.Add([]byte(")) ) 1 2"), "a) S 1 (b", uint64(0))
	f.Add([]byte("\x00"), "x\ny", ^uint64(0))
	f.Fuzz(func(t *testing.T, stat []byte, name string, start uint64) {
		if _, err := startTime(stat); err != nil && len(err.Error()) > 500 {
			t.Errorf("got an error of %d bytes, want what was read to be cut", len(err.Error()))
		}
		line := fmt.Sprintf("42 (%s) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 %d 8192 100 18446744073709551615\n", name, start)
		if got, err := startTime([]byte(line)); got != start || err != nil {
			t.Errorf("given a process of the name %q that began at %d: got %d, %v", name, start, got, err)
		}
	})
}

func TestCommandLineAndEnviron(t *testing.T) {
	long := strings.Repeat("long ", 20_000)
	for _, tc := range []struct {
		name string
		args []string
	}{
		{"given arguments with blanks, quotes, newlines and none at all in them", []string{"", "a b", "--x=\"y\"", "new\nline", "", "ä\xff"}},
		{"given an empty argument at the end", []string{"x", ""}},
		{"given no arguments", nil},
		{"given 1 MB of them", slices.Repeat([]string{long}, 10)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			child := exec.Command(self(t), tc.args...)
			child.Env = append(inRoleEnv("stay"), "EMPTY=", "TEXT=a=b c\nd")
			begin(t, child)
			eventually(t, func() bool { // the system lays them down a moment after the program took its place
				line, err := CommandLine(child.Process.Pid)
				return len(line) > 0 || err != nil
			}, func() string { return "it has no command line" })
			if got, err := CommandLine(child.Process.Pid); !slices.Equal(got, child.Args) || err != nil {
				t.Errorf("command line: got %.300q, %v, want %.300q", got, err, child.Args)
			}
			if got, err := Environ(child.Process.Pid); !slices.Equal(got, child.Env) || err != nil {
				t.Errorf("environment: got %q, %v, want %q", got, err, child.Env)
			}
		})
	}
}

func TestProcessThatNobodyWaitedFor(t *testing.T) {
	zombie := exec.CommandContext(t.Context(), "/bin/true")
	must(t, zombie.Start())
	pid := zombie.Process.Pid
	must(t, ignoreEINTR(func() error { return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) }))
	if p, err := FindProcess(pid); p.PID != pid || err != nil {
		t.Errorf("got %+v, %v, want it to be found: its number can't be another's yet", p, err)
	}
	if line, err := CommandLine(pid); len(line) > 0 || err != nil {
		t.Errorf("got command line %q, %v, want none", line, err)
	}
	if env, err := Environ(pid); len(env) > 0 {
		t.Errorf("got environment %q, %v, want none", env, err)
	}
	if path, name, err := Executable(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got executable %q, %q, %v, want ErrNotExist", path, name, err)
	}
	must(t, zombie.Wait())
}

func TestExecutable(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		change     func(t *testing.T, path string)
		same       bool // the file at the path is still the one that runs
	}{
		{"given no change", "kubelet", func(*testing.T, string) {}, true},
		{"given a file that was deleted since", "kubelet", func(t *testing.T, p string) { must(t, os.Remove(p)) }, false},
		{"given a file that was replaced since", "kubelet", func(t *testing.T, p string) {
			must(t, os.WriteFile(p+".new", []byte("new"), 0o755))
			must(t, os.Rename(p+".new", p))
		}, false},
		{"given a name with blanks and parentheses", "my (kubelet) 1", func(t *testing.T, p string) { must(t, os.Remove(p)) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), tc.file)
			copyProgram(t, self(t), file)
			began, err := Identify(file)
			must(t, err)
			pid := start(t, file, "stay").Process.Pid
			tc.change(t, file)

			path, name, err := Executable(pid)
			if name != file || err != nil {
				t.Errorf("got the name %q, %v, want %q", name, err, file)
			}
			if !IsELF(path) {
				t.Errorf("%s does not lead to a program", path)
			}
			runs, err := Identify(path)
			must(t, err)
			if runs.Ino != began.Ino || runs.Dev != began.Dev || runs.Mtime != began.Mtime {
				t.Errorf("got %+v, want the file that was started: %+v", runs, began)
			}
			if now, _ := Identify(file); (now.Ino == runs.Ino) != tc.same {
				t.Errorf("now at %s: %+v, what runs: %+v; are they the same: want %v", file, now, runs, tc.same)
			}
			r := runIn(t.Context(), t, Command{Path: path, Args: []string{"3"}, Env: inRoleEnv("exit")})
			var exit *ExitError
			if !errors.As(r.err, &exit) || exit.Code != 3 {
				t.Errorf("when it is run by that path: got %v, want exit status 3", r.err)
			}
		})
	}
}
