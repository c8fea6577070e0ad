package agent

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/decision"
)

func TestThePauseFilePausesWhateverIsInIt(t *testing.T) {
	now := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	made := now.Add(-time.Hour)
	for _, tc := range []struct {
		name, content string
		want          decision.Pause
	}{
		{"given an empty file", "", decision.Pause{}},
		{"given a reason", "disk is being replaced\nby Eva\n", decision.Pause{Reason: "disk is being replaced"}},
		{"given an end with a zone", "until: 2026-01-15T18:00:00Z\nmaintenance", decision.Pause{Reason: "maintenance", Until: now.Add(6 * time.Hour)}},
		{"given an end in local time", "Until: 2026-01-15 18:00", decision.Pause{Until: time.Date(2026, 1, 15, 18, 0, 0, 0, time.Local)}},
		{"given an end that can't be read, it has none", "until: tomorrow", decision.Pause{Reason: "(its end can't be read: until: tomorrow; write until: 2026-01-02T15:04:05Z)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "paused")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, made, made); err != nil {
				t.Fatal(err)
			}
			got := readPauseFile(path, now)
			if got == nil {
				t.Fatal("got no pause, want one")
			}
			want := tc.want
			want.By, want.Since = "the file "+path, made
			if !got.Since.Equal(want.Since) || !got.Until.Equal(want.Until) || got.By != want.By || got.Reason != want.Reason {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
		})
	}
}

func TestAPauseFileThatCantBeReadPausesToo(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, []byte(strings.Repeat("x", maxPauseFile+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, huge, dangling, dir} {
		if got := readPauseFile(path, time.Now()); got == nil || !got.Until.IsZero() || got.Reason == "" {
			t.Errorf("%s: got %+v, want an endless pause with a reason", path, got)
		}
	}
	if got := readPauseFile(filepath.Join(dir, "none"), time.Now()); got != nil {
		t.Errorf("without a file: got %+v, want none", got)
	}
}

func TestAPauseFileFromTheFutureHasNoBeginning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "paused")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readPauseFile(path, time.Now().Add(-time.Hour)); got == nil || !got.Since.IsZero() {
		t.Errorf("got %+v, want a pause whose beginning is not known", got)
	}
}

func TestFilesTellsWhatOthersDo(t *testing.T) {
	dir := t.TempDir()
	f := newFiles(filepath.Join(dir, "status.json"), filepath.Join(dir, "paused"))
	if f.pause() != nil {
		t.Fatalf("got %+v, want no pause", f.pause())
	}
	if err := os.WriteFile(f.pauseFile, []byte("a reason"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !f.look(time.Now()) || f.pause() == nil || f.pause().Reason != "a reason" {
		t.Errorf("got %+v, want the pause", f.pause())
	}
	before := *f.pause()
	f.look(time.Now())
	if !reflect.DeepEqual(before, *f.pause()) {
		t.Errorf("got %+v, want the same pause as before, %+v", *f.pause(), before)
	}
	if err := os.Remove(f.pauseFile); err != nil {
		t.Fatal(err)
	}
	if !f.look(time.Now()) || f.pause() != nil {
		t.Errorf("got %+v, want the end of the pause", f.pause())
	}
	if !f.takeGone() || f.takeGone() {
		t.Error("want a missing snapshot told once")
	}
}

func FuzzPauseFile(f *testing.F) {
	for _, seed := range []string{"", "reason\nuntil: 2026-01-15T18:00:00Z", "until:", "UNTIL: 9999-99-99", "\x00\xff\nuntil: 2026-01-15 18:00"} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "paused")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readPauseFile(path, time.Now()); got == nil {
			t.Errorf("%q: got no pause, want one", content)
		}
	})
}
