package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/localapi"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
)

const (
	// lookEvery is how long a watch waits between two looks where no agent tells of changes.
	lookEvery = 2 * time.Second
	// askGap is the least time between two questions to the agent, so that one that changes all the time does not keep this host busy.
	askGap = 200 * time.Millisecond
	// lastChanges is how many entries of the history a watch shows.
	lastChanges = 8
)

// sight is what a watch knows at one moment.
type sight struct {
	// show makes the view of it at a later moment, with the ages of then.
	show func(now time.Time) view
	// agent is nil where no agent tells it.
	agent *agent.View
	// gone says why not; empty while there is one, or nobody asked for it.
	gone string
	// history is the last changes, oldest first.
	history []journal.Entry
	at      time.Time
}

// watcher gets the sights of a watch.
type watcher struct {
	c    *common
	s    settings
	live bool
	look func(context.Context) observe.Set

	after uint64 // generation of the last view; 0 where no agent told it
	past  []journal.Entry
	read  bool // past is from the journal
}

// watch shows the state and its changes until ctx ends or the reader goes away.
func (c *common) watch(ctx context.Context, s settings, live bool) error {
	suite := probe.New(s.cfg, agentVersion())
	defer suite.Close()
	w := &watcher{c: c, s: s, live: live, look: suite.Look}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sights := make(chan sight)
	all.Go(func() { w.run(ctx, sights) })
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away is a way to end this
	defer signal.Reset(syscall.SIGPIPE)
	var err error
	if columns, rows := size(c.stdout); columns > 0 && rows > 0 && os.Getenv("TERM") != "dumb" {
		err = c.watchScreen(ctx, sights)
	} else {
		err = c.watchLines(ctx, sights)
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// size returns the columns and rows of the terminal, or zeros when w is none or does not know.
func size(w io.Writer) (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	s, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ) // a file descriptor fits an int
	if err != nil {
		return 0, 0
	}
	return int(s.Col), int(s.Row)
}

// run sends each sight that may differ from the one before, until ctx ends.
func (w *watcher) run(ctx context.Context, sights chan<- sight) {
	for ctx.Err() == nil {
		next, wait := w.next(ctx)
		if ctx.Err() != nil {
			return // what was seen while everything ended is half
		}
		select {
		case sights <- next:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// next waits for news of the agent or, where none runs, looks itself, and says how long to wait after that.
func (w *watcher) next(ctx context.Context) (s sight, wait time.Duration) {
	if w.live {
		return w.without(ctx, ""), lookEvery
	}
	v, err := w.c.ask().View(ctx, w.after)
	if err != nil && w.after > 0 && ctx.Err() == nil {
		v, err = w.c.ask().View(ctx, 0) // it may have ended while we waited for news; then this says so better
	}
	switch {
	case err == nil:
		return w.fromAgent(ctx, v), askGap
	case ctx.Err() != nil:
		return sight{}, 0 // nobody waits for it any more
	}
	return w.without(ctx, w.whyNot(err)), lookEvery
}

func (w *watcher) whyNot(err error) string {
	switch {
	case errors.Is(err, localapi.ErrNotRunning) && w.c.journalHeld():
		return errSilent.Error()
	case errors.Is(err, localapi.ErrNotRunning):
		return "no agent runs here"
	case errors.Is(err, fs.ErrPermission):
		return "this user may not ask the agent; root may"
	}
	return "the agent can't be asked: " + oneLine(err)
}

func (w *watcher) fromAgent(ctx context.Context, v *agent.View) sight {
	w.after, w.read = v.Generation, false
	if entries, err := w.c.ask().History(ctx, time.Time{}, time.Time{}, lastChanges); err == nil { // else the last ones known stay
		w.past = entries
	}
	return sight{
		show:  func(now time.Time) view { return viewOfAgent(v, w.s, now) },
		agent: v, history: w.past, at: v.At,
	}
}

// without reads the snapshot, or looks at the machine.
func (w *watcher) without(ctx context.Context, gone string) sight {
	w.after = 0
	s := sight{gone: gone, at: time.Now()}
	if !w.live {
		if !w.read {
			w.read = true // it does not change while no agent runs
			if entries, err := w.c.recorded(time.Time{}, time.Time{}, lastChanges); err == nil {
				w.past = entries
			}
		}
		s.history = w.past
		if snapshot, problem := snapshotOf(w.c.snapshot(), w.s, s.at); problem == "" {
			s.show = func(now time.Time) view { return viewOfSnapshot(snapshot, w.s, now) }
			return s
		}
	}
	set := w.look(ctx)
	at := time.Now()
	s.at = at
	s.show = func(now time.Time) view {
		v := viewOfSet(&set, w.s, now)
		v.source = "Looked live " + age(now.Sub(at)) + " ago."
		return v
	}
	return s
}

// line is one thing that a watch tells of in a pipe. What it says has changed when more than the message has.
type line struct {
	name, word, reason string
	version            string
	other              string // compared, and part of the message
	message            string
}

// lines are all things that can change, in the order in which people read them.
func (s sight) lines(now time.Time) []line {
	v := s.show(now)
	var all []line
	for _, r := range v.rows {
		all = append(all, line{name: r.component, word: wordOf(r), reason: r.state, version: r.version, message: r.detail})
	}
	a := s.agent
	if a == nil {
		if s.gone != "" {
			all = append(all, line{name: "agent", word: "absent", other: s.gone, message: s.gone})
		}
		return all
	}
	for _, c := range a.Conditions {
		all = append(all, line{name: c.Type, word: string(c.Status), reason: c.Reason, other: string(c.Severity), message: c.Message})
	}
	d := a.Decision
	all = append(all,
		line{name: "decision", word: string(d.Action), reason: d.Reason, other: string(d.Wanted) + " " + d.Unit, message: d.Message},
		line{name: "agent", word: stanceWord(a), other: stance(a), message: strings.TrimPrefix(strings.TrimPrefix(stance(a), stanceWord(a)), " ")})
	r := line{name: "remedy", word: "none"}
	if a.Remedy != nil {
		r = line{name: "remedy", word: a.Remedy.Name, reason: a.Remedy.Step, other: a.Remedy.Unit, message: a.Remedy.Unit}
	}
	return append(all, r)
}

// wordOf is the health of a row, without colours.
func wordOf(r row) string {
	switch {
	case r.absent:
		return "-"
	case r.health == observe.Healthy:
		return "ok"
	case r.health == observe.Unhealthy:
		return "BAD"
	}
	return "unknown"
}

func stanceWord(a *agent.View) string {
	switch {
	case len(a.Pauses) > 0:
		return "paused"
	case a.Mode != decision.Act:
		return "observing"
	case a.DryRun:
		return "dry-run"
	}
	return "acting"
}
