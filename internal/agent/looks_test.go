package agent

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/pkg/config"
)

func TestWhatTheWatchOfTheNodeTellsIsLookedAtAtOnce(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		b.happens(func(m *machine) { m.notReady = true })
		b.sight.nodeChanged()
		after(100 * time.Millisecond)
		if got := b.view().Set.Node.Reason; got != "NodeNotReady" {
			t.Errorf("100 ms later: got the Node's reason %s, want NodeNotReady", got)
		}
		b.stop()
	})
}

func TestALookThatIsAskedForWhileOneIsUnderWayFollowsIt(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		after(5 * time.Second)
		end := b.hang(hangNode)
		b.sight.nodeChanged()
		after(time.Millisecond)
		b.sight.nodeChanged()
		after(time.Millisecond)
		end()
		synctest.Wait()
		b.happens(func(m *machine) { m.notReady = true }) // after the end of the first
		after(100 * time.Millisecond)
		if got := b.view().Set.Node.Reason; got != "NodeNotReady" {
			t.Errorf("100 ms later: got the Node's reason %s, want NodeNotReady", got)
		}
		b.stop()
	})
}

func TestWhatARoundHasSeenIsShownBeforeItsEnd(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		defer b.hang(hangArc)()
		b.happens(func(m *machine) { m.notReady = true })
		before := b.rounds()
		for b.rounds() == before {
			after(time.Second)
		}
		after(time.Second) // Arc takes 15
		if got := b.view().Set.Node.Reason; got != "NodeNotReady" {
			t.Errorf("in the midst of a round: got the Node's reason %s, want NodeNotReady", got)
		}
		b.stop()
	})
}

// What was started needs a moment to answer, and nobody tells of that. How often units change meanwhile makes no more looks of it.
func TestAfterAnEventThereAreMoreLooks(t *testing.T) {
	flaps := func(b *bed) {
		for range 10 {
			b.happens(stops)
			b.happens(func(m *machine) { m.kubelet.becomes("active", "running", "success", "") })
			synctest.Wait()
		}
	}
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		flaps(b)
		after(settleAfter()[0] - time.Millisecond)
		b.happens(func(m *machine) { m.sick[kubelet] = "HealthzFailed" })
		after(2 * time.Millisecond)
		if got := b.view().Set.KubeletHealth.Reason; got != "HealthzFailed" {
			t.Errorf("a second after the event: got %s, want HealthzFailed", got)
		}
		b.stop()
	})
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		flaps(b)
		b.stop()
		if got, want := len(b.loop.settle), len(settleAfter()); got != want {
			t.Errorf("after ten events: got %d looks to come, want %d", got, want)
		}
	})
}

func TestWhetherABootstrapIsAskedForIsCheckedAsOftenAsConfigured(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.cfg.Agent.StatusInterval, b.cfg.Agent.BootstrapCheckInterval = config.Duration(10*time.Minute), config.Duration(20*time.Second)
		var checks atomic.Int32
		b.wire = func(l *loop) {
			judge := l.writer.judge
			l.writer.judge = func(ctx context.Context, cfg *config.Config) []string {
				checks.Add(1)
				return judge(ctx, cfg)
			}
		}
		b.runs()
		before := checks.Load()
		after(10 * time.Minute)
		if got := checks.Load() - before; got < 30 || got > 45 {
			t.Errorf("got %d checks in 10 min, want one every 20 s, and those after rounds", got)
		}
		b.stop()
	})
}

// A systemd that hangs is not asked again while it is, and what it said before does not count for long.
func TestTheStateOfTheHost(t *testing.T) {
	at(t, func(_ *testing.T, b *bed) {
		b.runs()
		c := make(chan struct{})
		b.happens(func(m *machine) { m.stuck = c })
		after(3 * stateEvery)
		b.happens(fails)
		after(5 * time.Minute)
		b.wants("wait", "SystemUnknown")
		b.happens(func(m *machine) { m.stuck = nil })
		close(c)
		after(2 * time.Minute)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		b.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if s := hostState(t.Context(), silentSystemd{}); s.state != "" || time.Since(began) != 5*time.Second {
			t.Errorf("of a systemd that does not answer: got %+v after %s, want that it is not known after 5 s", s, time.Since(began))
		}
	})
}

// silentSystemd does not answer.
type silentSystemd struct{ systemd }

func (silentSystemd) State(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "running", ctx.Err()
}

func TestAShortIntervalIsKept(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.cfg.Agent.StatusInterval = config.Duration(time.Second)
		b.runs()
		before := b.view().Counters.SnapshotWrites
		after(time.Minute)
		if got := b.view().Counters.SnapshotWrites - before; got < 50 || got > 130 {
			t.Errorf("got %d snapshots written in a minute, want about one a second", got)
		}
		b.stop()
	})
}
