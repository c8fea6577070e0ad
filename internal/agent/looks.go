package agent

import (
	"context"
	"math/rand/v2"
	"time"
)

// event is what systemd's word leads to.
func (l *loop) event() {
	l.counters.Events++
	l.look(lookUnits)
	l.settle = nil
	for _, d := range settleAfter() {
		l.settle = append(l.settle, time.Now().Add(d))
	}
}

// look begins a look in a goroutine, or has the one under way followed by another: it may have begun before what asks for it.
func (l *loop) look(k look) {
	if l.busy[k] {
		l.again[k] = true
		return
	}
	l.busy[k] = true
	e := l.eyes
	l.all.Go(func() {
		switch k {
		case lookRound:
			e.Look(e.ctx)
		case lookUnits:
			e.LookAtUnits(e.ctx)
		case lookLocal:
			e.LookLocal(e.ctx)
		case lookNode:
			e.LookAtNode(e.ctx)
		case lookHost:
			e.LookAtHost(e.ctx)
		}
		select {
		case l.done <- seen{k, e}:
		case <-l.ctx.Done():
		}
	})
}

// looked is told when a look has ended.
func (l *loop) looked(s seen) {
	k := s.look
	l.busy[k] = false
	if k == lookRound {
		l.counters.Looks++
		l.whole = l.whole || s.by == l.eyes
	}
	if k == lookUnits && l.unseen > 0 {
		l.unseen--
	}
	if l.again[k] {
		l.again[k] = false
		l.look(k)
	} else if k == lookUnits {
		l.look(lookLocal) // what the unit's program says of itself comes after the unit's word, which must not wait for it
	}
}

// round begins a look at everything.
func (l *loop) round(now time.Time) {
	l.lastRound = now
	every := l.cfg.GetStatusInterval()
	l.nextRound = now.Add(every - time.Duration(rand.Int64N(int64(every)/10+1))) //nolint:gosec // spreads a fleet, hides nothing
	l.look(lookRound)
	l.look(lookHost)
	l.askState(now)
	if l.nextCheck.IsZero() {
		l.nextCheck = now.Add(l.cfg.GetBootstrapCheckInterval())
	}
}

// askState asks systemd how the host is.
func (l *loop) askState(now time.Time) {
	if l.asking || now.Sub(l.system.at) < stateEvery && l.system.state != "" {
		return
	}
	l.asking = true
	l.all.Go(func() {
		s := hostState(l.ctx, l.a.o.systemd)
		select {
		case l.states <- s:
		case <-l.ctx.Done():
		}
	})
}

// hostState asks systemd how the host as a whole is.
func hostState(ctx context.Context, s systemd) systemState {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	state, err := s.State(ctx)
	if err != nil {
		state = "" // not known
	}
	return systemState{state, time.Now()}
}

// due is when the loop has to turn though nothing happens.
func (l *loop) due() time.Time {
	due := l.nextRound
	if l.nextCheck.Before(due) {
		due = l.nextCheck
	}
	first := l.opened.Add(firstWait)
	if l.whole {
		first = l.started.Add(firstWrite)
	}
	if (!l.whole || !l.explained) && first.Before(due) {
		due = first
	}
	for _, t := range []time.Time{l.tracker.Next(), l.decided.NextLook} {
		if !t.IsZero() && t.Before(due) {
			due = t
		}
	}
	if least := l.lastRound.Add(leastGap); due.Before(least) {
		due = least
	}
	if len(l.settle) > 0 && l.settle[0].Before(due) {
		due = l.settle[0]
	}
	return due
}

// timed does what is due.
func (l *loop) timed(now time.Time) {
	for len(l.settle) > 0 && !l.settle[0].After(now) {
		l.settle = l.settle[1:]
		l.look(lookUnits)
	}
	if now.Sub(l.opened) >= firstWait {
		l.whole = true
	}
	if !l.nextCheck.After(now) {
		l.nextCheck = now.Add(l.cfg.GetBootstrapCheckInterval())
		l.writer.check(l.cfg)
	}
	soonest := l.nextRound
	for _, t := range []time.Time{l.tracker.Next(), l.decided.NextLook} {
		if !t.IsZero() && t.Before(soonest) {
			soonest = t
		}
	}
	if !soonest.After(now) && now.Sub(l.lastRound) >= leastGap {
		l.round(now)
	}
}
