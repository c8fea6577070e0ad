package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// maxHistory and maxHistoryAge bound the history: whichever is reached first.
	maxHistory    = 10_000
	maxHistoryAge = 30 * 24 * time.Hour
	// maxPruned bounds the work of one write after a long time without.
	maxPruned = 200
	// maxPending is how many entries wait in memory while nothing can be recorded.
	maxPending = 1_000

	maxText = 1 << 10
	maxWord = 200
	maxData = 4 << 10
)

// The kinds of entries that the journal itself makes. Callers use these and others.
const (
	KindCondition = "condition" // Subject is the condition's type, From and To are its status
	KindDecision  = "decision"  // From and To are actions
	KindRemedy    = "remedy"    // Subject is the remedy's name, To "begun" or its outcome
	KindPause     = "pause"     // To is "paused", "resumed", or "ended" for one that ended by itself
	KindJournal   = "journal"   // something happened to the journal itself
)

// Entry is one line of the history: something changed. A message longer than 1 KiB is cut, other texts at 200 bytes, and Data of more than
// 4 KiB is replaced by a text that says so.
type Entry struct {
	// Version and Sequence are given by the journal. Sequence grows by one from entry to entry; it tells the order in which things
	// happened also where the clock was put back in between. It is 0 while the entry could not be recorded.
	Version  int    `json:"v"`
	Sequence uint64 `json:"seq,omitempty"`
	// At is the wall clock's time; zero becomes that of the moment at which it is recorded.
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Subject string    `json:"subject,omitempty"`
	From    string    `json:"from,omitempty"`
	To      string    `json:"to,omitempty"`
	Reason  string    `json:"reason,omitempty"`  // CamelCase, for programs
	Message string    `json:"message,omitempty"` // for people
	// Data is whatever else belongs to it, as JSON; nil for nothing.
	Data json.RawMessage `json:"data,omitempty"`
}

// storedEntry is an entry with the journal's own time, by which it ages: a clock that jumps a year ahead must not wipe the history.
type storedEntry struct {
	Entry
	Elapsed time.Duration `json:"elapsed"`
}

// Record adds entries to the history, all or none. With an error that is ErrReadOnly they are kept in memory (the last 1,000), and
// recorded with the next change that succeeds.
func (j *Journal) Record(now Moment, entries ...Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	at := j.tally.advance(now)
	for _, e := range entries {
		j.pending = append(j.pending, made(now, at, e))
	}
	if surplus := len(j.pending) - maxPending; surplus > 0 {
		j.pending = slices.Delete(j.pending, 0, surplus)
		j.dropped += surplus
	}
	return j.update(now, "the history", nothing)
}

// made prepares an entry for the journal.
func made(now Moment, at tally, e Entry) storedEntry {
	e.Version, e.Sequence = formatVersion, 0
	if e.At.IsZero() {
		e.At = now.Wall
	}
	e.At = e.At.UTC().Round(0)
	for _, word := range []*string{&e.Kind, &e.Subject, &e.From, &e.To, &e.Reason} {
		*word = clip(*word, maxWord)
	}
	e.Message = clip(e.Message, maxText)
	e.Data = clipJSON(e.Data, maxData)
	return storedEntry{Entry: e, Elapsed: at.Total}
}

// clip keeps the end of a text, where errors stand. What is no text (terminals' control codes, broken UTF-8) becomes a question mark: it
// would be a danger to terminals, and take six bytes for one as JSON.
func clip(text string, limit int) string {
	const mark = "…"
	cut := len(text) > limit
	if cut {
		text = text[len(text)-limit+len(mark):]
		for text != "" && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
	}
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || (unicode.IsControl(r) && r != '\n' && r != '\t') {
			return '?'
		}
		return r
	}, text)
	if cut {
		return mark + text
	}
	return text
}

func clipJSON(data json.RawMessage, limit int) json.RawMessage {
	switch {
	case len(data) == 0:
		return nil
	case len(data) > limit:
		return json.RawMessage(fmt.Sprintf(`"left out: %d bytes are too many"`, len(data)))
	case !json.Valid(data):
		return json.RawMessage(`"left out: it was no JSON"`)
	}
	return data
}

// flush records entries, and that some were dropped before them, and prunes what is too old or too much.
func (t *txn) flush(entries []storedEntry, dropped int) error {
	if dropped > 0 {
		lost := entries[0]
		lost.Entry = Entry{Version: formatVersion, At: lost.At, Kind: KindJournal, Reason: "EntriesLost",
			Message: fmt.Sprintf("%d entries before this one were lost, since the journal could not be written", dropped)}
		entries = slices.Insert(slices.Clone(entries), 0, lost)
	}
	for _, e := range entries {
		if err := t.append(e); err != nil {
			return err
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return t.pruneHistory()
}

// append gives the next number to an entry. Numbers come from the last key, since a checksum guards that and not bbolt's own sequence.
func (t *txn) append(e storedEntry) error {
	e.Sequence = number(t.lastKey(historyBucket)) + 1
	return t.put(historyBucket, numberKey(e.Sequence), e)
}

func (t *txn) pruneHistory() error {
	last := number(t.lastKey(historyBucket))
	for range maxPruned {
		key, value := t.cursor(historyBucket).First()
		if number(key)+maxHistory > last {
			var e storedEntry
			if err := decode(historyBucket, key, value, &e); err != nil || t.tally.Total-e.Elapsed <= maxHistoryAge {
				return err
			}
		}
		if err := t.remove(historyBucket, key); err != nil {
			return err
		}
	}
	return nil
}

// History returns the last limit entries (0: all) whose time is neither before from nor after to (zero: no bound), in the order in which
// they were recorded, with those that could not be recorded yet. Entries of kinds that this agent doesn't know are among them.
func (j *Journal) History(from, to time.Time, limit int) ([]Entry, error) {
	unbounded := limit
	if limit <= 0 || !from.IsZero() || !to.IsZero() {
		unbounded = maxHistory + maxPending
	}
	pending, recorded, err := j.lastEntries(unbounded)
	if err != nil {
		return nil, err
	}
	var newestFirst []Entry
	take := func(e Entry) {
		if (from.IsZero() || !e.At.Before(from)) && (to.IsZero() || !e.At.After(to)) && (limit <= 0 || len(newestFirst) < limit) {
			newestFirst = append(newestFirst, e)
		}
	}
	for _, e := range slices.Backward(pending) {
		take(e.Entry)
	}
	for _, data := range recorded {
		var e Entry
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("read an entry of the history: %w", err)
		}
		take(e)
	}
	slices.Reverse(newestFirst)
	return newestFirst, nil
}

// lastEntries copies what is recorded, the newest first, so that nobody has to wait while it is decoded.
func (j *Journal) lastEntries(limit int) (pending []storedEntry, recorded [][]byte, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	pending = slices.Clone(j.pending)
	if j.db == nil && !j.closed {
		return pending, nil, nil
	}
	err = j.view(func(t *txn) error {
		c := t.cursor(historyBucket)
		if c == nil {
			return nil
		}
		for key, value := c.Last(); key != nil && len(recorded) < limit; key, value = c.Prev() {
			data, err := unseal([]byte(historyBucket), key, value)
			if err != nil {
				return err
			}
			recorded = append(recorded, bytes.Clone(data))
		}
		return nil
	})
	return pending, recorded, err
}
