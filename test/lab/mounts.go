//go:build linux

package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one line of /proc/self/mountinfo, as far as the lab needs it.
type mount struct {
	Point string // where it is mounted
	Type  string // file system type
}

// readMounts lists the mounts that this process sees, parents before children.
func readMounts() ([]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	return parseMountinfo(f)
}

// parseMountinfo reads the format of proc_pid_mountinfo(5). A line of another shape is an error.
func parseMountinfo(r io.Reader) ([]mount, error) {
	var mounts []mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // overlay options can be long
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 6 || len(kind) < 1 {
			return nil, fmt.Errorf("list mounts: unexpected line %q", lines.Text())
		}
		mounts = append(mounts, mount{Point: unescapeMount(fields[4]), Type: kind[0]})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return mounts, nil
}

// unescapeMount resolves the \ooo escapes by which the kernel writes blanks and backslashes in paths.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountsUnder lists the mount points at dir and below it, parents before children.
func mountsUnder(dir string) ([]string, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range mounts {
		if m.Point == dir || strings.HasPrefix(m.Point, dir+string(filepath.Separator)) {
			points = append(points, m.Point)
		}
	}
	return points, nil
}

// unmountUnder detaches everything mounted at dir and below it. It succeeds only if nothing is left there, so that the
// folder can then be deleted without deleting what was mounted in it.
func unmountUnder(dir string) error {
	points, err := mountsUnder(dir)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range slices.Backward(points) {
		if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", p, err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	if points, err = mountsUnder(dir); err == nil && len(points) > 0 {
		err = fmt.Errorf("still mounted: %s", strings.Join(points, ", "))
	}
	return err
}
