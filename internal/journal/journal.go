// Package journal is the crash-safe record of what the agent did, wants to do and has seen change: remedies and how far they got, the
// attempts that count against a budget, every transition of a condition and every decision, and whether people have paused the agent. It
// is what lets an agent that was killed, or whose host crashed, go on where it was, and never try more often than it may.
//
// It is one bbolt file. A call that returned nil is on the disk: bbolt writes changed pages beside the old ones, has them flushed
// (fdatasync), then writes and flushes one of two alternating meta pages that make them count. This assumes that a flush reaches the
// medium and that a sector of 512 bytes is written whole or not at all; a new journal is flushed before it takes its name, and its folder
// after. After a crash at any point the journal is as it was before or after the change in progress. A call takes as long as the disk
// does: whoever must not wait for a hanging disk makes calls from a goroutine that may.
//
// No file can make it crash or hang: every one is read through with care before bbolt may open it. A journal that can't be used is set
// aside and a new one begun; then nobody knows how much of the budget was used, and the new journal says so for 24 hours. One that is
// removed or replaced while it is open is put back as it was, with the next change, Tick or Close: only a process that is killed before loses
// it. Where nothing can be written the journal still answers, and refuses to begin a remedy: the agent then only observes.
//
// It has no clock: callers say what time it is (see [Moment]). It judges nothing, and what it is given must be free of secrets.
package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"
)

var (
	// ErrLocked says that another process has the journal open.
	ErrLocked = errors.New("the journal is in use")
	// ErrReadOnly says that nothing can be recorded; the error that wraps it tells why.
	ErrReadOnly = errors.New("the journal can't be written")
	// ErrInProgress says that a remedy was begun and is not finished.
	ErrInProgress = errors.New("a remedy is in progress")
	// ErrNotInProgress says that the remedy that was named is finished, or never was begun.
	ErrNotInProgress = errors.New("this remedy is not in progress")
)

// Options of a journal. The zero value is an agent's.
type Options struct {
	// ReadOnly opens a journal to look at it, beside others who do so too, when no agent runs. Nothing is changed, set aside or created.
	ReadOnly bool
	// NoSync leaves flushing to the operating system: for simulations only.
	NoSync bool
}

// Opened tells what became of the journal when it was opened. The zero value means that all is well.
type Opened struct {
	// New: there was no journal, so one was begun.
	New bool
	// SetAside says why the journal that was there can't be used, and where it was put. A new one was begun.
	SetAside error
	// Damage says what is broken in a journal that is used nevertheless. Its last change may be missing.
	Damage error
	// BudgetUnknown: attempts may have been forgotten, or can't be read; the budget counts as used up (see [Journal.BudgetUnknown]).
	BudgetUnknown bool
	// ReadOnly says why nothing can be recorded (it wraps ErrReadOnly); nil when something can.
	ReadOnly error
}

// Journal is an open journal. Its methods may be called from several goroutines, which then wait for each other.
type Journal struct {
	path string
	opts Options

	mu     sync.Mutex
	closed bool
	db     *bbolt.DB // nil when there is none, and writeErr says why
	file   *os.File  // db's
	// writeErr says why nothing can be recorded; nil when the last attempt succeeded.
	writeErr error
	tally    tally // as it was last recorded
	// pending holds entries of the history that could not be recorded yet, dropped how many more there were.
	pending []storedEntry
	dropped int
	// doubt is why the budget is not known, until that is recorded.
	doubt error
	// lost is why a journal that was open had to be let go of. If it is not found again, it becomes the doubt.
	lost error
	// theirs is a pause from a journal that was put in the place of this one, until it is recorded.
	theirs *Pause
	heard  Moment // the last one that was told
	// unborn is a remedy whose beginning failed but may be in the file all the same. Its caller was told that it did not begin.
	unborn uint64
}

// Open opens the journal at path and begins one if there is none. It waits for another process to let go of it for up to 1 s.
//
// Errors are few, because an agent without a journal must still observe: ErrLocked, and with Options.ReadOnly whatever keeps the journal
// from being read (fs.ErrNotExist when there is none). All else is told in Opened, and the journal does what it still can: one that can be
// read but not written answers questions; one that can't even be read knows only the entries that it is given from now on.
func Open(path string, now Moment, o Options) (*Journal, Opened, error) {
	if path == "" {
		return nil, Opened{}, errors.New("open the journal: no path was given")
	}
	j := &Journal{path: filepath.Clean(path), opts: o}
	if o.ReadOnly {
		if err := j.openToRead(); err != nil {
			return nil, Opened{}, fmt.Errorf("open journal %s to read it: %w%s", path, err, advice(err))
		}
		return j, Opened{BudgetUnknown: j.budgetUnknown(now) > 0}, nil
	}
	opened, err := j.open(now)
	if err != nil {
		return nil, Opened{}, fmt.Errorf("open journal %s: %w", path, err)
	}
	return j, opened, nil
}

// Close lets go of the journal, and puts it back first if it was removed or replaced. Closing it again does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if j.displaced() {
		err = j.update(j.heard, "the end", nothing)
	}
	j.closed = true
	return errors.Join(err, j.letGo())
}

// Tick is to be called about once a minute. It lets budgets age while nothing else is written (with one write in ten minutes, and none
// when there is nothing to age), puts back a journal that was removed or replaced, and tries again what failed: it writes what could not be
// written, and opens anew a journal that could not be opened, could only be read, or broke. Opened is not zero only when it did the latter;
// then look for an unfinished remedy as at start. The error is why nothing can be recorded now, and wraps ErrReadOnly.
func (j *Journal) Tick(now Moment) (Opened, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.heard = now
	switch {
	case j.closed || j.opts.ReadOnly:
		return Opened{}, j.refusal()
	case j.displaced(): // also one that could only be read: to open it anew would be to begin one
	case j.db == nil || j.db.IsReadOnly():
		return j.reopen(now)
	case j.writeErr == nil && len(j.pending) == 0 && !j.mustTick(now):
		return Opened{}, nil
	}
	return Opened{}, j.update(now, "the time", (*txn).pruneAttempts)
}

// Err says why nothing could be recorded at the last try, or nil. It wraps ErrReadOnly.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.refusal()
}

func (j *Journal) refusal() error {
	if j.closed {
		return fmt.Errorf("%w: it is closed", ErrReadOnly)
	}
	return j.writeErr
}

func (j *Journal) mustTick(now Moment) bool {
	if j.tally.advance(now).Total-j.tally.Total < tickStep {
		return false
	}
	ages := false
	err := j.view(func(t *txn) error {
		_, unknown, err := t.unknownBudget()
		ages = unknown || t.firstKey(attemptBucket) != nil
		return err
	})
	return ages || err != nil
}

func (j *Journal) reopen(now Moment) (Opened, error) {
	_ = j.letGo() // it was read only, if open at all: nothing is lost
	opened, err := j.open(now)
	if err != nil { // another process has it now
		j.writeErr = j.cannotWrite(err)
		return Opened{}, j.writeErr
	}
	return opened, opened.ReadOnly
}

// view reads. The caller holds mu.
func (j *Journal) view(read func(*txn) error) error {
	switch {
	case j.closed:
		return errors.New("read the journal: it is closed")
	case j.db == nil:
		return fmt.Errorf("read journal %s: %w", j.path, j.writeErr)
	}
	err := guarded(func() error {
		return j.db.View(func(tx *bbolt.Tx) error { return read(&txn{Tx: tx}) })
	})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("read journal %s: %w", j.path, err)
	if j.gone(err) {
		j.writeErr = fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

// update makes one change, for good or not at all, with all that waits to be recorded and the time. what names it in errors. An error of
// change itself is returned as it is and says nothing about the journal. The caller holds mu.
func (j *Journal) update(now Moment, what string, change func(*txn) error) error {
	if err := j.stay(now); err != nil {
		_ = j.gone(err)
		j.writeErr = j.cannotWrite(fmt.Errorf("record %s: %w", what, err))
		return j.writeErr
	}
	return j.write(now, what, change)
}

// write is update wherever the file lies.
func (j *Journal) write(now Moment, what string, change func(*txn) error) error {
	j.heard = now
	if j.closed || j.db == nil || j.db.IsReadOnly() {
		return j.refusal()
	}
	at := j.tally.advance(now)
	var refused error
	err := guarded(func() error {
		return j.db.Update(func(tx *bbolt.Tx) error {
			t := &txn{Tx: tx, tally: at}
			if err := j.catchUp(t); err != nil {
				return err
			}
			refused = change(t)
			return refused
		})
	})
	switch {
	case err == nil:
		j.tally, j.pending, j.dropped, j.doubt, j.theirs, j.writeErr = at, nil, 0, nil, nil, nil
		return nil
	case !j.gone(err) && refused != nil:
		return refused
	}
	j.writeErr = j.cannotWrite(fmt.Errorf("record %s: %w", what, err))
	return j.writeErr
}

// catchUp records what every change brings along.
func (j *Journal) catchUp(t *txn) error {
	if err := t.flush(j.pending, j.dropped); err != nil {
		return err
	}
	if j.doubt != nil {
		if err := t.forgetBudget(j.doubt); err != nil {
			return err
		}
	}
	if j.theirs != nil {
		if err := t.pauseLonger(*j.theirs); err != nil {
			return err
		}
	}
	return t.put(stateBucket, []byte(tallyKey), t.tally)
}

// gone lets go of a database that an error says can't be used any more, and reports whether it did. Tick then opens it anew, and sets it
// aside if need be. The caller holds mu.
func (j *Journal) gone(err error) bool {
	switch {
	case isBroken(err):
		j.abandon()
	case errors.Is(err, errCorrupt):
		_ = j.letGo() // there is nothing left to lose
	default:
		return false
	}
	j.lost = err
	return true
}
