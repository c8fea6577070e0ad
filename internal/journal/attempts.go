package journal

import (
	"bytes"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// BudgetUnknownFor is how long the budget counts as used up after a journal was set aside or damaged.
	BudgetUnknownFor = 24 * time.Hour
	// MaxBudgetWindow is for how long attempts are remembered.
	MaxBudgetWindow = 7 * 24 * time.Hour
	// maxAttempts is how many attempts of one kind are kept, far more than any budget allows.
	maxAttempts = 100
	maxKind     = 100
)

// Attempt is one remedy that counts against a budget.
type Attempt struct {
	Version int `json:"v"`
	// Remedy is its id.
	Remedy uint64 `json:"remedy"`
	// At is when it was begun, as its caller saw it.
	At Moment `json:"at"`
	// Age is how long ago that was, as far as can be known: see [Journal.Attempts].
	Age time.Duration `json:"age,omitempty"`
}

type storedAttempt struct {
	Attempt
	Elapsed time.Duration `json:"elapsed"`
}

// unknownBudget is the record that attempts may have been forgotten.
type unknownBudget struct {
	Version int           `json:"v"`
	Elapsed time.Duration `json:"elapsed"`
	Reason  string        `json:"reason"`
}

// Attempts returns the attempts of a kind (Plan.Budget) that are younger than within, at most MaxBudgetWindow, oldest first.
//
// Age is a lower bound, and no clock that is wrong can make it more than true or keep it from growing. It is the time for which the host
// was seen to be up since then, by its uptime, which no setting of the clock moves. A start of the host adds its uptime from then on. The
// time before, back to when the journal last heard the time (its last change, or Tick), adds nothing, unless the clock was synchronized
// both then and now. So a record from a future that was none (the clock an hour ahead, then back) is as old as any other and frees
// nothing before its time. On a host whose clock is never synchronized a night switched off doesn't count. Without boot ids an hour
// between two changes or ticks is the most that counts.
func (j *Journal) Attempts(now Moment, kind string, within time.Duration) ([]Attempt, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var young []Attempt
	elapsed := j.tally.advance(now).Total
	err := j.view(func(t *txn) error {
		return t.eachAttempt(kind, func(_ []byte, a storedAttempt) error {
			a.Age = elapsed - a.Elapsed
			if a.Age < within {
				young = append(young, a.Attempt)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return young, nil
}

// BudgetUnknown returns for how long the budget still counts as used up because attempts may have been forgotten; 0 when it is known.
// It ages as Attempts do, and survives restarts of agent and host.
func (j *Journal) BudgetUnknown(now Moment) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.budgetUnknown(now)
}

func (j *Journal) budgetUnknown(now Moment) (left time.Duration) {
	if j.db == nil || j.doubt != nil {
		return BudgetUnknownFor
	}
	err := j.view(func(t *txn) error {
		u, ok, err := t.unknownBudget()
		if ok {
			left = max(u.Elapsed+BudgetUnknownFor-j.tally.advance(now).Total, 0)
		}
		return err
	})
	if err != nil {
		return BudgetUnknownFor
	}
	return left
}

func (t *txn) unknownBudget() (u unknownBudget, ok bool, err error) {
	ok, err = t.get(stateBucket, []byte(unknownKey), &u)
	return u, ok, err
}

// forgetBudget records that attempts may have been forgotten.
func (t *txn) forgetBudget(reason error) error {
	u := unknownBudget{Version: formatVersion, Elapsed: t.tally.Total, Reason: clip(reason.Error(), maxText)}
	if err := t.put(stateBucket, []byte(unknownKey), u); err != nil {
		return err
	}
	return t.append(made(t.tally.Last, t.tally, Entry{Kind: KindJournal, Reason: "BudgetUnknown",
		Message: "attempts may have been forgotten, so the budget counts as used up: " + reason.Error()}))
}

// countAttempt records an attempt that begins now.
func (t *txn) countAttempt(kind string, remedy uint64) error {
	a := storedAttempt{Attempt: Attempt{Version: formatVersion, Remedy: remedy, At: t.tally.Last}, Elapsed: t.tally.Total}
	if err := t.put(attemptBucket, append(kindPrefix(kind), numberKey(remedy)...), a); err != nil {
		return err
	}
	return t.pruneAttempts()
}

func checkKind(kind string) error {
	if len(kind) > maxKind || bytes.IndexByte([]byte(kind), 0) >= 0 {
		return fmt.Errorf("%.40q can't name a budget: it is too long, or not a text", kind)
	}
	return nil
}

func kindPrefix(kind string) []byte { return append([]byte(kind), 0) }

// eachAttempt visits the attempts of a kind, oldest first.
func (t *txn) eachAttempt(kind string, visit func(key []byte, a storedAttempt) error) error {
	c := t.cursor(attemptBucket)
	if c == nil {
		return nil
	}
	prefix := kindPrefix(kind)
	for key, value := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = c.Next() {
		var a storedAttempt
		if err := decode(attemptBucket, key, value, &a); err != nil {
			return err
		}
		if err := visit(key, a); err != nil {
			return err
		}
	}
	return nil
}

// pruneAttempts removes what no budget asks for any more, and the record that the budget is not known once that is over.
func (t *txn) pruneAttempts() error {
	u, ok, err := t.unknownBudget()
	if err != nil {
		return err
	}
	if ok && t.tally.Total-u.Elapsed >= BudgetUnknownFor {
		if err := t.remove(stateBucket, []byte(unknownKey)); err != nil {
			return err
		}
	}
	b := t.Bucket([]byte(attemptBucket))
	if b == nil {
		return nil
	}
	old, err := t.oldAttempts(b.Cursor())
	if err != nil {
		return err
	}
	for _, key := range old {
		if err := b.Delete(key); err != nil {
			return err
		}
	}
	return nil
}

// oldAttempts goes from the last key back, so that the newest of each kind come first.
func (t *txn) oldAttempts(c *bbolt.Cursor) (keys [][]byte, err error) {
	var kind []byte
	kept := 0
	for key, value := c.Last(); key != nil; key, value = c.Prev() {
		var a storedAttempt
		if err := decode(attemptBucket, key, value, &a); err != nil {
			return nil, err
		}
		if its := key[:max(len(key)-8, 0)]; !bytes.Equal(its, kind) {
			kind, kept = bytes.Clone(its), 0
		}
		if kept++; kept > maxAttempts || t.tally.Total-a.Elapsed >= MaxBudgetWindow {
			keys = append(keys, bytes.Clone(key))
		}
	}
	return keys, nil
}
