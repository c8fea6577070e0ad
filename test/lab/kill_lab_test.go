//go:build linux && lab

package lab

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestNothingIsLeftOfAHostWhoseTestWasKilled(t *testing.T) {
	Require(t)
	t.Parallel()
	p, err := defaultPlace()
	Must(t, err)
	id, pid, kill := startHolder(t)
	cgroup, dir := p.cgroup(id), filepath.Join(p.Base, id)
	ns, err := os.Readlink("/proc/" + pid + "/ns/pid")
	Must(t, err)

	// Given: a host of another process, which our sweep leaves alone.
	if n := len(processesIn(ns)); n < 3 {
		t.Fatalf("got %d processes in the host, want some", n)
	}
	Must(t, Sweep(t.Context()))
	if _, err := os.Stat(cgroup); err != nil {
		t.Fatalf("cgroup after a sweep while the owner runs: %v", err)
	}
	if points, err := mountsUnder(dir); err != nil || len(points) != 1 {
		t.Fatalf("mounts after a sweep while the owner runs: got %v and error %v, want the disk", points, err)
	}

	// When: the owner is killed.
	kill()

	// Then: no process is left, and a sweep takes the rest.
	Must(t, WaitFor(t.Context(), shortly, "all processes of the host are gone", func(context.Context) (bool, string) {
		left := processesIn(ns)
		return len(left) == 0, fmt.Sprint(left)
	}))
	Must(t, Sweep(t.Context()))
	for _, path := range []string{cgroup, dir} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s after a sweep: got %v, want it gone", path, err)
		}
	}
	if points, err := mountsUnder(dir); err != nil || len(points) > 0 {
		t.Errorf("mounts after a sweep: got %v and error %v, want none", points, err)
	}
}

// startHolder starts another process that starts a host and keeps it. kill ends that process as kill -9 does.
func startHolder(t *testing.T) (id, pid string, kill func()) {
	t.Helper()
	self, err := os.Executable()
	Must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), roleVariable+"=hold")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	Must(t, err)
	fields := strings.Fields(line)
	if len(fields) != 2 {
		t.Fatalf("got %q from the other process, want id and pid", line)
	}
	return fields[0], fields[1], kill
}

// processesIn lists the processes of a pid namespace.
func processesIn(ns string) []string {
	var list []string
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, l := range links {
		if got, err := os.Readlink(l); err == nil && got == ns {
			list = append(list, strings.Split(l, "/")[2])
		}
	}
	return list
}
