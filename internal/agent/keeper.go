package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/remedy"
)

const (
	tickEvery = time.Minute
	// openEvery is how often a journal that another process has is tried again.
	openEvery = 10 * time.Second
	// patient is how often a journal that another process has is tried before that is told.
	patient = 3
	// maxPending bounds what waits to be recorded while the disk hangs. The oldest go first.
	maxPending = 1000

	// KindRecovered is the kind of the history's entry that says that the node was well for long enough that earlier attempts are forgotten.
	KindRecovered = "recovered"
	// KindAgent is the kind of entries about the agent itself: that it started, or read its configuration anew.
	KindAgent = "agent"

	// maxAsking is how many questions of others may wait for a disk that hangs.
	maxAsking = 16
)

// keeper owns the journal. Its goroutine may hang with the disk; whoever must not, reads what it last told.
type keeper struct {
	path   string
	moment func() journal.Moment
	noSync bool
	log    *logrus.Logger
	told   chan struct{}             // cap 1: facts changed
	wake   chan struct{}             // cap 1
	asking chan struct{}             // holds one for each question under way
	ended  map[uint64]journal.Remedy // remedies that have ended, by id; for run alone

	mu      sync.Mutex // guards the fields below
	journal *journal.Journal
	pending []journal.Entry
	asked   uint64 // how often facts were asked for
	dropped int
	facts   facts
}

// facts are what the journal knows that decisions need, as of one moment.
type facts struct {
	// at is when they were read; zero while nothing is known.
	at time.Time
	// asked counts the requests to read them anew that came before they were read.
	asked         uint64
	restarts      []attempt
	bootstraps    []attempt
	budgetUnknown time.Duration
	pause         *journal.Pause
	unfinished    *journal.Remedy
	broken        string

	past
}

// past is what was so when the last agent ended.
type past struct {
	conditions []health.Condition
	lastWell   time.Time
	forgotten  uint64 // up to which remedy attempts are of no matter any more; 0 where that is not known
	decided    decision.Decision
	heldByFile bool // a pause file was there
}

// attempt is an attempt as the journal knows it: its times are ages, which no setting of the clock can change.
type attempt struct {
	remedy uint64
	unit   string
	age    time.Duration
	ended  time.Duration // how long ago; as long as age when it has not ended
	moved  time.Duration // how long ago its last step, which only watches, began; as long as ended when it did not
	ok     bool
}

func newKeeper(path string, moment func() journal.Moment, noSync bool, log *logrus.Logger) *keeper {
	return &keeper{
		path: path, moment: moment, noSync: noSync, log: log,
		told: make(chan struct{}, 1), wake: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking),
	}
}

// record has entries recorded, and facts read anew: those that answer this have asked at least as high as what is returned. It never
// blocks.
func (k *keeper) record(entries ...journal.Entry) (asked uint64) {
	k.mu.Lock()
	k.asked++
	asked = k.asked
	k.pending = append(k.pending, entries...)
	if over := len(k.pending) - maxPending; over > 0 {
		k.pending = k.pending[over:]
		k.dropped += over
	}
	k.mu.Unlock()
	poke(k.wake)
	return asked
}

// poke wakes whoever reads c, if it is not to be woken anyway.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// latest returns what the keeper last told. It never blocks for long.
func (k *keeper) latest() facts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.facts
}

// open returns the journal, or nil while there is none.
func (k *keeper) open() *journal.Journal {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.journal
}

var (
	errNoJournal = errors.New("the journal is not open")
	errBusy      = errors.New("the journal does not answer the questions that were asked before: is the disk hung?")
)

// ask puts a question to the journal, or changes something there, without hanging longer than ctx. Facts are read anew after it.
func ask[T any](ctx context.Context, k *keeper, question func(*journal.Journal) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	j := k.open()
	if j == nil {
		return none, errNoJournal
	}
	select {
	case k.asking <- struct{}{}:
	default:
		return none, errBusy
	}
	c := make(chan answer, 1)
	go func() {
		v, err := question(j)
		k.record() // before the answer: whoever acts after it must know what it changed
		c <- answer{v, err}
		<-k.asking
	}()
	select {
	case a := <-c:
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("the journal does not answer: is the disk hung? %w", context.Cause(ctx))
	}
}

// run owns the journal until ctx ends.
func (k *keeper) run(ctx context.Context) {
	j := k.begin(ctx)
	if j == nil {
		return
	}
	defer k.end(j)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		k.flush(j)
		f := k.read(j)
		if err := j.Err(); err != nil && !strings.Contains(f.broken, err.Error()) {
			f.broken = strings.TrimPrefix(f.broken+"; "+err.Error(), "; ")
		}
		k.tell(f)
		select {
		case <-k.wake:
		case <-tick.C:
			k.tick(j)
		case <-ctx.Done():
			return
		}
	}
}

// begin opens the journal, as soon as no other process has it.
func (k *keeper) begin(ctx context.Context) *journal.Journal {
	said := false
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		k.log.Warnf("The state folder can't be made, so that nothing can be recorded and nothing is done: %v", err)
	}
	for tries := 1; ctx.Err() == nil; tries++ {
		j, opened, err := journal.Open(k.path, k.moment(), journal.Options{NoSync: k.noSync})
		if err == nil {
			k.say(opened)
			before := k.before(j)
			k.mu.Lock()
			k.journal, k.facts = j, facts{past: before}
			k.mu.Unlock()
			return j
		}
		if tries < patient && errors.Is(err, journal.ErrLocked) {
			continue // most likely a person who reads it; Open has waited a second
		}
		if !said {
			said = true
			k.log.Warnf("The journal can't be opened, so that the agent only observes: %v", err)
		}
		k.tell(facts{at: time.Now(), broken: err.Error()})
		select {
		case <-time.After(openEvery):
		case <-ctx.Done():
		}
	}
	return nil
}

func (k *keeper) end(j *journal.Journal) {
	k.mu.Lock()
	k.journal = nil
	k.mu.Unlock()
	k.flush(j)
	if err := j.Close(); err != nil {
		k.log.Debugf("Close the journal: %v", err)
	}
}

// say tells what became of the journal when it was opened.
func (k *keeper) say(o journal.Opened) {
	for _, err := range []error{o.SetAside, o.Damage, o.ReadOnly} {
		if err != nil {
			k.log.Warnf("The journal: %v", err)
		}
	}
}

func (k *keeper) tick(j *journal.Journal) {
	opened, err := j.Tick(k.moment())
	k.say(opened)
	if err != nil {
		k.log.Debugf("The journal: %v", err)
	}
}

// flush records what is pending.
func (k *keeper) flush(j *journal.Journal) {
	k.mu.Lock()
	entries, dropped := k.pending, k.dropped
	k.pending, k.dropped = nil, 0
	k.mu.Unlock()
	if dropped > 0 {
		entries = append(entries, journal.Entry{Kind: journal.KindJournal, Message: fmt.Sprintf("%d entries were lost while the disk did not answer", dropped)})
	}
	if len(entries) == 0 {
		return
	}
	if err := j.Record(k.moment(), entries...); err != nil && !errors.Is(err, journal.ErrReadOnly) { // those it keeps itself
		k.log.Warnf("Record in the journal: %v", err)
	}
}

// tell makes f the latest facts. What is from before this agent stays.
func (k *keeper) tell(f facts) {
	k.mu.Lock()
	f.past = k.facts.past
	k.facts = f
	k.mu.Unlock()
	poke(k.told)
}

// read asks the journal for all that decisions need.
func (k *keeper) read(j *journal.Journal) facts {
	k.mu.Lock()
	asked := k.asked
	k.mu.Unlock()
	m := k.moment()
	f := facts{at: time.Now(), asked: asked}
	var problems []string
	note := func(err error) {
		if err != nil && !slices.Contains(problems, err.Error()) { // a journal that can't be read gives every question the same answer
			problems = append(problems, err.Error())
		}
	}
	var err error
	f.unfinished, err = j.Unfinished()
	note(err)
	f.pause, err = j.Paused(m)
	note(err)
	for _, unit := range []string{decision.KubeletUnit, decision.ContainerdUnit} {
		tries, err := k.attemptsOf(j, m, decision.Restart, unit)
		note(err)
		f.restarts = append(f.restarts, tries...)
	}
	f.bootstraps, err = k.attemptsOf(j, m, decision.Bootstrap, "")
	note(err)
	f.budgetUnknown = j.BudgetUnknown(m)
	f.broken = strings.Join(problems, "; ")
	return f
}

// attemptsOf returns the attempts of one kind. Those that turned out to be unneeded did nothing, and are left out.
func (k *keeper) attemptsOf(j *journal.Journal, m journal.Moment, action decision.Action, unit string) ([]attempt, error) {
	known, err := j.Attempts(m, remedy.BudgetOf(action, unit), journal.MaxBudgetWindow)
	if err != nil {
		return nil, err
	}
	if err := k.learn(j, known); err != nil {
		return nil, err
	}
	var all []attempt
	for _, a := range known {
		t := attempt{remedy: a.Remedy, unit: unit, age: a.Age, ended: a.Age, moved: a.Age}
		if r := k.ended[a.Remedy]; r.Ended != nil {
			t.ok = r.Outcome == remedy.Succeeded
			t.ended = a.Age - passed(r.Begun, *r.Ended)
			t.moved = t.ended
			if n := len(r.Steps); n > 1 && r.Steps[n-2].State == journal.StepDone {
				t.moved = a.Age - passed(r.Begun, r.Steps[n-2].Changed)
			}
			if !remedy.Acted(r.Outcome) {
				t.age = -1
			}
		}
		if t.age >= 0 {
			all = append(all, t)
		}
	}
	return all, nil
}

// learn keeps the remedies of attempts: those that have ended change no more, and all are much to read each time.
func (k *keeper) learn(j *journal.Journal, attempts []journal.Attempt) error {
	unknown := func(a journal.Attempt) bool { _, ok := k.ended[a.Remedy]; return !ok }
	if !slices.ContainsFunc(attempts, unknown) {
		return nil
	}
	remedies, err := j.Remedies(0)
	if err != nil {
		return err
	}
	if k.ended == nil {
		k.ended = map[uint64]journal.Remedy{}
	}
	for _, a := range attempts {
		i := slices.IndexFunc(remedies, func(r journal.Remedy) bool { return r.ID == a.Remedy })
		switch {
		case i < 0:
			k.ended[a.Remedy] = journal.Remedy{} // it is so old that how it ended is forgotten
		case remedies[i].Ended != nil:
			k.ended[a.Remedy] = remedies[i]
		}
	}
	return nil
}

// passed is the time between two moments of a remedy: by the uptime where it can be told, since the clock may have been set meanwhile.
func passed(from, to journal.Moment) time.Duration {
	if to.Boot != "" && to.Boot == from.Boot {
		return max(0, to.Uptime-from.Uptime)
	}
	return max(0, to.Wall.Sub(from.Wall))
}

// history is what the journal knows as of now, for a decision.
func (f facts) history(now time.Time) decision.History {
	since := now.Sub(f.at)
	times := func(all []attempt) []decision.Attempt {
		var out []decision.Attempt
		for _, a := range all {
			out = append(out, decision.Attempt{Unit: a.unit, Began: now.Add(-a.age - since), Ended: now.Add(-a.ended - since), Moved: now.Add(-a.moved - since), OK: a.ok})
		}
		return out
	}
	h := decision.History{Restarts: times(f.restarts), Bootstraps: times(f.bootstraps), Broken: f.broken, Unknown: max(0, f.budgetUnknown-since)}
	switch {
	case f.at.IsZero():
		h.Broken = "the journal is not open yet"
	case f.broken != "":
	case since > 3*tickEvery:
		h.Broken = fmt.Sprintf("the journal has not answered for %s: is the disk hung?", since.Round(time.Second))
	}
	return h
}

// before reads from the history what was so when the last agent ended, so that a restart of the agent is no change.
func (k *keeper) before(j *journal.Journal) (p past) {
	entries, err := j.History(time.Time{}, time.Time{}, 0)
	if err != nil {
		k.log.Debugf("Read the history: %v", err)
		return p
	}
	for _, e := range entries {
		switch e.Kind {
		case KindRecovered:
			p.lastWell, p.forgotten = e.At, 0
			_ = json.Unmarshal(e.Data, &p.forgotten) // an older agent's has none
		case journal.KindDecision:
			p.decided = decision.Decision{Action: decision.Action(e.To), Unit: e.Subject, Reason: e.Reason}
		case journal.KindPause:
			if strings.HasPrefix(e.Subject, byFile("")) {
				p.heldByFile = e.To == "paused"
			}
		case journal.KindCondition:
			is := func(c health.Condition) bool { return c.Type == e.Subject }
			if e.To == "" { // it no longer applied
				p.conditions = slices.DeleteFunc(p.conditions, is)
				continue
			}
			var c health.Condition
			if len(e.Data) == 0 || json.Unmarshal(e.Data, &c) != nil || c.Type != e.Subject {
				continue // of another version
			}
			if i := slices.IndexFunc(p.conditions, is); i >= 0 {
				p.conditions[i] = c
				continue
			}
			p.conditions = append(p.conditions, c)
		}
	}
	return p
}
