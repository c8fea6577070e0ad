package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/bbolt"
)

// open opens the journal for an agent. The caller holds mu or has j for itself.
func (j *Journal) open(now Moment) (Opened, error) {
	j.unborn = 0 // whether it was born is seen now
	opened, err := j.take(now)
	switch {
	case errors.Is(err, ErrLocked):
		return Opened{}, err
	case err != nil:
		j.writeErr = j.cannotWrite(err)
		return Opened{SetAside: opened.SetAside, BudgetUnknown: true, ReadOnly: j.writeErr}, nil
	}
	opened.BudgetUnknown = j.budgetUnknown(now) > 0
	opened.ReadOnly = j.writeErr
	return opened, nil
}

func (j *Journal) cannotWrite(err error) error {
	return fmt.Errorf("%w: %s: %w%s", ErrReadOnly, j.path, err, advice(err))
}

// take leaves j with a database, or returns why there is none.
func (j *Journal) take(now Moment) (Opened, error) {
	folder, err := lockFolder(filepath.Dir(j.path), j.opts.NoSync)
	if err != nil {
		return Opened{}, err
	}
	defer func() { _ = folder.Close() }()
	if err := adopt(j.path, j.opts.NoSync); err != nil {
		return Opened{}, err
	}
	f, err := find(j.path, false)
	switch {
	case err == nil:
		return j.use(f, now)
	case errors.Is(err, fs.ErrNotExist):
		if j.lost != nil {
			j.doubt = j.lost
		}
		_, err := j.begin(now, nil)
		return Opened{New: true}, err
	case unusable(err):
		aside, beginErr := j.begin(now, err)
		err = fmt.Errorf("the journal that was at %s can't be used: %w", j.path, err)
		if aside != "" {
			err = fmt.Errorf("%w; it is now %s", err, aside)
		}
		return Opened{SetAside: err}, beginErr
	}
	return Opened{}, err
}

// use opens a journal that was found. That it can be written is tried at once.
func (j *Journal) use(f found, now Moment) (Opened, error) {
	writable := f.readOnly == nil
	if err := j.openDB(f.file, !writable); err != nil {
		return Opened{}, err
	}
	if f.damage != nil {
		j.doubt = f.damage
	}
	if !writable {
		j.writeErr = j.cannotWrite(f.readOnly)
		return Opened{Damage: f.damage}, nil
	}
	err := j.write(now, "the start", nothing)
	if j.db != nil {
		err = nil // what failed is in writeErr, and Tick tries again
	}
	return Opened{Damage: f.damage}, err
}

func nothing(*txn) error { return nil }

// begin makes a new journal and puts it in its place. If something lies there already, instead says why it is no good: it is set aside, and
// the new journal knows that it does not know the budget. A crash leaves the old journal, or the new one in its place, or none but the new
// one under its other name, which adopt then finds.
func (j *Journal) begin(now Moment, instead error) (aside string, err error) {
	next := j.path + nextSuffix
	file, err := create(next, j.path)
	if err != nil {
		return "", err
	}
	if err := j.openDB(file, false); err != nil {
		_ = os.Remove(next)
		return "", err
	}
	if instead != nil {
		j.doubt = instead
	}
	err = j.write(now, "the beginning", func(t *txn) error {
		return t.put(stateBucket, []byte(formatKey), format{Version: formatVersion, ReadableBy: formatVersion})
	})
	if err == nil {
		err = syncFolder(filepath.Dir(next), j.opts.NoSync)
	}
	if err == nil && instead != nil {
		aside, err = setAside(j.path, now.Wall)
	}
	if err == nil {
		err = replace(next, j.path, j.opts.NoSync)
	} else {
		_ = os.Remove(next)
	}
	if err != nil {
		_ = j.letGo()
	}
	return aside, err
}

// create makes a file that will be known by another name, which errors already tell.
func create(path, name string) (*os.File, error) {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, journalMode)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (j *Journal) openToRead() error {
	f, err := find(j.path, true)
	if err != nil {
		return err
	}
	if err := j.openDB(f.file, true); err != nil {
		return err
	}
	j.doubt = f.damage
	j.writeErr = j.cannotWrite(errors.New("it was opened for reading"))
	return nil
}

// openDB hands a file to bbolt that was checked or is new. On an error the file is closed.
func (j *Journal) openDB(file *os.File, readOnly bool) error {
	var db *bbolt.DB
	err := guarded(func() (err error) {
		db, err = bbolt.Open(file.Name(), journalMode, &bbolt.Options{
			OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return file, nil },
			Timeout:      lockWait, // it never waits, since this file is locked already
			ReadOnly:     readOnly,
			PageSize:     pageSize,
			MaxSize:      maxFile,
			NoSync:       j.opts.NoSync,
			NoStatistics: true,
		})
		return err
	})
	if err != nil {
		release(file)
		return err
	}
	j.db, j.file, j.tally = db, file, tally{}
	err = j.view(func(t *txn) error {
		_, err := t.get(stateBucket, []byte(tallyKey), &j.tally)
		return err
	})
	if err != nil {
		_ = j.letGo()
	}
	return err
}

// letGo closes the database. The caller holds mu.
func (j *Journal) letGo() error {
	if j.db == nil {
		return nil
	}
	err := guarded(j.db.Close)
	if isBroken(err) {
		release(j.file)
	}
	j.db, j.file = nil, nil
	return err
}

// abandon lets go of a database that broke. bbolt itself may hang when it is asked to, so its file is closed under it; what it has mapped
// stays mapped. The caller holds mu.
func (j *Journal) abandon() {
	release(j.file)
	j.db, j.file = nil, nil
}

// release closes a file that may be mapped: closing alone would not unlock it then. That it is closed already does no harm.
func release(file *os.File) {
	if raw, err := file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Flock(int(fd), syscall.LOCK_UN) })
	}
	_ = file.Close()
}
