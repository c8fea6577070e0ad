package journal

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// change edits a file that holds a journal.
func change(edit func(data []byte) []byte) func(t *testing.T, path string) {
	return func(t *testing.T, path string) { writeFile(t, path, edit(readFile(t, path))) }
}

// instead puts something else in a file's place.
func instead(put func(path string) error) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		must(t, os.Remove(path))
		must(t, put(path))
	}
}

func TestAJournalThatCannotBeUsedIsSetAside(t *testing.T) {
	tests := map[string]struct {
		spoil func(t *testing.T, path string)
		want  string
		root  bool
	}{
		"given an empty file":            {change(func([]byte) []byte { return nil }), "too short", false},
		"given a file that was cut off":  {change(func(d []byte) []byte { return d[:len(d)*3/4] }), "cut off", false},
		"given garbage":                  {change(func(d []byte) []byte { return bytes.Repeat([]byte("garbage!"), len(d)/8) }), "not one of bbolt", false},
		"given zeroes":                   {change(func(d []byte) []byte { return make([]byte, len(d)) }), "not one of bbolt", false},
		"given a file of 1 GiB":          {func(t *testing.T, path string) { must(t, os.Truncate(path, 1<<30)) }, "too long", false},
		"given a value that has changed": {change(func(d []byte) []byte { return bytes.ReplaceAll(d, []byte("NodeReady"), []byte("NodeRaedy")) }), "checksum", false},
		"given bbolt of a later version": {change(func(d []byte) []byte {
			for page := range 2 {
				order.PutUint32(d[page*pageSize+headerSize+4:], 3)
			}
			return d
		}), "version 3", false},
		"given a bbolt file of something else": {instead(func(path string) error {
			db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: pageSize})
			if err != nil {
				return err
			}
			return db.Close()
		}), "no journal of this agent", false},
		"given a text file":                     {instead(func(path string) error { return os.WriteFile(path, []byte("hello\n"), 0o600) }), "too short", false},
		"given a folder":                        {instead(func(path string) error { return os.Mkdir(path, 0o700) }), "no file", false},
		"given a link to a journal":             {instead(func(path string) error { return os.Symlink("other.db", path) }), "no file", false},
		"given a named pipe":                    {instead(func(path string) error { return syscall.Mkfifo(path, 0o600) }), "no file", false},
		"given a device":                        {instead(func(path string) error { return syscall.Mknod(path, syscall.S_IFBLK|0o600, 7<<8) }), "no file", true},
		"given one that others can write":       {func(t *testing.T, path string) { must(t, os.Chmod(path, 0o602)) }, "written by others", false},
		"given one that its group can write":    {func(t *testing.T, path string) { must(t, os.Chmod(path, 0o660)) }, "written by others", false},
		"given one that belongs to someone":     {func(t *testing.T, path string) { must(t, os.Chown(path, 65534, 0)) }, "belongs to user 65534", true},
		"given one that someone made read-only": {func(t *testing.T, path string) { must(t, os.Chmod(path, 0o400)); must(t, os.Chown(path, 65534, 0)) }, "belongs to user", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.root {
				needsRoot(t, "makes devices and gives files away")
			}
			path, h := newPath(t), newHost()
			j := openSound(t, path, h.Moment)
			fill(t, j, h.Moment)
			must(t, j.Close())
			must(t, os.WriteFile(filepath.Join(filepath.Dir(path), "other.db"), readFile(t, path), 0o600))
			tt.spoil(t, path)

			if _, _, err := Open(path, h.Moment, Options{ReadOnly: true}); err == nil {
				t.Error("to read it: got no error")
			}
			spoilt, err := os.Lstat(path)
			must(t, err)

			j, opened := open(t, path, h.Moment)
			aside := path + ".corrupt-20260115T120000Z"
			if opened.SetAside == nil || !strings.Contains(opened.SetAside.Error(), tt.want) || !strings.Contains(opened.SetAside.Error(), aside) {
				t.Errorf("got %v, want that %q, and where it is", opened.SetAside, tt.want)
			}
			if !opened.BudgetUnknown || opened.New || opened.ReadOnly != nil || opened.Damage != nil {
				t.Errorf("got %+v, want only the budget unknown", opened)
			}
			if moved, err := os.Lstat(aside); err != nil || !os.SameFile(moved, spoilt) {
				t.Errorf("what was there is not set aside: %v", err)
			}
			if got := messages(t, j, time.Time{}, time.Time{}, 0); len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("got the history %q, want why the budget is not known", got)
			}
			attempt(t, j, h.Moment, "bootstrap")
			must(t, j.Close())
			_, opened = open(t, path, h.Moment)
			if want := (Opened{BudgetUnknown: true}); opened != want {
				t.Errorf("opened again: got %+v, want %+v", opened, want)
			}
			info, err := os.Lstat(path)
			must(t, err)
			if info.Mode() != 0o600 {
				t.Errorf("got mode %v, want 0600", info.Mode())
			}
		})
	}
}

func TestThreeAreKeptAside(t *testing.T) {
	path, h := newPath(t), newHost()
	for i := range 6 {
		writeFile(t, path, []byte{byte(i)})
		j, opened := open(t, path, h.run(time.Hour))
		must(t, j.Close())
		if opened.SetAside == nil {
			t.Fatal("it was not set aside")
		}
	}
	writeFile(t, path, []byte("twice at the same time"))
	j, _ := open(t, path, h.Moment)
	must(t, j.Close())
	h.setClock(-365 * day)
	writeFile(t, path, []byte("with the clock far back"))
	j, _ = open(t, path, h.Moment)
	must(t, j.Close())
	want := []string{"journal.db", "journal.db.corrupt-20250115T180000Z", "journal.db.corrupt-20260115T180000Z", "journal.db.corrupt-20260115T180000Z-2"}
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// Whatever moment a crash hits, the new journal must not forget that the budget is not known.
func TestACrashWhileSettingAsideForgetsNothing(t *testing.T) {
	h := newHost()
	made := func(t *testing.T, spoilt bool) (path string, journal []byte) {
		path = newPath(t)
		if spoilt {
			writeFile(t, path, []byte("garbage"))
		}
		j, _ := open(t, path, h.Moment)
		must(t, j.Close())
		return path, readFile(t, path)
	}
	tests := map[string]struct {
		leave func(t *testing.T, path string, next []byte)
		want  Opened
	}{
		"after the new one was begun": {func(t *testing.T, path string, next []byte) {
			writeFile(t, path, []byte("garbage"))
			writeFile(t, path+nextSuffix, next[:5000])
		}, Opened{SetAside: errCorrupt, BudgetUnknown: true}},
		"after the new one was made": {func(t *testing.T, path string, next []byte) {
			writeFile(t, path, []byte("garbage"))
			writeFile(t, path+nextSuffix, next)
		}, Opened{SetAside: errCorrupt, BudgetUnknown: true}},
		"after the old one was moved": {func(t *testing.T, path string, next []byte) { writeFile(t, path+nextSuffix, next) }, Opened{BudgetUnknown: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path, next := made(t, true)
			must(t, os.Remove(path))
			tt.leave(t, path, next)
			_, opened := open(t, path, h.Moment)
			if (opened.SetAside != nil) != (tt.want.SetAside != nil) || opened.BudgetUnknown != tt.want.BudgetUnknown || opened.New || opened.ReadOnly != nil {
				t.Errorf("got %+v, want %+v", opened, tt.want)
			}
			if _, err := os.Lstat(path + nextSuffix); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the new journal is still there under its other name: %v", err)
			}
		})
	}
	t.Run("while the first one is begun", func(t *testing.T) {
		path, next := made(t, false)
		must(t, os.Remove(path))
		writeFile(t, path+nextSuffix, next[:5000])
		if _, opened := open(t, path, h.Moment); opened != (Opened{New: true}) {
			t.Errorf("got %+v, want a new one and a budget that is known", opened)
		}
	})
}

func TestTheFolderAndTheFile(t *testing.T) {
	h := newHost()
	path := filepath.Join(filepath.Dir(newPath(t)), "state", "node", "journal.db")
	j, opened := open(t, path, h.Moment)
	if opened != (Opened{New: true}) {
		t.Errorf("got %+v, want a new journal", opened)
	}
	for name, want := range map[string]fs.FileMode{filepath.Dir(path): 0o700 | fs.ModeDir, path: 0o600} {
		info, err := os.Lstat(name)
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%s: got mode %v, want %v", name, info.Mode(), want)
		}
	}
	must(t, j.Close())
	must(t, os.Chmod(path, 0o644))
	j = openSound(t, path, h.Moment)
	if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("one that others could read: got mode %v, error %v, want 0600", info.Mode(), err)
	}
	must(t, j.Close())
	must(t, j.Close())
	if err := j.Record(h.Moment, Entry{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("after it was closed: got error %v, want %v", err, ErrReadOnly)
	}
	if _, err := j.Unfinished(); err == nil {
		t.Error("after it was closed: got no error")
	}
}

func TestThereIsNothingToRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "journal.db")
	if _, _, err := Open(path, newHost().Moment, Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, fs.ErrNotExist)
	}
	if got := names(t, filepath.Dir(filepath.Dir(path))); len(got) != 0 {
		t.Errorf("reading made %v", got)
	}
	if _, _, err := Open("", newHost().Moment, Options{}); err == nil {
		t.Error("without a path: got no error")
	}
}
