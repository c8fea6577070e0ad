package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A journal that was removed lives for as long as it is open, and no longer: what an agent goes on recording there is lost at its end. So
// whether the path still leads to it is seen before every change, at every tick and at the end, and a copy is put there when it doesn't.

// displaced reports whether the path leads to something else than the open journal, or to nothing.
func (j *Journal) displaced() bool {
	if j.db == nil || j.opts.ReadOnly {
		return false
	}
	is, err := j.file.Stat()
	if err != nil {
		return true
	}
	named, err := os.Lstat(j.path)
	return err != nil || !os.SameFile(is, named)
}

// stay puts the journal back in its place if it is not there. An error says why it still is not; what is open can be read then. The caller
// holds mu.
func (j *Journal) stay(now Moment) error {
	if !j.displaced() {
		return nil
	}
	if err := j.putBack(now); err != nil {
		return fmt.Errorf("put back the journal, which was removed or replaced while it was in use: %w", err)
	}
	return nil
}

// putBack leaves j with a copy of its database, in its place. What lies there is set aside: an agent may have recorded attempts in it, so
// the budget is not known then. A crash leaves what lay there, or nothing but the copy under its other name, which adopt then finds, or the
// copy in its place.
func (j *Journal) putBack(now Moment) error {
	folder, err := lockFolder(filepath.Dir(j.path), j.opts.NoSync)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	other, err := find(j.path, false)
	replaced := !errors.Is(err, fs.ErrNotExist)
	if err != nil && replaced && !unusable(err) { // as while another process has it open
		return err
	}
	var theirs *Pause
	if err == nil {
		defer func() { _ = other.file.Close() }() // its lock keeps others out until it is set aside
		theirs = pauseIn(other, now)
	}
	_ = os.Remove(j.path + nextSuffix) // from a crash: whoever makes one holds the folder
	file, damage, err := j.copyOut(j.path + nextSuffix)
	if err != nil {
		return err
	}
	what := "the journal was removed while it was in use; what it held was put back"
	if replaced {
		aside, err := setAside(j.path, now.Wall)
		if err != nil {
			discard(file, j.path+nextSuffix)
			return err
		}
		j.doubt, j.theirs = fmt.Errorf("something else was put in the place of the journal while that was in use; it is now %s", aside), theirs
		what = "the journal was replaced while it was in use; what it held was put back, and what lay there is now " + aside
	}
	if err := os.Rename(j.path+nextSuffix, j.path); err != nil {
		discard(file, j.path+nextSuffix)
		return err
	}
	if damage != nil {
		j.doubt = damage
	}
	j.pending = append(j.pending, made(now, j.tally.advance(now), Entry{Kind: KindJournal, Reason: "PutBack", Message: what}))
	_ = j.letGo() // the copy has it all
	if err = j.openDB(file, false); err == nil {
		err = syncFolder(filepath.Dir(j.path), j.opts.NoSync)
	}
	if err != nil {
		_ = j.letGo() // Tick opens it anew
		j.lost = err
	}
	return err
}

// pauseIn returns the pause that holds now in a journal that was found in the place of another, or nil: a command that found no agent may
// have promised it.
func pauseIn(f found, now Moment) *Pause {
	info, err := f.file.Stat()
	if err != nil {
		return nil
	}
	var p *Pause
	_, err = checkFile(f.file, info.Size(), func(bucket, key, value []byte) error {
		if string(bucket) != stateBucket || string(key) != pauseKey {
			return nil
		}
		p = &Pause{}
		return decode(stateBucket, key, value, p)
	})
	if err != nil || p == nil || p.over(now) {
		return nil
	}
	return p
}

// copyOut copies the open journal to a new file, which is flushed, locked and checked. The caller holds mu, so that no change is under way.
func (j *Journal) copyOut(path string) (file *os.File, damage, err error) {
	is, err := j.file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if file, err = create(path, j.path); err != nil {
		return nil, nil, err
	}
	if err = lock(file, syscall.LOCK_EX); err == nil {
		_, err = io.Copy(file, io.NewSectionReader(j.file, 0, is.Size()))
	}
	if err == nil && !j.opts.NoSync {
		err = file.Sync()
	}
	if err == nil {
		damage, err = checkContent(file, is.Size())
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path), j.opts.NoSync)
	}
	if err != nil {
		discard(file, path)
		return nil, nil, err
	}
	return file, damage, nil
}

func discard(file *os.File, path string) {
	release(file)
	_ = os.Remove(path)
}
