package journal

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// seeds are real journals: a new one, one with everything, one that was pruned and grew deep.
func seeds(f *testing.F) (all [][]byte) {
	f.Helper()
	h := newHost()
	for _, make := range []func(j *Journal){
		func(*Journal) {},
		func(j *Journal) { fill(f, j, h.Moment) },
		func(j *Journal) {
			for range 12 {
				var entries []Entry
				for range 50 {
					entries = append(entries, Entry{Kind: KindDecision, Subject: "a long line of history", Data: json.RawMessage(`{"guards":["paused","masked"]}`)})
				}
				must(f, j.Record(h.run(40*day), entries...))
			}
		},
	} {
		path := newPath(f)
		j := openSound(f, path, h.Moment)
		make(j)
		must(f, j.Close())
		all = append(all, readFile(f, path))
	}
	return all
}

// mutate changes a journal as edits say, three bytes each: two for where, one for what. Then it makes the meta pages' checksums right, so
// that what lies behind them is reached.
func mutate(data []byte, edits []byte, length uint32, mend bool) []byte {
	data = append([]byte{}, data...)
	for ; len(edits) >= 3; edits = edits[3:] {
		at := (int(edits[0])<<8 | int(edits[1])) * len(data) / (1 << 16)
		if len(edits)%2 == 0 { // near the start of a page, where the structure is
			at = at/pageSize*pageSize + at%96
		}
		data[at] = edits[2]
	}
	if mend {
		seal(data)
		seal(data[pageSize:])
	}
	if int(length) < len(data) {
		data = data[:length]
	}
	return data
}

// FuzzOpen opens journals that were changed in any way and uses them. None may crash or hang the agent or take more memory than their
// size explains, and what is used in the end must be sound.
func FuzzOpen(f *testing.F) {
	all := seeds(f)
	for which := range all {
		f.Add(uint8(which), []byte{}, uint32(1<<31), false)
		f.Add(uint8(which), []byte{0x00, 0x20, 0x01, 0x30, 0x09, 0xff, 0x50, 0x0b, 0x02}, uint32(1<<31), true)
		f.Add(uint8(which), []byte{0x33, 0x20, 0x01, 0x80, 0x00, 0xff}, uint32(1<<31), true)
		f.Add(uint8(which), []byte{}, uint32(20_000), false)
	}
	dir := filepath.Dir(newPath(f))
	f.Fuzz(func(t *testing.T, which uint8, edits []byte, length uint32, mend bool) {
		opensWithoutHarm(t, dir, mutate(all[int(which)%len(all)], edits, length, mend))
	})
}

// FuzzOpenAnything does the same with files that need have nothing of a journal.
func FuzzOpenAnything(f *testing.F) {
	for _, seed := range seeds(f)[:2] {
		f.Add(seed)
	}
	f.Add([]byte{})
	f.Add(make([]byte, 4*pageSize))
	dir := filepath.Dir(newPath(f))
	f.Fuzz(func(t *testing.T, data []byte) { opensWithoutHarm(t, dir, data) })
}

func opensWithoutHarm(t *testing.T, dir string, data []byte) {
	t.Helper()
	defer func() { _ = os.RemoveAll(dir) }()
	must(t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "journal.db")
	writeFile(t, path, data)
	h := newHost()

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	j, opened, err := Open(path, h.Moment, Options{NoSync: true})
	runtime.ReadMemStats(&after)
	if err != nil || opened.ReadOnly != nil {
		t.Fatalf("got error %v and %+v, want a journal that can be written", err, opened)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20+2*uint64(len(data)) {
		t.Errorf("took %d bytes of memory for %d bytes of file", took, len(data))
	}
	if opened.SetAside != nil && !opened.BudgetUnknown {
		t.Error("set aside, and the budget is known")
	}
	u, err := j.Unfinished()
	must(t, err)
	if u != nil {
		must(t, j.Finish(h.Moment, u.ID, "failed", ""))
	}
	for range 3 {
		must(t, j.Record(h.run(20*day), Entry{Kind: KindCondition, Message: "after it"}))
		attempt(t, j, h.Moment, "bootstrap")
	}
	want := contents(t, j, h.Moment)
	must(t, j.Close())

	data = readFile(t, path)
	if _, damage, err := walk(data); err != nil || (damage != nil && !errors.Is(damage, errCorrupt)) {
		t.Errorf("in the end: got error %v, damage %v", err, damage)
	}
	j, opened, err = Open(path, h.Moment, Options{NoSync: true})
	must(t, err)
	defer func() { _ = j.Close() }()
	if opened.SetAside != nil || opened.New {
		t.Errorf("opened again: got %+v", opened)
	}
	if got := contents(t, j, h.Moment); got != want {
		t.Errorf("opened again: got %s\nwant %s", got, want)
	}
	if _, err := j.History(time.Time{}, time.Time{}, 0); err != nil {
		t.Error(err)
	}
}
