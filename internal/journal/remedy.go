package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	maxRemedies = 100 // how many are kept
	maxSteps    = 24
	maxName     = 100
	maxOutput   = 2 << 10
	maxDecision = 16 << 10
	maxStepData = 1 << 10
)

// Plan is a remedy before it is begun.
type Plan struct {
	Name string
	// Budget is the kind of attempt that it counts as (see [Journal.Attempts]); empty counts as none.
	Budget string
	// Decision is what led to it, as JSON of up to 16 KiB.
	Decision json.RawMessage
	// Steps are the names of its steps, in order.
	Steps []string
}

// Remedy is one remedy, in progress or finished.
type Remedy struct {
	Version  int             `json:"v"`
	ID       uint64          `json:"id"`
	Name     string          `json:"name"`
	Budget   string          `json:"budget,omitempty"`
	Decision json.RawMessage `json:"decision,omitempty"`
	Steps    []Step          `json:"steps"`
	Begun    Moment          `json:"begun"`
	// Ended and Outcome are nil and empty while it is in progress.
	Ended   *Moment `json:"ended,omitempty"`
	Outcome string  `json:"outcome,omitempty"`
	Message string  `json:"message,omitempty"`
}

// InProgress reports whether the remedy is not finished.
func (r *Remedy) InProgress() bool { return r.Ended == nil }

// Step is one step of a remedy.
type Step struct {
	Name  string    `json:"name"`
	State StepState `json:"state"`
	// Changed is when State was recorded; zero while it is StepPending. After StepStarted and UndoStarted it is when that began.
	Changed Moment `json:"changed,omitzero"`
	// Tries counts how often it was started.
	Tries int `json:"tries,omitempty"`
	// Limit is how long what was started may take; 0 is without limit.
	Limit  time.Duration   `json:"limit,omitempty"`
	Output string          `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
}

// TimeLeft returns what is left of the limit of a step that was started, and how long ago that was. A step that was started before the
// host's last start has none left: what it started ended with that. Without a limit, or when it is not under way, left is 0 too.
func (s *Step) TimeLeft(now Moment) (left time.Duration) {
	passed, ok := since(s.Changed, now)
	if !ok || (s.State != StepStarted && s.State != UndoStarted) {
		return 0
	}
	return max(s.Limit-passed, 0)
}

// StepState is how far a step got.
type StepState string

// The states of a step. A state that says "started" is recorded before anything is done: found after a crash, it means that any part of it
// may have happened.
const (
	StepPending StepState = "pending"
	StepStarted StepState = "started"
	StepDone    StepState = "done" // and verified
	StepFailed  StepState = "failed"
	UndoStarted StepState = "undoStarted"
	UndoDone    StepState = "undone"
	UndoFailed  StepState = "undoFailed"
)

// mayFollow says which states may follow which. Every state may follow itself: who doesn't know whether a record was made makes it again.
func (s StepState) mayFollow(before StepState) bool {
	if s == before {
		return true
	}
	switch s {
	case StepStarted: // again after a failure, or to make sure of a step that was done before a crash
		return before == StepPending || before == StepFailed || before == StepDone
	case StepDone, StepFailed:
		return before == StepStarted
	case UndoStarted:
		return before == StepStarted || before == StepDone || before == StepFailed || before == UndoFailed
	case UndoDone, UndoFailed:
		return before == UndoStarted
	}
	return false
}

// Progress is one change of a step.
type Progress struct {
	Step  string
	State StepState
	// Limit belongs to StepStarted and UndoStarted.
	Limit time.Duration
	// Output is what the step printed; its last 2 KiB are kept. Error is why it failed.
	Output, Error string
	// Data is JSON of up to 1 KiB for whoever resumes or undoes the step; nil leaves what is there.
	Data json.RawMessage
}

// Begin records that a remedy begins and, in the same transaction, that it counts against its budget. Only after that may anything be done.
// The id is never used again, also not in the journal after this one as far as the clock goes. It fails with ErrInProgress while another
// remedy is in progress, in this process or left over by an earlier one; on any error the remedy has not begun.
func (j *Journal) Begin(now Moment, p Plan) (id uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := p.check(); err != nil {
		return 0, fmt.Errorf("begin remedy %.100q: %w", p.Name, err)
	}
	err = j.update(now, "a remedy", func(t *txn) error {
		last, err := t.lastRemedy()
		if err != nil {
			return err
		}
		if last != nil && last.InProgress() && last.ID != j.unborn {
			return fmt.Errorf("begin remedy %s: %w: %s, begun %s", p.Name, ErrInProgress, last.Name, last.Begun.Wall.Format(time.RFC3339))
		}
		id, err = t.beginRemedy(now, p, last)
		return err
	})
	switch {
	case err == nil:
		j.unborn = 0
	case errors.Is(err, ErrReadOnly) && id != 0:
		j.unborn = id // the failure may have come after it reached the file
	}
	if err != nil {
		return 0, err
	}
	return id, nil
}

func (p *Plan) check() error {
	if p.Name == "" || len(p.Name) > maxName || len(p.Steps) == 0 || len(p.Steps) > maxSteps || len(p.Decision) > maxDecision {
		return fmt.Errorf("it needs a name of up to %d bytes, 1 to %d steps, and a decision of up to %d bytes", maxName, maxSteps, maxDecision)
	}
	if p.Decision != nil && !json.Valid(p.Decision) {
		return errors.New("its decision is no JSON")
	}
	for i, s := range p.Steps {
		if s == "" || len(s) > maxName || slices.Contains(p.Steps[:i], s) {
			return fmt.Errorf("step %d needs a name of its own of up to %d bytes, and has %.100q", i, maxName, s)
		}
	}
	return checkKind(p.Budget)
}

func (t *txn) beginRemedy(now Moment, p Plan, last *Remedy) (id uint64, err error) {
	// A new journal starts from the clock, so that its ids differ from those of the one before, after which things may be named.
	id = uint64(max(now.Wall.Unix(), 1))
	if last != nil {
		id = last.ID + 1
	}
	if last != nil && last.InProgress() {
		last.Ended, last.Outcome, last.Message = &now, "notBegun", "its beginning could not be recorded for certain"
		if err := t.putRemedy(last); err != nil {
			return 0, err
		}
	}
	r := &Remedy{ID: id, Name: p.Name, Budget: p.Budget, Decision: p.Decision, Begun: now}
	for _, name := range p.Steps {
		r.Steps = append(r.Steps, Step{Name: name, State: StepPending})
	}
	if err := t.putRemedy(r); err != nil {
		return 0, err
	}
	if p.Budget != "" {
		if err := t.countAttempt(p.Budget, id); err != nil {
			return 0, err
		}
	}
	for first := t.firstKey(remedyBucket); number(first)+maxRemedies <= id; first = t.firstKey(remedyBucket) {
		if err := t.remove(remedyBucket, first); err != nil {
			return 0, err
		}
	}
	return id, t.append(made(now, t.tally, Entry{Kind: KindRemedy, Subject: p.Name, To: "begun", Data: p.Decision}))
}

// Step records a change of one step of a remedy in progress: before what is started, and after it ended. It fails with ErrNotInProgress
// when that remedy is not in progress, and when the state can't follow the one before.
func (j *Journal) Step(now Moment, id uint64, p Progress) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(p.Data) > maxStepData || (p.Data != nil && !json.Valid(p.Data)) {
		return fmt.Errorf("record step %.100q: its data is no JSON of up to %d bytes", p.Step, maxStepData)
	}
	return j.update(now, "a step", func(t *txn) error {
		r, err := t.inProgress(id)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Name == p.Step })
		if i < 0 {
			return fmt.Errorf("record a step: remedy %s (%d) has no step %.100q", r.Name, id, p.Step)
		}
		s := &r.Steps[i]
		if !p.State.mayFollow(s.State) {
			return fmt.Errorf("record step %s of remedy %s (%d): %q can't follow %q", p.Step, r.Name, id, p.State, s.State)
		}
		s.State, s.Changed, s.Limit = p.State, now, p.Limit
		s.Output, s.Error = clip(p.Output, maxOutput), clip(p.Error, maxText)
		if p.State == StepStarted {
			s.Tries++
		}
		if p.Data != nil {
			s.Data = p.Data
		}
		return t.putRemedy(r)
	})
}

// Finish records that a remedy ended. The outcome is a word like "succeeded", the message is for people. Finishing it again with the same
// outcome is no error, and changes nothing.
func (j *Journal) Finish(now Moment, id uint64, outcome, message string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if outcome == "" || len(outcome) > maxName {
		return fmt.Errorf("finish remedy %d: %.100q is no outcome", id, outcome)
	}
	return j.update(now, "the end of a remedy", func(t *txn) error {
		r, err := t.inProgress(id)
		if r != nil && !r.InProgress() && r.Outcome == outcome {
			return nil
		}
		if err != nil {
			return err
		}
		r.Ended, r.Outcome, r.Message = &now, outcome, clip(message, maxText)
		if err := t.putRemedy(r); err != nil {
			return err
		}
		return t.append(made(now, t.tally, Entry{Kind: KindRemedy, Subject: r.Name, From: "begun", To: outcome, Message: message}))
	})
}

// inProgress returns remedy id, with ErrNotInProgress when it is not in progress.
func (t *txn) inProgress(id uint64) (*Remedy, error) {
	r := &Remedy{}
	ok, err := t.get(remedyBucket, numberKey(id), r)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("remedy %d: %w", id, ErrNotInProgress)
	case !r.InProgress():
		return r, fmt.Errorf("remedy %s (%d): %w: it ended %s as %s", r.Name, id, ErrNotInProgress, r.Ended.Wall.Format(time.RFC3339), r.Outcome)
	}
	return r, nil
}

func (t *txn) putRemedy(r *Remedy) error {
	r.Version = formatVersion
	return t.put(remedyBucket, numberKey(r.ID), r)
}

// lastRemedy returns nil when there is none. Only the last one can be in progress.
func (t *txn) lastRemedy() (*Remedy, error) {
	key := t.lastKey(remedyBucket)
	if key == nil {
		return nil, nil
	}
	r := &Remedy{}
	_, err := t.get(remedyBucket, key, r)
	return r, err
}

// Unfinished returns the remedy that is in progress, or nil. At start it is what an earlier agent left: to be resumed or undone, and then
// finished, before anything else may begin.
func (j *Journal) Unfinished() (*Remedy, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var last *Remedy
	err := j.view(func(t *txn) (err error) {
		last, err = t.lastRemedy()
		return err
	})
	if err != nil || last == nil || !last.InProgress() || last.ID == j.unborn {
		return nil, err
	}
	return last, nil
}

// Remedies returns the last limit remedies (0: all that are kept, up to 100), the newest first.
func (j *Journal) Remedies(limit int) ([]Remedy, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []Remedy
	err := j.view(func(t *txn) error {
		c := t.cursor(remedyBucket)
		if c == nil {
			return nil
		}
		for key, value := c.Last(); key != nil && (limit <= 0 || len(all) < limit); key, value = c.Prev() {
			var r Remedy
			if err := decode(remedyBucket, key, value, &r); err != nil {
				return err
			}
			all = append(all, r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
