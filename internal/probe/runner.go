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
	look   func(ctx context.Context, round time.Time) observe.Observation[T]
	shared *shared // nil: with nobody

	mu       sync.Mutex
	flight   *flight[T]
	last     observe.Observation[T]
	round    time.Time // for which the last look was made
	began    time.Time // when it began
	short    bool      // it had less time than deadline, or was given up, and couldn't tell: that is an answer for its own round only
	good     *T
	goodAt   time.Time
	looks    uint64 // that have ended
	failures uint64 // of those
	took     time.Duration
}

// shared is what the runners of one Suite have in common.
type shared struct {
	underWay atomic.Int32 // looks
	landed   func()       // called after each look; nil calls nobody
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

// anew is observe for whoever was told at a certain time that something has changed: what it returns comes from a look that began no
// earlier. One that has been under way since before says nothing about that, and is only waited for. The look has all of its own time,
// however little the caller has: others may be waiting for it too, and without any it ends.
func (r *runner[T]) anew(ctx, life context.Context, since time.Time) observe.Observation[T] {
	for {
		f, old := r.joinSince(life, life, since, since)
		if !old {
			return r.wait(ctx, f)
		}
		if !r.outlast(ctx, f) {
			return r.stamped(r.missing(ctx, f))
		}
	}
}

// join makes sure that there is such an observation, or a look under way that will bring it, and returns that look. What it returns must
// be waited for.
func (r *runner[T]) join(ctx, life context.Context, round time.Time) *flight[T] {
	f, _ := r.joinSince(ctx, life, round, time.Time{})
	return f
}

// joinSince is join where the look must not have begun before since. A look under way that has is returned as old, and not joined.
func (r *runner[T]) joinSince(ctx, life context.Context, round, since time.Time) (f *flight[T], old bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fresh(round) && !r.began.Before(since) {
		return nil, false
	}
	if r.flight != nil && r.flight.began.Before(since) {
		return r.flight, true
	}
	if r.flight == nil {
		r.start(ctx, life, round)
	}
	r.flight.waiters++
	return r.flight, false
}

// latest returns the last observation, however old.
func (r *runner[T]) latest() observe.Observation[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.withGood(r.last)
}

// current returns the last observation, unless a look that was begun since hangs: then that is the news, as of when it was given up.
func (r *runner[T]) current() observe.Observation[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hangs() {
		o := r.hung(r.flight)
		o.At = r.flight.ends.Add(grace)
		return r.withGood(o)
	}
	return r.withGood(r.last)
}

// hangs reports whether a look is under way that was given up; r.mu is held.
func (r *runner[T]) hangs() bool {
	return r.flight != nil && !time.Now().Before(r.flight.ends.Add(grace))
}

func (r *runner[T]) stat() Stat {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stat{Name: r.name, Looks: r.looks, Failures: r.failures, Last: r.took, Hangs: r.hangs()}
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
	if r.shared != nil {
		r.shared.underWay.Add(1)
	}
	go func() {
		o := r.guarded(lookCtx, round)
		cancel()
		r.land(f, o, !o.Known() && (allowed < r.deadline || life.Err() != nil))
		close(f.done)
		if r.shared == nil {
			return
		}
		if r.shared.landed != nil {
			r.shared.landed()
		}
		r.shared.underWay.Add(-1)
	}()
}

// land keeps what a look that has ended saw. short is what is said of the field of that name.
func (r *runner[T]) land(f *flight[T], o observe.Observation[T], short bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.At = time.Now() // with the lock held: whoever joined did so before
	r.flight, f.seen = nil, o
	r.took = o.At.Sub(f.began)
	r.looks++
	if !o.Known() && o.Reason != observe.ReasonNotEnabled {
		r.failures++
	}
	// What a look that was cancelled could not tell says nothing. But one that hung was the news meanwhile, and what was seen long before
	// it must not take its place again.
	if hung := !o.At.Before(f.ends.Add(grace)); o.Known() || !f.givenUp || hung {
		r.last, r.round, r.began, r.short = o, f.round, f.began, short || !o.Known() && f.givenUp
	}
	if o.Known() {
		v := o.Value
		r.good, r.goodAt = &v, o.At
	}
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
	if r.outlast(ctx, f) {
		return r.landed(ctx, f)
	}
	o := r.missing(ctx, f)
	r.mu.Lock()
	if f.waiters--; f.waiters == 0 && f == r.flight {
		f.givenUp = true
		f.cancel()
	}
	r.mu.Unlock()
	return r.stamped(o)
}

// outlast waits for a look to end, and reports whether it did before it was given up and before ctx ended.
func (r *runner[T]) outlast(ctx context.Context, f *flight[T]) bool {
	abandon := time.NewTimer(time.Until(f.ends) + grace)
	defer abandon.Stop()
	select {
	case <-f.done:
		return true
	case <-abandon.C:
	case <-ctx.Done():
	}
	return false
}

// missing says why there is nothing from a look that was not outlasted.
func (r *runner[T]) missing(ctx context.Context, f *flight[T]) observe.Observation[T] {
	if errors.Is(ctx.Err(), context.Canceled) {
		return observe.CannotTell[T](observe.ReasonCanceled, "%s: the look was given up by whoever asked", r.name)
	}
	return r.hung(f)
}

// stamped makes an observation one of now.
func (r *runner[T]) stamped(o observe.Observation[T]) observe.Observation[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.At = time.Now()
	return r.withGood(o)
}

// landed returns what a look that has ended saw.
func (r *runner[T]) landed(ctx context.Context, f *flight[T]) observe.Observation[T] {
	if f.givenUp && !f.seen.Known() { // before we came: what a cancelled look could not tell is no answer to us
		next, _ := r.joinSince(ctx, f.life, f.round, f.began) // of those that are under way, none is older
		return r.wait(ctx, next)
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
