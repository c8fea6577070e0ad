package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/pkg/config"
)

func TestAReloadOfWhatIsSeenOpensNewSenses(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		first := b.sight
		endNode := b.hang(hangNode)
		before := b.rounds()
		for b.rounds() == before {
			after(time.Second)
		}
		endUnits := b.hang(hangUnits)
		before = b.rounds()
		b.configures(func(c *config.Config) { c.Node.MaxPods = 50 }, nil) // while a round of the old ones is under way
		for i := range 80 {                                               // the snapshot must not say for a moment that nothing is known
			after(100 * time.Millisecond)
			if !b.snapshot().KubeletRunning {
				t.Fatal("during a reload the snapshot said that the kubelet did not run")
			}
			if i == 30 {
				endUnits()
				endNode()
			}
		}
		if b.rounds() == before {
			t.Error("got no look at everything with the new senses, want one at once")
		}
		if b.sight == first || b.view().Set.KubeletUnit.At.IsZero() {
			t.Errorf("got new senses %v, which saw %+v; want new ones, and that they have looked", b.sight != first, b.view().Set.KubeletUnit)
		}
		b.mu.Lock()
		if b.sights[first] || !b.sights[b.sight] {
			t.Error("got units watched by the old senses, want that the new ones do so, and nobody else")
		}
		b.mu.Unlock()
		if e := b.loop.teller.Load(); e == nil || e.senses != senses(b.sight) {
			t.Error("the cluster is told by way of the old senses, want the new ones")
		}
		b.happens(stops)
		after(100 * time.Millisecond)
		b.wants(decision.Wait, "Confirming")
		b.stop()
	})
}

// loadsHang makes loads of the configuration hang once they have read it. The function that it returns ends that.
func (b *bed) loadsHang() (end func()) {
	c := make(chan struct{})
	set := func(c chan struct{}) {
		b.loadMu.Lock()
		defer b.loadMu.Unlock()
		b.loadHangs = c
	}
	set(c)
	return func() {
		set(nil)
		close(c)
	}
}

// configures changes the configuration, and has it read anew.
func (b *bed) configures(change func(c *config.Config), err error) {
	b.loadMu.Lock()
	c := *b.cfg
	if change != nil {
		change(&c)
	}
	b.cfg, b.cfgErr = &c, err
	b.loadMu.Unlock()
	b.a.Reload()
}

func TestAConfigurationThatChangesWhileItIsReadIsReadOnceMore(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		end := b.loadsHang()
		b.configures(func(c *config.Config) { c.Agent.DryRun = true }, nil)
		after(time.Second)
		b.configures(func(c *config.Config) { c.Agent.DryRun = false }, nil)
		after(time.Second)
		end()
		after(time.Second)
		if b.view().DryRun {
			t.Error("got a dry-run, want the configuration as it was last")
		}
		b.stop()
	})
}

func TestAConfigurationThatWasReadDuringARemedyWaits(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		b.runs()
		end := b.loadsHang()
		b.configures(func(c *config.Config) { c.Agent.DryRun = true }, nil)
		b.happens(fails)
		b.restarts(kubelet)
		end()
		after(time.Second)
		if v := b.view(); v.DryRun || v.Remedy == nil {
			t.Errorf("in the midst of a restart: got dry-run %v and the remedy %+v, want the old configuration", v.DryRun, v.Remedy)
		}
		after(30 * time.Second)
		if v := b.view(); !v.DryRun || v.Remedy != nil {
			t.Errorf("after it: got dry-run %v and the remedy %+v, want the new configuration", v.DryRun, v.Remedy)
		}
		b.stop()
	})
}

func TestAConfigurationThatIsGoneIsKept(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		var told []*config.Config
		b.wire = func(l *loop) { l.a.o.Reloaded = func(c *config.Config) { told = append(told, c) } }
		b.runs()
		old := b.cfg
		b.loadMu.Lock()
		b.cfg = nil
		b.loadMu.Unlock()
		b.a.Reload()
		after(time.Second)
		if v := b.view(); v.Mode != decision.Act || !strings.Contains(b.log.take(), "it is gone") || !strings.Contains(v.ConfigProblem, "it is gone") {
			t.Errorf("got mode %s and %q, want that it acts as before, and says that the configuration is gone", v.Mode, v.ConfigProblem)
		}
		b.loadMu.Lock()
		b.cfg = old
		b.loadMu.Unlock()
		b.configures(func(c *config.Config) { c.Agent.LogLevel = "debug" }, nil)
		after(time.Second)
		if len(told) != 2 || told[1].Agent.LogLevel != "debug" {
			t.Errorf("the logger was told %d configurations, want the first and the last", len(told))
		}
		b.stop()
	})
}
