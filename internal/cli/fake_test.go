package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/localapi"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/status"
)

// fakeAgent is an agent as the local API shows it.
type fakeAgent struct {
	mu      sync.Mutex
	view    *agent.View
	entries []journal.Entry
	err     error         // of every call, while it is not nil
	cut     error         // of a call that waits for news when err comes, if that is another one
	changed chan struct{} // closed when something of the above changes
	asked   []string      // the calls that change something, and with which limit the history was asked for
}

func newFake(v *agent.View, entries ...journal.Entry) *fakeAgent {
	return &fakeAgent{view: v, entries: entries, changed: make(chan struct{})}
}

func (f *fakeAgent) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAgent) View(ctx context.Context, after uint64) (*agent.View, error) {
	for {
		f.mu.Lock()
		v, err, cut, changed := f.view, f.err, f.cut, f.changed
		f.mu.Unlock()
		switch {
		case err != nil && cut != nil && after > 0:
			return nil, cut
		case err != nil:
			return nil, err
		}
		if after == 0 || v.Generation != after {
			return v, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *fakeAgent) History(_ context.Context, from, to time.Time, limit int) ([]journal.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []journal.Entry
	for _, e := range f.entries {
		if (from.IsZero() || !e.At.Before(from)) && (to.IsZero() || !e.At.After(to)) {
			all = append(all, e)
		}
	}
	if limit > 0 && len(all) > limit {
		all = all[len(all)-limit:]
	}
	return all, f.err
}

func (f *fakeAgent) Pause(_ context.Context, p journal.Pause) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	text := "pause by " + p.By + ": " + p.Reason
	if p.Until != nil {
		text += " until " + p.Until.UTC().Format(time.RFC3339)
	}
	f.asked = append(f.asked, text)
	return nil
}

func (f *fakeAgent) Resume(_ context.Context, by string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "resume by "+by)
	return f.err
}

var _ localapi.Agent = (*fakeAgent)(nil)

// absent is the agent of a host on which none runs.
func absent() *fakeAgent {
	f := newFake(nil)
	f.err = localapi.ErrNotRunning
	return f
}

// command is a command line of its own world.
type command struct {
	common
	out, err bytes.Buffer
}

func newCommand(t *testing.T, a localapi.Agent) *command {
	t.Helper()
	c, dir := &command{}, t.TempDir()
	c.common = common{
		stdout: &c.out, stderr: &c.err, agent: a,
		snapshotPath: filepath.Join(dir, "status.json"), journalPath: filepath.Join(dir, "state", "journal.db"), pausing: filepath.Join(dir, "paused"),
	}
	return c
}

func withoutAgent(t *testing.T) *common {
	t.Helper()
	return &newCommand(t, absent()).common
}

// world is what an agent sees, in time.
type world struct {
	set    *observe.Set
	host   observe.Host
	in     decision.Input
	change func(*observe.Set) // what happened
	ago    time.Duration      // and when
}

// view is what the agent makes of it: looks every 20 s, the last of them now.
func (w world) view() *agent.View {
	tracker := health.NewTracker()
	var conditions []health.Condition
	in := w.in
	for at := now.Add(-20 * time.Minute); !at.After(now); at = at.Add(20 * time.Second) {
		set := healthySet()
		if w.change != nil && !at.Before(now.Add(-w.ago)) {
			w.change(set)
		}
		shift(set, at)
		for _, t := range []*time.Time{&w.host.Certificate.At, &w.host.Clock.At, &w.host.Disk.At} {
			*t = at
		}
		file := observe.See(observe.StatusFile{Path: "/run/aks-flex-node/status.json", Written: at}, observe.Healthy, "Written", "written")
		file.At = at
		conditions = tracker.Update(at, health.Input{Set: set, Certificate: w.host.Certificate, Clock: w.host.Clock, Disk: w.host.Disk, StatusFile: file})
		in.Evidence = in.Evidence.Add(set, in.Thresholds)
		in.Now, in.Set, w.set = at, set, set
	}
	in.System = decision.System{State: "running", Uptime: 30 * 24 * time.Hour}
	in.CanBootstrap = true
	pauses := slices.Clone(in.Pauses)
	return &agent.View{
		Generation: 7, At: now.Add(-2 * time.Second), AgentVersion: "v0.4.0", Started: now.Add(-49 * time.Hour), Node: "edge-7",
		Mode: in.Mode, ModeReason: in.ModeReason, DryRun: in.DryRun, Conditions: conditions, Decision: decision.Decide(in),
		Remedy: in.Remedy, Pauses: pauses, Budget: agent.Budget{MaxBootstraps: 3, Bootstraps: len(in.History.Bootstraps)},
		Snapshot: status.FromObservations(w.set, "v0.4.0", now), Set: *w.set, Host: w.host,
	}
}

// shift makes a look one of another time.
func shift(s *observe.Set, at time.Time) {
	for _, t := range []*time.Time{
		&s.KubeletUnit.At, &s.ContainerdUnit.At, &s.ArcUnit.At, &s.Kubelet.At, &s.KubeletHealth.At, &s.Containerd.At, &s.Runc.At, &s.Node.At, &s.Arc.At,
	} {
		*t = at
	}
}

// healthyHost is a look at what feeds conditions and not the snapshot.
func healthyHost() observe.Host {
	return observe.Host{
		Certificate: observe.See(observe.Certificate{
			Path: "/var/lib/kubelet/pki/kubelet-client-current.pem", NotBefore: now.Add(-100 * 24 * time.Hour), NotAfter: now.Add(265 * 24 * time.Hour),
		}, observe.Healthy, "Read", "read"),
		Clock: observe.See(observe.Clock{Synchronized: true}, observe.Healthy, "Read", "the kernel says that the clock is kept in step"),
		Disk:  observe.See(observe.Disk{Paths: []observe.Space{{Path: "/var/lib", Bytes: 100, BytesFree: 60}}}, observe.Healthy, "Read", "/var/lib has room"),
	}
}

// acting is a world in which nothing is wrong and the agent may act.
func acting() world {
	return world{host: healthyHost(), in: decision.Input{Mode: decision.Act}}
}

func (w world) with(change func(*world)) world {
	change(&w)
	return w
}

// since is a world in which something happened a while ago.
func since(ago time.Duration, change func(*observe.Set)) world {
	w := acting()
	w.ago, w.change = ago, change
	return w
}

// worlds are those that golden files are made of.
func worlds() map[string]world {
	flapping := since(40*time.Second, failedKubelet)
	return map[string]world{
		"healthy":    acting(),
		"just-now":   since(0, failedKubelet),
		"crash-loop": flapping,
		"link-lost":  since(5*time.Minute, linkLost),
		"restarts": since(6*time.Minute, failedForGood).with(func(w *world) {
			w.in.History.Restarts = []decision.Attempt{{Unit: decision.KubeletUnit, Began: now.Add(-4 * time.Minute), Ended: now.Add(-4 * time.Minute)}}
			w.in.Remedy = &decision.Remedy{Name: "restart", Unit: decision.KubeletUnit, Step: "verify", Since: now.Add(-12 * time.Second)}
		}),
		"paused": since(20*time.Minute, failedForGood).with(func(w *world) {
			w.in.Pauses = []decision.Pause{{By: "jo (aks-flex-node pause)", Reason: "new switch", Since: now.Add(-time.Hour), Until: now.Add(2 * time.Hour)}}
			w.in.History.Bootstraps = []decision.Attempt{{Began: now.Add(-3 * time.Hour), Ended: now.Add(-3 * time.Hour)}}
		}),
		"observing": since(6*time.Minute, failedForGood).with(func(w *world) {
			w.in.Mode, w.in.ModeReason = decision.ObserveOnly, "there is no configuration file"
		}),
		"host-troubles": since(10*time.Minute, restartPending).with(func(w *world) {
			w.host.Clock.Value.Synchronized = false
			w.host.Disk.Value.Paths[0].BytesFree = 7
			w.host.Certificate.Value.NotAfter = now.Add(-time.Hour)
		}),
	}
}

func failedForGood(s *observe.Set) {
	s.KubeletUnit = observe.JudgeUnit(observe.Unit{Name: "kubelet.service", LoadState: "loaded", ActiveState: "failed", SubState: "failed",
		Result: "exit-code", StateChange: now.Add(-6 * time.Minute)})
	s.KubeletHealth = observe.CannotTell[observe.KubeletHealth]("KubeletNotRunning", "nothing listens")
}
