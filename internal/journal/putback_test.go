package journal

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// aJournal is filled, and lies in a folder of its own that can be removed.
func aJournal(t *testing.T, h *host) *Journal {
	t.Helper()
	j := openSound(t, filepath.Join(filepath.Dir(newPath(t)), "state", "journal.db"), h.Moment)
	fill(t, j, h.Moment)
	return j
}

// A known is all that may not be lost.
type known struct {
	history    []Entry
	remedies   []Remedy
	unfinished *Remedy
	attempts   int
	pause      *Pause
}

func whatIsKnown(t *testing.T, j *Journal, now Moment) (k known) {
	t.Helper()
	var err error
	k.history, err = j.History(time.Time{}, time.Time{}, 0)
	must(t, err)
	k.remedies, err = j.Remedies(0)
	must(t, err)
	k.unfinished, err = j.Unfinished()
	must(t, err)
	k.pause, err = j.Paused(now)
	must(t, err)
	k.attempts = len(ages(t, j, now, "bootstrap", day))
	return k
}

// keepsAll holds that the next agent knows all that was known, and that the history says what happened.
func keepsAll(t *testing.T, j *Journal, now Moment, want known, replaced bool) {
	t.Helper()
	if _, err := os.Lstat(j.path + nextSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy is still there under its other name: %v", err)
	}
	must(t, j.Close())
	j, opened := open(t, j.path, now)
	if opened != (Opened{BudgetUnknown: replaced}) {
		t.Errorf("opened again: got %+v, want a sound journal, and the budget unknown: %v", opened, replaced)
	}
	got := whatIsKnown(t, j, now)
	if len(got.history) <= len(want.history) || !reflect.DeepEqual(got.history[:len(want.history)], want.history) {
		t.Errorf("got a history of %d entries, want the %d before, and more", len(got.history), len(want.history))
	}
	tells := func(e Entry) bool {
		return e.Kind == KindJournal && e.Reason == "PutBack" && e.At.Equal(now.Wall) && strings.Contains(e.Message, "replaced") == replaced
	}
	if i := slices.IndexFunc(got.history, tells); i < len(want.history) {
		t.Errorf("got the history %+v, want an entry that says what happened to the journal", got.history)
	}
	got.history, want.history = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	info, err := os.Lstat(j.path)
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("got mode %v, want 0600", info.Mode())
	}
}

func TestAJournalThatIsRemovedOrReplacedIsPutBack(t *testing.T) {
	h := newHost()
	losses := map[string]struct {
		lose     func(t *testing.T, path string)
		replaced bool
	}{
		"removed": {instead(func(string) error { return nil }), false},
		"removed, after a crash": {instead(func(path string) error {
			return os.WriteFile(path+nextSuffix, []byte("half a copy"), 0o600)
		}), false},
		"moved away":          {func(t *testing.T, path string) { must(t, os.Rename(path, path+".bak")) }, false},
		"with its folder":     {func(t *testing.T, path string) { must(t, os.RemoveAll(filepath.Dir(path))) }, false},
		"replaced by garbage": {instead(func(path string) error { return os.WriteFile(path, []byte("garbage"), 0o600) }), true},
		"replaced by a copy": {func(t *testing.T, path string) {
			writeFile(t, path+".copy", readFile(t, path))
			must(t, os.Rename(path+".copy", path))
		}, true},
		"replaced by a folder": {instead(func(path string) error { return os.Mkdir(path, 0o700) }), true},
		"replaced by a link to it": {func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".bak"))
			must(t, os.Symlink(path+".bak", path))
		}, true},
		"replaced by a link to nowhere": {instead(func(path string) error { return os.Symlink("nowhere", path) }), true},
	}
	seen := map[string]func(t *testing.T, j *Journal){
		"by a tick":   func(t *testing.T, j *Journal) { tick(t, j, h.Moment) },
		"by a change": func(t *testing.T, j *Journal) { must(t, j.Record(h.Moment, Entry{Kind: KindCondition})) },
		"by its end":  func(t *testing.T, j *Journal) { must(t, j.Close()) },
		"by a tick, and lost again": func(t *testing.T, j *Journal) {
			tick(t, j, h.Moment)
			must(t, os.Remove(j.path))
			must(t, j.Close())
		},
	}
	for name, loss := range losses {
		for by, see := range seen {
			t.Run(name+", seen "+by, func(t *testing.T) {
				j := aJournal(t, h)
				want := whatIsKnown(t, j, h.Moment)
				loss.lose(t, j.path)
				intruder, _ := os.Lstat(j.path)
				see(t, j)
				keepsAll(t, j, h.Moment, want, loss.replaced)
				aside, err := filepath.Glob(j.path + asideSuffix + "*")
				must(t, err)
				if (len(aside) == 1) != loss.replaced {
					t.Fatalf("got %v set aside, want what lay there", aside)
				}
				if !loss.replaced {
					return
				}
				if moved, err := os.Lstat(aside[0]); err != nil || !os.SameFile(moved, intruder) {
					t.Errorf("what lay there is not set aside: %v", err)
				}
			})
		}
	}
}

func tick(t *testing.T, j *Journal, now Moment) {
	t.Helper()
	if opened, err := j.Tick(now); opened != (Opened{}) || err != nil {
		t.Fatalf("tick: got %+v, error %v, want nothing to tell", opened, err)
	}
}

// What is promised to last is on the disk, where the next agent looks, when the promise is made.
func TestWhatIsPromisedAfterTheJournalWasRemovedLasts(t *testing.T) {
	h := newHost()
	j := aJournal(t, h)
	next := func() *Journal { // of an agent that starts where this one was killed
		t.Helper()
		path := filepath.Join(filepath.Dir(newPath(t)), "journal.db")
		writeFile(t, path, readFile(t, j.path))
		return openSound(t, path, h.Moment)
	}
	u, err := j.Unfinished()
	must(t, err)
	must(t, os.Remove(j.path))
	must(t, j.Step(h.Moment, u.ID, Progress{Step: "run", State: StepStarted}))
	if got, err := next().Unfinished(); err != nil || got == nil || got.Steps[0].Tries != 2 {
		t.Errorf("after a step: got %+v, error %v, want its second try", got, err)
	}
	must(t, os.Remove(j.path))
	must(t, j.Finish(h.Moment, u.ID, "failed", ""))
	if got, err := next().Unfinished(); err != nil || got != nil {
		t.Errorf("after its end: got %+v, error %v, want nothing unfinished", got, err)
	}
	must(t, os.Remove(j.path))
	id, err := j.Begin(h.Moment, Plan{Name: "bootstrap", Budget: "bootstrap", Steps: []string{"run"}})
	must(t, err)
	if got, err := next().Unfinished(); err != nil || got == nil || got.ID != id {
		t.Errorf("after a beginning: got %+v, error %v, want remedy %d", got, err, id)
	}
	if got := len(ages(t, next(), h.Moment, "bootstrap", day)); got != 4 {
		t.Errorf("after a beginning: got %d attempts, want 4", got)
	}
	must(t, os.Remove(j.path))
	must(t, j.Pause(h.Moment, Pause{By: "bob", Reason: "after the loss"}))
	if got, err := next().Paused(h.Moment); err != nil || got == nil || got.By != "bob" {
		t.Errorf("after a pause: got %+v, error %v, want that of bob", got, err)
	}
	must(t, os.Remove(j.path))
	must(t, j.Resume(h.Moment, "bob"))
	if got, err := next().Paused(h.Moment); err != nil || got != nil {
		t.Errorf("after its end: got %+v, error %v, want none", got, err)
	}
}

func TestAJournalThatCannotBePutBackIsReadOnly(t *testing.T) {
	tests := map[string]struct {
		spoil, mend func(t *testing.T, dir string)
		want        string
	}{
		"since no folder can be made": {
			func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)); must(t, os.WriteFile(dir, nil, 0o600)) },
			func(t *testing.T, dir string) { must(t, os.Remove(dir)) }, "not a directory",
		},
		"since others can write there": {
			func(t *testing.T, dir string) {
				must(t, os.Remove(filepath.Join(dir, "journal.db")))
				must(t, os.Chmod(dir, 0o777))
			},
			func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o700)) }, "can be written by others",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			j := aJournal(t, h)
			tt.spoil(t, filepath.Dir(j.path))
			waits(t, j, h.Moment, tt.want, func() { tt.mend(t, filepath.Dir(j.path)) })
		})
	}
}

// waits holds that a journal that was lost is read-only until the trouble is mended, answers meanwhile, and is whole then.
func waits(t *testing.T, j *Journal, now Moment, trouble string, mend func()) {
	t.Helper()
	before := whatIsKnown(t, j, now)
	if _, err := j.Tick(now); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), trouble) {
		t.Errorf("tick: got error %v, want %v because of %s", err, ErrReadOnly, trouble)
	}
	observesOnly(t, j, now, trouble)
	meanwhile := whatIsKnown(t, j, now)
	meanwhile.history = before.history
	if !reflect.DeepEqual(meanwhile, before) {
		t.Errorf("meanwhile: got %+v\nwant %+v", meanwhile, before)
	}
	mend()
	tick(t, j, now)
	keepsAll(t, j, now, before, false)
}

func TestALostJournalOnADiskThatCannotBeWritten(t *testing.T) {
	lost := func(t *testing.T, h *host) (j *Journal, dir string) {
		t.Helper()
		dir = mountTmpfs(t, "1m")
		j = openSound(t, filepath.Join(dir, "journal.db"), h.Moment)
		fill(t, j, h.Moment)
		must(t, os.Remove(j.path))
		return j, dir
	}
	remount := func(dir string, flags uintptr) error { return syscall.Mount("", dir, "", syscall.MS_REMOUNT|flags, "") }
	t.Run("since it is full", func(t *testing.T) {
		h := newHost()
		j, dir := lost(t, h)
		waits(t, j, h.Moment, "no space", fillUp(t, dir))
	})
	t.Run("since it is read-only", func(t *testing.T) {
		// A file system with a file that was removed but is open refuses to become read-only, so another one takes its place.
		h := newHost()
		j, dir := lost(t, h)
		must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_RDONLY, "mode=0755"))
		waits(t, j, h.Moment, "read-only", func() { must(t, syscall.Unmount(dir, 0)) })
	})
	t.Run("and that could be only read at the start", func(t *testing.T) {
		h, dir := newHost(), mountTmpfs(t, "1m")
		j := openSound(t, filepath.Join(dir, "journal.db"), h.Moment)
		fill(t, j, h.Moment)
		must(t, j.Close())
		must(t, remount(dir, syscall.MS_RDONLY))
		j, _ = open(t, j.path, h.Moment)
		before := whatIsKnown(t, j, h.Moment)
		must(t, remount(dir, 0))
		must(t, os.Remove(j.path))
		tick(t, j, h.Moment)
		keepsAll(t, j, h.Moment, before, false)
	})
}

func TestAnotherProcessMakesAJournalWhereOneWasRemoved(t *testing.T) {
	h := newHost()
	j := aJournal(t, h)
	before := whatIsKnown(t, j, h.Moment)
	must(t, os.Remove(j.path))
	holder := helper(t, "hold", j.path)
	holder.Stderr = os.Stderr
	in, err := holder.StdinPipe()
	must(t, err)
	out, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if _, err := j.Tick(h.Moment); !errors.Is(err, ErrLocked) || !errors.Is(err, ErrReadOnly) {
		t.Errorf("tick: got error %v, want that another has it", err)
	}
	observesOnly(t, j, h.Moment, "in use")
	if got := whatIsKnown(t, j, h.Moment); got.pause == nil || got.unfinished == nil {
		t.Errorf("got %+v, want what is known still", got)
	}
	must(t, in.Close())
	must(t, holder.Wait())
	tick(t, j, h.Moment)
	if got := j.BudgetUnknown(h.Moment); got != day {
		t.Errorf("got a budget unknown for %v, want a day: the other may have made attempts", got)
	}
	keepsAll(t, j, h.Moment, before, true)
}

func TestOfTwoPausesTheLongerOneIsKept(t *testing.T) {
	h := newHost()
	soon, later := h.Wall.Add(time.Hour), h.Wall.Add(2*time.Hour)
	tests := map[string]struct {
		ours, theirs *Pause
		want         string
	}{
		"none":                           {nil, nil, ""},
		"only ours":                      {&Pause{By: "ours", Until: &soon}, nil, "ours"},
		"only theirs":                    {nil, &Pause{By: "theirs"}, "theirs"},
		"theirs is without end":          {&Pause{By: "ours", Until: &later}, &Pause{By: "theirs"}, "theirs"},
		"theirs ends later":              {&Pause{By: "ours", Until: &soon}, &Pause{By: "theirs", Until: &later}, "theirs"},
		"ours ends later":                {&Pause{By: "ours", Until: &later}, &Pause{By: "theirs", Until: &soon}, "ours"},
		"ours is without end":            {&Pause{By: "ours"}, &Pause{By: "theirs", Until: &soon}, "ours"},
		"theirs is over when it is seen": {nil, &Pause{By: "theirs", Until: &h.Wall}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			j := openSound(t, newPath(t), h.Moment)
			if tt.ours != nil {
				must(t, j.Pause(h.Moment, *tt.ours))
			}
			must(t, os.Remove(j.path))
			other := openSound(t, j.path, h.Moment) // as a command does that finds no agent
			if tt.theirs != nil {
				must(t, other.Pause(h.Moment, *tt.theirs))
			}
			must(t, other.Close())
			tick(t, j, h.Moment)
			must(t, j.Close())
			j, _ = open(t, j.path, h.Moment)
			got, err := j.Paused(h.Moment)
			must(t, err)
			if (got == nil) != (tt.want == "") || got != nil && got.By != tt.want {
				t.Errorf("got %+v, want that of %q", got, tt.want)
			}
		})
	}
}

func TestABrokenJournalThatIsRemovedLeavesTheBudgetUnknown(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, j *Journal){
		"broken, then removed": func(t *testing.T, j *Journal) {
			must(t, os.Truncate(j.path, 0))
			if _, err := j.Unfinished(); !isBroken(err) {
				t.Fatalf("got error %v, want that it broke", err)
			}
			must(t, os.Remove(j.path))
		},
		"removed, and broken": func(t *testing.T, j *Journal) {
			must(t, os.Rename(j.path, j.path+".bak"))
			must(t, os.Truncate(j.path+".bak", 2*pageSize))
			if _, err := j.Tick(newHost().Moment); !errors.Is(err, ErrReadOnly) || !errors.Is(err, errCorrupt) {
				t.Fatalf("tick: got error %v, want that it can't be put back", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			j := aJournal(t, h)
			lose(t, j)
			if opened, err := j.Tick(h.Moment); opened != (Opened{New: true, BudgetUnknown: true}) || err != nil {
				t.Errorf("got %+v, error %v, want a new journal and the budget unknown", opened, err)
			}
		})
	}
}
