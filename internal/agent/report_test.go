package agent

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/health"
)

// office is a cluster as a reporter sees it, in a bubble of time.
type office struct {
	*reporter
	log bytes.Buffer

	mu         sync.Mutex // guards the fields below
	err        error      // of every request, if set
	conditions []cluster.NodeCondition
	at         []time.Duration // since the bubble began, of each request for a condition
	events     []cluster.Event
	requests   int
	cancel     func() // ends the reporter
	stop       func() // and waits for that
}

// newOffice starts a reporter. It ends with the test's call of stop.
func newOffice(t *testing.T) *office {
	t.Helper()
	o, began := &office{}, time.Now()
	log := logrus.New()
	log.SetOutput(&o.log)
	o.reporter = newReporter(nil, log)
	o.patch = func(_ context.Context, c cluster.NodeCondition) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.requests++
		o.at = append(o.at, time.Since(began))
		if o.err == nil {
			o.conditions = append(o.conditions, c)
		}
		return o.err
	}
	o.create = func(_ context.Context, e cluster.Event) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.requests++
		if o.err == nil {
			o.events = append(o.events, e)
		}
		return o.err
	}
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { o.run(ctx) })
	o.cancel = cancel
	o.stop = func() {
		cancel()
		run.Wait()
	}
	return o
}

func (o *office) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// after lets time pass, and whatever it brings.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// statuses are what the cluster was told of the node.
func (o *office) statuses() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for _, c := range o.conditions {
		all = append(all, c.Status+" "+c.Reason)
	}
	return strings.Join(all, ", ")
}

// last is what the cluster was told last.
func (o *office) last() cluster.NodeCondition {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.conditions) == 0 {
		return cluster.NodeCondition{}
	}
	return o.conditions[len(o.conditions)-1]
}

func bad(reason string) health.Condition {
	return health.Condition{Type: health.KubeletRunning, Status: health.False, Severity: health.Critical, Reason: reason, Message: "kubelet.service is stopped"}
}

func TestWhatTheNodesConditionSays(t *testing.T) {
	for _, test := range []struct {
		name  string
		worst health.Condition
		found bool
		want  string
	}{
		{"nothing to report", health.Condition{}, false, "True NothingToReport: the agent sees nothing wrong with this node"},
		{"something critical", bad("Stopped"), true, "False Stopped: KubeletRunning: kubelet.service is stopped"},
		{
			"a warning of something that is as it should be",
			health.Condition{Type: "KubeletCertificateValid", Status: health.True, Severity: health.Warning, Reason: "ExpiresSoon", Message: "in 2 days"}, true,
			"False ExpiresSoon: KubeletCertificateValid: in 2 days",
		},
		{
			"something worth knowing",
			health.Condition{Type: "RestartPending", Status: health.True, Severity: health.Info, Reason: "KubeletReplaced", Message: "restart it"}, true,
			"True KubeletReplaced: RestartPending: restart it",
		},
		{
			"something that can't be told", health.Condition{Type: "NodeReady", Status: health.Unknown, Reason: "Forbidden", Message: "no right"}, true,
			"Unknown Forbidden: NodeReady: no right",
		},
		{"no reason", health.Condition{Type: "NodeReady", Status: health.Unknown, Message: "m"}, true, "Unknown NodeReady: NodeReady: m"},
	} {
		c := conditionOf(test.worst, test.found)
		if got := c.Status + " " + c.Reason + ": " + c.Message; got != test.want || c.Type != "FlexNodeHealthy" {
			t.Errorf("%s: got %s %q, want %q", test.name, c.Type, got, test.want)
		}
	}
}

func TestAConditionThatDoesNotChangeIsWrittenEveryFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		after(time.Hour)
		if o.requests != 0 {
			t.Errorf("before anything is known: got %d requests, want none", o.requests)
		}
		began := time.Now()
		for range 61 {
			o.condition(health.Condition{}, false)
			after(time.Minute)
		}
		o.stop()
		if writes, failures := o.counts(); o.requests != 13 || writes != 13 || failures != 0 {
			t.Errorf("in an hour: got %d requests, counted %d and %d failures, want 13 and none", o.requests, writes, failures)
		}
		for i, c := range o.conditions {
			if !c.LastTransition.Equal(began) || !c.Heartbeat.Equal(began.Add(time.Duration(i)*5*time.Minute)) {
				t.Errorf("write %d: got transition %v and heartbeat %v, want the first moment and its own", i, c.LastTransition, c.Heartbeat)
			}
		}
	})
}

func TestTheTimeOfTransitionMovesOnlyWithTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, began := newOffice(t), time.Now()
		var want []time.Duration
		for _, step := range []struct {
			worst  health.Condition
			found  bool
			moment time.Duration
		}{
			{health.Condition{}, false, 0},
			{bad("Stopped"), true, 10 * time.Minute},
			{bad("Failed"), true, 10 * time.Minute}, // the same status
			{health.Condition{Type: "NodeReady", Status: health.Unknown, Reason: "Timeout"}, true, 30 * time.Minute},
			{health.Condition{}, false, 40 * time.Minute},
		} {
			o.condition(step.worst, step.found)
			after(10*time.Minute - time.Second) // with a refresh
			want = append(want, step.moment)
			if got := o.last().LastTransition.Sub(began); got != step.moment {
				t.Errorf("after %s: got a transition at %s, want %s", o.statuses(), got, step.moment)
			}
			after(time.Second)
		}
		o.stop()
		if len(o.conditions) < 2*len(want) {
			t.Errorf("got %d writes, want refreshes too", len(o.conditions))
		}
	})
}

func TestTheFirstTimeOfTransitionIsThatOfTheWorstCondition(t *testing.T) {
	for ago, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, -time.Hour: 0} { // the clock may have been set back
		synctest.Test(t, func(t *testing.T) {
			o, now := newOffice(t), time.Now()
			c := bad("Stopped")
			c.LastTransitionTime = now.Add(-ago)
			o.condition(c, true)
			after(time.Second)
			o.stop()
			if got := now.Sub(o.last().LastTransition); got != want {
				t.Errorf("given one %s ago: got one %s ago, want %s", ago, got, want)
			}
		})
	}
}

func TestFlapsAreWrittenEveryFiveSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		for i := range 600 { // a minute
			o.condition(bad(fmt.Sprint("Reason", i)), i%2 == 0)
			after(100 * time.Millisecond)
		}
		o.condition(health.Condition{}, false)
		after(time.Minute)
		o.stop()
		for i := range o.at[1:] {
			if gap := o.at[i+1] - o.at[i]; gap < 5*time.Second {
				t.Errorf("got two writes within %s, want at least 5 s in between", gap)
			}
		}
		if last := o.last(); last.Status != "True" || len(o.at) < 10 {
			t.Errorf("got %d writes, the last one %s, want the latest condition at the end", len(o.at), last.Status)
		}
	})
}

func TestAFlapThatTheClusterNeverSawIsNoTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, began := newOffice(t), time.Now()
		o.condition(health.Condition{}, false)
		after(time.Second)
		o.condition(bad("Stopped"), true)
		after(time.Second)
		o.condition(health.Condition{}, false)
		after(10 * time.Minute)
		o.stop()
		for _, c := range o.conditions {
			if c.Status != "True" || !c.LastTransition.Equal(began) {
				t.Errorf("got %s since %v, want True since the beginning", c.Status, c.LastTransition)
			}
		}
	})
}

func TestAMessageThatKeepsChangingIsWrittenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		for i := range 595 {
			c := bad("Stopped")
			c.Message = fmt.Sprintf("since %d s", i)
			o.condition(c, true)
			after(time.Second)
		}
		o.stop()
		if len(o.conditions) != 10 {
			t.Errorf("in ten minutes: got %d writes, want 10", len(o.conditions))
		}
	})
}

func TestAnAgentThatJustBeganDoesNotTellThatItKnowsNothing(t *testing.T) {
	unknown := health.Condition{Type: "NodeReady", Status: health.Unknown, Reason: "NotLooked"}
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.condition(unknown, true)
		after(10 * time.Second)
		o.condition(health.Condition{}, false)
		after(time.Second)
		o.stop()
		if got := o.statuses(); got != "True NothingToReport" {
			t.Errorf("when it knows soon: got %q, want only that", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.condition(unknown, true)
		after(31 * time.Second)
		o.stop()
		if got := o.statuses(); got != "Unknown NotLooked" {
			t.Errorf("when it still does not know: got %q, want that", got)
		}
	})
}

func TestAnEventIsNotRepeatedForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, began := newOffice(t), time.Now()
		for range 25 {
			o.event(cluster.Event{Type: "Warning", Reason: "Hold", Message: "paused"})
			o.event(cluster.Event{Type: "Warning", Reason: "Hold", Message: "masked"})
			after(time.Minute)
		}
		o.stop()
		var got []string
		for _, e := range o.events {
			got = append(got, fmt.Sprintf("%s %s", e.Message, e.At.Sub(began)))
		}
		if want := "paused 0s, masked 0s, paused 10m0s, masked 10m0s, paused 20m0s, masked 20m0s"; strings.Join(got, ", ") != want {
			t.Errorf("got %q, want %q", strings.Join(got, ", "), want)
		}
	})
}

func TestTheRequestsGoWhereTheSourceSays(t *testing.T) {
	client := &cluster.Client{}
	defer client.Close()
	r := newReporter(func() (*cluster.Client, cluster.Source) {
		return client, cluster.Source{Kubeconfig: t.TempDir() + "/none", NodeName: "n1"}
	}, silent())
	for what, err := range map[string]error{"condition": r.patch(t.Context(), cluster.NodeCondition{}), "event": r.create(t.Context(), cluster.Event{})} {
		if cluster.ReasonOf(err) != cluster.ReasonKubeconfigMissing {
			t.Errorf("%s: got %v, want reason %s", what, err, cluster.ReasonKubeconfigMissing)
		}
	}
}
