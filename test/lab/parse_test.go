//go:build linux

package lab

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

const mountinfoSample = `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
50 27 0:50 / /mnt/a\040b\134 rw shared:1 master:2 - tmpfs tmp rw
`

func TestMountinfoIsRead(t *testing.T) {
	want := []mount{{"/", "ext4"}, {"/sys/fs/cgroup/unified", "cgroup2"}, {`/mnt/a b\`, "tmpfs"}}
	got, err := parseMountinfo(strings.NewReader(mountinfoSample))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v and error %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"27 1 254:0 / / rw ext4 /dev/vda rw\n", "1 2 - ext4\n", "27 1 254:0 / / rw - \n"} {
		if got, err := parseMountinfo(strings.NewReader(bad)); err == nil {
			t.Errorf("line %q: got %+v, want an error", bad, got)
		}
	}
}

func FuzzMountinfo(f *testing.F) {
	f.Add(mountinfoSample)
	f.Add(`1 2 3:4 / /a\04 rw - t`)
	f.Fuzz(func(t *testing.T, text string) {
		mounts, err := parseMountinfo(strings.NewReader(text))
		if err == nil && len(mounts) > strings.Count(text, "\n")+1 {
			t.Errorf("got %d mounts from %q", len(mounts), text)
		}
	})
}

func TestStartTimeIsReadWhateverTheProgramIsCalled(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21"
	for _, name := range []string{"(sh)", "(a b)", "(a) S 1)", "()"} {
		if got, err := parseStartTime("42 " + name + rest); err != nil || got != 4711 {
			t.Errorf("program %s: got %d and error %v, want 4711", name, got, err)
		}
	}
	for _, bad := range []string{"", "42 (sh) S 1 2", strings.Replace("42 (sh)"+rest, "4711", "x", 1)} {
		if got, err := parseStartTime(bad); err == nil {
			t.Errorf("%q: got %d, want an error", bad, got)
		}
	}
	if me, err := ownerOf(os.Getpid()); err != nil || !me.alive() {
		t.Errorf("this process: got %+v, alive %v, error %v", me, me.alive(), err)
	}
}

func FuzzStartTime(f *testing.F) {
	f.Add("42 (sh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21")
	f.Add("42 (sh")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = parseStartTime(text) })
}

func TestKernelReleasesAreRead(t *testing.T) {
	tests := map[string][2]int{
		"6.18.44-fc-v657": {6, 18}, "5.15.0-1041-azure": {5, 15}, "6.1": {6, 1}, "7-rc1": {7, 1}, "": {0, 0}, "next": {0, 0},
	}
	for release, want := range tests {
		if major, minor := parseRelease(release); [2]int{major, minor} != want {
			t.Errorf("release %q: got %d.%d, want %v", release, major, minor, want)
		}
	}
}

func FuzzKernelRelease(f *testing.F) {
	f.Add("6.18.44-fc-v657")
	f.Add("99999999999999999999.1")
	f.Fuzz(func(t *testing.T, release string) {
		if major, minor := parseRelease(release); major < 0 || minor < 0 {
			t.Errorf("release %q: got %d.%d", release, major, minor)
		}
	})
}

func TestMissingProgramsAreNamedWithTheirPackage(t *testing.T) {
	got := strings.Join(missingPrograms([]string{"no-such-program"}), "\n")
	if !strings.Contains(got, "no-such-program (apt-get install no-such-program)") {
		t.Errorf("got %q, want it to name the program and how to get it", got)
	}
	for program, want := range map[string]string{"ctr": "containerd", "ip": "iproute2", "runc": "runc"} {
		if got := debianPackage(program); got != want {
			t.Errorf("%s: got package %s, want %s", program, got, want)
		}
	}
}

func TestHostNamesAreChecked(t *testing.T) {
	for name, want := range map[string]bool{
		"n1": true, "a-b": true, "0": true, strings.Repeat("a", 40): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "a/b": false, "a,b": false, strings.Repeat("a", 41): false,
	} {
		if got := validName(name); got != want {
			t.Errorf("name %q: got valid %v, want %v", name, got, want)
		}
	}
}
