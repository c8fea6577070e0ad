package status

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestWritesExactlyTheGoldenBytes(t *testing.T) {
	for name, s := range map[string]*NodeStatus{"full.json": fullSnapshot(), "zero.json": {}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "status.json")
			must(t, WriteStatusToFile(path, s))
			if got, want := readFile(t, path), testdata(t, name); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestFilesAreForTheirOwnerOnlyWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o277} {
		path := filepath.Join(t.TempDir(), "status.json")
		old := syscall.Umask(umask)
		err := WriteStatusToFile(path, fullSnapshot())
		syscall.Umask(old)
		must(t, err)
		info, err := os.Stat(path)
		must(t, err)
		if got := info.Mode(); got != 0o600 {
			t.Errorf("umask %04o: got mode %v, want 0600", umask, got)
		}
		lock, err := os.Stat(path + ".lock")
		must(t, err)
		if got := lock.Mode().Perm(); got&^0o600 != 0 {
			t.Errorf("umask %04o: got mode %v for the lock file, want 0600 at most", umask, got)
		}
	}
}

func TestAReplacedFileLosesItsOldMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	writeFile(t, path, "{}")
	must(t, os.Chmod(path, 0o666))
	must(t, WriteStatusToFile(path, fullSnapshot()))
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("got mode %v, want 0600", info.Mode())
	}
}

func TestAMissingFolderIsCreated(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	root := t.TempDir()
	tests := map[string]struct {
		place place
		want  fs.FileMode
	}{
		"like a RuntimeDirectory":      {placeIn(filepath.Join(root, "a", "b", "status.json"), ""), 0o755},
		"guessable: for us alone":      {placeIn(filepath.Join(root, "c", "status.json"), filepath.Join(root, "c")), 0o700},
		"guessable, with a dirty path": {placeIn(root+"//x/../d/./status.json", filepath.Join(root, "d")), 0o700},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			must(t, write(tt.place, fullSnapshot()))
			info, err := os.Stat(tt.place.dir)
			must(t, err)
			if got := info.Mode().Perm(); got != tt.want {
				t.Errorf("got mode %04o, want %04o", got, tt.want)
			}
		})
	}
	t.Run("guessable, without its parent", func(t *testing.T) {
		dir := filepath.Join(root, "no", "d")
		if err := write(placeIn(filepath.Join(dir, "status.json"), dir), fullSnapshot()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want that the parent does not exist", err)
		}
	})
}

func TestRefusesToWriteNonsense(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	tests := map[string]struct {
		path string
		s    *NodeStatus
		want string
	}{
		"nil":                 {path, nil, "nil"},
		"a year without JSON": {path, &NodeStatus{LastUpdated: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, "year"},
		"more than is read":   {path, &NodeStatus{AgentVersion: strings.Repeat("x", maxSnapshotBytes)}, "readers take 1048576"},
		"no path":             {"", fullSnapshot(), "names no file"},
		"the root folder":     {"/", fullSnapshot(), "names no file"},
		"the parent folder":   {"..", fullSnapshot(), "names no file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := WriteStatusToFile(tt.path, tt.s)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
			if got := names(t, dir); len(got) != 0 {
				t.Errorf("it left %v", got)
			}
		})
	}
}

// Whatever makes a write fail, the old file stays whole and nothing is left over.
func TestAFailedWriteLeavesTheOldFileWhole(t *testing.T) {
	tests := map[string]struct {
		given  func(t *testing.T, dir string)
		want   error
		advice string
	}{
		"the disk is full": {fillUp, syscall.ENOSPC, "free some space"},
		"the file system is read-only": {func(t *testing.T, dir string) {
			must(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
		}, syscall.EROFS, "writable"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := mountTmpfs(t, "64k")
			path := filepath.Join(dir, "status.json")
			must(t, WriteStatusToFile(path, fullSnapshot()))
			tt.given(t, dir)
			before := names(t, dir)

			changed := fullSnapshot()
			changed.KubeletVersion = "9.9.9"
			for _, err := range []error{
				WriteStatusToFile(path, changed),
				Update(path, func(s *NodeStatus) error { *s = *changed; return nil }),
			} {
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.advice) || !strings.Contains(err.Error(), path) {
					t.Errorf("got error %v, want %v with %s and %q", err, tt.want, path, tt.advice)
				}
			}
			assertUntouched(t, dir, before)
		})
	}
}

func TestAWriteWithoutPermissionLeavesTheOldFileWhole(t *testing.T) {
	needsRoot(t, "becomes another user")
	dir := sharedFolder(t)
	path := filepath.Join(dir, "status.json")
	must(t, WriteStatusToFile(path, fullSnapshot()))
	must(t, os.Chown(path, 65534, 65534))
	must(t, os.Chown(path+".lock", 65534, 65534)) // so that only the folder is closed to the other user
	before := names(t, dir)
	out, err := helper(t, "write", path, uidVariable+"=65534").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "permission denied") || !strings.Contains(string(out), "run as root") {
		t.Errorf("got %q (%v), want permission denied and what to do", out, err)
	}
	assertUntouched(t, dir, before)
}

func fillUp(t *testing.T, dir string) {
	t.Helper()
	filler, err := os.Create(filepath.Join(dir, "filler"))
	must(t, err)
	defer func() { _ = filler.Close() }()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling %s up ended with %v", dir, err)
	}
}

func assertUntouched(t *testing.T, dir string, before []string) {
	t.Helper()
	if got, want := readFile(t, filepath.Join(dir, "status.json")), testdata(t, "full.json"); got != want {
		t.Errorf("the old file is now\n%s", got)
	}
	if got := names(t, dir); !slices.Equal(got, before) {
		t.Errorf("got files %v, want %v as before", got, before)
	}
}

func TestAFolderInTheFilesPlaceIsKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	must(t, os.Mkdir(path, 0o700))
	err := WriteStatusToFile(path, fullSnapshot())
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("got error %v, want one about %s", err, path)
	}
	if got, want := names(t, dir), []string{"status.json", "status.json.lock"}; !slices.Equal(got, want) {
		t.Errorf("got files %v, want %v", got, want)
	}
}

func TestTheFolderMayBeALinkOutsideTheGuessableOne(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "run"), 0o700))
	must(t, os.Symlink("run", filepath.Join(dir, "var-run")))
	must(t, WriteStatusToFile(filepath.Join(dir, "var-run", "status.json"), fullSnapshot()))
	if got := readFile(t, filepath.Join(dir, "run", "status.json")); got != testdata(t, "full.json") {
		t.Errorf("got\n%s", got)
	}
}

func TestWritersSweepOrphansAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	orphans := []string{".status.json0", ".status.json8342834823848234"}
	others := []string{
		".status.json", ".status.json12x", ".status.json-5", ".status.json.5", ".status.json 5", ".status.json٣",
		"status.json5", ".other.json5", ".status.jso5", "x.status.json5", "status.json.lock5",
	}
	for _, name := range slices.Concat(orphans, others) {
		writeFile(t, filepath.Join(dir, name), "{")
	}
	outside := filepath.Join(t.TempDir(), "outside")
	writeFile(t, outside, "kept")
	must(t, os.Symlink(outside, filepath.Join(dir, ".status.json6")))
	must(t, os.Mkdir(filepath.Join(dir, ".status.json7"), 0o700))
	must(t, syscall.Mkfifo(filepath.Join(dir, ".status.json8"), 0o600))

	must(t, WriteStatusToFile(path, fullSnapshot()))

	want := slices.Concat(others, []string{".status.json6", ".status.json7", ".status.json8", "status.json", "status.json.lock"})
	slices.Sort(want)
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("got files %q\nwant      %q", got, want)
	}
	if readFile(t, outside) != "kept" {
		t.Error("the sweep followed a link")
	}
}

func TestUpdateChangesOnlyWhatItsCallerChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	must(t, WriteStatusToFile(path, fullSnapshot()))
	must(t, Update(path, func(s *NodeStatus) error {
		s.KubeletReady = "NotReady"
		return nil
	}))
	got, err := LoadStatusFromFile(path)
	must(t, err)
	want := fullSnapshot()
	want.KubeletReady = "NotReady"
	if *got != *want {
		t.Errorf("got  %+v\nwant %+v", *got, *want)
	}
}

func TestUpdateStartsFromAMinimalSnapshotWhereThereIsNone(t *testing.T) {
	given := map[string]func(t *testing.T, path string){
		"no file":         func(*testing.T, string) {},
		"a dangling link": func(t *testing.T, path string) { must(t, os.Symlink("nowhere", path)) },
		"a named pipe":    func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o600)) },
	}
	for name, content := range brokenContents(t) {
		given[name] = func(t *testing.T, path string) { writeFile(t, path, content) }
	}
	want := NodeStatus{KubeletVersion: "unknown", RuncVersion: "unknown", ContainerdVersion: "unknown", KubeletReady: "Unknown"}
	for name, prepare := range given {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "status.json")
			prepare(t, path)
			var got NodeStatus
			must(t, Update(path, func(s *NodeStatus) error { got = *s; return nil }))
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			written, err := LoadStatusFromFile(path)
			must(t, err)
			if *written != want {
				t.Errorf("written: got %+v\nwant %+v", *written, want)
			}
		})
	}
}

func TestUpdateReturnsItsCallersErrorAndLeavesTheFileAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	must(t, WriteStatusToFile(path, fullSnapshot()))
	before, err := os.Stat(path)
	must(t, err)
	no := errors.New("no")
	got := Update(path, func(s *NodeStatus) error { s.KubeletVersion = "changed"; return no })
	if got != no { //nolint:errorlint // unwrapped is what is tested
		t.Errorf("got error %v, want the caller's own", got)
	}
	after, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(before, after) || readFile(t, path) != testdata(t, "full.json") {
		t.Error("the file was written")
	}
	must(t, Update(path, func(*NodeStatus) error { return nil })) // the lock is free again
}

func TestUpdateFreesTheLockWhenItsCallerPanics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	func() {
		defer func() { _ = recover() }()
		_ = Update(path, func(*NodeStatus) error { panic("caller") })
	}()
	must(t, WriteStatusToFile(path, fullSnapshot()))
}

func TestUpdateRefusesNonsense(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	if err := Update(path, nil); err == nil {
		t.Error("got no error without a change")
	}
	if err := Update("", func(*NodeStatus) error { return nil }); err == nil {
		t.Error("got no error without a path")
	}
	err := Update(path, func(s *NodeStatus) error { s.AgentVersion = strings.Repeat("x", maxSnapshotBytes); return nil })
	if err == nil || len(names(t, filepath.Dir(path))) != 1 { // the lock file
		t.Errorf("got error %v and files %v", err, names(t, filepath.Dir(path)))
	}
}

func TestUpdateKeepsAFileItMayNotRead(t *testing.T) {
	needsRoot(t, "becomes another user")
	dir := sharedFolder(t)
	path := filepath.Join(dir, "status.json")
	must(t, WriteStatusToFile(path, fullSnapshot()))
	must(t, os.Chmod(dir, 0o777))          // the other user may replace the file
	must(t, os.Chmod(path+".lock", 0o666)) // and lock it
	out, err := helper(t, "count", path, uidVariable+"=65534").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "permission denied") {
		t.Errorf("got %q (%v), want permission denied", out, err)
	}
	if readFile(t, path) != testdata(t, "full.json") {
		t.Error("the file was replaced unread")
	}
}

// While one goroutine writes, others read: each sees a complete snapshot.
func TestReadersNeverSeeHalfASnapshot(t *testing.T) {
	path := filepath.Join(memoryFolder(t), "status.json")
	long, short := fullSnapshot(), &NodeStatus{}
	long.KubeletVersion = strings.Repeat("1", 10_000)
	must(t, WriteStatusToFile(path, long))

	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				s, err := LoadStatusFromFile(path)
				if err != nil || *s != *long && *s != *short {
					t.Errorf("got %.200v (%v), want one of the two snapshots written", s, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		must(t, WriteStatusToFile(path, []*NodeStatus{short, long}[i%2]))
	}
	close(done)
	readers.Wait()
}

func TestTheFileOfTheServiceIsPreferred(t *testing.T) {
	dir := t.TempDir()
	run, tmp, file := filepath.Join(dir, "run"), filepath.Join(dir, "tmp"), filepath.Join(dir, "file")
	must(t, os.Mkdir(run, 0o700))
	writeFile(t, file, "")
	tests := map[string]struct{ preferred, want string }{
		"its folder exists":     {run, filepath.Join(run, "status.json")},
		"its folder is missing": {filepath.Join(dir, "no"), filepath.Join(tmp, "status.json")},
		"a file in its place":   {file, filepath.Join(tmp, "status.json")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := statusFilePath(tt.preferred, tmp); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	if got := GetStatusFilePath(); got != "/run/aks-flex-node/status.json" && got != "/tmp/aks-flex-node/status.json" {
		t.Errorf("got %s", got)
	}
}
