package agent

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/pkg/config"
)

func TestAPauseFileWithAnEndEnds(t *testing.T) {
	at(t, func(_ *testing.T, b *bed) {
		b.runs()
		b.write(b.pauseFile(), "disk\nuntil: "+time.Now().Add(20*time.Minute).Format(time.RFC3339))
		after(lookAtFilesEvery)
		b.happens(fails)
		after(20*time.Minute - lookAtFilesEvery - time.Second)
		b.hasDone()
		after(3 * time.Second)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		b.stop()
	})
}

// Between what the loop knows and the first step of a remedy somebody may have said no.
func TestAPauseAtTheLastMomentIsHeeded(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		var begun atomic.Int32
		b.log.heard = func(message string) {
			if strings.HasPrefix(message, "Begin: ") {
				if begun.Add(1) == 1 {
					b.write(b.pauseFile(), "disk")
				}
			}
		}
		b.runs()
		b.happens(fails)
		after(10 * time.Minute)
		b.hasDone()
		b.wants(decision.Hold, "Paused")
		if got := begun.Load(); got == 0 || got > 2 { // the file is looked at every half minute, and so is what did not begin
			t.Errorf("got %d beginnings, want one or two", got)
		}
		if got := b.recorded(journal.KindRemedy); len(got) != 0 {
			t.Errorf("got recorded %q, want nothing: nothing was begun", got)
		}
		b.remove(b.pauseFile())
		after(lookAtFilesEvery)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		b.stop()
	})
}

func TestNothingIsDoneBeforeSomebodyHasLookedForThePauseFile(t *testing.T) {
	at(t, func(_ *testing.T, b *bed) {
		c := make(chan struct{})
		b.wire = func(l *loop) {
			l.files.newWatcher = func() (*fsnotify.Watcher, error) {
				<-c
				return nil, errors.New("not in a bubble")
			}
		}
		b.runs()
		b.happens(fails)
		after(10 * time.Minute)
		b.hasDone()
		close(c)
		after(time.Second)
		b.hasDone("reset-failed "+kubelet, "start "+kubelet)
		b.stop()
	})
}

func TestWhatAnEarlierAgentLeftWaits(t *testing.T) {
	hung := make(chan struct{})
	for name, c := range map[string]struct{ hold, lift func(b *bed) }{
		"for an agent that acts": {
			func(b *bed) { b.observeOnly = true },
			func(b *bed) {
				b.stop()
				b.observeOnly = false
				b.start()
			},
		},
		"for the end of a dry-run": {
			func(b *bed) { b.cfg.Agent.DryRun = true },
			func(b *bed) { b.configures(func(c *config.Config) { c.Agent.DryRun = false }, nil) },
		},
		"for the end of a pause": {
			func(b *bed) { b.write(b.pauseFile(), "disk") },
			func(b *bed) { b.remove(b.pauseFile()) },
		},
		"for a journal that answers": {
			func(b *bed) {
				b.write(b.pauseFile(), "disk")
				time.AfterFunc(time.Minute, func() { b.happens(func(*machine) { b.keeperHangs = hung }) })
				time.AfterFunc(8*time.Minute, func() { b.remove(b.pauseFile()) })
			},
			func(b *bed) {
				b.happens(func(*machine) { b.keeperHangs = nil })
				close(hung)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			at(t, func(t *testing.T, b *bed) {
				hung = make(chan struct{}) // of this bubble
				b.runs()
				b.happens(func(m *machine) {
					m.kubelet.stop()
					m.kubelet.LoadState = "not-found"
				})
				after(2 * time.Minute)
				b.hasDone("command")
				b.stop()
				c.hold(b)
				b.runs()
				after(10 * time.Minute)
				if log := b.log.take(); strings.Contains(log, "Going on with") {
					t.Errorf("got logged\n%s\nwant the bootstrap left as it is", log)
				}
				c.lift(b)
				after(3 * time.Minute)
				if log := b.log.take(); !strings.Contains(log, "Going on with bootstrap") {
					t.Errorf("got logged\n%s\nwant the bootstrap gone on with", log)
				}
				b.hasDone() // the command is not run again
				b.stop()
			})
		})
	}
}
