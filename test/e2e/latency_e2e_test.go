//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/pkg/status"
	"github.com/aks-flex-node/agent/test/lab"
)

// trialsVariable is how many trials the measurement makes; without it there are a few, which show that it works.
const trialsVariable = "LATENCY_TRIALS"

// pollEvery is the cadence of the way that ours is compared with.
const pollEvery = time.Minute

// cause is something that happens to a node, done by a process on it, and what the snapshot says then.
type cause struct {
	Act, Unit string // kill, stop or start; empty waits for somebody else's doing
	Field     string // of the snapshot
	Want      string
	Pollers   bool // compare with pollers, each of which looks once a minute
}

// effect tells when a cause was begun and when the snapshot showed it, all in nanoseconds of one clock.
type effect struct {
	Begun, Shown int64
	Known        int64   // when systemd itself knew, of a unit that does not change its state again at once; else 0
	Polled       []int64 // when the pollers saw it; 0 for never
	Err          string
}

// field is what a snapshot says, as text.
func field(s *status.NodeStatus, name string) string {
	switch name {
	case "kubeletRunning":
		return strconv.FormatBool(s.KubeletRunning)
	case "containerdRunning":
		return strconv.FormatBool(s.ContainerdRunning)
	}
	return s.KubeletReady
}

// serveActor does what it reads from standard input, and tells when the snapshot showed it.
func serveActor() int {
	systemd := &host.Systemd{}
	defer systemd.Close()
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var c cause
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		e, err := c.watchItself(systemd)
		if err != nil {
			e.Err = err.Error()
		}
		if err := out.Encode(e); err != nil {
			return 1
		}
	}
	return 0
}

func (c cause) watchItself(systemd *host.Systemd) (e effect, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*pollEvery)
	defer cancel()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return e, err
	}
	defer w.Close()
	if err := w.Add(filepath.Dir(snapshotPath)); err != nil {
		return e, err
	}
	pid := 0
	if c.Act == "kill" {
		units, err := systemd.Units(ctx, c.Unit)
		if err != nil {
			return e, err
		}
		pid = units[0].MainPID
	}
	var polls sync.WaitGroup
	e.Begun = time.Now().UnixNano()
	switch c.Act {
	case "kill":
		err = syscall.Kill(pid, syscall.SIGKILL)
	case "stop":
		err = systemd.Stop(ctx, c.Unit)
	case "start":
		err = systemd.Start(ctx, c.Unit)
	default:
		fmt.Fprintln(os.Stderr, "ready") // the test waits for this before it acts
	}
	if err != nil {
		return e, err
	}
	if c.Pollers {
		e.Polled = c.poll(ctx, &polls)
	}
	defer polls.Wait()
	for {
		if s, err := status.LoadStatusFromFile(snapshotPath); err == nil && field(s, c.Field) == c.Want {
			e.Shown = time.Now().UnixNano()
			if c.Act == "kill" || c.Act == "start" {
				units, err := systemd.Units(ctx, c.Unit)
				if err != nil {
					return e, err
				}
				e.Known = units[0].StateChange.UnixNano()
			}
			return e, nil
		}
		select {
		case <-w.Events:
		case err := <-w.Errors:
			return e, err
		case <-ctx.Done():
			return e, ctx.Err()
		}
	}
}

// pollers is how many pollers there are: as many as it takes for one of them to look every two seconds.
const pollers = 30

// poll lets pollers look, each once within the next minute and all at other times, as if each had come upon the cause at another point of
// its cycle. When they looked and saw it goes into what it returns.
func (c cause) poll(ctx context.Context, all *sync.WaitGroup) []int64 {
	seen := make([]int64, pollers)
	began := time.Now()
	for i := range seen {
		all.Go(func() {
			at := time.NewTimer(time.Until(began.Add(pollEvery * time.Duration(2*i+1) / (2 * pollers))))
			defer at.Stop()
			select {
			case <-at.C:
			case <-ctx.Done():
				return
			}
			s, err := status.NewCollector(nil, nil, "poller").CollectStatus(ctx)
			if err == nil && field(s, c.Field) == c.Want {
				seen[i] = time.Now().UnixNano()
			}
		})
	}
	return seen
}

// actor is the other end of serveActor.
type actor func(t testing.TB, c cause, act func()) effect

func startActor(t testing.TB, h *lab.Host) actor {
	t.Helper()
	cmd := h.Self(t.Context())
	cmd.Env = append(cmd.Env, roleVariable+"=actor")
	ready, err := cmd.StderrPipe()
	lab.Must(t, err)
	in, out := lab.Converse(t, cmd)
	answers, said := json.NewDecoder(out), bufio.NewScanner(ready)
	return func(t testing.TB, c cause, act func()) effect {
		t.Helper()
		lab.Must(t, json.NewEncoder(in).Encode(c))
		var begun time.Time
		if act != nil {
			if !said.Scan() || said.Text() != "ready" {
				t.Fatalf("the actor said %q", said.Text())
			}
			begun = time.Now()
			act()
		}
		var e effect
		if err := answers.Decode(&e); err != nil {
			t.Fatalf("the actor is gone: %v", err)
		}
		if e.Err != "" {
			t.Fatalf("%+v: %s", c, e.Err)
		}
		if act != nil {
			e.Begun = begun.UnixNano()
		}
		return e
	}
}

// TestTheSnapshotShowsAChangeAtOnce measures the time from a cause to the snapshot that shows it. What it demands is only that the snapshot
// does not wait for the next look, which is a minute away; docs/benchmarks.md has the numbers of 30 trials.
func TestTheSnapshotShowsAChangeAtOnce(t *testing.T) {
	t.Parallel()
	trials := 2
	if n, err := strconv.Atoi(os.Getenv(trialsVariable)); err == nil {
		trials = n
	}
	c := cluster(t, lab.ClusterOptions{})
	h := c.MustJoin(t, "n1", lab.JoinOptions{})
	n := installAgent(t, h, settings{"dryRun": true}) // it must not interfere with what the trials do
	act := startActor(t, h)
	ready := func() {
		lab.Must(t, c.WaitReady(t.Context(), "n1", corev1.ConditionTrue, 2*time.Minute))
		n.waitSnapshot("a node that works", func(s *status.NodeStatus) bool {
			return s.KubeletRunning && s.ContainerdRunning && s.KubeletReady == "Ready"
		})
	}
	patch := func() {
		lab.Must(t, c.Do(t.Context(), "PATCH", "/api/v1/nodes/n1/status",
			json.RawMessage(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Trial","message":"a trial"}]}}`), nil))
	}
	report := []string{"| cause | median | maximum | of that, once systemd knew it | a 60 s poller: median | maximum | missed |", "|---|---|---|---|---|---|---|"}
	for _, m := range []struct {
		name   string
		cause  cause
		act    func()
		before func()
	}{
		{"kubelet SIGKILLed", cause{Act: "kill", Unit: "kubelet.service", Field: "kubeletRunning", Want: "false"}, nil, nil},
		{"kubelet stopped", cause{Act: "stop", Unit: "kubelet.service", Field: "kubeletRunning", Want: "false"}, nil, nil},
		{"kubelet started", cause{Act: "start", Unit: "kubelet.service", Field: "kubeletRunning", Want: "true"}, nil, func() {
			h.MustExec(t, "systemctl", "stop", "kubelet")
			n.waitSnapshot("a stopped kubelet", func(s *status.NodeStatus) bool { return !s.KubeletRunning })
		}},
		{"containerd stopped", cause{Act: "stop", Unit: "containerd.service", Field: "containerdRunning", Want: "false"}, nil, nil},
		{"Node turned NotReady", cause{Field: "kubeletReady", Want: "NotReady"}, patch, nil},
	} {
		var ours, told, polled []time.Duration
		missed := 0
		for trial := range trials {
			h.MustExec(t, "sh", "-c", "systemctl reset-failed; systemctl start containerd kubelet") // so many starts in a row reach systemd's limit
			ready()
			if m.before != nil {
				m.before()
			}
			m.cause.Pollers = trial == 0 && trials > 2
			e := act(t, m.cause, m.act)
			ours = append(ours, time.Duration(e.Shown-e.Begun))
			if e.Known != 0 {
				told = append(told, time.Duration(e.Shown-e.Known))
			}
			for _, at := range e.Polled {
				if at == 0 {
					missed++
					continue
				}
				polled = append(polled, time.Duration(at-e.Begun))
			}
		}
		row := fmt.Sprintf("| %s | %s | %s |", m.name, milliseconds(median(ours)), milliseconds(slices.Max(ours)))
		if len(told) > 0 {
			row += fmt.Sprintf(" %s, %s |", milliseconds(median(told)), milliseconds(slices.Max(told)))
		} else {
			row += " - |"
		}
		if len(polled)+missed > 0 {
			row += fmt.Sprintf(" %s | %s | %d of %d |", milliseconds(median(polled)), milliseconds(longest(polled)), missed, len(polled)+missed)
		}
		report = append(report, row)
		if got := median(ours); got > 10*time.Second {
			t.Errorf("%s: the snapshot showed it after %v (median), so it waited for a look by the clock", m.name, got)
		}
	}
	t.Logf("%d trials\n%s", trials, strings.Join(report, "\n"))
	v, err := n.view(t.Context())
	lab.Must(t, err)
	if v.Decision.Action.Acts() || len(v.Counters.Remedies) > 0 {
		t.Errorf("got decision %+v and remedies %v, want a dry-run that does nothing", v.Decision, v.Counters.Remedies)
	}
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}

func longest(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Max(all)
}

func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms >= 100 {
		return fmt.Sprintf("%.0f ms", math.Round(ms))
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// waitSnapshot waits until the snapshot's file is as wanted.
func (n node) waitSnapshot(what string, is func(*status.NodeStatus) bool) {
	n.t.Helper()
	lab.Must(n.t, lab.WaitFor(n.t.Context(), 2*time.Minute, what, func(context.Context) (bool, string) {
		s, err := n.snapshot()
		if err != nil {
			return false, err.Error()
		}
		return is(s), fmt.Sprintf("%+v", *s)
	}))
}
