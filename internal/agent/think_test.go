package agent

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
)

func TestARecoveryIsRecordedOnceAndOnlyAfterAnAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*machine)
		mends bool // by itself, before anything is done
		want  int
	}{
		"a fault that was over before anything was done": {stops, true, 0},
		"a restart":   {fails, false, 1},
		"a bootstrap": {loses, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			at(t, func(t *testing.T, b *bed) {
				b.runs()
				b.happens(c.fault)
				if c.mends {
					after(10 * time.Second)
					b.repair()
				}
				after(5 * time.Minute)
				b.did()
				b.wants(decision.None, "Healthy")
				after(3 * time.Hour)
				if got := b.recorded(KindRecovered); len(got) != c.want {
					t.Errorf("got recorded %q, want %d", got, c.want)
				}
				b.stop()
				b.runs()
				after(3 * time.Hour)
				if got := b.recorded(KindRecovered); len(got) != c.want {
					t.Errorf("after the next agent: got recorded %q, want no more than %d", got, c.want)
				}
				b.stop()
			})
		})
	}
}

func TestTheGravestConditionIsTold(t *testing.T) {
	now := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	well := func(name string, ago time.Duration) health.Condition {
		return health.Condition{Type: name, Status: health.True, LastTransitionTime: now.Add(-ago)}
	}
	unknown := func(name string) health.Condition {
		return health.Condition{Type: name, Status: health.Unknown, Reason: "Timeout", LastTransitionTime: now}
	}
	for _, c := range []struct {
		name       string
		conditions []health.Condition
		want       string // of nothing to report: empty
		since      time.Time
	}{
		{"given nothing", nil, "", time.Time{}},
		{"given nothing to report, since the last of them is well", []health.Condition{well("A", 2*time.Hour), well("B", time.Hour), well("C", 3*time.Hour)}, "", now.Add(-time.Hour)},
		{"given what can't be told and would be critical", []health.Condition{well(health.ContainerdRunning, time.Hour), unknown(health.NodeReady)}, health.NodeReady, now},
		{"given what can't be told and would be a warning", []health.Condition{well(health.NodeReady, time.Hour), unknown(health.ArcConnected)}, "", now},
		{
			"given a warning", []health.Condition{unknown(health.NodeReady), {Type: health.ArcConnected, Status: health.False, Severity: health.Warning, LastTransitionTime: now}},
			health.ArcConnected, now,
		},
	} {
		got, found := gravest(c.conditions)
		if got.Type != c.want || found != (c.want != "") || !got.LastTransitionTime.Equal(c.since) {
			t.Errorf("%s: got %q since %s (%v), want %q since %s", c.name, got.Type, got.LastTransitionTime, found, c.want, c.since)
		}
	}
}

func TestTransitionsAreChangesOfStatus(t *testing.T) {
	seen := func(name string, s health.Status) health.Condition { return health.Condition{Type: name, Status: s} }
	notLooked := health.Condition{Type: "E", Status: health.Unknown, Reason: observe.ReasonNotLooked}
	got, recorded := transitions([]health.Condition{seen("A", health.True), seen("B", health.False), seen("F", health.True)},
		[]health.Condition{seen("A", health.Unknown), seen("B", health.False), seen("C", health.Unknown), seen("D", health.False), notLooked})
	var words []string
	for _, e := range got {
		words = append(words, e.Subject+" "+e.From+" → "+e.To)
	}
	if want := []string{"A True → Unknown", "C  → Unknown", "D  → False", "F True → "}; !slices.Equal(words, want) {
		t.Errorf("got %q, want %q", words, want)
	}
	// What is not in the history does not leave it.
	if got, _ := transitions(recorded, recorded[:3]); len(got) != 1 || got[0].Subject != "D" {
		t.Errorf("got %+v, want that D no longer applies, and nothing of E", got)
	}
}

func TestNothingIsDoneOutsideTheMaintenanceWindow(t *testing.T) {
	at(t, func(_ *testing.T, b *bed) {
		b.cfg.Agent.MaintenanceWindow = &config.MaintenanceWindowConfig{Start: time.Now().Add(12 * time.Hour).Local().Format("15:04"), Duration: hours(1)}
		b.runs()
		b.happens(fails)
		after(11 * time.Hour)
		b.hasDone()
		b.wants(decision.Hold, "OutsideWindow")
		after(time.Hour)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		b.stop()
	})
}

func TestWhatHoldsDuringARemedyIsNoNews(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.command.takes = 10 * time.Minute
		b.runs()
		b.happens(loses)
		after(2 * time.Minute)
		b.hasDone("command")
		must(t, b.a.Pause(t.Context(), journal.Pause{By: "eva", Reason: "disk"}))
		after(time.Minute)
		b.wants(decision.Hold, "Paused")
		if got := b.eventsTold(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning RemedyBegun") {
			t.Errorf("the cluster was told %q, want nothing but the bootstrap", got)
		}
		b.stop()
	})
}

func TestWhatAnEarlierAgentDecidedIsNotRecordedAgain(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		before := b.recorded(journal.KindDecision)
		b.stop()
		b.runs()
		if got := b.recorded(journal.KindDecision); len(before) != 1 || !slices.Equal(got, before) {
			t.Errorf("after a restart of the agent: got recorded %q, want the one of %q", got, before)
		}
		b.stop()
	})
}

// Until the snapshot of what is seen was judged, what was said of the one before would contradict it.
func TestADecisionWaitsForWhatTheSnapshotAsks(t *testing.T) {
	at(t, func(_ *testing.T, b *bed) {
		b.runs()
		c := make(chan struct{})
		b.happens(func(m *machine) {
			b.writerHangs = c
			stops(m)
		})
		after(judgeWait - time.Millisecond)
		b.wants(decision.None, "Healthy")
		after(10 * time.Second)
		b.wants(decision.Wait, "Confirming") // the disk hangs
		after(12 * time.Minute)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		b.happens(func(*machine) { b.writerHangs = nil })
		close(c)
		b.stop()
	})
}

// A clock that was set back since must not make a recovery one that is yet to come, for that would make all attempts forgotten.
func TestARecoveryInTheFutureIsNone(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		j, _, err := journal.Open(filepath.Join(b.stateDir(), JournalName), b.moment(), journal.Options{NoSync: true})
		must(t, err)
		must(t, j.Record(b.moment(), journal.Entry{Kind: KindRecovered, At: time.Now().Add(time.Hour)}))
		must(t, j.Close())
		b.runs()
		b.stop()
		if got := b.loop.evidence.LastWell; got.After(time.Now()) {
			t.Errorf("got a recovery in %s, want none", time.Until(got))
		}
	})
}
