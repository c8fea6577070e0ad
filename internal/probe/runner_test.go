package probe

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

type textAnswer = observe.Observation[string]

// scene is a runner in a bubble with a clock of its own, and what its looks were given.
type scene struct {
	runner[string]
	life context.Context
	end  context.CancelFunc

	looks atomic.Int32 // begun
	under atomic.Int32 // under way
	most  atomic.Int32 // under way at once
}

// newScene makes a runner with a deadline of 5 s. A look does what next says; the nth is number 1, 2, …
func newScene(next func(ctx context.Context, n int) textAnswer) *scene {
	s := &scene{}
	s.life, s.end = context.WithCancel(context.Background())
	s.runner = runner[string]{name: "test", deadline: 5 * time.Second, look: func(ctx context.Context, _ time.Time) textAnswer {
		s.most.Store(max(s.most.Load(), s.under.Add(1)))
		defer s.under.Add(-1)
		return next(ctx, int(s.looks.Add(1)))
	}}
	return s
}

// ask observes in a new round.
func (s *scene) ask(ctx context.Context) textAnswer { return s.observe(ctx, s.life, time.Now()) }

// asks observes in a goroutine.
func (s *scene) asks(ctx context.Context) <-chan textAnswer {
	answer := make(chan textAnswer, 1)
	go func() { answer <- s.ask(ctx) }()
	return answer
}

func passTime(d time.Duration) { <-time.After(d) }

func lookSees(v string) textAnswer { return observe.See(v, observe.Healthy, "Seen", "seen") }

// lookTakes looks for so long, unless its context ends first.
func lookTakes(ctx context.Context, d time.Duration, v string) textAnswer {
	select {
	case <-time.After(d):
		return lookSees(v)
	case <-ctx.Done():
		return observe.CannotTell[string]("LookEnded", "%v", context.Cause(ctx))
	}
}

func wantAnswer(t *testing.T, when string, got textAnswer, health observe.Health, value, reason, message string) {
	t.Helper()
	if got.Health != health || got.Value != value || got.Reason != reason || !strings.Contains(got.Message, message) {
		t.Errorf("%s: got %+v, want %v %q %s, %q", when, got, health, value, reason, message)
	}
	if !got.At.Equal(time.Now()) {
		t.Errorf("%s: got it at %v, want the time when it was seen, %v", when, got.At, time.Now())
	}
}

func wantValue(t *testing.T, when string, got textAnswer, value string) {
	t.Helper()
	wantAnswer(t, when, got, observe.Healthy, value, "Seen", "seen")
}

func (s *scene) wantLooks(t *testing.T, when string, n int) {
	t.Helper()
	if got := int(s.looks.Load()); got != n {
		t.Errorf("%s: got %d looks, want %d", when, got, n)
	}
	if got := s.most.Load(); got > 1 {
		t.Errorf("%s: got %d looks at once, want one at a time", when, got)
	}
}

func tookExactly(t *testing.T, begin time.Time, d time.Duration) {
	t.Helper()
	if got := time.Since(begin); got != d {
		t.Errorf("it took %v, want %v", got, d)
	}
}

func TestRunnerGivesALookItsDeadline(t *testing.T) {
	for _, tc := range []struct {
		name    string
		left    time.Duration // of the caller's time; negative for no deadline
		allowed time.Duration
		message string
	}{
		{"given a caller without a deadline, then it is the probe's own", -1, 5 * time.Second, "no answer within the deadline of 5s"},
		{"given a caller with more time, then it is the probe's own", time.Minute, 5 * time.Second, "no answer within the deadline of 5s"},
		{"given a caller with just enough more", 5250 * time.Millisecond, 5 * time.Second, "no answer within the deadline of 5s"},
		{"given a caller with less, then it is the caller's less 250 ms", 5249 * time.Millisecond, 4999 * time.Millisecond, "deadline of 4.999s"},
		{"given a caller with 1 s", time.Second, 750 * time.Millisecond, "no answer within the deadline of 750ms"},
		{"given a caller with 251 ms", 251 * time.Millisecond, time.Millisecond, "no answer within the deadline of 1ms"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(func(ctx context.Context, _ int) textAnswer {
					end, ok := ctx.Deadline()
					if got := time.Until(end); !ok || got != tc.allowed {
						t.Errorf("the look has %v, %v, want %v", got, ok, tc.allowed)
					}
					<-ctx.Done()
					if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
						t.Errorf("got %v because of %v, want the deadline", ctx.Err(), context.Cause(ctx))
					}
					if cause, ok := context.Cause(ctx).(interface{ Timeout() bool }); !ok || !cause.Timeout() {
						t.Errorf("got %#v as the cause, want one that says that it is a time-out", context.Cause(ctx))
					}
					return observe.CannotTell[string]("LookEnded", "%v", context.Cause(ctx))
				})
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if tc.left >= 0 {
					ctx, cancel = context.WithTimeout(ctx, tc.left)
				}
				defer cancel()
				begin := time.Now()
				wantAnswer(t, "at its end", s.ask(ctx), observe.Unknown, "", "LookEnded", tc.message)
				tookExactly(t, begin, tc.allowed)
			})
		})
	}
}

func TestRunnerWithNoTimeLeft(t *testing.T) {
	for _, left := range []time.Duration{250 * time.Millisecond, 100 * time.Millisecond, 0, -time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(func(ctx context.Context, _ int) textAnswer { return lookTakes(ctx, time.Second, "value") })
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			begin := time.Now()
			o := s.ask(ctx)
			if o.Health != observe.Unknown || o.Reason != observe.ReasonTimeout || o.Message == "" {
				t.Errorf("given %v: got %+v, want Unknown, Timeout", left, o)
			}
			tookExactly(t, begin, 0)
			synctest.Wait()
			s.wantLooks(t, "given no time", 0)
			passTime(time.Nanosecond)
			wantValue(t, "the next caller", s.ask(t.Context()), "value")
			s.wantLooks(t, "then", 1)

			passTime(time.Second)
			other := s.asks(t.Context())
			synctest.Wait()
			o = s.ask(ctx) // by now its time is over
			if o.Known() || o.Reason != observe.ReasonTimeout {
				t.Errorf("given none while a look is under way: got %+v, want Unknown, Timeout", o)
			}
			wantValue(t, "who began that look", <-other, "value")
			s.wantLooks(t, "then", 2)
		})
	}
}

func TestRunnerMakesOneLookForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given context.Context
		s := newScene(func(ctx context.Context, _ int) textAnswer {
			given = ctx
			return lookTakes(ctx, time.Second, "value")
		})
		var all []<-chan textAnswer
		for range 10 {
			all = append(all, s.asks(t.Context()))
			passTime(10 * time.Millisecond)
		}
		for _, answer := range all {
			wantValue(t, "each caller", <-answer, "value")
		}
		s.wantLooks(t, "for ten callers", 1)
		if given.Err() == nil {
			t.Error("the look's context outlives it, and with it a timer")
		}
		passTime(time.Nanosecond)
		wantValue(t, "afterwards", s.ask(t.Context()), "value")
		s.wantLooks(t, "for one more, afterwards", 2)
	})
}

func TestRunnerRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(ctx context.Context, n int) textAnswer {
			if n == 3 {
				return observe.CannotTell[string]("Broken", "could not tell")
			}
			return lookTakes(ctx, time.Second, "value")
		})
		round := time.Now()
		wantValue(t, "first in a round", s.observe(t.Context(), s.life, round), "value")
		seen := time.Now()
		passTime(time.Minute)
		if o := s.observe(t.Context(), s.life, round); o.Value != "value" || !o.At.Equal(seen) {
			t.Errorf("later in the same round: got %+v, want what was seen at %v", o, seen)
		}
		if o := s.observe(t.Context(), s.life, seen); !o.At.Equal(seen) {
			t.Errorf("in a round that began when it ended: got %+v, want what was seen at %v", o, seen)
		}
		s.wantLooks(t, "in one round", 1)

		early := s.asks(t.Context())
		passTime(500 * time.Millisecond)
		begin := time.Now()
		wantValue(t, "when a look of an earlier round is under way", s.ask(t.Context()), "value")
		tookExactly(t, begin, 500*time.Millisecond)
		<-early
		s.wantLooks(t, "in two rounds that overlap", 2)

		passTime(time.Second)
		round = time.Now()
		wantAnswer(t, "when it can't be told", s.observe(t.Context(), s.life, round), observe.Unknown, "", "Broken", "could not tell")
		wantAnswer(t, "again in that round", s.observe(t.Context(), s.life, round), observe.Unknown, "", "Broken", "could not tell")
		s.wantLooks(t, "in that round", 3)
		passTime(time.Nanosecond)
		wantValue(t, "in the next", s.ask(t.Context()), "value")
		s.wantLooks(t, "in the next", 4)
	})
}

func TestRunnerWhenSomeCallersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(ctx context.Context, _ int) textAnswer { return lookTakes(ctx, 4*time.Second, "value") })
		patient := s.asks(t.Context())
		synctest.Wait() // the look has the time of whoever began it
		cancelled, cancel := context.WithCancel(t.Context())
		one := s.asks(cancelled)
		hurried, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		two := s.asks(hurried)

		passTime(time.Second)
		cancel()
		wantAnswer(t, "who cancels", <-one, observe.Unknown, "", observe.ReasonCanceled, "given up")
		wantAnswer(t, "whose time is over", <-two, observe.Unknown, "", observe.ReasonTimeout, "no answer after 2s")
		wantValue(t, "who waits", <-patient, "value")
		s.wantLooks(t, "for three", 1)
	})
}

func TestRunnerWhenAllCallersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		s := newScene(func(ctx context.Context, n int) textAnswer {
			if n > 1 {
				return lookTakes(ctx, time.Second, "second")
			}
			<-ctx.Done()
			if ctx.Err() != context.Canceled { // exactly this one
				t.Errorf("the look ended by %v, want it to be cancelled", ctx.Err())
			}
			ended <- time.Now()
			passTime(300 * time.Millisecond) // as a process takes that is killed
			return observe.CannotTell[string]("LookEnded", "%v", ctx.Err())
		})
		s.every = time.Minute
		one, cancelOne := context.WithCancel(t.Context())
		two, cancelTwo := context.WithCancel(t.Context())
		first, second := s.asks(one), s.asks(two)
		passTime(time.Second)
		cancelOne()
		<-first
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the look was ended while somebody waited for it")
		}
		passTime(time.Second)
		cancelTwo()
		wantAnswer(t, "the last one", <-second, observe.Unknown, "", observe.ReasonCanceled, "given up")
		if at := <-ended; !at.Equal(time.Now()) {
			t.Errorf("the look was ended at %v, want when the last one gave up, %v", at, time.Now())
		}

		passTime(100 * time.Millisecond) // the look is still coming back
		begin := time.Now()
		wantValue(t, "who comes then", s.ask(t.Context()), "second")
		tookExactly(t, begin, 1200*time.Millisecond)
		s.wantLooks(t, "altogether", 2)
	})
}

func TestRunnerKeepsNothingOfALookThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(ctx context.Context, _ int) textAnswer { return lookTakes(ctx, time.Second, "value") })
		s.every = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		answer := s.asks(ctx)
		passTime(100 * time.Millisecond)
		cancel()
		<-answer
		synctest.Wait()
		wantValue(t, "who comes afterwards", s.ask(t.Context()), "value")
		s.wantLooks(t, "altogether", 2)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(context.Context, int) textAnswer { passTime(time.Second); return lookSees("in the end") })
		ctx, cancel := context.WithCancel(t.Context())
		answer := s.asks(ctx)
		passTime(100 * time.Millisecond)
		cancel()
		<-answer
		wantValue(t, "given a look that comes back with a value all the same, who waits by then", s.ask(t.Context()), "in the end")
		s.wantLooks(t, "altogether", 1)
	})
}

func TestRunnerAbandonsALookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan textAnswer)
		s := newScene(func(_ context.Context, n int) textAnswer {
			if n > 2 {
				return lookSees("again")
			}
			return <-release
		})
		s.every = 10 * time.Second
		begin := time.Now()
		one, two := s.asks(t.Context()), s.asks(t.Context())
		const hangs = "hangs and can't be ended; no other is started until it comes back"
		wantAnswer(t, "first", <-one, observe.Unknown, "", observe.ReasonAbandoned, "begun 5.5s ago "+hangs)
		wantAnswer(t, "who waited too", <-two, observe.Unknown, "", observe.ReasonAbandoned, "begun 5.5s ago "+hangs)
		tookExactly(t, begin, 5500*time.Millisecond)

		for _, age := range []time.Duration{5500 * time.Millisecond, 6 * time.Second, time.Minute, 36 * time.Hour} {
			passTime(age - time.Since(begin))
			wantAnswer(t, "later", s.ask(t.Context()), observe.Unknown, "", observe.ReasonAbandoned, "begun "+age.String()+" ago "+hangs)
			tookExactly(t, begin, age)
		}
		s.wantLooks(t, "while it hangs", 1)

		release <- observe.CannotTell[string]("Late", "came back at last")
		synctest.Wait()
		answer := s.asks(t.Context())
		synctest.Wait()
		s.wantLooks(t, "after it came back", 2)
		passTime(time.Hour)
		<-answer
		release <- lookSees("late")
		synctest.Wait()
		came := time.Now()
		passTime(9 * time.Second)
		if o := s.ask(t.Context()); o.Value != "late" || !o.At.Equal(came) {
			t.Errorf("after it came back with a value: got %+v, want that", o)
		}
		passTime(time.Second)
		wantValue(t, "when that is no longer good", s.ask(t.Context()), "again")
		s.wantLooks(t, "altogether", 3)
	})
}

func TestRunnerLetsALookSayItselfWhatWentWrong(t *testing.T) {
	for _, late := range []time.Duration{0, 400 * time.Millisecond, 499 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(func(ctx context.Context, _ int) textAnswer {
				<-ctx.Done()
				passTime(late) // as a process takes that is killed
				return observe.CannotTell[string]("OwnWords", "killed")
			})
			wantAnswer(t, "within the grace", s.ask(t.Context()), observe.Unknown, "", "OwnWords", "killed")

			passTime(time.Nanosecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begin := time.Now()
			o := s.ask(ctx)
			if late > reserve { // the caller comes first
				wantAnswer(t, "when the caller has no time for that", o, observe.Unknown, "", observe.ReasonTimeout, "no answer after 1s")
				passTime(grace) // the look comes back
				return
			}
			wantAnswer(t, "within the caller's time", o, observe.Unknown, "", "OwnWords", "killed")
			tookExactly(t, begin, 750*time.Millisecond+late)
		})
	}
}
