package agent

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
)

// at is a test in a bubble of time, with an agent on a node that is well.
func at(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		test(t, b)
	})
}

func TestAHealthyNodeIsSeenAsSuch(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.wants(decision.None, "Healthy")
		for _, c := range b.view().Conditions {
			if want := map[bool]health.Status{true: health.False, false: health.True}[c.Type == health.RestartPending]; c.Status != want {
				t.Errorf("got %s %s (%s), want %s", c.Type, c.Status, c.Reason, want)
			}
		}
		if s := b.snapshot(); s == nil || !s.KubeletRunning || s.KubeletReady != "Ready" || !s.ArcStatus.Connected {
			t.Errorf("got the snapshot %+v, want that of a node that is well", s)
		}
		if c := b.told(); c.Status != "True" {
			t.Errorf("the cluster was told %+v, want that all is well", c)
		}
		b.stop()
		b.hasDone()
	})
}

func TestAStopIsNoticedAndWrittenAtOnce(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		after(20 * time.Second)
		began := time.Now()
		b.happens(stops)
		after(49 * time.Millisecond)
		s := b.snapshot()
		if s.KubeletRunning || s.LastUpdated.Before(began) {
			t.Errorf("49 ms later the snapshot says running %v as of %s, want stopped", s.KubeletRunning, s.LastUpdated.Sub(began))
		}
		b.wants(decision.Wait, "Confirming")
		b.stop()
	})
}

func TestWhatHangsDelaysNothingElse(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		free := []func(){b.hang(hangArc), b.hang(hangNode), b.hang(hangHost)}
		b.start()
		after(firstWait + 100*time.Millisecond)
		if s := b.snapshot(); s == nil || !s.KubeletRunning || s.ArcStatus.Connected {
			t.Errorf("given an Arc and a Node that hang from the start: got the first snapshot %+v, want it with what could be told", s)
		}
		after(time.Minute)
		b.happens(stops)
		after(49 * time.Millisecond)
		if b.snapshot().KubeletRunning {
			t.Error("given an Arc that hangs: the kubelet's stop is not in the snapshot 49 ms later")
		}
		if took := b.stop(); took > 0 {
			t.Errorf("the end took %s, want none: all these looks heed their context", took)
		}
		for _, end := range free {
			end()
		}
	})
}

func TestTheEndComesInTimeWhateverHangs(t *testing.T) {
	for name, hang := range map[string]func(b *bed, c chan struct{}){
		"a look":       func(b *bed, c chan struct{}) { b.hangs[hangLook] = c },
		"systemd":      func(b *bed, c chan struct{}) { b.stuck = c },
		"the journal":  func(b *bed, c chan struct{}) { b.keeperHangs = c },
		"the snapshot": func(b *bed, c chan struct{}) { b.writerHangs = c },
		"the cluster":  func(b *bed, c chan struct{}) { b.clusterHangs = c },
		"the notifier": func(b *bed, c chan struct{}) { b.notifierHangs = c },
		"all of it": func(b *bed, c chan struct{}) {
			b.hangs[hangLook], b.stuck, b.keeperHangs, b.writerHangs, b.clusterHangs, b.notifierHangs = c, c, c, c, c, c
		},
		"during a step": func(b *bed, c chan struct{}) { b.stuck, b.keeperHangs = c, c },
	} {
		for _, when := range []string{"from the start", "later", "during a remedy"} {
			t.Run(name+" "+when, func(t *testing.T) {
				at(t, func(t *testing.T, b *bed) {
					c := make(chan struct{})
					if when == "from the start" {
						b.happens(func(*machine) { hang(b, c) })
						b.start()
						after(3 * time.Minute)
					} else {
						b.runs()
						b.happens(fails)
						if when == "during a remedy" {
							b.restarts(kubelet)
						}
						b.happens(func(*machine) { hang(b, c) })
						after(3 * time.Minute)
					}
					if took := b.stop(); took >= 2*time.Second {
						t.Errorf("Run returned after %s, want less than 2 s", took)
					}
					close(c)
				})
			})
		}
	}
}

func TestThePreviousSnapshotStaysUntilTheFirstRoundHasEnded(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		old := &status.NodeStatus{KubeletVersion: "1.0.0", KubeletRunning: true, LastUpdated: time.Now()}
		if err := status.WriteStatusToFile(b.statusPath(), old); err != nil {
			t.Fatal(err)
		}
		end := b.hang(hangNode)
		b.start()
		after(4900 * time.Millisecond)
		if s := b.snapshot(); s == nil || s.KubeletVersion != "1.0.0" {
			t.Errorf("while the first round is under way: got %+v, want the one before", s)
		}
		after(150 * time.Millisecond)
		if s := b.snapshot(); s.KubeletVersion != "1.33.2" {
			t.Errorf("after the first round: got %+v, want a new one", s)
		}
		end()
		b.stop()
		if s := b.snapshot(); s == nil || s.KubeletVersion != "1.33.2" {
			t.Errorf("after the agent's end: got %+v, want that it is kept", s)
		}
	})
}

func TestASnapshotThatIsDeletedIsWrittenAgain(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.remove(b.statusPath())
		after(lookAtFilesEvery + time.Second) // where the kernel tells of files it is at once
		if s := b.snapshot(); s == nil || !s.KubeletRunning {
			t.Errorf("got %+v, want it again", s)
		}
		after(5 * time.Minute)
		b.wants(decision.None, "Healthy")
		b.stop()
	})
}

func TestASnapshotThatCantBeWrittenIsACondition(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		run := b.dir + "/run"
		if err := os.RemoveAll(run); err != nil {
			t.Fatal(err)
		}
		b.write(run, "in the way")
		after(6 * time.Minute)
		if c := b.condition(health.StatusFileWritable); c.Status != health.False {
			t.Errorf("got StatusFileWritable %s (%s), want False", c.Status, c.Reason)
		}
		if lines, count := strings.Count(b.log.take(), "The snapshot can't be written"), b.view().Counters.SnapshotWriteErrors; lines != 1 || count < 3 {
			t.Errorf("got %d lines in the log and %d failures counted, want one and several", lines, count)
		}
		b.wants(decision.Hold, "SnapshotNotRefreshed")
		b.hasDone()
		b.remove(run)
		after(3 * time.Minute)
		if c := b.condition(health.StatusFileWritable); c.Status != health.True || b.snapshot() == nil {
			t.Errorf("after the fault: got StatusFileWritable %s (%s) and the snapshot %v, want it written", c.Status, c.Reason, b.snapshot())
		}
		b.wants(decision.None, "Healthy")
		b.stop()
	})
}

func TestASnapshotWhoseWritingHangsIsACondition(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		c := make(chan struct{})
		b.happens(func(*machine) { b.writerHangs = c })
		after(5 * time.Minute)
		if c := b.condition(health.StatusFileWritable); c.Status != health.False || c.Reason != "WriteHangs" {
			t.Errorf("got StatusFileWritable %s (%s), want False (WriteHangs)", c.Status, c.Reason)
		}
		if age := time.Since(b.view().Snapshot.LastUpdated); age > 2*time.Minute {
			t.Errorf("the view's snapshot is %s old, want that it goes on", age)
		}
		b.happens(func(*machine) { b.writerHangs = nil })
		close(c)
		after(3 * time.Minute)
		if c := b.condition(health.StatusFileWritable); c.Status != health.True {
			t.Errorf("after the fault: got StatusFileWritable %s (%s), want True", c.Status, c.Reason)
		}
		b.stop()
	})
}

func TestTheViewWaitsForNews(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		before := b.view().Generation
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		v, err := b.a.View(short, before)
		cancel()
		if err != nil || v.Generation != before {
			t.Errorf("without news: got generation %d, %v, want %d as it was", v.Generation, err, before)
		}
		began := time.Now()
		time.AfterFunc(5*time.Second, func() { b.happens(stops) })
		v, err = b.a.View(t.Context(), before)
		if took := time.Since(began); err != nil || v.Generation <= before || took != 5*time.Second {
			t.Errorf("with news after 5 s: got generation %d, %v after %s, want more than %d", v.Generation, err, took, before)
		}
		b.stop()
	})
}

func TestAViewBeforeThereIsOneIsAnError(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		end := b.hang(hangNode)
		b.start()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if v, err := b.a.View(short, 0); err == nil {
			t.Errorf("a second after the start of an agent whose first look takes longer: got %+v, want an error", v)
		}
		if v, err := b.a.View(t.Context(), 0); err != nil || v.Decision.Action != decision.None {
			t.Errorf("got %+v, %v, want the first view once there is one", v, err)
		}
		end()
		b.stop()
	})
}

func TestNothingIsWrittenWhileNothingHappens(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.cfg.Agent.StatusInterval, b.cfg.Agent.BootstrapCheckInterval = config.Duration(time.Minute), config.Duration(2*time.Minute)
		b.runs()
		b.log.take()
		before, looks, told, counted := len(b.history()), b.rounds(), b.toldTimes(), b.view().Counters
		after(30 * time.Minute)
		if text := b.log.take(); text != "" {
			t.Errorf("got logged in half an idle hour:\n%s\nwant nothing", text)
		}
		if got := b.history()[before:]; len(got) != 0 {
			t.Errorf("got recorded in half an idle hour: %+v, want nothing", got)
		}
		// Each interval is up to a tenth shorter than configured.
		if got := b.rounds() - looks; got < 30 || got > 34 {
			t.Errorf("got %d looks at everything in 30 min with an interval of 1 min, want 30 to 34", got)
		}
		if v := b.view().Counters; v.SnapshotWrites-counted.SnapshotWrites > 34 || v.Decisions != counted.Decisions {
			t.Errorf("got %d snapshots written and %d other decisions in half an idle hour, want one after each look at everything, and none",
				v.SnapshotWrites-counted.SnapshotWrites, v.Decisions-counted.Decisions)
		}
		if got := b.toldTimes() - told; got != 6 {
			t.Errorf("the cluster was told %d times in half an idle hour, want 6: that the agent lives", got)
		}
		b.stop()
	})
}

func TestConditionsSurviveTheAgent(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.happens(func(m *machine) { m.arcCut = true })
		after(10 * time.Minute)
		arc, ready := b.condition(health.ArcConnected), b.condition(health.NodeReady)
		if arc.Status != health.False || ready.Status != health.True {
			t.Fatalf("got ArcConnected %s and NodeReady %s, want False and True", arc.Status, ready.Status)
		}
		changes, decisions := b.recorded(journal.KindCondition), b.recorded(journal.KindDecision)
		b.stop()
		after(30 * time.Second)
		told := b.toldTimes()
		b.runs()
		for _, before := range []health.Condition{arc, ready} {
			if c := b.condition(before.Type); c.Status != before.Status || !c.LastTransitionTime.Equal(before.LastTransitionTime) {
				t.Errorf("after a restart of the agent: got %s %s since %s, want %s since %s", c.Type, c.Status, c.LastTransitionTime, before.Status, before.LastTransitionTime)
			}
		}
		if got := b.recorded(journal.KindCondition); len(got) != len(changes) {
			t.Errorf("got recorded %q after that, want no more than %q", got, changes)
		}
		b.wants(decision.Hold, "LinkLost")
		if got := b.recorded(journal.KindDecision); len(got) > len(decisions)+2 { // it has to be confirmed anew
			t.Errorf("got recorded %q after that, want little more than %q", got, decisions)
		}
		after(6 * time.Minute)
		if got := b.toldTimes() - told; got < 2 {
			t.Errorf("the new agent told the cluster %d times in 7 min, want it to show that it lives", got)
		}
		b.stop()
	})
}

func TestTheWatchdogIsToldWhileTheLoopTurns(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.watchdog = 30 * time.Second
		b.runs()
		b.said()
		after(10 * time.Minute)
		if got := strings.Count(b.said(), "WATCHDOG=1"); got < 59 || got > 61 {
			t.Errorf("got told %d times in 10 min, want every 10 s", got)
		}
		b.happens(fails)
		b.restarts(kubelet)
		b.said()
		c := make(chan struct{})
		b.happens(func(m *machine) { m.stuck = c })
		after(2 * time.Minute)
		if got := strings.Count(b.said(), "WATCHDOG=1"); got < 11 {
			t.Errorf("got told %d times in 2 min while a step is within its deadline, want every 10 s", got)
		}
		after(2 * time.Minute)
		b.said()
		after(10 * time.Minute)
		if said := b.said(); strings.Contains(said, "WATCHDOG=1") {
			t.Errorf("a step is long past its deadline, and the service manager is told %q", said)
		}
		b.stop()
		close(c)
	})
}

func TestWhatTheServiceManagerIsTold(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.a.Reload()
		after(time.Second)
		b.stop()
		var states []string
		for s := range strings.Lines(b.said()) {
			if s = strings.TrimSpace(s); !strings.HasPrefix(s, "STATUS=") {
				states = append(states, s)
			}
		}
		if got, want := strings.Join(states, " "), "READY=1 RELOADING=1 READY=1 STOPPING=1"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
