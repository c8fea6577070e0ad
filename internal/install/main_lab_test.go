//go:build lab

package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/host"
)

// The test binary is put on hosts, where it plays several parts: whoever installs (by this variable), and the program that is installed
// (by its arguments).
const (
	roleVariable = "INSTALL_ROLE"
	// pluginAnswer is what `token kubelogin` prints; it fails where there is none.
	pluginAnswer = "/root/answer"
	sandboxFile  = "/run/aks-flex-node/sandbox.json"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	switch {
	case role == "install", role == "uninstall":
		os.Exit(installer(role))
	case len(os.Args) == 2 && os.Args[1] == "agent":
		os.Exit(standInAgent())
	case len(os.Args) > 2 && os.Args[1] == "token":
		b, err := os.ReadFile(pluginAnswer)
		if err != nil {
			fmt.Fprintln(os.Stderr, "the link is down")
			os.Exit(1)
		}
		fmt.Print(string(b))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// installer is what the command does, with its flags as words of an environment variable.
func installer(role string) int {
	flags := os.Getenv("INSTALL_FLAGS")
	has := func(flag string) bool { return strings.Contains(flags, flag) }
	s := &host.Systemd{}
	defer s.Close()
	i := &Installer{
		Program: "/proc/self/exe", Version: os.Getenv("INSTALL_VERSION"), Systemd: s, Config: "/etc/aks-flex-node/config.json",
		Start: !has("no-start"), Force: has("force"),
	}
	if p := os.Getenv("INSTALL_PROGRAM"); p != "" {
		i.Program = p
	}
	show := func(p *Plan) error {
		for _, n := range p.Notes {
			fmt.Println("note:", n)
		}
		for _, s := range p.Steps {
			fmt.Println("step:", s.Text)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if role == "install" {
		err = i.Install(ctx, has("dry-run"), show)
	} else {
		err = i.Uninstall(ctx, has("dry-run"), has("purge"), show)
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// standInAgent tells systemd that it is up, and finds out what it may do in the unit's sandbox.
func standInAgent() int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	b, err := json.Marshal(sandbox())
	if err == nil {
		err = os.WriteFile(sandboxFile, b, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	conn, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		if _, err := conn.Write([]byte("READY=1\nWATCHDOG=1")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		select {
		case <-stop:
			return 0
		case <-time.After(10 * time.Second):
		}
	}
}

// sandbox tries all that the agent has to do, and some things that it must not, and returns what came of each: "" for success.
func sandbox() map[string]string {
	s := &host.Systemd{}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	write := func(name string) func() error {
		return func() error { return os.WriteFile(name, []byte("x"), 0o600) }
	}
	run := func(program string, args ...string) func() error {
		return func() error {
			_, err := host.Run(ctx, host.Command{Path: program, Args: args})
			return err
		}
	}
	results := map[string]string{}
	for name, try := range map[string]func() error{
		"read another's executable":    func() error { _, _, err := host.Executable(1); return err },
		"read another's environment":   func() error { _, err := host.Environ(1); return err },
		"read a file of another user":  func() error { _, err := os.ReadFile("/root/others/file"); return err },
		"dial a socket of another":     func() error { return dialAndClose("unix", "/run/others.sock") },
		"dial a port":                  func() error { return dialAndClose("tcp", "127.0.0.1:1") },
		"list interfaces":              func() error { _, err := net.Interfaces(); return err },
		"read the clock's state":       func() error { _, err := unix.Adjtimex(&unix.Timex{}); return err },
		"ask systemd":                  func() error { _, err := s.Units(ctx, "dbus.service", "kubelet.service"); return err },
		"start a unit":                 func() error { return s.Start(ctx, "systemd-tmpfiles-clean.service") },
		"start a transient unit":       func() error { return s.StartTransient(ctx, transient()) },
		"run runc":                     run("/usr/sbin/runc", "--version"),
		"run containerd":               run("/usr/bin/containerd", "--version"),
		"write the runtime folder":     write("/run/aks-flex-node/x"),
		"write the state folder":       write(StateDir + "/x"),
		"write the log folder":         write(LogDir + "/x"),
		"write Arc's folder":           write("/var/opt/azcmagent/log/x"),
		"NOT set the clock":            func() error { return unix.Settimeofday(&unix.Timeval{Sec: 1}) },
		"NOT write /etc":               write("/etc/x"),
		"NOT write programs":           write("/usr/local/bin/x"),
		"NOT write root's home":        write("/root/x"),
		"NOT mount":                    func() error { return unix.Mount("none", "/mnt", "tmpfs", 0, "") },
		"NOT load a module":            func() error { return unix.FinitModule(0, "", 0) },
		"NOT make a device":            func() error { return unix.Mknod("/run/aks-flex-node/dev", unix.S_IFCHR|0o600, 0x103) },
		"NOT give a file away":         func() error { return os.Chown("/run/aks-flex-node", 1, 1) },
		"NOT make a program of root's": func() error { return chmodSetuid("/run/aks-flex-node/x") },
	} {
		results[name] = ""
		if err := try(); err != nil {
			results[name] = err.Error()
		}
	}
	return results
}

func chmodSetuid(name string) error {
	if err := os.WriteFile(name+"s", nil, 0o755); err != nil {
		return nil //nolint:nilerr // then it was not even tried
	}
	return os.Chmod(name+"s", 0o755|os.ModeSetuid)
}

// dialAndClose connects; a connection that is refused shows that it was let out.
func dialAndClose(network, address string) error {
	c, err := net.DialTimeout(network, address, time.Second)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.Close()
}

func transient() host.Transient {
	return host.Transient{Name: "outside.service", Description: "test", Command: []string{"/bin/touch", "/root/outside"}, Timeout: time.Minute}
}
