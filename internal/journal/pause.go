package journal

import "time"

// Pause says that people want the agent to change nothing.
type Pause struct {
	Version int       `json:"v"` // given by the journal
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"` // given by the journal
	// Until is when it ends by itself, by the wall clock; nil for never.
	Until *time.Time `json:"until,omitempty"`
}

func (p *Pause) over(now Moment) bool { return p.Until != nil && !now.Wall.Before(*p.Until) }

// Pause records a pause, in place of one that there may be. It lasts over restarts of agent and host, until Resume or Until. On an error
// nothing has changed.
func (j *Journal) Pause(now Moment, p Pause) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	p.Version, p.Since = formatVersion, now.Wall.UTC().Round(0)
	p.By, p.Reason = clip(p.By, maxText), clip(p.Reason, maxText)
	return j.update(now, "the pause", func(t *txn) error { return t.pause(now, p) })
}

func (t *txn) pause(now Moment, p Pause) error {
	if err := t.put(stateBucket, []byte(pauseKey), p); err != nil {
		return err
	}
	message := p.Reason
	if p.Until != nil {
		message += ", until " + p.Until.UTC().Format(time.RFC3339)
	}
	return t.append(made(now, t.tally, Entry{Kind: KindPause, Subject: p.By, To: "paused", Message: message}))
}

// pauseLonger takes over a pause from elsewhere, unless there is one that lasts as long.
func (t *txn) pauseLonger(p Pause) error {
	var ours Pause
	ok, err := t.get(stateBucket, []byte(pauseKey), &ours)
	if err != nil || ok && (ours.Until == nil || p.Until != nil && !p.Until.After(*ours.Until)) {
		return err
	}
	return t.pause(t.tally.Last, p)
}

// Resume ends a pause; by is who wants that. Without a pause it does nothing.
func (j *Journal) Resume(now Moment, by string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.update(now, "the end of the pause", func(t *txn) error {
		if ok, err := t.get(stateBucket, []byte(pauseKey), &Pause{}); !ok {
			return err
		}
		if err := t.remove(stateBucket, []byte(pauseKey)); err != nil {
			return err
		}
		return t.append(made(now, t.tally, Entry{Kind: KindPause, Subject: by, From: "paused", To: "resumed"}))
	})
}

// Paused returns the pause that holds now, or nil when there is none or it is over. On an error it can't be told.
func (j *Journal) Paused(now Moment) (*Pause, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var p Pause
	found := false
	err := j.view(func(t *txn) (err error) {
		found, err = t.get(stateBucket, []byte(pauseKey), &p)
		return err
	})
	if err != nil || !found || p.over(now) {
		return nil, err
	}
	return &p, nil
}
