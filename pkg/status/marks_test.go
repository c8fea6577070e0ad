package status

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
)

var markTime = time.Date(2026, 2, 1, 12, 0, 0, 5, time.UTC)

func marked(s NodeStatus) NodeStatus {
	s.KubeletRunning = false
	s.KubeletReady = "Unknown"
	s.KubeletVersion = "unknown"
	s.LastUpdated = markTime
	s.LastUpdatedBy = "DriftDetectionAndRemediation"
	s.LastUpdatedReason = "kubernetesVersionDrift"
	return s
}

func TestAMarkKeepsEverythingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	must(t, WriteStatusToFile(path, fullSnapshot()))
	local := markTime.In(time.FixedZone("far", 7*3600))
	for range 2 { // marking twice is marking once
		MarkKubeletUnhealthyBestEffortAtPath(nil, path, local)
		got, err := LoadStatusFromFile(path)
		must(t, err)
		if want := marked(*fullSnapshot()); *got != want {
			t.Errorf("got  %+v\nwant %+v", *got, want)
		}
	}
	if content := readFile(t, path); !strings.Contains(content, `"lastUpdated": "2026-02-01T12:00:00.000000005Z"`) {
		t.Errorf("the time is not in UTC:\n%s", content)
	}
}

func TestAMarkMakesAMinimalSnapshotWhereThereIsNone(t *testing.T) {
	given := map[string]func(t *testing.T, path string){
		"no folder": func(*testing.T, string) {},
		"no file":   func(t *testing.T, path string) { must(t, os.Mkdir(filepath.Dir(path), 0o700)) },
	}
	for name, content := range brokenContents(t) {
		given[name] = func(t *testing.T, path string) {
			must(t, os.Mkdir(filepath.Dir(path), 0o700))
			writeFile(t, path, content)
		}
	}
	for name, prepare := range given {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "folder", "status.json")
			prepare(t, path)
			MarkKubeletUnhealthyBestEffortAtPath(nil, path, markTime)
			got, err := LoadStatusFromFile(path)
			must(t, err)
			want := marked(NodeStatus{RuncVersion: "unknown", ContainerdVersion: "unknown"})
			if *got != want {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
			if reason := textOf(snapshotGrounds(got, false, markTime)); reason == "" {
				t.Error("the marked snapshot asks for no bootstrap")
			}
		})
	}
}

func TestAMarkWithoutTimeIsOfNow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	before := time.Now()
	MarkKubeletUnhealthyBestEffortAtPath(nil, path, time.Time{})
	after := time.Now()
	got, err := LoadStatusFromFile(path)
	must(t, err)
	if got.LastUpdated.Before(before.Round(0)) || got.LastUpdated.After(after) || got.LastUpdated.Location() != time.UTC {
		t.Errorf("got %v, want between %v and %v in UTC", got.LastUpdated, before, after)
	}
}

func TestRemoveLeavesNothingAndWantsNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	logger, logged := debugLogger()

	RemoveStatusFileBestEffortAtPath(logger, path)
	RemoveStatusFileBestEffortAtPath(logger, filepath.Join(dir, "no", "status.json"))
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("removing nothing left %v", got)
	}

	must(t, WriteStatusToFile(path, fullSnapshot()))
	RemoveStatusFileBestEffortAtPath(logger, path)
	if got := names(t, dir); !slices.Equal(got, []string{"status.json.lock"}) {
		t.Errorf("got files %v, want the lock file only", got)
	}
	if entries := logged.AllEntries(); len(entries) != 0 {
		t.Errorf("success was logged as %q", entries[0].Message)
	}
}

func TestRemoveTakesALinkNotItsTarget(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "status.json")
	writeFile(t, target, "kept")
	must(t, os.Symlink(target, link))
	RemoveStatusFileBestEffortAtPath(nil, link)
	if got := names(t, dir); slices.Contains(got, "status.json") || readFile(t, target) != "kept" {
		t.Errorf("got files %v", got)
	}
}

func debugLogger() (*logrus.Logger, *logrustest.Hook) {
	logger, hook := logrustest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	return logger, hook
}

// Best effort: what can't be done is said at debug, and never worse.
func TestWhatCannotBeDoneIsLoggedAtDebug(t *testing.T) {
	tests := map[string]struct {
		given func(t *testing.T) (path string)
		// want: part of what is logged by a mark and by a removal.
		wantMark, wantRemove string
	}{
		"a read-only folder": {func(t *testing.T) string {
			dir := mountTmpfs(t, "64k")
			path := filepath.Join(dir, "status.json")
			must(t, WriteStatusToFile(path, fullSnapshot()))
			must(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
			return path
		}, "read-only file system", "read-only file system"},
		"a full folder in the file's place": {func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "status.json")
			must(t, os.MkdirAll(filepath.Join(path, "sub"), 0o700))
			return path
		}, "remove the folder", "directory not empty"},
		"a file in the folder's place": {func(t *testing.T) string {
			file := filepath.Join(t.TempDir(), "file")
			writeFile(t, file, "")
			return filepath.Join(file, "status.json")
		}, "not a directory", "not a directory"},
		"no path": {func(*testing.T) string { return "" }, "names no file", "names no file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := tt.given(t)
			logger, logged := debugLogger()
			MarkKubeletUnhealthyBestEffortAtPath(logger, path, markTime)
			assertLoggedAtDebug(t, logged, tt.wantMark)
			logged.Reset()
			RemoveStatusFileBestEffortAtPath(logger, path)
			assertLoggedAtDebug(t, logged, tt.wantRemove)

			MarkKubeletUnhealthyBestEffortAtPath(nil, path, markTime) // must not panic
			RemoveStatusFileBestEffortAtPath(nil, path)
		})
	}
}

func assertLoggedAtDebug(t *testing.T, logged *logrustest.Hook, want string) {
	t.Helper()
	entry := logged.LastEntry()
	if entry == nil {
		t.Fatalf("nothing was logged, want %q", want)
	}
	for _, e := range logged.AllEntries() {
		if e.Level != logrus.DebugLevel {
			t.Errorf("%q was logged at %v, want debug", e.Message, e.Level)
		}
	}
	if err, _ := entry.Data[logrus.ErrorKey].(error); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v logged, want %q", err, want)
	}
}
