//go:build linux

package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Switch is an Ethernet switch in a network namespace of its own, with an address by which hosts reach what runs there.
// The namespace is held by an open file only: it is gone when this process and all that was started in it are.
type Switch struct {
	ns      *os.File
	address netip.Prefix
}

// NewSwitch makes a switch with this address and length of network. It goes when the test ends.
func NewSwitch(t testing.TB, address netip.Prefix) *Switch {
	t.Helper()
	s, err := newSwitch(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s
}

func newSwitch(ctx context.Context, address netip.Prefix) (*Switch, error) {
	ns, err := newNetNS()
	if err != nil {
		return nil, fmt.Errorf("make switch: %w", err)
	}
	s := &Switch{ns: ns, address: address}
	err = s.ip(ctx, "link set lo up", "link add br0 address 02:00:00:00:00:01 type bridge", "addr add "+address.String()+" dev br0", "link set br0 up")
	if err != nil {
		_ = ns.Close()
		return nil, fmt.Errorf("make switch: %w", err)
	}
	return s, nil
}

func (s *Switch) close() error { return s.ns.Close() }

// Address returns the switch's own address: the hosts' gateway, and where they find what Command runs.
func (s *Switch) Address() netip.Addr { return s.address.Addr() }

// Command prepares a command of the machine that runs in the switch's network. It is in no host: the caller stops it.
func (s *Switch) Command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/proc/self/fd/3", "--"}, argv...)...)
	cmd.ExtraFiles = []*os.File{s.ns}
	return cmd
}

// Dial connects from the switch to an address, which must be numeric.
func (s *Switch) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialIn(ctx, s.ns, network, address)
}

// Listen announces on an address of the switch, which must be numeric: hosts and what Command runs can connect to it.
func (s *Switch) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	entered := inNetNS(s.ns, func() { l, err = (&net.ListenConfig{}).Listen(ctx, network, address) })
	if entered != nil {
		return nil, entered
	}
	return l, err
}

// ip runs lines of ip(8) in the switch's network.
func (s *Switch) ip(ctx context.Context, lines ...string) error {
	return runIP(s.Command(ctx, "ip", "-batch", "-"), lines)
}

// plug joins the switch and the host whose init this is by a pair of interfaces.
func (l *Link) plug(ctx context.Context, pid int) error {
	port := portName(pid)
	err := l.Switch.ip(ctx, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, pid), "link set "+port+" master br0 up")
	if err != nil {
		return fmt.Errorf("plug into switch: %w", err)
	}
	lines := []string{"addr add " + l.Address.String() + " dev eth0", "link set lo up", "link set eth0 up"}
	if l.Gateway.IsValid() {
		lines = append(lines, "route add default via "+l.Gateway.String())
	}
	cmd := exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "--", "ip", "-batch", "-")
	if err := runIP(cmd, lines); err != nil {
		return fmt.Errorf("set up eth0: %w", err)
	}
	return nil
}

// portName is that of a host's port at the switch. It differs at each boot, since the kernel takes its time to drop the
// port of the one before.
func portName(pid int) string { return fmt.Sprintf("v%d", pid) }

// CutLink pulls the host's cable: its interface loses its carrier, addresses and routes stay.
func (h *Host) CutLink(ctx context.Context) error { return h.setLink(ctx, "down") }

// MendLink plugs the host's cable in again. A boot does so too. A node was Ready 0.5 to 16 s later.
func (h *Host) MendLink(ctx context.Context) error { return h.setLink(ctx, "up") }

func (h *Host) setLink(ctx context.Context, to string) error {
	p := h.running()
	if p == nil || h.link == nil {
		return fmt.Errorf("set link of host %s %s: %w, or was started without Link", h.name, to, errOff)
	}
	if err := h.link.Switch.ip(ctx, fmt.Sprintf("link set %s %s", portName(p.pid), to)); err != nil {
		return fmt.Errorf("set link of host %s %s: %w", h.name, to, err)
	}
	return nil
}

// setPort sets what the switch does with the packets of the host's port, a state of bridge(8).
func (h *Host) setPort(ctx context.Context, to string) error {
	p := h.running()
	if p == nil || h.link == nil {
		return fmt.Errorf("set port of host %s to %s: %w, or was started without Link", h.name, to, errOff)
	}
	out, err := h.link.Switch.Command(ctx, "bridge", "link", "set", "dev", portName(p.pid), "state", to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("set port of host %s to %s: %w: %s", h.name, to, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Dial connects to an address as the host's own processes do, its loopback included. The address must be numeric.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	p := h.running()
	if p == nil {
		return nil, fmt.Errorf("dial %s from host %s: %w", address, h.name, errOff)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.pid))
	if err != nil {
		return nil, fmt.Errorf("dial %s from host %s: %w", address, h.name, err)
	}
	defer ns.Close()
	return dialIn(ctx, ns, network, address)
}

// HTTPClient returns a client that connects as the host's own processes do. It keeps no connections open and gives up
// after some seconds.
func (h *Host) HTTPClient() *http.Client {
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{DialContext: h.Dial, DisableKeepAlives: true},
	}
}

func dialIn(ctx context.Context, ns *os.File, network, address string) (conn net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial: %w", err) // looking up a name would leave the thread that is in the namespace
	}
	entered := inNetNS(ns, func() { conn, err = (&net.Dialer{}).DialContext(ctx, network, address) })
	if entered != nil {
		return nil, entered
	}
	return conn, err
}

// newNetNS makes a network namespace and returns what holds it.
func newNetNS() (ns *os.File, err error) {
	threadErr := onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return ns, threadErr
}

// inNetNS calls do while its thread is in the network namespace. A socket stays in the namespace in which it was made.
func inNetNS(ns *os.File, do func()) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		do()
		return nil
	})
}

// onOwnThread calls do on a thread whose network namespace is as before afterwards; if it cannot be, nobody else gets the
// thread.
func onOwnThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		back, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		defer back.Close()
		err = do()
		if unix.Setns(int(back.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread() // a goroutine that ends locked takes its thread with it
		}
		result <- err
	}()
	return <-result
}

// runIP feeds lines to ip(8), which stops at the first that fails.
func runIP(cmd *exec.Cmd, lines []string) error {
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
