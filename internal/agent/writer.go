package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
)

// writer keeps the snapshot's file, in a goroutine of its own, which may hang with the disk. Of several snapshots that wait it writes the
// last alone.
type writer struct {
	path  string
	log   *logrus.Logger
	wrote chan struct{} // cap 1: something about the file changed
	wake  chan struct{} // cap 1
	judge func(context.Context, *config.Config) []string

	mu      sync.Mutex // guards the fields below
	next    *status.NodeStatus
	cfg     *config.Config
	asked   time.Time // since when a snapshot waits to be written and judged; zero when none does
	began   time.Time // of the write under way; zero when there is none
	seen    observe.Observation[observe.StatusFile]
	asks    []string // grounds
	writes  uint64
	failure uint64
}

// hungAfter is from when on a write under way counts as one that hangs.
const hungAfter = 10 * time.Second

// judgeWait is how long a decision waits for the answer whether the snapshot asks for a bootstrap. The answer about the one before would
// contradict what is seen.
const judgeWait = 2 * time.Second

func newWriter(path string, log *logrus.Logger) *writer {
	return &writer{path: path, log: log, wrote: make(chan struct{}, 1), wake: make(chan struct{}, 1), judge: groundsOf}
}

// write has s written, and the question answered whether the file asks for a bootstrap. It never blocks.
func (w *writer) write(s *status.NodeStatus, cfg *config.Config) {
	w.mu.Lock()
	w.next, w.cfg = s, cfg
	if w.asked.IsZero() {
		w.asked = time.Now()
	}
	w.mu.Unlock()
	poke(w.wake)
}

// check has the question answered whether the file asks for a bootstrap. It never blocks.
func (w *writer) check(cfg *config.Config) {
	w.mu.Lock()
	w.cfg = cfg
	w.mu.Unlock()
	poke(w.wake)
}

// observation is how the writing goes. It is the zero observation before the first write.
func (w *writer) observation() observe.Observation[observe.StatusFile] {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.began.IsZero() && time.Since(w.began) > hungAfter {
		o := observe.See(w.seen.Value, observe.Unhealthy, "WriteHangs", "writing %s has hung for %s", w.path, time.Since(w.began).Round(time.Second))
		o.At = time.Now()
		return o
	}
	return w.seen
}

// settled reports whether grounds are those of the latest snapshot, or will not be for a while: the disk hangs.
func (w *writer) settled(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked.IsZero() || now.Sub(w.asked) > judgeWait
}

// grounds are the codes with which the file asks for a bootstrap.
func (w *writer) grounds() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asks
}

func (w *writer) counts() (writes, failures uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes, w.failure
}

// run writes until ctx ends.
func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		w.mu.Lock()
		s, cfg := w.next, w.cfg
		w.next = nil
		w.began = time.Now()
		w.mu.Unlock()
		if s != nil {
			w.put(s) //nolint:contextcheck // the contract's function has no context: its lock has a limit of its own
		}
		asks := w.judge(ctx, cfg)
		w.mu.Lock()
		w.began, w.asks = time.Time{}, asks
		if w.next == nil {
			w.asked = time.Time{}
		}
		w.mu.Unlock()
		poke(w.wrote)
	}
}

func (w *writer) put(s *status.NodeStatus) {
	err := status.WriteStatusToFile(w.path, s)
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.seen.Value
	v.Path = w.path
	if err != nil {
		w.failure++
		if w.seen.Health != observe.Unhealthy {
			w.log.Warnf("The snapshot can't be written: %v", err)
		}
		w.seen = observe.See(v, observe.Unhealthy, "WriteFailed", "%v", err)
	} else {
		w.writes++
		v.Written = s.LastUpdated
		w.seen = observe.See(v, observe.Healthy, "Written", "%s was written", w.path)
	}
	w.seen.At = time.Now()
}

// groundsOf asks NeedsBootstrap, which answers by the file alone, and returns the codes of its reasons.
func groundsOf(ctx context.Context, cfg *config.Config) []string {
	var heard grounds
	logger := silent()
	logger.AddHook(&heard)
	status.NewCollector(cfg, logger, "").NeedsBootstrap(ctx)
	return heard.codes
}

// grounds hears the field in which NeedsBootstrap tells programs why.
type grounds struct{ codes []string }

// Levels implements logrus.Hook.
func (*grounds) Levels() []logrus.Level { return []logrus.Level{logrus.InfoLevel} }

// Fire implements logrus.Hook.
func (g *grounds) Fire(e *logrus.Entry) error {
	codes, ok := e.Data["grounds"].([]string)
	if !ok {
		return fmt.Errorf("grounds of a bootstrap: got %T", e.Data["grounds"])
	}
	g.codes = codes
	return nil
}
