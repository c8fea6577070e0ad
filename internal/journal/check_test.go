package journal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// walk reads a file as checkFile does and returns a sum of all its values.
func walk(data []byte) (values uint32, damage, err error) {
	sum := crc32.NewIEEE()
	damage, err = checkFile(bytes.NewReader(data), int64(len(data)), func(bucket, key, value []byte) error {
		_, err := unseal(bucket, key, value)
		for _, part := range [][]byte{bucket, {0}, key, {0}, value, {0}} {
			_, _ = sum.Write(part)
		}
		return err
	})
	return sum.Sum32(), damage, err
}

// filled returns the bytes of a journal with one of everything, and a sum of all its values.
func filled(t testing.TB) (data []byte, values uint32) {
	t.Helper()
	path, h := newPath(t), newHost()
	j := openSound(t, path, h.Moment)
	fill(t, j, h.Moment)
	must(t, j.Close())
	data = readFile(t, path)
	values, damage, err := walk(data)
	if err != nil || damage != nil {
		t.Fatalf("a sound journal: got error %v and damage %v", err, damage)
	}
	return data, values
}

// pagesRead notes which pages are looked at.
type pagesRead struct {
	*bytes.Reader
	pages map[int]bool
}

func (r pagesRead) ReadAt(p []byte, at int64) (int, error) {
	for i := range (len(p) + pageSize - 1) / pageSize {
		r.pages[int(at)/pageSize+i] = true
	}
	return r.Reader.ReadAt(p, at)
}

func TestNoWrongByteGoesUnnoticed(t *testing.T) {
	data, want := filled(t)
	read := pagesRead{bytes.NewReader(data), map[int]bool{}}
	if _, err := checkFile(read, int64(len(data)), func(_, _, _ []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	noticed, damaged := 0, 0
	for at := range data {
		if !read.pages[at/pageSize] {
			continue // a free page: nobody reads it
		}
		flip := byte(1) << (at % 8)
		data[at] ^= flip
		got, damage, err := walk(data)
		switch {
		case err != nil:
			noticed++
			if !errors.Is(err, errCorrupt) {
				t.Errorf("byte %d flipped by %#x: got error %v, want one that is %v", at, flip, err, errCorrupt)
			}
		case damage != nil:
			damaged++
		case got != want:
			t.Errorf("byte %d (page %d, offset %d) flipped by %#x: nothing is noticed, and the content differs", at, at/pageSize, at%pageSize, flip)
		}
		data[at] ^= flip
	}
	t.Logf("of %d flips %d were noticed, %d more as damage to a meta page; the others changed nothing", len(read.pages)*pageSize, noticed, damaged)
	if noticed == 0 || damaged == 0 {
		t.Errorf("got %d flips noticed and %d damaged, want some of each", noticed, damaged)
	}
}

func TestNoCutGoesUnnoticed(t *testing.T) {
	data, want := filled(t)
	for size := 0; size < len(data); size += 1 + size%53 {
		got, _, err := walk(data[:size])
		if err == nil && got != want {
			t.Fatalf("cut at byte %d: nothing is noticed", size)
		}
	}
}

// What checkFile lets pass, bbolt's own check must find sound; and it must let pass whatever bbolt makes.
func TestAgreesWithBbolt(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			path := newPath(t)
			db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: pageSize, NoSync: true})
			must(t, err)
			defer func() { _ = db.Close() }()
			for range 60 {
				must(t, db.Update(func(tx *bbolt.Tx) error { return disturb(&txn{Tx: tx}, random) }))
				_, damage, err := walk(readFile(t, path))
				if err != nil || damage != nil {
					t.Fatalf("got error %v and damage %v for what bbolt wrote", err, damage)
				}
			}
			must(t, db.View(func(tx *bbolt.Tx) error {
				for err := range tx.Check() {
					t.Errorf("bbolt finds: %v", err)
				}
				return nil
			}))
		})
	}
}

// disturb changes many values at random: small, large, new, gone.
func disturb(t *txn, random *rand.Rand) error {
	for range random.IntN(80) {
		bucket := []string{"state", "remedies", "attempts", "history"}[random.IntN(4)]
		key := numberKey(random.Uint64N(400))
		if random.IntN(3) == 0 {
			if err := t.remove(bucket, key); err != nil {
				return err
			}
			continue
		}
		size := random.IntN(100)
		if random.IntN(10) == 0 {
			size = random.IntN(30_000)
		}
		if err := t.put(bucket, key, string(bytes.Repeat([]byte{'x'}, size))); err != nil {
			return err
		}
	}
	if random.IntN(10) > 0 {
		return nil
	}
	for key := t.firstKey("history"); key != nil; key = t.firstKey("history") {
		if err := t.remove("history", key); err != nil {
			return err
		}
	}
	return nil
}

// Changes that fail leave nothing behind in the file, and the ones after them find their pages.
func TestAgreesWithBboltAfterFailures(t *testing.T) {
	dir := mountTmpfs(t, "16m")
	path, h := filepath.Join(dir, "journal.db"), newHost()
	random := rand.New(rand.NewPCG(7, 7))
	j := openSound(t, path, h.Moment)
	failed := 0
	for range 300 {
		free := func() {}
		if random.IntN(3) == 0 {
			free = fillUp(t, dir)
		}
		err := j.update(h.Moment, "changes", func(t *txn) error { return disturb(t, random) })
		free()
		if err == nil {
			continue
		}
		failed++
		if _, damage, err := walk(readFile(t, path)); err != nil || damage != nil {
			t.Fatalf("after a failure: got error %v and damage %v", err, damage)
		}
	}
	if failed < 10 {
		t.Errorf("got %d failures in 300 changes, want more", failed)
	}
	must(t, j.update(h.Moment, "the end", nothing))
	reopen(t, j, h.Moment)
	t.Logf("%d of 300 changes failed", failed)
}

func TestTheLargestValuesPass(t *testing.T) {
	path, h := newPath(t), newHost()
	j := openSound(t, path, h.Moment)
	must(t, j.update(h.Moment, "large values", func(t *txn) error {
		for i := range uint64(20) {
			if err := t.put("large", numberKey(i), string(bytes.Repeat([]byte{'x'}, maxValue-100))); err != nil {
				return err
			}
		}
		return nil
	}))
	if err := j.update(h.Moment, "a value", func(t *txn) error { return t.put("large", numberKey(1), string(make([]byte, maxValue))) }); err == nil {
		t.Error("a value that is too large: got no error")
	}
	reopen(t, j, h.Moment)
}

func TestBrokenStructures(t *testing.T) {
	data, _ := filled(t)
	newest := 0
	if order.Uint64(data[pageSize+headerSize+48:]) > order.Uint64(data[headerSize+48:]) {
		newest = 1
	}
	at := newest*pageSize + headerSize // of the meta that counts
	root := func(d []byte) []byte { return d[order.Uint64(d[at+16:])*pageSize:] }
	free := func(d []byte) []byte { return d[order.Uint64(d[at+32:])*pageSize:] }

	tests := map[string]func(d []byte){
		"given a tree that refers to itself": func(d []byte) {
			r := root(d)
			order.PutUint16(r[8:], branchPage)
			for i := range int(order.Uint16(r[10:])) {
				e := r[headerSize+i*elementSize:]
				pos, key := order.Uint32(e[4:]), order.Uint32(e[8:])
				order.PutUint32(e, pos)
				order.PutUint32(e[4:], key)
				order.PutUint64(e[8:], order.Uint64(d[at+16:]))
			}
		},
		"given a free list that claims more than there is": func(d []byte) { order.PutUint16(free(d)[10:], 0xffff) },
		"given a free list that also holds the root":       func(d []byte) { addFree(free(d), order.Uint64(d[at+16:])) },
		"given a free list that also holds itself":         func(d []byte) { addFree(free(d), order.Uint64(d[at+32:])) },
		"given a free list that also holds a meta page":    func(d []byte) { addFree(free(d), 1) },
		"given a free list that also holds what is beyond": func(d []byte) { addFree(free(d), order.Uint64(d[at+40:])) },
		"given a branch that does not lead to its first key": func(d []byte) {
			for page := range len(d) / pageSize {
				if p := d[page*pageSize:]; order.Uint16(p[8:]) == branchPage { // also free ones, which does no harm
					p[headerSize+int(order.Uint16(p[10:]))*elementSize+7]++ // the last byte of its first key, a number
				}
			}
		},
		"given a page that claims the whole file": func(d []byte) { order.PutUint32(root(d)[12:], 0xffffffff) },
		"given a page with more entries than fit": func(d []byte) { order.PutUint16(root(d)[10:], 0xffff) },
		"given an entry of 4 GiB":                 func(d []byte) { order.PutUint32(root(d)[headerSize+12:], 0xffffffff) },
		"given a root beyond the end":             func(d []byte) { order.PutUint64(d[at+16:], 1<<40) },
		"given more pages than the file has":      func(d []byte) { order.PutUint64(d[at+40:], 1<<40) },
		"given no free list":                      func(d []byte) { order.PutUint64(d[at+32:], ^uint64(0)) },
		"given pages of another size":             func(d []byte) { order.PutUint32(d[at+8:], 1024) },
		"given the last transaction there can be": func(d []byte) { order.PutUint64(d[at+48:], ^uint64(0)) },
		"given another version of bbolt":          func(d []byte) { order.PutUint32(d[at+4:], 3) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			broken := bytes.Clone(data)
			change(broken)
			// The other meta page gives no way out, and the checksum is right.
			seal(broken[newest*pageSize:])
			clear(broken[(1-newest)*pageSize : (2-newest)*pageSize])
			if _, _, err := walk(broken); !errors.Is(err, errCorrupt) {
				t.Errorf("got error %v, want one that is %v", err, errCorrupt)
			}
		})
	}
}

// Only one of the two meta pages says something impossible, and bbolt would believe it.
func TestOneImpossibleMetaPage(t *testing.T) {
	tests := map[string]func(meta []byte){
		"pages of another size":             func(m []byte) { order.PutUint32(m[8:], 4144) },
		"the transaction of the other page": func(m []byte) { order.PutUint64(m[48:], order.Uint64(m[48:])+1) },
		"the last transaction there can be": func(m []byte) { order.PutUint64(m[48:], order.Uint64(m[48:])|1<<63) },
	}
	for name, change := range tests {
		for page := range 2 {
			data, _ := filled(t)
			change(data[page*pageSize+headerSize:])
			seal(data[page*pageSize:])
			if _, _, err := walk(data); !errors.Is(err, errCorrupt) {
				t.Errorf("meta page %d with %s: got error %v, want one that is %v", page, name, err, errCorrupt)
			}
		}
	}
}

func addFree(list []byte, id uint64) {
	count := order.Uint16(list[10:])
	order.PutUint16(list[10:], count+1)
	order.PutUint64(list[headerSize+int(count)*8:], id)
}

// seal gives a meta page its right checksum.
func seal(page []byte) {
	sum := fnv.New64a()
	_, _ = sum.Write(page[headerSize : headerSize+metaSize-8])
	order.PutUint64(page[headerSize+metaSize-8:], sum.Sum64())
}

func TestAMetaPageInHidingIsNotFound(t *testing.T) {
	data, _ := filled(t)
	copy(data[1024:], data[:headerSize+metaSize]) // where bbolt looks when page 0 is broken
	data[headerSize]++
	if _, _, err := walk(data); !errors.Is(err, errCorrupt) {
		t.Errorf("got error %v, want one that is %v", err, errCorrupt)
	}
}

func TestABrokenMetaPageIsDamage(t *testing.T) {
	for page := range 2 {
		path, h := newPath(t), newHost()
		j := openSound(t, path, h.Moment)
		fill(t, j, h.Moment)
		before := contents(t, j, h.Moment)
		must(t, j.Resume(h.Moment, "root"))
		must(t, j.Close())
		data := readFile(t, path)
		data[page*pageSize+headerSize+metaSize-1]++
		writeFile(t, path, data)

		j, opened := open(t, path, h.Moment)
		if opened.Damage == nil || opened.SetAside != nil || !opened.BudgetUnknown || opened.ReadOnly != nil {
			t.Errorf("meta page %d broken: got %+v, want damage and an unknown budget", page, opened)
		}
		p, err := j.Paused(h.Moment)
		must(t, err)
		if u, err := j.Unfinished(); u == nil || err != nil {
			t.Errorf("meta page %d broken: got remedy %v and error %v, want the one in progress", page, u, err)
		}
		t.Logf("meta page %d broken: paused %v (before the last change: %v)", page, p != nil, len(before) > 0)
		must(t, j.Close())
		j, opened = open(t, path, h.run(time.Hour))
		if want := (Opened{BudgetUnknown: true}); opened != want {
			t.Errorf("opened again: got %+v, want %+v", opened, want)
		}
		if got := j.BudgetUnknown(h.Moment); got != 23*time.Hour {
			t.Errorf("opened again: got a budget unknown for %v, want 23h", got)
		}
	}
}
