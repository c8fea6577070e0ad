//go:build linux && lab

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAHostBootsAndRunsCommands(t *testing.T) {
	Require(t)
	t.Parallel()
	began := time.Now()
	h := StartHost(t, HostOptions{Name: "n1"})
	t.Logf("up after %v", time.Since(began))

	for _, tt := range []struct{ argv, want string }{
		{"systemctl is-system-running", "running"},
		{"hostname", "n1"},
		{"cat /proc/1/comm", "systemd"},
		{"cat /etc/hosts", "127.0.0.1 localhost"},
		{"cat /etc/fstab /etc/resolv.conf", ""},
		{"pwd", "/"},
		{"systemctl --failed --plain --no-legend", ""},
		// Nothing that this machine is set up to start is set up here.
		{"find /etc/systemd/system -mindepth 1 -not -lname /dev/null", ""},
		{"find /run/systemd -path /run/systemd/generator*/*", ""},
	} {
		if got := strings.TrimSpace(h.MustExec(t, strings.Fields(tt.argv)...)); tt.want != got {
			t.Errorf("%s: got %q, want %q", tt.argv, got, tt.want)
		}
	}
	if got := h.MustExec(t, "cat", "/proc/self/cgroup"); !strings.Contains(got, "0::/lab-exec\n") {
		t.Errorf("a command's cgroup: got %q, want /lab-exec seen from the host's own root", got)
	}
}

func TestExecTellsHowACommandEnded(t *testing.T) {
	Require(t)
	t.Parallel()
	h := StartHost(t, HostOptions{Name: "n1"})
	for script, want := range map[string]Output{
		"echo out; echo err >&2":  {"out\n", "err\n", 0},
		"exit 7":                  {Code: 7},
		"kill -KILL $$":           {Code: 128 + 9},
		"echo on; sleep 1000 &":   {Stdout: "on\n"},
		"echo $HOME $NOTIFY_TEST": {Stdout: "/root\n"},
	} {
		if got, err := h.Exec(t.Context(), "sh", "-c", script); err != nil || got != want {
			t.Errorf("%s: got %+v and error %v, want %+v", script, got, err, want)
		}
	}
	if got, err := h.Exec(t.Context(), "no-such-program"); err != nil || got.Code != 127 {
		t.Errorf("no such program: got %+v and error %v, want code 127", got, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cmd := h.Command(ctx, "sh", "-c", "echo started; sleep 54321; true")
	out, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	_, err = out.Read(make([]byte, 64))
	Must(t, err)
	cancel()
	if err := cmd.Wait(); err == nil {
		t.Error("a command whose context ended: got no error")
	}
	Must(t, WaitFor(t.Context(), shortly, "what the command started is gone", func(ctx context.Context) (bool, string) {
		got, err := h.Exec(ctx, "pgrep", "-f", "^sleep 54321")
		return err == nil && got.Code == 1, got.Stdout
	}))
}

func TestWhatTheMachineOwnsCannotBeChangedFromAHost(t *testing.T) {
	Require(t)
	t.Parallel()
	h := StartHost(t, HostOptions{Name: "n1"})
	for _, path := range []string{"/proc/sys/fs/file-max", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_seqnum"} {
		if got, err := h.Exec(t.Context(), "sh", "-c", ": >>"+path); err != nil || got.Code == 0 {
			t.Errorf("write to %s: got %+v and error %v, want a failure", path, got, err)
		}
	}
	panics := "/proc/sys/kernel/panic"
	before, err := os.ReadFile(panics)
	Must(t, err)
	h.MustExec(t, "sh", "-c", "echo 4321 >"+panics) // the kubelet writes there
	if got := h.MustExec(t, "cat", panics); got != "4321\n" {
		t.Errorf("%s in the host: got %q, want what was written", panics, got)
	}
	if after, err := os.ReadFile(panics); err != nil || string(after) != string(before) {
		t.Errorf("%s of the machine: got %q and error %v, want %q as before", panics, after, err, before)
	}
	root := h.MustExec(t, "ls", "/sys/fs/cgroup")
	if !strings.Contains(root, "init.scope") || strings.Contains(root, cgroupPrefix) {
		t.Errorf("cgroups of the host: got %q, want its own alone", root)
	}
}

func TestFilesOfAHostAreReadAndWritten(t *testing.T) {
	Require(t)
	t.Parallel()
	machine := t.TempDir()
	h := StartHost(t, HostOptions{Name: "n1", Binds: []string{machine}})

	Must(t, h.WriteFile(t.Context(), "/etc/a/b/c", []byte("one"), 0o640))
	Must(t, h.WriteFile(t.Context(), "/etc/a/b/c", []byte("2"), 0o751))
	if got := h.MustExec(t, "stat", "-c", "%a %s", "/etc/a/b/c"); got != "751 1\n" {
		t.Errorf("got mode and size %q, want 751 1", got)
	}
	if got, err := h.ReadFile("/etc/a/b/c"); err != nil || string(got) != "2" {
		t.Errorf("got %q and error %v, want 2", got, err)
	}
	if _, err := os.Stat("/etc/a/b/c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("on the machine: got %v, want no such file", err)
	}
	if _, err := h.ReadFile("/etc/a/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: got %v", err)
	}

	h.MustExec(t, "ln", "-s", "/etc/target", "/etc/link")
	Must(t, h.WriteFile(t.Context(), "/etc/link", []byte("x"), 0o644))
	if got := h.MustExec(t, "cat", "/etc/target"); got != "x" {
		t.Errorf("through an absolute link: got %q in the host's own target", got)
	}

	Must(t, os.WriteFile(filepath.Join(machine, "in"), []byte("shared"), 0o600))
	h.MustExec(t, "cp", filepath.Join(machine, "in"), filepath.Join(machine, "out"))
	if got, err := os.ReadFile(filepath.Join(machine, "out")); err != nil || string(got) != "shared" {
		t.Errorf("bound folder: got %q and error %v", got, err)
	}

	Must(t, h.CopyIn(t.Context(), "/bin/sleep", "/opt/x/napping", 0o755))
	cmd := h.Command(t.Context(), "/opt/x/napping", "1000")
	Must(t, cmd.Start())
	Must(t, WaitFor(t.Context(), shortly, "the program runs", finds(h, "-x", "napping")))
	Must(t, h.CopyIn(t.Context(), "/bin/true", "/opt/x/napping", 0o755)) // while it runs
	h.MustExec(t, "/opt/x/napping")
	pid, err := strconv.Atoi(strings.TrimSpace(h.MustExec(t, "pgrep", "-x", "napping")))
	Must(t, err)
	Must(t, h.Signal(t.Context(), pid, syscall.SIGTERM))
	if err := cmd.Wait(); err == nil {
		t.Error("a program that got SIGTERM: got no error")
	}
}

// finds looks for a process as pgrep does.
func finds(h *Host, args ...string) Look {
	return func(ctx context.Context) (bool, string) {
		out, err := h.Exec(ctx, append([]string{"pgrep"}, args...)...)
		return err == nil && out.Code == 0, fmt.Sprint(out, err)
	}
}

func TestADiskSurvivesWhatAHostDoesNot(t *testing.T) {
	Require(t)
	t.Parallel()
	h := StartHost(t, HostOptions{Name: "n1"})
	for name, again := range map[string]func(context.Context) error{
		"reboot": h.Reboot,
		"power cut": func(ctx context.Context) error {
			if err := h.PowerCut(ctx); err != nil {
				return err
			}
			if out, err := h.Exec(ctx, "true"); err == nil || h.PID() != 0 || h.Root() != "" {
				t.Errorf("a host that is off: got %+v, pid %d, root %q, want an error and nothing", out, h.PID(), h.Root())
			}
			return h.Boot(ctx)
		},
	} {
		for _, path := range []string{"/etc/kept", "/usr/local/kept", "/var/lib/kept", "/var/lib/kubelet/kept", "/var/lib/containerd/kept"} {
			Must(t, h.WriteFile(t.Context(), path, []byte(name), 0o600))
		}
		Must(t, h.WriteFile(t.Context(), "/run/lost", nil, 0o600))
		h.MustExec(t, "sh", "-c", "setsid sleep 98765 </dev/null >/dev/null 2>&1 &")
		Must(t, WaitFor(t.Context(), shortly, "the process runs", finds(h, "-f", "^sleep 98765")))
		bootID, machineID, pid := h.MustExec(t, "cat", "/proc/sys/kernel/random/boot_id"), h.MustExec(t, "cat", "/etc/machine-id"), h.PID()

		began := time.Now()
		Must(t, again(t.Context()))
		t.Logf("%s: up again after %v", name, time.Since(began))

		for _, path := range []string{"/etc/kept", "/usr/local/kept", "/var/lib/kept", "/var/lib/kubelet/kept", "/var/lib/containerd/kept"} {
			if got, err := h.ReadFile(path); err != nil || string(got) != name {
				t.Errorf("%s after a %s: got %q and error %v, want it kept", path, name, got, err)
			}
		}
		if _, err := h.ReadFile("/run/lost"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("/run/lost after a %s: got %v, want no such file", name, err)
		}
		if got, err := h.Exec(t.Context(), "pgrep", "-f", "^sleep 98765"); err != nil || got.Code != 1 {
			t.Errorf("processes after a %s: got %+v and error %v, want none", name, got, err)
		}
		if got := h.MustExec(t, "cat", "/proc/sys/kernel/random/boot_id"); got == bootID || h.PID() == pid {
			t.Errorf("after a %s: got boot id %q and pid %d as before, want new ones", name, got, h.PID())
		}
		if got := h.MustExec(t, "cat", "/etc/machine-id"); got != machineID {
			t.Errorf("machine id after a %s: got %q, want %q as before", name, got, machineID)
		}
		if err := h.Boot(t.Context()); err == nil {
			t.Error("boot of a host that is on: got no error")
		}
	}
}

func TestTheTestBinaryRunsInAHost(t *testing.T) {
	Require(t)
	t.Parallel()
	h := StartHost(t, HostOptions{Name: "inner"})
	for range 2 {
		cmd := h.Self(t.Context())
		cmd.Env = append(cmd.Env, roleVariable+"=inside")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "inner true <nil>\n" {
			t.Errorf("got %q and error %v, want the hostname of the host", out, err)
		}
	}
}

func TestTwoHostsAreMachinesOfTheirOwnOnOneSwitch(t *testing.T) {
	Require(t)
	t.Parallel()
	sw := NewSwitch(t, netip.MustParsePrefix("10.88.0.1/24"))
	hosts := make([]*Host, 2)
	t.Run("started at once", func(t *testing.T) {
		done := make(chan error)
		for i := range hosts {
			go func() {
				address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88, 0, byte(101 + i)}), 24)
				h, err := startHost(t.Context(), HostOptions{Name: "n" + strconv.Itoa(i), Link: &Link{sw, address, sw.Address()}})
				hosts[i] = h
				done <- err
			}()
		}
		Must(t, errors.Join(<-done, <-done))
	})
	for i, h := range hosts {
		if h == nil {
			continue
		}
		t.Cleanup(func() { Must(t, h.Stop()) })
		if got := h.MustExec(t, "hostname"); got != "n"+strconv.Itoa(i)+"\n" {
			t.Errorf("host %d: got hostname %q", i, got)
		}
	}
	if t.Failed() {
		return
	}
	if a, b := hosts[0].MustExec(t, "cat", "/etc/machine-id"), hosts[1].MustExec(t, "cat", "/etc/machine-id"); a == b {
		t.Errorf("got machine id %q twice", a)
	}
	listenOn(t, hosts[1])
	reach := func(ctx context.Context) (bool, string) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		conn, err := hosts[0].Dial(ctx, "tcp", "10.88.0.102:7777")
		if err != nil {
			return false, err.Error()
		}
		return conn.Close() == nil, ""
	}
	Must(t, WaitFor(t.Context(), shortly, "n0 reaches n1", reach))
	if conn, err := sw.Dial(t.Context(), "tcp", "10.88.0.102:7777"); err != nil {
		t.Errorf("from the switch: got %v", err)
	} else {
		_ = conn.Close()
	}

	Must(t, hosts[0].CutLink(t.Context()))
	if ok, saw := reach(t.Context()); ok {
		t.Error("n0 reaches n1 with its link cut")
	} else {
		t.Logf("link cut: %s", saw)
	}
	Must(t, hosts[0].MendLink(t.Context()))
	Must(t, WaitFor(t.Context(), shortly, "n0 reaches n1 after mending", reach))

	Must(t, hosts[0].PowerCut(t.Context()))
	Must(t, hosts[0].Boot(t.Context()))
	Must(t, WaitFor(t.Context(), shortly, "n0 reaches n1 after a reboot", reach))
}

// listenOn accepts and closes connections to port 7777 of a host until the test ends.
func listenOn(t *testing.T, h *Host) {
	t.Helper()
	ns, err := os.Open("/proc/" + strconv.Itoa(h.PID()) + "/ns/net")
	Must(t, err)
	defer ns.Close()
	var l net.Listener
	Must(t, inNetNS(ns, func() { l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "0.0.0.0:7777") }))
	Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
}

func TestABootThatFailsLeavesNothing(t *testing.T) {
	Require(t)
	sw := NewSwitch(t, netip.MustParsePrefix("10.88.0.1/24"))
	link := &Link{sw, netip.MustParsePrefix("10.88.0.2/24"), netip.MustParseAddr("192.0.2.1")} // a gateway out of reach
	h, err := startHost(t.Context(), HostOptions{Name: "broken", Link: link})
	if err == nil {
		t.Errorf("got host with pid %d, want an error", h.PID())
		Must(t, h.Stop())
	}
	t.Logf("got %v", err)
	p, err := defaultPlace()
	Must(t, err)
	for _, pattern := range []string{p.cgroup("broken-*"), filepath.Join(p.Base, "broken-*")} {
		if got, err := filepath.Glob(pattern); err != nil || len(got) > 0 {
			t.Errorf("left behind: %v (%v)", got, err)
		}
	}
}
