package probe

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

func TestRunnerKeepsTheLastGoodValueForThreeMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(_ context.Context, n int) textAnswer {
			if n == 2 {
				return observe.See("good", observe.Unhealthy, "Seen", "known, though not healthy")
			}
			if n == 9 {
				return lookSees("new")
			}
			return observe.CannotTell[string]("Broken", "could not tell")
		})
		if o := s.ask(t.Context()); o.Good != nil || o.GoodAt != nil {
			t.Errorf("before any: got %+v, want no last value", o)
		}
		passTime(time.Second)
		if o := s.ask(t.Context()); o.Value != "good" || o.Good != nil || o.GoodAt != nil {
			t.Errorf("while it is known: got %+v, want the value and no last one beside it", o)
		}
		good := time.Now()
		for _, tc := range []struct {
			age  time.Duration
			kept bool
		}{
			{time.Nanosecond, true}, {time.Minute, true}, {3*time.Minute - time.Nanosecond, true},
			{3 * time.Minute, false}, {3*time.Minute + time.Nanosecond, false}, {time.Hour, false},
		} {
			passTime(tc.age - time.Since(good))
			o := s.ask(t.Context())
			wantAnswer(t, tc.age.String()+" later", o, observe.Unknown, "", "Broken", "could not tell")
			if tc.kept && (o.Good == nil || *o.Good != "good" || o.GoodAt == nil || !o.GoodAt.Equal(good)) {
				t.Errorf("%v later: got %+v, want the last value and when it was seen", tc.age, o)
			}
			if !tc.kept && (o.Good != nil || o.GoodAt != nil) {
				t.Errorf("%v later: got the last value %q, want it to be forgotten", tc.age, *o.Good)
			}
			if tc.kept { // what the caller does with it does not matter to others
				*o.Good, *o.GoodAt = "spoiled", time.Time{}
			}
		}
		passTime(time.Second)
		wantValue(t, "when it is known again", s.ask(t.Context()), "new")
	})
}

func TestRunnerShowsTheLastGoodValueHoweverItCannotBeTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newScene(func(_ context.Context, n int) textAnswer {
			if n > 1 {
				<-release
			}
			return lookSees("good")
		})
		s.ask(t.Context())
		good := time.Now()
		passTime(time.Second)
		shows := func(reason string, o textAnswer) {
			t.Helper()
			if o.Known() || o.Reason != reason || o.Good == nil || *o.Good != "good" || !o.GoodAt.Equal(good) {
				t.Errorf("got %+v, want Unknown, %s, with the last value", o, reason)
			}
		}
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		shows(observe.ReasonTimeout, s.ask(short))
		cancelled, cancel := context.WithCancel(t.Context())
		answer := s.asks(cancelled)
		synctest.Wait()
		cancel()
		shows(observe.ReasonCanceled, <-answer)
		shows(observe.ReasonAbandoned, s.ask(t.Context()))
		close(release)
		synctest.Wait()
	})
}

func TestRunnerLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(_ context.Context, n int) textAnswer {
			if n > 1 {
				return observe.CannotTell[string]("Broken", "could not tell")
			}
			return lookSees("value")
		})
		if o := s.latest(); o != (textAnswer{}) {
			t.Errorf("before any look: got %+v, want the zero observation", o)
		}
		s.ask(t.Context())
		seen := time.Now()
		passTime(2 * time.Minute)
		if o := s.latest(); o.Value != "value" || !o.At.Equal(seen) {
			t.Errorf("later: got %+v, want what was seen at %v", o, seen)
		}
		s.ask(t.Context())
		if o := s.latest(); o.Reason != "Broken" || o.Good == nil || *o.Good != "value" {
			t.Errorf("after a look that could not tell: got %+v, want that, with the last value", o)
		}
		passTime(time.Minute)
		if o := s.latest(); o.Reason != "Broken" || o.Good != nil {
			t.Errorf("after three minutes: got %+v, want no last value", o)
		}
		s.wantLooks(t, "altogether", 2)
	})
}

func TestRunnerCadence(t *testing.T) {
	failing := lookFails("Broken")
	for _, tc := range []struct {
		name  string
		look  func(ctx context.Context) textAnswer
		first time.Duration // of the first caller's time; 0 for no deadline
		kept  bool
	}{
		{"given a value, then it is good for a minute", func(context.Context) textAnswer { return lookSees("value") }, 0, true},
		{"given that it could not be told, then that is good for a minute", failing, 0, true},
		{"given a look that did not end in time, then that is good for a minute", lookUntilEnd, 0, true},
		{"given a value in a short look, then it is good for a minute", func(context.Context) textAnswer { return lookSees("value") }, time.Second, true},
		{"given that a short look could not tell, then it is made again", failing, time.Second, false},
		{"given a short look that did not end in time, then it is made again", lookUntilEnd, time.Second, false},
		{"given a caller with no time, then the look is made for the next", lookUntilEnd, 100 * time.Millisecond, false},
		{"given a panic, then it is not tried again for a minute", func(context.Context) textAnswer { panic("bug") }, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(func(ctx context.Context, _ int) textAnswer { return tc.look(ctx) })
				s.every = time.Minute
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if tc.first > 0 {
					ctx, cancel = context.WithTimeout(ctx, tc.first)
				}
				defer cancel()
				first := s.ask(ctx)
				synctest.Wait()
				looks, seen := s.looks.Load(), first.At

				passTime(time.Millisecond)
				second := s.ask(t.Context())
				if got := s.looks.Load() == looks; got != tc.kept {
					t.Errorf("a millisecond later: got %+v; was it kept: got %v, want %v", second, got, tc.kept)
				}
				if !tc.kept {
					return
				}
				if !second.At.Equal(seen) || second.Value != first.Value || second.Reason != first.Reason {
					t.Errorf("got %+v, want what was seen before: %+v", second, first)
				}
				passTime(time.Minute - time.Nanosecond - time.Since(seen))
				s.ask(t.Context())
				s.wantLooks(t, "just before a minute", int(looks))
				passTime(time.Nanosecond)
				if o := s.ask(t.Context()); !o.At.After(seen) {
					t.Errorf("after a minute: got %+v, want a new look", o)
				}
				s.wantLooks(t, "after a minute", int(looks)+1)
			})
		})
	}
}

func lookFails(reason string) func(context.Context) textAnswer {
	return func(context.Context) textAnswer { return observe.CannotTell[string](reason, "could not tell") }
}

func lookUntilEnd(ctx context.Context) textAnswer {
	<-ctx.Done()
	return observe.CannotTell[string]("LookEnded", "%v", context.Cause(ctx))
}

// A look that had little time is an answer for those of its own round, and for nobody else.
func TestRunnerSharesAShortLookWithinItsRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(ctx context.Context, _ int) textAnswer { return lookTakes(ctx, time.Second, "value") })
		earlier := time.Now()
		passTime(time.Millisecond)
		round := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, when := range []string{"first", "again"} {
			o := s.observe(ctx, s.life, round)
			wantAnswer(t, when, o, observe.Unknown, "", "LookEnded", "within the deadline of 750ms")
		}
		s.wantLooks(t, "in one round", 1)
		wantValue(t, "in a round that began before it ended, with more time", s.observe(t.Context(), s.life, earlier), "value")
		s.wantLooks(t, "then", 2)
	})
}

func TestRunnerSurvivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(_ context.Context, n int) textAnswer {
			switch n {
			case 1:
				var none []int
				_ = none[n]
			case 2:
				panic("a text")
			}
			return lookSees("value")
		})
		o := s.ask(t.Context())
		wantAnswer(t, "given an error", o, observe.Unknown, "", observe.ReasonPanic, "bug in the test probe: runtime error: index out of range")
		if !strings.Contains(o.Message, "TestRunnerSurvivesAPanic") {
			t.Errorf("got %q, want it to hold where it happened", o.Message)
		}
		passTime(time.Second)
		wantAnswer(t, "given a text", s.ask(t.Context()), observe.Unknown, "", observe.ReasonPanic, "bug in the test probe: a text")
		passTime(time.Second)
		wantValue(t, "then", s.ask(t.Context()), "value")
	})
}

func TestRunnerWhenItsLifeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(ctx context.Context, _ int) textAnswer { return lookTakes(ctx, 3*time.Second, "value") })
		s.every = time.Minute
		one, two := s.asks(t.Context()), s.asks(t.Context())
		passTime(time.Second)
		begin := time.Now()
		s.end()
		wantAnswer(t, "who waited", <-one, observe.Unknown, "", "LookEnded", "context canceled")
		wantAnswer(t, "who waited too", <-two, observe.Unknown, "", "LookEnded", "context canceled")
		tookExactly(t, begin, 0)
		passTime(time.Second)
		begin = time.Now()
		if o := s.ask(t.Context()); o.Known() || o.Reason == "" {
			t.Errorf("afterwards: got %+v, want Unknown and why", o)
		}
		tookExactly(t, begin, 0)
		s.wantLooks(t, "altogether", 1)
	})
}

// Nothing can be said here about time; what must hold holds whatever comes first.
func TestRunnerUnderStress(t *testing.T) {
	life, end := context.WithCancel(t.Context())
	defer end()
	var under, looks atomic.Int32
	r := runner[int32]{name: "stress", deadline: time.Minute}
	r.look = func(ctx context.Context, _ time.Time) observe.Observation[int32] {
		if n := under.Add(1); n > 1 {
			t.Errorf("got %d looks at once", n)
		}
		defer under.Add(-1)
		n := looks.Add(1)
		wait := time.Duration(rand.IntN(300)) * time.Microsecond
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			<-time.After(wait) // as a process takes that is killed
			return observe.CannotTell[int32]("LookEnded", "%v", ctx.Err())
		}
		if n%7 == 0 {
			panic("every seventh")
		}
		return observe.See(n, observe.Healthy, "Seen", "seen")
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				impatient := rand.IntN(2) == 0
				if impatient {
					time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, cancel)
				}
				round := time.Now()
				o := r.observe(ctx, life, round)
				switch {
				case o.At.Before(round):
					t.Errorf("got %+v for a round that began at %v, want nothing older", o, round)
				case o.Known() && (o.Value == 0 || o.Good != nil):
					t.Errorf("got %+v, want a value and no last one", o)
				case !impatient && !o.Known() && o.Reason != observe.ReasonPanic:
					t.Errorf("got %+v, want a caller who waits to get an answer", o)
				case impatient && !o.Known() && o.Reason != observe.ReasonPanic && ctx.Err() == nil:
					t.Errorf("got %+v though it was not given up", o)
				case o.Reason == "":
					t.Errorf("got %+v without a reason", o)
				}
				cancel()
			}
		})
	}
	all.Wait()
}
