//go:build linux && lab

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestNothingIsLeftOfAHostWhoseTestWasKilled(t *testing.T) {
	Require(t)
	t.Parallel()
	p, err := defaultPlace()
	Must(t, err)
	id, pid, kill := startHolder(t, "hold")
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
