package probe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

const (
	// keepGood is how long the last known value is shown while looks fail.
	keepGood = 3 * time.Minute
	// reserve is what is left of a caller's time when the looks must be over, so that the caller still gets its answer.
	reserve = 250 * time.Millisecond
	// grace is how long after its deadline a look may take to come back and say itself what went wrong: killing a process group and
	// reading the rest of its output takes a moment. After that it counts as abandoned.
	grace = 500 * time.Millisecond
)

// deadlineError is the cause with which a look's context ends at its deadline, which it holds. It is a context.DeadlineExceeded.
type deadlineError time.Duration

func (e deadlineError) Error() string {
	return "no answer within the deadline of " + time.Duration(e).Round(time.Millisecond).String()
}

// Is makes it the error that libraries look for.
func (e deadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout makes it a net.Error's.
func (e deadlineError) Timeout() bool { return true }

// runner runs one probe: at most one look at a time, shared by all who ask meanwhile, each look with a deadline. A look that does not
// come back even then is abandoned: nobody waits for it any more, and no other is started until it does.
type runner[T any] struct {
	name     string
	deadline time.Duration
	// every is how long an observation is good for before a new look is made; 0 looks each time.
	every time.Duration
	// look is the probe. It gets a context with the deadline and the time at which this round of looks began.
	look func(ctx context.Context, round time.Time) observe.Observation[T]
	// underWay counts the looks of all runners that share it; nil counts nothing.
	underWay *atomic.Int32

	mu     sync.Mutex
	flight *flight[T]
	last   observe.Observation[T]
	round  time.Time // for which the last look was made
	short  bool      // it had less time than deadline and couldn't tell: that is an answer for its own round only
	good   *T
	goodAt time.Time
}

// flight is a look under way.
type flight[T any] struct {
	life    context.Context
	round   time.Time
	began   time.Time
	ends    time.Time // its deadline
	waiters int
	givenUp bool // at some time nobody waited for it, so it was cancelled; set only while it is under way
	cancel  context.CancelFunc
	done    chan struct{}
	seen    observe.Observation[T] // once done
}

// observe returns an observation that is not older than round, or than every allows: the last one, that of a look under way, or that of
// a new look. It comes back when ctx ends, and then the observation is unknown.
//
// life bounds the looks themselves; they end early only when nobody waits for them any more.
func (r *runner[T]) observe(ctx, life context.Context, round time.Time) observe.Observation[T] {
	return r.wait(ctx, r.join(ctx, life, round))
}

// join makes sure that there is such an observation, or a look under way that will bring it, and returns that look. What it returns must
// be waited for.
func (r *runner[T]) join(ctx, life context.Context, round time.Time) *flight[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fresh(round) {
		return nil
	}
	if r.flight == nil {
		r.start(ctx, life, round)
	}
	r.flight.waiters++
	return r.flight
}

// latest returns the last observation, however old.
func (r *runner[T]) latest() observe.Observation[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.withGood(r.last)
}

func (r *runner[T]) fresh(round time.Time) bool {
	if r.last.At.IsZero() {
		return false
	}
	if r.short {
		return round.Equal(r.round)
	}
	return !r.last.At.Before(round) || round.Sub(r.last.At) < r.every
}

// start begins a look in a goroutine of its own; r.mu is held. The look outlives ctx's cancellation as long as somebody waits for it.
func (r *runner[T]) start(ctx, life context.Context, round time.Time) {
	now := time.Now()
	allowed := r.deadline
	if end, ok := ctx.Deadline(); ok {
		allowed = min(allowed, max(0, end.Sub(now)-reserve))
	}
	lookCtx, cancel := context.WithTimeoutCause(life, allowed, deadlineError(allowed))
	f := &flight[T]{life: life, round: round, began: now, ends: now.Add(allowed), cancel: cancel, done: make(chan struct{})}
	r.flight = f
	if r.underWay != nil {
		r.underWay.Add(1)
	}
	go func() {
		if r.underWay != nil {
			defer r.underWay.Add(-1)
		}
		o := r.guarded(lookCtx, round)
		cancel()
		r.mu.Lock()
		o.At = time.Now() // with the lock held: whoever joined did so before
		r.flight, f.seen = nil, o
		if o.Known() || !f.givenUp {
			r.last, r.round, r.short = o, round, !o.Known() && (allowed < r.deadline || life.Err() != nil)
		}
		if o.Known() {
			v := o.Value
			r.good, r.goodAt = &v, o.At
		}
		r.mu.Unlock()
		close(f.done)
	}()
}

// guarded turns a panic into an observation: a bug in one probe must not take the agent down.
func (r *runner[T]) guarded(ctx context.Context, round time.Time) (o observe.Observation[T]) {
	defer func() {
		if p := recover(); p != nil {
			o = observe.CannotTell[T](observe.ReasonPanic, "bug in the %s probe: %v (at %s)", r.name, p, panicOrigin())
		}
	}()
	if ctx.Err() != nil {
		return observe.CannotTell[T](observe.ReasonTimeout, "%s: no time was left to look", r.name)
	}
	return r.look(ctx, round)
}

// panicOrigin returns the place at which the panic that is being recovered began.
func panicOrigin() string {
	callers := make([]uintptr, 16)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)]) // behind Callers, this function and the deferred one
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "runtime.") {
			return fmt.Sprintf("%s, line %d", frame.Function, frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

// wait waits for a look, or returns the last observation if f is nil.
func (r *runner[T]) wait(ctx context.Context, f *flight[T]) observe.Observation[T] {
	if f == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.withGood(r.last)
	}
	select {
	case <-f.done: // also when the time to wait is over too: others may have been waited for first
		return r.landed(ctx, f)
	default:
	}
	abandon := time.NewTimer(time.Until(f.ends) + grace)
	defer abandon.Stop()
	var o observe.Observation[T]
	select {
	case <-f.done:
		return r.landed(ctx, f)
	case <-abandon.C:
		o = r.hung(f)
	case <-ctx.Done():
		o = r.hung(f)
		if errors.Is(ctx.Err(), context.Canceled) {
			o = observe.CannotTell[T](observe.ReasonCanceled, "%s: the look was given up by whoever asked", r.name)
		}
	}
	o.At = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.waiters--; f.waiters == 0 && f == r.flight {
		f.givenUp = true
		f.cancel()
	}
	return r.withGood(o)
}

// landed returns what a look that has ended saw.
func (r *runner[T]) landed(ctx context.Context, f *flight[T]) observe.Observation[T] {
	if f.givenUp && !f.seen.Known() { // before we came: what a cancelled look could not tell is no answer to us
		return r.wait(ctx, r.join(ctx, f.life, f.round))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.withGood(f.seen)
}

// hung describes a look that did not come back in time.
func (r *runner[T]) hung(f *flight[T]) observe.Observation[T] {
	age := time.Since(f.began).Round(time.Millisecond)
	if time.Now().Before(f.ends.Add(grace)) {
		return observe.CannotTell[T](observe.ReasonTimeout, "%s: no answer after %s", r.name, age)
	}
	return observe.CannotTell[T](observe.ReasonAbandoned,
		"%s: a look begun %s ago hangs and can't be ended; no other is started until it comes back", r.name, age)
}

// withGood adds the last known value to an observation that could not tell; r.mu is held.
func (r *runner[T]) withGood(o observe.Observation[T]) observe.Observation[T] {
	if !o.Known() && r.good != nil && time.Since(r.goodAt) < keepGood {
		v, at := *r.good, r.goodAt
		o.Good, o.GoodAt = &v, &at
	}
	return o
}
