package agent

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/health"
)

const (
	// NodeConditionType is the condition of the Node by which the agent tells the cluster how the node is.
	NodeConditionType = "FlexNodeHealthy"

	// refreshEvery is how often a condition that did not change is written, to show that the agent lives.
	refreshEvery = 5 * time.Minute
	// conditionGap lies between two writes, however much changes; messageGap where nothing but a message changed.
	conditionGap = 5 * time.Second
	messageGap   = time.Minute
	// firstUnknown is for how long an agent that has just begun does not tell that it knows nothing yet.
	firstUnknown = 30 * time.Second
	// tellTimeout is for one request, including a credential plugin's run.
	tellTimeout = 30 * time.Second
	// nobodyWait is when to look again whether there is somebody to tell.
	nobodyWait = 30 * time.Second

	maxEvents = 32 // that wait
	// repeatAfter is for how long the same event is not told again.
	repeatAfter = 10 * time.Minute

	// A request that failed is tried again after backoffMin, doubling to backoffMax. Without the right to make it that goes on to
	// forbiddenMax: rights that are given a moment later are noticed soon, and a node that never gets any costs next to nothing.
	backoffMin   = time.Second
	backoffMax   = time.Minute
	forbiddenMax = 30 * time.Minute
	// lasting is for how long requests must have failed for that to be worth a line in the log.
	lasting = 5 * time.Minute
)

// errNobody says that there is nobody to tell: the agent only observes.
var errNobody = errors.New("the agent only observes, and tells the cluster nothing")

// reporter tells the cluster what people who look there should know: how the node is, as a condition of the Node, and what the agent does
// about it, as Events. Three goals: it never makes anybody wait; it costs one request in five minutes while nothing changes; whatever
// becomes of the link, the cluster ends up with the latest condition. condition, event and counts are for any goroutine.
type reporter struct {
	// These do one request each.
	patch  func(context.Context, cluster.NodeCondition) error
	create func(context.Context, cluster.Event) error
	log    *logrus.Logger
	every  time.Duration // refreshEvery

	writes, failures atomic.Uint64
	wake             chan struct{} // cap 1

	mu     sync.Mutex            // guards the fields below
	want   cluster.NodeCondition // of no Type until it is known
	queue  []cluster.Event
	recent []cluster.Event // events of the last repeatAfter, whether told or not

	// Only run uses what follows.
	began      time.Time
	conditions lane
	events     lane
	sent       cluster.NodeCondition // what the cluster has, if sure; of no Type before the first write
	sure       bool                  // no write since has failed: one that did may have arrived all the same
	sentAt     time.Time
}

// lane is one kind of request with its own troubles: there may be a right to make one kind and none to make the other.
type lane struct {
	what      string
	notBefore time.Time // when the next request may be made
	failed    int       // requests in a row
	since     time.Time // of the first of those
	said      bool      // that was logged
}

// newReporter returns a reporter that tells whomever source names at the time. A nil Client means that there is nobody to tell: then
// events are dropped.
func newReporter(source func() (*cluster.Client, cluster.Source), log *logrus.Logger) *reporter {
	return &reporter{
		patch: func(ctx context.Context, c cluster.NodeCondition) error {
			client, to := source()
			if client == nil {
				return errNobody
			}
			return client.PatchNodeCondition(ctx, to, c)
		},
		create: func(ctx context.Context, e cluster.Event) error {
			client, to := source()
			if client == nil {
				return errNobody
			}
			return client.CreateEvent(ctx, to, e)
		},
		log: log, every: refreshEvery, wake: make(chan struct{}, 1),
		conditions: lane{what: "the Node's condition " + NodeConditionType}, events: lane{what: "events"},
	}
}

// counts returns how often the Node's condition was written, and how many requests failed.
func (r *reporter) counts() (writes, failures uint64) { return r.writes.Load(), r.failures.Load() }

// condition says what the gravest condition is now; found is false when there is nothing to report. A time of transition in worst is used
// only by the first call, which can't know better.
func (r *reporter) condition(worst health.Condition, found bool) {
	now := time.Now()
	c := conditionOf(worst, found)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.want.Type == "" && !worst.LastTransitionTime.IsZero() && worst.LastTransitionTime.Before(now):
		c.LastTransition = worst.LastTransitionTime
	case r.want.Status == c.Status:
		c.LastTransition = r.want.LastTransition
	default:
		c.LastTransition = now
	}
	if c != r.want {
		r.want = c
		poke(r.wake)
	}
}

// conditionOf words the gravest condition for the cluster.
func conditionOf(worst health.Condition, found bool) cluster.NodeCondition {
	c := cluster.NodeCondition{Type: NodeConditionType, Status: string(health.True), Reason: "NothingToReport", Message: "the agent sees nothing wrong with this node"}
	if !found {
		return c
	}
	c.Reason, c.Message = cmp.Or(worst.Reason, worst.Type), worst.Type+": "+worst.Message
	switch {
	case worst.Status == health.Unknown:
		c.Status = string(health.Unknown)
	case worst.Severity == health.Warning || worst.Severity == health.Critical:
		c.Status = string(health.False)
	}
	return c
}

// event tells of an event as soon as that is possible; one without a time is of now. Of more than 32 that wait, the oldest are dropped.
// One with the reason and message of another of the last 10 minutes is not told: so messages should not hold what changes by itself, as
// ages do.
func (r *reporter) event(e cluster.Event) {
	now := time.Now()
	if e.At.IsZero() {
		e.At = now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recent = slices.DeleteFunc(r.recent, func(old cluster.Event) bool { return now.Sub(old.At) >= repeatAfter })
	if slices.ContainsFunc(r.recent, func(old cluster.Event) bool { return old.Reason == e.Reason && old.Message == e.Message }) {
		return
	}
	r.recent = lastOf(append(r.recent, cluster.Event{Reason: e.Reason, Message: e.Message, At: now}), maxEvents)
	r.queue = lastOf(append(r.queue, e), maxEvents)
	poke(r.wake)
}

// lastOf keeps the last n.
func lastOf(events []cluster.Event, n int) []cluster.Event {
	return slices.Delete(events, 0, max(0, len(events)-n))
}

// job is one request that is due at some time.
type job struct {
	at   time.Time
	lane *lane
	do   func(context.Context) error
	done func(error) // tells its outcome, nil for success
}

// run tells until ctx ends, and then returns at once, whatever hangs.
func (r *reporter) run(ctx context.Context) {
	r.began = time.Now()
	for ctx.Err() == nil {
		j, some := r.next()
		if some && !j.at.After(time.Now()) {
			r.try(ctx, j)
			continue
		}
		var timer *time.Timer
		var due <-chan time.Time
		if some {
			timer = time.NewTimer(time.Until(j.at))
			due = timer.C
		}
		select {
		case <-r.wake:
		case <-due:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// next is what is to be done next, and when; some is false while there is nothing to tell.
func (r *reporter) next() (next job, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.want.Type != "" {
		next, some = r.write(r.want), true
	}
	if len(r.queue) > 0 && (!some || !next.at.Before(r.events.notBefore)) {
		next, some = r.tell(r.queue[0]), true
	}
	return next, some
}

// write is the job to write a condition.
func (r *reporter) write(c cluster.NodeCondition) job {
	if r.sure && c.Status == r.sent.Status {
		c.LastTransition = r.sent.LastTransition // a change that the cluster never saw is none
	}
	var due time.Time // at once
	switch {
	case r.sent.Type == "" && c.Status == string(health.Unknown):
		due = r.began.Add(firstUnknown)
	case !r.sure:
	case c.Status == r.sent.Status && c.Reason == r.sent.Reason && c.Message == r.sent.Message:
		due = r.sentAt.Add(r.every)
	case c.Status == r.sent.Status && c.Reason == r.sent.Reason:
		due = r.sentAt.Add(min(messageGap, r.every))
	}
	if due.Before(r.conditions.notBefore) {
		due = r.conditions.notBefore
	}
	return job{
		at: due, lane: &r.conditions,
		do: func(ctx context.Context) error {
			c.Heartbeat = time.Now()
			return r.patch(ctx, c)
		},
		done: func(err error) {
			r.sure = err == nil
			if err != nil {
				return
			}
			r.writes.Add(1)
			r.sent, r.sentAt = c, time.Now()
			r.conditions.notBefore = r.sentAt.Add(conditionGap)
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.want.Status == c.Status {
				r.want.LastTransition = c.LastTransition
			}
		},
	}
}

// tell is the job to tell of an event.
func (r *reporter) tell(e cluster.Event) job {
	return job{
		at: r.events.notBefore, lane: &r.events,
		do: func(ctx context.Context) error { return r.create(ctx, e) },
		done: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			switch {
			case errors.Is(err, errNobody):
				r.queue, r.recent = nil, nil
			case err != nil && !cluster.Refused(err): // it stays
			case len(r.queue) > 0 && r.queue[0] == e: // else it was dropped meanwhile
				r.queue = slices.Delete(r.queue, 0, 1)
			}
		},
	}
}

// try makes a request. One that hangs even beyond its context keeps others from being made, but not run from ending.
func (r *reporter) try(ctx context.Context, j job) {
	outcome := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, tellTimeout)
		defer cancel()
		outcome <- j.do(ctx)
	}()
	select {
	case err := <-outcome:
		if ctx.Err() != nil {
			return
		}
		r.settle(j.lane, err)
		j.done(err)
	case <-ctx.Done():
	}
}

// settle learns from an outcome when the next request of a lane may be made.
func (r *reporter) settle(l *lane, err error) {
	now := time.Now()
	switch {
	case errors.Is(err, errNobody):
		l.failed, l.notBefore = 0, now.Add(nobodyWait)
		return
	case err == nil:
		if l.said {
			r.log.Infof("The cluster can be told %s again", l.what)
		}
		l.failed, l.said = 0, false
		return
	case l.failed == 0:
		l.since = now
	}
	r.failures.Add(1)
	l.failed++
	forbidden := cluster.ReasonOf(err) == cluster.ReasonForbidden
	l.notBefore = now.Add(backoff(l.failed, forbidden))
	r.log.Debugf("The cluster can't be told %s (try %d): %v", l.what, l.failed, err)
	if l.said || (!forbidden && now.Sub(l.since) < lasting) {
		return
	}
	l.said = true
	hint := ""
	if forbidden {
		hint = ". If it should be, give the node's identity the rights that deploy/rbac.yaml calls aks-flex-node-tell"
	}
	r.log.Infof("The cluster can't be told %s; everything else works without: %v%s", l.what, err, hint)
}

// backoff is how long to wait after so many failures in a row, with up to half as much again, so that a fleet does not come back in step.
func backoff(failed int, forbidden bool) time.Duration {
	most := backoffMax
	if forbidden {
		most = forbiddenMax
	}
	d := min(backoffMin<<min(failed-1, 20), most)
	return d + rand.N(d/2) //nolint:gosec // spreads a fleet, hides nothing
}
