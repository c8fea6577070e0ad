//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// HostOptions says what kind of host to start. Only Name must be set.
type HostOptions struct {
	// Name is by what messages call the host: lower-case letters, digits and dashes, at most 40. Hosts of different
	// processes, and even of one, may share a name.
	Name string
	// Hostname is what the host calls itself, with capitals and dots if need be; empty means Name.
	Hostname string
	// Binds are folders of the machine, by absolute path, that the host sees at the same path and can write to. What lies
	// on the machine's root file system is seen anyway; writes to that stay inside the host.
	Binds []string
	// Link plugs the host into a switch. Nil leaves it with a loopback interface only.
	Link *Link
}

// Link is one host's cable to a switch. It is the host's interface eth0, up before any service starts, at every boot.
type Link struct {
	Switch  *Switch
	Address netip.Prefix // the host's own address
	Gateway netip.Addr   // default route; the zero value sets none
}

// Host is a machine with a disk: power cuts and reboots keep what was written to it. Its methods may be called from
// several goroutines at once.
type Host struct {
	name     string
	hostname string
	binds    []string
	link     *Link
	state    *state

	power sync.Mutex // held while the host is switched on or off
	mu    sync.Mutex // guards what follows
	init  *initProcess
	self  bool // the test binary is on the disk
}

// shortly bounds what takes a moment, such as setting up a network interface, where the caller gave no limit.
const shortly = 20 * time.Second

// StartHost boots a host and stops it when the test ends. It fails the test if the host does not come up, and if it
// cannot be removed. Call Require before. The end of the log of a host is printed when its test has failed.
func StartHost(t testing.TB, opts HostOptions) *Host {
	t.Helper()
	if err := Sweep(t.Context()); err != nil {
		t.Logf("what dead tests left behind could not all be removed: %v", err)
	}
	h, err := startHost(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	h.stopAfter(t)
	if units := h.failedUnits(t.Context()); units != "" {
		t.Logf("host %s is up, but units failed:\n%s", h.name, units)
	}
	return h
}

// stopAfter stops the host when the test ends, and shows its log if the test has failed.
func (h *Host) stopAfter(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), shortly)
			defer cancel()
			t.Logf("log of host %s:\n%s", h.name, h.logTail(ctx, 60))
		}
		if err := h.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

func startHost(ctx context.Context, opts HostOptions) (*Host, error) {
	if !validName(opts.Name) {
		return nil, fmt.Errorf("start host: name %q must be 1 to 40 lower-case letters, digits and dashes", opts.Name)
	}
	if opts.Hostname == "" {
		opts.Hostname = opts.Name
	}
	if !validName(strings.ToLower(strings.ReplaceAll(opts.Hostname, ".", "-"))) {
		return nil, fmt.Errorf("start host %s: hostname %q must be 1 to 40 letters, digits, dashes and dots", opts.Name, opts.Hostname)
	}
	for _, b := range opts.Binds {
		if info, err := os.Stat(b); err != nil || !info.IsDir() || !filepath.IsAbs(b) || filepath.Clean(b) != b {
			return nil, fmt.Errorf("start host %s: bind %q must be the clean absolute path of a folder", opts.Name, b)
		}
	}
	p, err := defaultPlace()
	if err != nil {
		return nil, fmt.Errorf("start host %s: %w", opts.Name, err)
	}
	s, err := newState(ctx, p, opts.Name)
	if err != nil {
		return nil, fmt.Errorf("start host %s: %w", opts.Name, err)
	}
	h := &Host{name: opts.Name, hostname: opts.Hostname, binds: opts.Binds, link: opts.Link, state: s}
	if err := s.makeDirs("root", "containerd", "kubelet", "disk/upper", "disk/work"); err != nil {
		return nil, errors.Join(fmt.Errorf("start host %s: %w", opts.Name, err), h.stop(context.WithoutCancel(ctx)))
	}
	if err := h.Boot(ctx); err != nil {
		return nil, errors.Join(err, h.stop(context.WithoutCancel(ctx)))
	}
	return h, nil
}

// validName keeps names to what is good as a hostname, in a path and in the options of an overlay mount.
func validName(s string) bool {
	return s == strings.Trim(s, "-") && len(s) >= 1 && len(s) <= 40 &&
		!strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' })
}

// Name returns the name that the host was started with.
func (h *Host) Name() string { return h.name }

// PID returns the process id of the host's init as this process sees it; 0 while the host is off.
func (h *Host) PID() int {
	if p := h.running(); p != nil {
		return p.pid
	}
	return 0
}

// Root returns the path by which this process sees the host's root folder; empty while the host is off. It is good for
// sockets, such as those of D-Bus and containerd. For files use ReadFile and WriteFile: an absolute link in the host
// leads back to the machine's own files when it is followed through this path.
func (h *Host) Root() string {
	if p := h.running(); p != nil {
		return fmt.Sprintf("/proc/%d/root", p.pid)
	}
	return ""
}

// running returns the init process, or nil if there is none, it has ended, or it is not systemd yet.
func (h *Host) running() *initProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.init == nil || h.init.ended() || !h.init.up.Load() {
		return nil
	}
	return h.init
}

// Stop kills the host and removes all of it, its disk included. Stopping a host again does nothing. StartHost sees to it.
func (h *Host) Stop() error { return h.stop(context.Background()) }

func (h *Host) stop(ctx context.Context) error {
	h.power.Lock()
	defer h.power.Unlock()
	if h.state == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*shortly)
	defer cancel()
	if err := errors.Join(h.cut(ctx), h.state.remove(ctx)); err != nil {
		return fmt.Errorf("stop host %s: %w", h.name, err)
	}
	h.state = nil
	return nil
}

// failedUnits lists the units that did not start; empty if all did.
func (h *Host) failedUnits(ctx context.Context) string {
	out, err := h.Exec(ctx, "systemctl", "--failed", "--plain", "--no-legend", "--no-pager")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out.Stdout)
}

// logTail returns the last lines of the host's log, or why there are none.
func (h *Host) logTail(ctx context.Context, lines int, args ...string) string {
	argv := append([]string{"journalctl", "--no-pager", "-o", "short-monotonic", "-n", fmt.Sprint(lines)}, args...)
	out, err := h.Exec(ctx, argv...)
	if err != nil {
		return err.Error()
	}
	return out.Stdout + out.Stderr
}
