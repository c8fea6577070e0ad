package agent

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/pkg/config"
)

// loaded is a configuration that was read, or why it was not.
type loaded struct {
	cfg *config.Config
	err error
}

// errNotReadYet keeps an agent whose configuration lies on a disk that hangs observing until it is read.
var errNotReadYet = errors.New("the configuration has not been read yet: does its disk hang?")

// load reads the configuration, in a goroutine: its disk may hang.
func (l *loop) load() {
	if l.loading {
		l.loadAgain = true
		return
	}
	l.loading = true
	l.all.Go(func() {
		cfg, err := l.a.o.Load()
		if err != nil {
			cfg = nil
		}
		select {
		case l.loads <- loaded{cfg, err}:
		case <-l.ctx.Done():
		}
	})
}

// configure puts a configuration to use. Senses that it does not concern are kept, with all that they know.
func (l *loop) configure(c loaded) {
	old := l.eyes
	keep := old != nil && sameSenses(l.cfg, c.cfg)
	l.cfg, l.refused = c.cfg, ""
	l.mode, l.modeReason = modeOf(c.cfg, c.err, l.a.o.ObserveOnly)
	l.thresholds = thresholdsOf(c.cfg)
	if l.a.o.Reloaded != nil && c.cfg != nil {
		l.a.o.Reloaded(c.cfg)
	}
	text := "The agent " + modeText(l.mode, l.modeReason, c.cfg)
	if c.err != nil {
		l.a.o.Log.Warn(text)
	} else {
		l.a.o.Log.Info(text)
	}
	if !keep {
		l.open()
		if old != nil {
			l.all.Go(old.close)
		}
	}
	l.teller.Store(nil)
	if l.mode == decision.Act {
		l.teller.Store(l.eyes)
	}
}

// sameSenses reports whether two configurations make the agent see the same: they differ in the agent's own section alone.
func sameSenses(a, b *config.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Agent, y.Agent = config.AgentConfig{}, config.AgentConfig{}
	return reflect.DeepEqual(x, y)
}

func modeText(mode decision.Mode, reason string, cfg *config.Config) string {
	switch {
	case mode != decision.Act:
		return "only observes: " + reason
	case cfg != nil && cfg.Agent.DryRun:
		return "acts in words only (agent.dryRun)"
	}
	return "acts when that is safe"
}

// open begins to look with a configuration's senses.
func (l *loop) open() {
	e := &eyes{senses: l.a.o.senses(l.cfg)}
	e.ctx, e.end = context.WithCancel(l.ctx)
	e.OnLanded(func() { poke(l.landed) })
	l.all.Go(func() { e.WatchUnits(e.ctx, func(string) { poke(l.units) }) })
	l.eyes, l.opened, l.whole = e, time.Now(), false
}

// watch begins to watch the Node.
func (l *loop) watch(e *eyes) {
	e.watching = true
	l.all.Go(func() { e.WatchNode(e.ctx, func() { poke(l.node) }) })
}

// close ends the senses. It may take as long as what hangs there.
func (e *eyes) close() {
	e.end()
	e.Close()
}

// reread has the configuration read anew, after a remedy in progress.
func (l *loop) reread() {
	if l.running {
		l.a.o.Log.Info("The configuration will be read anew when the remedy in progress has ended")
		l.reload = true
		return
	}
	l.notifier.tell("RELOADING=1")
	l.load()
}

// refuse says why a configuration is not put to use: nobody should believe that it is.
func (l *loop) refuse(why string) {
	l.refused = why
	l.a.o.Log.Warn("The configuration: " + why)
	l.a.keeper.record(journal.Entry{At: time.Now(), Kind: KindAgent, To: "not reloaded", Message: why})
}

// reconfigure takes a configuration that was read, unless it is worse than the present one.
func (l *loop) reconfigure(c loaded) {
	l.loading = false
	if l.loadAgain {
		l.loadAgain = false
		l.load()
		return
	}
	defer l.notifier.tell("READY=1")
	switch {
	case l.running:
		l.reload = true
		return
	case l.cfg != nil && c.err != nil:
		l.refuse("it was not read anew, and the one before is kept: " + firstMistake(c.err))
		return
	case l.cfg != nil && c.cfg == nil:
		l.refuse("it is gone, and the one before is kept: restart the agent to make it only observe")
		return
	}
	l.configure(c)
	l.a.keeper.record(journal.Entry{At: time.Now(), Kind: KindAgent, To: "reloaded", Message: "the agent " + modeText(l.mode, l.modeReason, c.cfg)})
	l.round(time.Now())
}
