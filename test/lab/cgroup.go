//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupPrefix begins the name of every cgroup of the lab. They lie at the root of the v2 tree, as those of Docker do:
// only there a host gets the controllers that the machine has, and systemd leaves alone what it did not make.
const cgroupPrefix = "aks-flex-node-lab-"

// cgroupRoot finds where cgroup v2 is mounted: /sys/fs/cgroup, or a folder below it on a hybrid tree.
func cgroupRoot() (string, error) {
	mounts, err := readMounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.Type == "cgroup2" {
			return m.Point, nil
		}
	}
	return "", errors.New("cgroup v2 is not mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")
}

// openCgroup makes the cgroup if need be and opens it, so that a child process can be started in it.
func openCgroup(dir string) (*os.File, error) {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	return f, nil
}

// removeCgroup kills what is left in the cgroup and those below it, and removes them. One that is not there is removed.
func removeCgroup(ctx context.Context, dir string) error {
	return WaitFor(ctx, 10*time.Second, "cgroup "+dir+" is gone", func(context.Context) (bool, string) {
		groups, err := cgroupTree(dir)
		if len(groups) == 0 {
			return err == nil, fmt.Sprint(err)
		}
		// Fails only if the cgroup went away just now, which is what we are after.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		for _, g := range slices.Backward(groups) {
			if err := unix.Rmdir(g); err != nil && !errors.Is(err, unix.ENOENT) {
				return false, fmt.Sprintf("remove %s: %v, processes %q", g, err, cgroupProcesses(g))
			}
		}
		return true, ""
	})
}

// cgroupTree lists a cgroup and all below it, parents first. It is empty if there is none.
func cgroupTree(dir string) ([]string, error) {
	var groups []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil // systemd or the kernel was faster
		}
		if err == nil && d.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	return groups, nil
}

// cgroupProcesses lists the ids of the processes in one cgroup; none if it cannot be read.
func cgroupProcesses(dir string) []string {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}
