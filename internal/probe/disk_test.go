package probe

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

// pathsOf are the folders of which something is known.
func pathsOf(d observe.Disk) (paths []string) {
	for _, s := range d.Paths {
		paths = append(paths, s.Path)
	}
	return paths
}

func TestEachFileSystemIsAskedOnce(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for _, d := range []string{one, two} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	missing := filepath.Join(dir, "missing")
	for _, tc := range []struct {
		name    string
		folders []string
		fails   map[string]error
		want    []string
		err     error
	}{
		{"given two folders on one file system, then the first one speaks for it", []string{one, two}, nil, []string{one}, nil},
		{"given two file systems, then both are told", []string{one, "/proc", two}, nil, []string{one, "/proc"}, nil},
		{"given a folder that is not there, then it is passed over", []string{missing, two}, nil, []string{two}, nil},
		{"given that nothing is there", []string{missing}, nil, nil, nil},
		{"given one that can't be asked, then the other is told all the same", []string{"/proc", one}, map[string]error{"/proc": syscall.EIO}, []string{one}, syscall.EIO},
		{"given one that can't be asked, then another folder on it is tried", []string{one, two}, map[string]error{one: syscall.EIO}, []string{two}, syscall.EIO},
		{"given a path through a file, then that is an error", []string{"/proc/self/stat/x", one}, nil, []string{one}, syscall.ENOTDIR},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := spaceOf(tc.folders, func(path string) (observe.Space, error) {
				if err := tc.fails[path]; err != nil {
					return observe.Space{}, &os.PathError{Op: "statfs", Path: path, Err: err}
				}
				return observe.Space{Path: path}, nil
			})
			if !slices.Equal(pathsOf(got), tc.want) || !errors.Is(err, tc.err) {
				t.Errorf("got %q and %v, want %q and %v", pathsOf(got), err, tc.want, tc.err)
			}
		})
	}
}

func TestWhatIsSaidOfTheRoomLeft(t *testing.T) {
	some := observe.Disk{Paths: []observe.Space{{Path: "/a"}, {Path: "/b"}}}
	for _, tc := range []struct {
		name   string
		disk   observe.Disk
		err    error
		health observe.Health
		reason string
		words  string
	}{
		{"given all", some, nil, observe.Healthy, "SpaceKnown", "2 file systems"},
		{"given some", some, syscall.EIO, observe.Healthy, "PartlyKnown", "input/output error"},
		{"given none since it fails", observe.Disk{}, syscall.EIO, observe.Unknown, "SpaceUnavailable", "input/output error"},
		{"given none since this user may not look", observe.Disk{}, syscall.EACCES, observe.Unknown, observe.ReasonPermissionDenied, "may not ask"},
		{"given no such folders", observe.Disk{}, nil, observe.Unknown, observe.ReasonNotInstalled, "none of the folders"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wantSeen(t, judgeDisk(tc.disk, tc.err), tc.health, tc.reason, tc.words)
		})
	}
}

func TestTheFoldersWhoseRoomMatters(t *testing.T) {
	s, dir := newSuite(t)
	places := s.settings.disk
	want := []string{places.state, places.kubelet, places.containerd}
	if got := s.diskFolders(nil); !slices.Equal(got, want) {
		t.Errorf("given nothing else: got %q, want the usual places %q", got, want)
	}
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	s.settings.disk.status = []string{first, second}
	s.cri.keepRoot("/data/containerd")
	want = []string{places.state, "/data/kubelet", "/data/containerd"}
	if got := s.diskFolders([]string{"--root-dir=/data/kubelet"}); !slices.Equal(got, want) {
		t.Errorf("given that the daemons name theirs: got %q, want %q", got, want)
	}
	for _, folder := range []string{second, first} { // the first one counts when it is there
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := s.diskFolders(nil); got[len(got)-1] != folder {
			t.Errorf("given a folder for the snapshot: got %q, want %q to be the last", got, folder)
		}
	}
}

func TestTheRoomOnThisMachine(t *testing.T) {
	s, _ := newSuite(t)
	if err := os.Mkdir(s.settings.disk.kubelet, 0o755); err != nil {
		t.Fatal(err)
	}
	got := s.lookAtDisk(t.Context(), time.Now())
	wantSeen(t, got, observe.Healthy, "SpaceKnown")
	if len(got.Value.Paths) != 1 || got.Value.Paths[0].Path != s.settings.disk.kubelet || got.Value.Paths[0].Bytes == 0 {
		t.Errorf("got %+v, want the room of the one folder that is there", got.Value)
	}
}

// Probes that look seldom go by what was last seen of the units: they would only make systemd be asked once more.
func TestTheUnitsAreOnlyLookedAtWhereNobodyHas(t *testing.T) {
	s, _ := newSuite(t)
	looks := 0
	s.units.look = func(context.Context, time.Time) observe.Observation[units] {
		looks++
		return observe.See(units{kubelet: running("kubelet.service", 0, "/kubelet", "--root-dir=/data")}, observe.Healthy, "Seen", "")
	}
	for range 3 {
		if args, known := s.lastFacts(t.Context(), time.Now()).kubeletArgs(); !known || host.FlagValue(args, "root-dir") != "/data" {
			t.Errorf("got arguments %q, %v, want those of the unit", args, known)
		}
	}
	if looks != 1 {
		t.Errorf("got %d looks at the units, want one", looks)
	}
}
