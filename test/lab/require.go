//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Require skips the test where the lab cannot work, saying all that is missing and how to get it. programs are the ones
// that the test needs besides those of every host, for instance "containerd", "runc" and "ctr".
func Require(t testing.TB, programs ...string) {
	t.Helper()
	if list := Missing(programs...); len(list) > 0 {
		t.Skip("needs root: " + strings.Join(list, "; "))
	}
}

// Missing lists all that stands in the way of the lab on this machine, and how to get it. For programs see Require.
func Missing(programs ...string) []string {
	list := missingPrograms(programs)
	if os.Geteuid() != 0 {
		return append([]string{"run it as root, or with sudo"}, list...)
	}
	return append(list, missingAbilities()...)
}

// missingPrograms lists programs that hosts or the test need and are not there, and how to get them.
func missingPrograms(programs []string) []string {
	var list []string
	base := []string{"sh", "nsenter", "mount", "umount", "pivot_root", "hostname", "ip", "systemctl", "dbus-daemon"}
	for _, p := range append(base, programs...) {
		if _, err := exec.LookPath(p); err != nil {
			list = append(list, fmt.Sprintf("install program %s (apt-get install %s)", p, debianPackage(p)))
		}
	}
	return list
}

// missingAbilities lists what else of this machine stands in the way of hosts.
func missingAbilities() []string {
	var list []string
	for _, check := range []func() error{checkSystemd, checkKernel, checkMounting, checkCgroups} {
		if err := check(); err != nil {
			list = append(list, err.Error())
		}
	}
	return list
}

// debianPackage names the package that a program comes with on Debian and Ubuntu.
func debianPackage(program string) string {
	switch program {
	case "sh":
		return "dash"
	case "nsenter", "pivot_root":
		return "util-linux"
	case "umount":
		return "mount"
	case "ip", "bridge":
		return "iproute2"
	case "systemctl":
		return "systemd"
	case "dbus-daemon":
		return "dbus"
	case "ctr":
		return "containerd"
	default:
		return program
	}
}

func checkSystemd() error {
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		return fmt.Errorf("install systemd (apt-get install systemd): %w", err)
	}
	return nil
}

func checkCgroups() error {
	root, err := cgroupRoot()
	if err != nil {
		return err
	}
	if err := unix.Access(root, unix.W_OK); err != nil {
		return fmt.Errorf("cgroup v2 at %s must be writable (in a container: run it privileged): %w", root, err)
	}
	return nil
}

// checkKernel wants 5.14, for cgroup.kill; clone into a cgroup and openat2 are older.
func checkKernel() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("look at the kernel's version: %w", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	if major, minor := parseRelease(release); major < 5 || major == 5 && minor < 14 {
		return fmt.Errorf("use a Linux kernel of at least 5.14 (this is %s)", release)
	}
	return nil
}

// parseRelease takes the first two numbers of a kernel release; 0 where there is none.
func parseRelease(release string) (major, minor int) {
	fields := strings.FieldsFunc(release, func(r rune) bool { return r < '0' || r > '9' })
	for i, to := range []*int{&major, &minor} {
		if i < len(fields) {
			*to, _ = strconv.Atoi(fields[i])
		}
	}
	return major, minor
}

// checkMounting wants the capability that root has, but not in an ordinary container.
func checkMounting() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("look at capabilities: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		hex, found := strings.CutPrefix(line, "CapEff:")
		if !found {
			continue
		}
		if caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64); err != nil || caps&(1<<unix.CAP_SYS_ADMIN) == 0 {
			break
		}
		return nil
	}
	return errors.New("get the capability to mount, CAP_SYS_ADMIN (in a container: run it privileged)")
}
