package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// observesOnly holds that a journal refuses to begin a remedy, and remembers entries in memory.
func observesOnly(t *testing.T, j *Journal, now Moment, want string) {
	t.Helper()
	if _, err := j.Begin(now, Plan{Name: "bootstrap", Budget: "bootstrap", Steps: []string{"run"}}); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), want) {
		t.Errorf("begin: got error %v, want %v because of %s", err, ErrReadOnly, want)
	}
	if err := j.Pause(now, Pause{By: "root"}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("pause: got error %v, want %v", err, ErrReadOnly)
	}
	if err := j.Record(now, Entry{Kind: KindCondition, Message: "kept in memory"}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("record: got error %v, want %v", err, ErrReadOnly)
	}
	if err := j.Err(); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), want) {
		t.Errorf("err: got %v, want %v because of %s", err, ErrReadOnly, want)
	}
	if got := messages(t, j, time.Time{}, time.Time{}, 1); len(got) != 1 || got[0] != "kept in memory" {
		t.Errorf("history: got %q, want what was kept in memory", got)
	}
}

// recovers holds that the next tick mends a journal, and that what was kept in memory is recorded then.
func recovers(t *testing.T, j *Journal, now Moment) (opened Opened) {
	t.Helper()
	opened, err := j.Tick(now)
	if err != nil || j.Err() != nil || opened.ReadOnly != nil {
		t.Fatalf("tick: got %+v and error %v, want none", opened, err)
	}
	must(t, j.Close())
	j, _ = open(t, j.path, now)
	if got := messages(t, j, time.Time{}, time.Time{}, 0); !slices.Contains(got, "kept in memory") {
		t.Errorf("history after it recovered: got %q, want what was kept in memory among it", got)
	}
	attempt(t, j, now, "bootstrap")
	return opened
}

// fillUp takes what space is left and returns how to give it back.
func fillUp(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	must(t, err)
	for block := make([]byte, 4096); ; {
		if _, err := f.Write(block); err != nil {
			break
		}
	}
	must(t, f.Close())
	return func() { must(t, os.Remove(path)) }
}

func TestADiskThatFillsUp(t *testing.T) {
	dir := mountTmpfs(t, "1m")
	path, h := filepath.Join(dir, "journal.db"), newHost()
	j := openSound(t, path, h.Moment)
	fill(t, j, h.Moment)
	u, err := j.Unfinished()
	must(t, err)
	must(t, j.Finish(h.Moment, u.ID, "failed", ""))
	free := fillUp(t, dir)
	// Free pages take some changes still.
	for range 100 {
		err = j.Record(h.Moment, Entry{Kind: KindCondition, Message: strings.Repeat("x", maxText)})
		if err != nil {
			break
		}
	}
	if !errors.Is(err, ErrReadOnly) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
		t.Fatalf("got error %v, want that there is no space", err)
	}
	observesOnly(t, j, h.Moment, "no space")
	if got := ages(t, j, h.Moment, "bootstrap", day); len(got) != 3 {
		t.Errorf("got %d attempts, want 3: reading needs no space", len(got))
	}
	if _, err := j.Tick(h.Moment); !errors.Is(err, ErrReadOnly) {
		t.Errorf("tick: got error %v, want %v", err, ErrReadOnly)
	}
	must(t, j.Close())
	j, opened := open(t, path, h.Moment)
	if opened.SetAside != nil || opened.BudgetUnknown {
		t.Errorf("opened on a full disk: got %+v, want the budget known", opened)
	}
	for range 100 {
		if err = j.Record(h.Moment, Entry{Kind: KindCondition, Message: strings.Repeat("x", maxText)}); err != nil {
			break
		}
	}
	observesOnly(t, j, h.Moment, "no space")
	free()
	recovers(t, j, h.Moment)
}

func TestAFullDisk(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, path string){
		"and no journal":         func(*testing.T, string) {},
		"and a journal in ruins": func(t *testing.T, path string) { writeFile(t, path, []byte("garbage")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := mountTmpfs(t, "1m")
			path, h := filepath.Join(dir, "journal.db"), newHost()
			prepare(t, path)
			before := names(t, dir)
			free := fillUp(t, dir)
			j, opened := open(t, path, h.Moment)
			if !errors.Is(opened.ReadOnly, ErrReadOnly) || !opened.BudgetUnknown || opened.New || (opened.SetAside != nil) != (len(before) > 0) {
				t.Errorf("got %+v, want that nothing can be written", opened)
			}
			observesOnly(t, j, h.Moment, "no space")
			if _, err := j.Attempts(h.Moment, "bootstrap", day); !errors.Is(err, ErrReadOnly) {
				t.Errorf("attempts: got error %v, want %v", err, ErrReadOnly)
			}
			free()
			if got := names(t, dir); len(got) != len(before) {
				t.Errorf("got files %v, want %v", got, before)
			}
			if opened := recovers(t, j, h.Moment); opened.New == opened.BudgetUnknown {
				t.Errorf("got %+v after it recovered", opened)
			}
		})
	}
}

func TestAReadOnlyDisk(t *testing.T) {
	remount := func(t *testing.T, dir string, flags uintptr) {
		t.Helper()
		must(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|flags, ""))
	}
	h := newHost()
	t.Run("with a journal", func(t *testing.T) {
		dir := mountTmpfs(t, "1m")
		j := openSound(t, filepath.Join(dir, "journal.db"), h.Moment)
		attempt(t, j, h.Moment, "bootstrap")
		must(t, j.Close())
		remount(t, dir, syscall.MS_RDONLY)
		j, opened := open(t, j.path, h.Moment)
		if !errors.Is(opened.ReadOnly, syscall.EROFS) || opened.BudgetUnknown || opened.SetAside != nil {
			t.Errorf("got %+v, want it read-only and the budget known", opened)
		}
		if got := ages(t, j, h.Moment, "bootstrap", day); len(got) != 1 {
			t.Errorf("got %d attempts, want 1", len(got))
		}
		observesOnly(t, j, h.Moment, "read-only")
		remount(t, dir, 0)
		recovers(t, j, h.Moment)
	})
	t.Run("without a journal", func(t *testing.T) {
		dir := mountTmpfs(t, "1m")
		remount(t, dir, syscall.MS_RDONLY)
		j, opened := open(t, filepath.Join(dir, "state", "journal.db"), h.Moment)
		if !errors.Is(opened.ReadOnly, syscall.EROFS) || !opened.BudgetUnknown {
			t.Errorf("got %+v, want it read-only and the budget unknown", opened)
		}
		observesOnly(t, j, h.Moment, "read-only")
		remount(t, dir, 0)
		if opened := recovers(t, j, h.Moment); !opened.New {
			t.Errorf("got %+v after it recovered, want a new journal", opened)
		}
	})
	t.Run("with a journal in ruins", func(t *testing.T) {
		dir := mountTmpfs(t, "1m")
		path := filepath.Join(dir, "journal.db")
		writeFile(t, path, []byte("garbage"))
		remount(t, dir, syscall.MS_RDONLY)
		j, opened := open(t, path, h.Moment)
		if opened.SetAside == nil || opened.ReadOnly == nil || !opened.BudgetUnknown {
			t.Errorf("got %+v, want the journal useless and read-only", opened)
		}
		observesOnly(t, j, h.Moment, "read-only")
		remount(t, dir, 0)
		recovers(t, j, h.Moment)
	})
}

func TestAFolderThatIsNotTrusted(t *testing.T) {
	tests := map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"that others can write":     {func(dir string) error { return os.Chmod(dir, 0o777) }, "can be written by others"},
		"that its group can write":  {func(dir string) error { return os.Chmod(dir, 0o770) }, "can be written by others"},
		"that belongs to someone":   {func(dir string) error { return os.Chown(dir, 65534, 0) }, "belongs to user 65534"},
		"that is a file":            {func(dir string) error { return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)) }, "not a directory"},
		"that is a link to nowhere": {func(dir string) error { return errors.Join(os.Remove(dir), os.Symlink("nowhere", dir)) }, "no such file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			needsRoot(t, "gives folders away")
			h := newHost()
			dir := filepath.Join(filepath.Dir(newPath(t)), "state")
			must(t, os.Mkdir(dir, 0o700))
			must(t, tt.spoil(dir))
			j, opened := open(t, filepath.Join(dir, "journal.db"), h.Moment)
			if opened.ReadOnly == nil || !opened.BudgetUnknown {
				t.Errorf("got %+v, want that nothing can be written", opened)
			}
			observesOnly(t, j, h.Moment, tt.want)
			must(t, os.RemoveAll(dir))
			if opened := recovers(t, j, h.Moment); !opened.New {
				t.Errorf("got %+v after it recovered, want a new journal", opened)
			}
		})
	}
}

func TestAFileThatBreaksWhileItIsOpen(t *testing.T) {
	for name, size := range map[string]int64{"cut to nothing": 0, "cut to its meta pages": 2 * pageSize} {
		t.Run(name, func(t *testing.T) {
			path, h := newPath(t), newHost()
			j := openSound(t, path, h.Moment)
			fill(t, j, h.Moment)
			must(t, os.Truncate(path, size))
			_, err := j.History(time.Time{}, time.Time{}, 0)
			if !isBroken(err) {
				t.Errorf("history: got error %v, want that it broke", err)
			}
			observesOnly(t, j, h.Moment, "broke")
			if got := j.BudgetUnknown(h.Moment); got != day {
				t.Errorf("got a budget unknown for %v, want a day", got)
			}
			if opened := recovers(t, j, h.Moment); opened.SetAside == nil || !opened.BudgetUnknown {
				t.Errorf("got %+v after it recovered, want it set aside", opened)
			}
		})
		t.Run(name+", seen by a write", func(t *testing.T) {
			path, h := newPath(t), newHost()
			j := openSound(t, path, h.Moment)
			fill(t, j, h.Moment)
			must(t, os.Truncate(path, size))
			if err := j.Record(h.Moment, Entry{Message: "lost?"}); !errors.Is(err, ErrReadOnly) {
				t.Errorf("record: got error %v, want %v", err, ErrReadOnly)
			}
			observesOnly(t, j, h.Moment, "broke")
			recovers(t, j, h.Moment)
		})
	}
}

func TestAValueThatRotsWhileTheJournalIsOpen(t *testing.T) {
	path, h := newPath(t), newHost()
	j := openSound(t, path, h.Moment)
	fill(t, j, h.Moment)
	writeFile(t, path+".copy", []byte(strings.ReplaceAll(string(readFile(t, path)), "NodeReady", "NodeRaedy")))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.Write(readFile(t, path+".copy"))
	must(t, err)
	must(t, f.Close())
	if _, err := j.History(time.Time{}, time.Time{}, 0); !errors.Is(err, errCorrupt) {
		t.Errorf("history: got error %v, want %v", err, errCorrupt)
	}
	observesOnly(t, j, h.Moment, "checksum")
	if opened := recovers(t, j, h.Moment); opened.SetAside == nil {
		t.Errorf("got %+v after it recovered, want it set aside", opened)
	}
}

func TestAnotherAgentTakesAJournalThatComesBack(t *testing.T) {
	h := newHost()
	dir := filepath.Join(filepath.Dir(newPath(t)), "state")
	must(t, os.WriteFile(dir, nil, 0o600)) // no folder can be made
	path := filepath.Join(dir, "journal.db")
	first, _ := open(t, path, h.Moment)
	must(t, os.Remove(dir))
	second := openSound(t, path, h.Moment)
	if _, err := first.Tick(h.Moment); !errors.Is(err, ErrLocked) || !errors.Is(err, ErrReadOnly) {
		t.Errorf("tick: got error %v, want that another has it", err)
	}
	observesOnly(t, first, h.Moment, "in use")
	must(t, second.Close())
	recovers(t, first, h.Moment)
}

func TestEntriesKeptInMemoryAreBounded(t *testing.T) {
	h := newHost()
	dir := filepath.Join(filepath.Dir(newPath(t)), "state")
	must(t, os.WriteFile(dir, nil, 0o600))
	j, _ := open(t, filepath.Join(dir, "journal.db"), h.Moment)
	for range maxPending + 5 {
		if err := j.Record(h.Moment, Entry{Message: "waiting"}); err == nil {
			t.Fatal("got no error")
		}
	}
	if got := len(messages(t, j, time.Time{}, time.Time{}, 0)); got != maxPending {
		t.Errorf("got %d entries, want %d", got, maxPending)
	}
	must(t, os.Remove(dir))
	_, err := j.Tick(h.Moment)
	must(t, err)
	got := messages(t, j, time.Time{}, time.Time{}, 0)
	if len(got) != maxPending+1 || !strings.Contains(got[0], "5 entries before this one were lost") {
		t.Errorf("got %d entries, the first %q, want one that tells of the 5 lost", len(got), got[0])
	}
}

// A failed beginning may have reached the file, as when only the last flush failed. Its caller was told that there is no remedy.
func TestARemedyWhoseBeginningFailedIsNotInProgress(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	id, err := j.Begin(h.Moment, Plan{Name: "bootstrap", Budget: "bootstrap", Steps: []string{"run"}})
	must(t, err)
	j.unborn = id // as Begin leaves it when it can't tell
	if u, err := j.Unfinished(); u != nil || err != nil {
		t.Errorf("got unfinished %v, error %v, want none", u, err)
	}
	next, err := j.Begin(h.Moment, Plan{Name: "bootstrap", Budget: "bootstrap", Steps: []string{"run"}})
	must(t, err)
	all, err := j.Remedies(0)
	must(t, err)
	if len(all) != 2 || all[0].ID != next || all[1].Outcome != "notBegun" {
		t.Errorf("got remedies %+v, want the first one not begun", all)
	}
	if got := len(ages(t, j, h.Moment, "bootstrap", day)); got != 2 {
		t.Errorf("got %d attempts, want both to count", got)
	}
}

// When the journal broke and is opened anew, the file tells whether a remedy began whose beginning seemed to fail: it must not be begun
// beside it.
func TestARemedyThatReachedTheFileIsInProgressOnceThatIsSeen(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	id, err := j.Begin(h.Moment, Plan{Name: "bootstrap", Steps: []string{"run"}})
	must(t, err)
	j.unborn = id // as Begin leaves it when it can't tell
	j.abandon()
	_, err = j.Tick(h.Moment)
	must(t, err)
	if u, err := j.Unfinished(); err != nil || u == nil || u.ID != id {
		t.Errorf("got unfinished %+v, error %v, want remedy %d", u, err, id)
	}
}

// What failed may have left nothing to record, as a beginning does.
func TestTickTriesAgainWhatFailedThoughNothingWaits(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	j.writeErr = j.cannotWrite(syscall.ENOSPC)
	if _, err := j.Tick(h.Moment); err != nil || j.Err() != nil {
		t.Errorf("got %v and %v, want a journal that can be written", err, j.Err())
	}
}
