package agent

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
)

func TestAnAnswerAboutAnOlderSnapshotIsNotTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(filepath.Join(t.TempDir(), "status.json"), silent())
		let := make(chan struct{})
		w.judge = func(context.Context, *config.Config) []string {
			<-let
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.run(ctx)
		began := time.Now()
		check := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := w.settled(time.Now()); got != want {
				t.Errorf("%s: got settled %v, want %v", when, got, want)
			}
		}
		check("before anything", true)
		w.write(&status.NodeStatus{LastUpdated: began}, nil)
		check("while the first is judged", false)
		after(judgeWait - time.Second)
		w.write(&status.NodeStatus{LastUpdated: time.Now()}, nil)
		let <- struct{}{}
		check("while the second is judged", false)
		after(time.Second + 1)
		check("when that takes long, counted from the first", true)
		let <- struct{}{}
		check("after all", true)
		w.write(&status.NodeStatus{LastUpdated: time.Now()}, nil)
		check("while another is judged", false)
		let <- struct{}{}
		check("after that", true)
	})
}
