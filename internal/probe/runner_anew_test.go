package probe

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// askAnew asks as whoever was told just now that something has changed.
func (s *scene) askAnew(ctx context.Context) textAnswer { return s.anew(ctx, s.life, time.Now()) }

func (s *scene) asksAnew(ctx context.Context) <-chan textAnswer {
	answer := make(chan textAnswer, 1)
	go func() { answer <- s.askAnew(ctx) }()
	return answer
}

// world is what there is to see.
type world struct{ atomic.Pointer[string] }

func newWorld(v string) *world {
	w := &world{}
	w.becomes(v)
	return w
}

func (w *world) becomes(v string) { w.Store(&v) }

// changing is a scene in which each look takes a second and sees what there was to see when it began.
func changing(w *world) *scene {
	return newScene(func(ctx context.Context, _ int) textAnswer { return lookTakes(ctx, time.Second, *w.Load()) })
}

// A look that began before an event may end after it, with what was so before.
func TestRunnerLooksAgainAfterAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := newWorld("before")
		s := changing(now)
		s.every = time.Minute // an event is news, however good the last look still is
		early := s.asks(t.Context())
		passTime(500 * time.Millisecond)
		now.becomes("after")
		begin := time.Now()
		shared := s.asks(t.Context())
		events := []<-chan textAnswer{s.asksAnew(t.Context()), s.asksAnew(t.Context())}
		for _, event := range events {
			wantValue(t, "who was told of the event", <-event, "after")
		}
		tookExactly(t, begin, 1500*time.Millisecond)
		for _, other := range []<-chan textAnswer{early, shared} {
			if o := <-other; o.Value != "before" {
				t.Errorf("others: got %+v, want them to share the look that was under way", o)
			}
		}
		s.wantLooks(t, "altogether", 2)

		passTime(time.Second)
		now.becomes("later")
		wantValue(t, "given the next event", s.askAnew(t.Context()), "later")
		s.wantLooks(t, "then", 3)
	})
}

func TestRunnerSharesALookThatBeganWithTheEventOrAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := newWorld("before")
		s := changing(now)
		event := time.Now()
		one := s.asks(t.Context())
		synctest.Wait()
		passTime(100 * time.Millisecond)
		now.becomes("after")
		if o := s.anew(t.Context(), s.life, event); o.Value != "before" {
			t.Errorf("given a look that began with the event: got %+v, want that one", o)
		}
		<-one
		passTime(time.Minute)
		if o := s.anew(t.Context(), s.life, event); o.Value != "before" {
			t.Errorf("given one that began with it and has ended: got %+v, want that one", o)
		}
		s.wantLooks(t, "for one event", 1)
		if o := s.anew(t.Context(), s.life, event.Add(time.Nanosecond)); o.Value != "after" {
			t.Errorf("given one that ended after the event but began before: got %+v, want a new one", o)
		}
		s.wantLooks(t, "for two", 2)
	})
}

func TestRunnerWhoseOldLookDoesNotEnd(t *testing.T) {
	for _, tc := range []struct {
		name    string
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		reason  string
		message string
		after   time.Duration
	}{
		{"given a patient caller, then it is given up with the look", context.WithCancel, observe.ReasonAbandoned, "begun 5.5s ago hangs", 4500 * time.Millisecond},
		{"given one whose time ends", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
			observe.ReasonTimeout, "no answer after 2s", time.Second},
		{"given one who gives up", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, observe.ReasonCanceled, "given up by whoever asked", time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				s := newScene(func(_ context.Context, n int) textAnswer {
					if n == 1 {
						<-release
					}
					return lookSees("value")
				})
				old := s.asks(t.Context())
				passTime(time.Second)
				ctx, cancel := tc.ctx(t.Context())
				defer cancel()
				begin := time.Now()
				wantAnswer(t, "it", s.askAnew(ctx), observe.Unknown, "", tc.reason, tc.message)
				tookExactly(t, begin, tc.after)
				s.wantLooks(t, "while it hangs", 1)
				close(release)
				<-old
				synctest.Wait()
				passTime(time.Nanosecond)
				wantValue(t, "then", s.askAnew(t.Context()), "value")
			})
		})
	}
}

// A look for an event has its own time: those who wait for it longer than who began it must not get half an answer.
func TestRunnerGivesALookForAnEventAllItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(ctx context.Context, _ int) textAnswer { return lookTakes(ctx, 3*time.Second, "value") })
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		one := s.asksAnew(hurried)
		synctest.Wait()
		two := s.asksAnew(t.Context())
		wantAnswer(t, "who has a second", <-one, observe.Unknown, "", observe.ReasonTimeout, "no answer after 1s")
		wantValue(t, "who has longer", <-two, "value")
		s.wantLooks(t, "for both", 1)

		passTime(time.Second)
		hurried, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantAnswer(t, "alone", s.askAnew(hurried), observe.Unknown, "", observe.ReasonTimeout, "no answer after 1s")
		synctest.Wait()
		if s.under.Load() != 0 {
			t.Error("the look goes on though nobody waits for it")
		}
	})
}

// What a look could not tell because it was given up is no answer to those who came later, and nor is what was seen before it.
func TestRunnerAfterALookForAnEventWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := newWorld("before")
		s := newScene(func(ctx context.Context, n int) textAnswer {
			o := lookTakes(ctx, time.Second, *now.Load())
			if n == 2 {
				passTime(300 * time.Millisecond) // as a process takes that is killed
			}
			return o
		})
		early := s.asks(t.Context())
		passTime(500 * time.Millisecond)
		event := time.Now()
		<-early // ends after the event, and began before
		now.becomes("after")
		ctx, cancel := context.WithCancel(t.Context())
		one := make(chan textAnswer, 1)
		go func() { one <- s.anew(ctx, s.life, event) }()
		passTime(100 * time.Millisecond)
		cancel()
		<-one
		synctest.Wait()
		if o := s.anew(t.Context(), s.life, event); o.Value != "after" {
			t.Errorf("got %+v, want what was seen after the event", o)
		}
		s.wantLooks(t, "altogether", 3)
	})
}

func TestRunnerCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newScene(func(_ context.Context, n int) textAnswer {
			if n == 2 {
				<-release
				return observe.CannotTell[string]("Late", "came back at last")
			}
			return lookSees("value")
		})
		if o := s.current(); o != (textAnswer{}) {
			t.Errorf("before any look: got %+v, want the zero observation", o)
		}
		s.ask(t.Context())
		seen := time.Now()
		wantLast := func(when string) {
			t.Helper()
			if o := s.current(); o.Value != "value" || !o.At.Equal(seen) || o.Good != nil {
				t.Errorf("%s: got %+v, want what was seen at %v", when, o, seen)
			}
		}
		passTime(time.Second)
		wantLast("later")
		began := time.Now()
		answer := s.asks(t.Context())
		passTime(5500*time.Millisecond - time.Nanosecond)
		wantLast("while a look is under way")

		passTime(time.Nanosecond)
		<-answer
		abandoned := began.Add(5500 * time.Millisecond)
		for _, age := range []time.Duration{5500 * time.Millisecond, time.Minute, time.Hour} {
			passTime(time.Until(began.Add(age)))
			o := s.current()
			if o.Known() || o.Reason != observe.ReasonAbandoned || !o.At.Equal(abandoned) {
				t.Errorf("%v after a look began that hangs: got %+v, want it abandoned, always as of %v", age, o, abandoned)
			}
			if kept := o.Good != nil && *o.Good == "value"; kept != (age < keepGood) {
				t.Errorf("%v after a look began that hangs: got the last value %v, want it for three minutes", age, o.Good)
			}
		}
		s.wantLooks(t, "altogether", 2)
		close(release)
		synctest.Wait()
		if o := s.current(); o.Reason != "Late" || !o.At.Equal(time.Now()) {
			t.Errorf("after it came back: got %+v, want what it says", o)
		}
	})
}

func TestRunnerTellsOfEachLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(func(ctx context.Context, n int) textAnswer {
			switch n {
			case 1:
				return lookTakes(ctx, 2*time.Second, "first")
			case 2:
				panic("bug")
			case 3:
				return observe.CannotTell[string](observe.ReasonNotEnabled, "nothing to look at")
			}
			return lookTakes(ctx, 10*time.Second, "never")
		})
		var told []textAnswer
		s.shared = &shared{landed: func() { told = append(told, s.current()) }} // would lock itself out if the lock were held
		wantStat := func(when string, want Stat) {
			t.Helper()
			want.Name = "test"
			if got := s.stat(); got != want {
				t.Errorf("%s: got %+v, want %+v", when, got, want)
			}
		}
		wantStat("before any look", Stat{})
		first := s.asks(t.Context())
		s.ask(t.Context())
		<-first
		synctest.Wait()
		wantStat("after one", Stat{Looks: 1, Last: 2 * time.Second})
		passTime(time.Second)
		s.ask(t.Context())
		passTime(time.Second)
		s.ask(t.Context())
		synctest.Wait()
		wantStat("after one that found a bug and one that had nothing to look at", Stat{Looks: 3, Failures: 1})
		passTime(time.Second)
		s.ask(t.Context())
		synctest.Wait()
		wantStat("after one that did not end in time", Stat{Looks: 4, Failures: 2, Last: 5 * time.Second})
		if got := len(told); got != 4 || told[0].Value != "first" || told[1].Reason != observe.ReasonPanic || told[2].Reason != observe.ReasonNotEnabled || told[3].Reason != "LookEnded" {
			t.Errorf("got told %+v, want each look once, when it can be seen", told)
		}
		if n := s.shared.underWay.Load(); n != 0 {
			t.Errorf("got %d looks under way, want none", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newScene(func(context.Context, int) textAnswer { <-release; return lookSees("late") })
		answer := s.asks(t.Context())
		passTime(5 * time.Second)
		if s.stat().Hangs {
			t.Error("at its deadline: it counts as hanging, want it to be let come back")
		}
		<-answer
		if got := s.stat(); !got.Hangs || got.Looks != 0 {
			t.Errorf("when it was given up: got %+v, want it to hang", got)
		}
		close(release)
		synctest.Wait()
		if got := s.stat(); got.Hangs || got.Looks != 1 {
			t.Errorf("when it came back: got %+v, want it to have ended", got)
		}
	})
}
