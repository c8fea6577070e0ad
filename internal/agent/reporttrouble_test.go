package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/health"
)

var (
	errCut       = errors.New("the link is cut")
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes/status"}, "n1", errors.New("no role"))
)

func TestAfterACutOfHoursTheLatestConditionAndTheEventsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.condition(health.Condition{}, false)
		after(time.Minute)
		o.fail(errCut)
		var want []cluster.Event
		for i := range 50 {
			o.condition(bad(fmt.Sprint("Reason", i)), true)
			e := cluster.Event{Type: "Warning", Reason: "Hold", Message: fmt.Sprint("the ", i, "th"), At: time.Now()}
			o.event(e)
			want = append(want, e)
			after(10 * time.Minute)
		}
		o.mu.Lock()
		tries, asked := len(o.at), o.requests
		o.mu.Unlock()
		changed := time.Now().Add(-30 * time.Second)
		o.condition(health.Condition{}, false)
		after(30 * time.Second)
		o.condition(bad("Last"), true)
		o.fail(nil)
		after(3 * time.Minute)
		o.stop()
		if got := o.statuses(); got != "True NothingToReport, False Last" {
			t.Errorf("got %q, want nothing from within the cut", got)
		}
		if last := o.last(); last.LastTransition.Before(changed) {
			t.Errorf("got a transition at %v, want that of the latest condition", last.LastTransition)
		}
		if !slices.Equal(o.events, want[len(want)-32:]) {
			t.Errorf("got %d events, want the last 32 with their own times:\n%v", len(o.events), o.events)
		}
		// 500 minutes, one try a minute and then some of jitter, of each kind
		if tries < 300 || tries > 520 || asked > 1040 {
			t.Errorf("while the link was cut: got %d tries of the condition, %d requests in all, want less than one a minute of each", tries, asked)
		}
		if lines := strings.Count(o.log.String(), "level=info"); lines != 4 {
			t.Errorf("got %d lines in the log, want one for the trouble of each kind and one for its end:\n%s", lines, o.log.String())
		}
	})
}

func TestTheTimeOfTransitionOutlastsACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, began := newOffice(t), time.Now()
		o.condition(health.Condition{}, false)
		after(time.Second)
		o.condition(bad("Stopped"), true) // a flap that is not written
		after(time.Second)
		o.condition(health.Condition{}, false)
		after(6 * time.Minute)
		o.fail(errCut)
		after(6 * time.Minute)
		o.condition(health.Condition{Type: "RestartPending", Status: health.True, Severity: health.Info, Reason: "KubeletReplaced"}, true)
		o.fail(nil)
		after(2 * time.Minute)
		o.stop()
		if got := o.last(); got.Reason != "KubeletReplaced" || !got.LastTransition.Equal(began) {
			t.Errorf("got %s since %v, want KubeletReplaced, True since the beginning", got.Reason, got.LastTransition)
		}
	})
}

func TestAShortCutIsNoNewsAndIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		for range 5 {
			o.fail(errCut)
			o.condition(bad("Stopped"), true)
			after(2 * time.Minute)
			o.fail(nil)
			after(2 * time.Minute)
			o.fail(errCut)
			o.condition(health.Condition{}, false)
			after(100 * time.Millisecond)
			o.fail(nil)
			after(2 * time.Second)
			if got := o.last(); got.Status != "True" {
				t.Errorf("2 s after a failure: got %s, want True, which the second try tells", got.Status)
			}
			after(time.Minute)
		}
		o.stop()
		if o.log.Len() > 0 {
			t.Errorf("got the log %q, want none", o.log.String())
		}
	})
}

// Whether a write that failed arrived is not known: so a condition that went back to what was last written is written all the same.
func TestAfterAWriteThatFailedTheConditionIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.condition(health.Condition{}, false)
		after(time.Minute)
		o.fail(errCut)
		o.condition(bad("Stopped"), true)
		after(100 * time.Millisecond)
		o.fail(nil)
		o.condition(health.Condition{}, false)
		after(5 * time.Second)
		o.stop()
		if got := o.statuses(); got != "True NothingToReport, True NothingToReport" {
			t.Errorf("got %q, want it written again", got)
		}
	})
}

func TestTriesGetRarer(t *testing.T) {
	for failed, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute} {
		if got := backoff(failed, false); got < want || got >= want*3/2 {
			t.Errorf("after %d failures: got %s, want %s and up to half as much again", failed, got, want)
		}
	}
	if got := backoff(1000, true); got < 30*time.Minute || got >= 45*time.Minute {
		t.Errorf("without the right: got %s, want half an hour and up to half as much again", got)
	}
}

func TestWithoutTheRightItIsSaidOnceAndHardlyAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.fail(errForbidden)
		for i := range 24 * 60 {
			o.condition(bad(fmt.Sprint("Reason", i)), i%2 == 0)
			after(time.Minute)
		}
		o.stop()
		if n := len(o.at); n < 30 || n > 60 {
			t.Errorf("in a day: got %d requests, want about 50", n)
		}
		if got := o.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=info") || !strings.Contains(got, "deploy/rbac.yaml") {
			t.Errorf("got this log, want one line with a hint:\n%s", got)
		}
		if writes, failures := o.counts(); writes != 0 || failures != uint64(len(o.at)) {
			t.Errorf("counted %d writes and %d failures, want 0 and %d", writes, failures, len(o.at))
		}
	})
}

// There may be a right to write the condition and none to create events.
func TestTheTroublesOfOneKindAreNotThoseOfTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.create = func(context.Context, cluster.Event) error { return errForbidden }
		o.event(cluster.Event{Reason: "R", Message: "m"})
		after(time.Second)
		o.condition(health.Condition{}, false)
		after(time.Second)
		o.stop()
		if got := o.statuses(); got != "True NothingToReport" {
			t.Errorf("got %q, want the condition", got)
		}
	})
}

func TestAnEventThatIsRefusedForWhatItIsDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		create := o.create
		o.create = func(ctx context.Context, e cluster.Event) error {
			if e.Reason == "" {
				return fmt.Errorf("create event: %w", apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "e", nil))
			}
			return create(ctx, e)
		}
		o.event(cluster.Event{Message: "no reason"})
		o.event(cluster.Event{Reason: "R", Message: "m"})
		after(5 * time.Second)
		o.stop()
		if len(o.events) != 1 || o.events[0].Reason != "R" {
			t.Errorf("got %v, want the good one", o.events)
		}
	})
}

func TestAnAgentThatOnlyObservesTellsNothingUntilItActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.fail(errNobody)
		o.condition(bad("Stopped"), true)
		for i := range 3 {
			o.event(cluster.Event{Reason: "Hold", Message: fmt.Sprint(i)})
		}
		after(time.Hour)
		if _, failures := o.counts(); failures != 0 || o.log.Len() > 0 {
			t.Errorf("got %d failures and the log %q, want none: nothing failed", failures, o.log.String())
		}
		o.fail(nil)
		after(time.Minute)
		o.stop()
		if got := o.statuses(); got != "False Stopped" || len(o.events) != 0 {
			t.Errorf("when it acts: got %q and %d events, want the condition and no old events", got, len(o.events))
		}
	})
}

func TestAnEventThatNobodyWasToldOfIsNoRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.fail(errNobody)
		o.event(cluster.Event{Reason: "Hold", Message: "paused"})
		after(time.Second)
		o.fail(nil)
		after(nobodyWait)
		o.event(cluster.Event{Reason: "Hold", Message: "paused"})
		after(time.Second)
		o.stop()
		if len(o.events) != 1 {
			t.Errorf("got %d events, want one: the first was told to nobody", len(o.events))
		}
	})
}

func TestAnEventThatWasDroppedWhileItWasBeingToldTakesNoOtherWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, let := newOffice(t), make(chan struct{})
		var told []string
		o.create = func(_ context.Context, e cluster.Event) error {
			<-let
			told = append(told, e.Message)
			return nil
		}
		for i := range maxEvents + 1 {
			o.event(cluster.Event{Reason: "R", Message: fmt.Sprint(i)})
			synctest.Wait()
		}
		close(let)
		after(time.Second)
		o.stop()
		if len(told) != maxEvents+1 || told[1] != "1" {
			t.Errorf("got told %q, want all of them", told)
		}
	})
}

func TestWithoutAClientNobodyIsTold(t *testing.T) {
	r := newReporter(func() (*cluster.Client, cluster.Source) { return nil, cluster.Source{} }, silent())
	if err := r.patch(t.Context(), cluster.NodeCondition{}); !errors.Is(err, errNobody) {
		t.Errorf("condition: got %v, want %v", err, errNobody)
	}
	if err := r.create(t.Context(), cluster.Event{}); !errors.Is(err, errNobody) {
		t.Errorf("event: got %v, want %v", err, errNobody)
	}
}

// What hangs beyond all deadlines, as a disk does, keeps nobody waiting, also not the end; and nothing else is begun meanwhile.
func TestWhatHangsDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, hung, let := newOffice(t), 0, make(chan struct{})
		o.patch = func(context.Context, cluster.NodeCondition) error {
			hung++
			<-let
			return errCut
		}
		o.condition(bad("Stopped"), true)
		after(time.Second)
		for i := range 100 {
			o.event(cluster.Event{Reason: "R", Message: fmt.Sprint(i)})
			o.condition(bad(fmt.Sprint("Reason", i)), true)
			after(time.Minute)
		}
		before := time.Now()
		o.stop()
		if took := time.Since(before); took != 0 || hung != 1 || o.requests != 0 {
			t.Errorf("the end took %s, %d requests hung, %d others were made, want none, one, none", took, hung, o.requests)
		}
		close(let)
	})
}

func TestARequestHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.patch = func(ctx context.Context, _ cluster.NodeCondition) error {
			<-ctx.Done()
			return ctx.Err()
		}
		o.condition(health.Condition{}, false)
		after(29 * time.Second)
		_, early := o.counts()
		after(2 * time.Second)
		_, late := o.counts()
		o.stop()
		if early != 0 || late != 1 {
			t.Errorf("got %d failures after 29 s and %d after 31 s, want 0 and 1", early, late)
		}
	})
}

// The end of the agent is no failure, whichever is seen first.
func TestTheEndDoesNotCount(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			o := newOffice(t)
			o.patch = func(context.Context, cluster.NodeCondition) error {
				o.cancel()
				return context.Canceled
			}
			o.condition(health.Condition{}, false)
			after(time.Second)
			o.stop()
			if _, failures := o.counts(); failures != 0 || o.log.Len() > 0 {
				t.Errorf("got %d failures and the log %q, want none", failures, o.log.String())
			}
		})
	}
}
