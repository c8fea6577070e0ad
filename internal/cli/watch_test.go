package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/localapi"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/golden"
)

// viewAt shows an agent's view at any moment.
func viewAt(v *agent.View) func(time.Time) view {
	return func(now time.Time) view { return viewOfAgent(v, wanted, now) }
}

// lines is a place for output that other goroutines read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns what was written since the last call.
func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.b.String()
	l.b.Reset()
	return text
}

// watching is a watch into a pipe, in a bubble.
type watching struct {
	out   *lines
	end   func()
	ended chan error
}

func startWatch(t *testing.T, f *fakeAgent, live bool, set func() observe.Set) *watching {
	t.Helper()
	c, out := newCommand(t, f), &lines{}
	c.stdout = out
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{c: &c.common, s: wanted, live: live, look: func(context.Context) observe.Set { return set() }}
	sights, ended := make(chan sight), make(chan error, 1)
	go w.run(ctx, sights)
	go func() { ended <- c.watchLines(ctx, sights) }()
	return &watching{out, cancel, ended}
}

func (w *watching) stop(t *testing.T) {
	t.Helper()
	w.end()
	if err := <-w.ended; err != nil {
		t.Errorf("got %v, want a quiet end", err)
	}
}

// bubbled makes a view one of the bubble's time.
func bubbled(v *agent.View, generation uint64) *agent.View {
	w := *v
	w.At, w.Started, w.Generation = time.Now(), time.Now(), generation
	return &w
}

func TestAPipeGetsTheStateAndThenALineForEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(bubbled(acting().view(), 1))
		w := startWatch(t, f, false, func() observe.Set { return *healthySet() })
		synctest.Wait()
		var text strings.Builder
		text.WriteString(w.out.take())
		step := func(what string, change func()) {
			f.set(change)
			<-time.After(lookEvery + time.Second)
			synctest.Wait()
			text.WriteString("# " + what + "\n" + w.out.take())
		}
		step("nothing new", func() { f.view = bubbled(acting().view(), 2) })
		step("a fault", func() { f.view = bubbled(since(20*time.Second, failedKubelet).view(), 3) })
		step("it lasts", func() { f.view = bubbled(since(2*time.Minute, failedKubelet).view(), 4) })
		step("a remedy", func() { f.view = bubbled(worlds()["restarts"].view(), 5) })
		step("paused", func() { f.view = bubbled(worlds()["paused"].view(), 6) })
		step("the agent ends", func() { f.err, f.cut = localapi.ErrNotRunning, io.ErrUnexpectedEOF })
		step("another begins", func() { f.view, f.err = bubbled(acting().view(), 1), nil })
		newer := acting().view()
		newer.Set.Kubelet.Value.Version = "1.33.1"
		step("another version", func() { f.view = bubbled(newer, 2) })
		w.stop(t)
		golden.Check(t, "testdata/watch-lines.txt", text.String())
	})
}

func TestWithoutAnAgentAWatchLooksAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		w := startWatch(t, absent(), true, func() observe.Set {
			s := healthySet()
			if looks.Add(1) > 3 {
				stopped(s)
			}
			return *s
		})
		synctest.Wait()
		if text := w.out.take(); strings.Count(text, "\n") != 5 || strings.Contains(text, "agent") {
			t.Errorf("got %s, want a line for each component", text)
		}
		<-time.After(2 * lookEvery)
		synctest.Wait()
		if text := w.out.take(); text != "" || looks.Load() != 3 {
			t.Errorf("got %q after %d looks, want nothing after 3", text, looks.Load())
		}
		<-time.After(lookEvery)
		synctest.Wait()
		if text := w.out.take(); !strings.HasSuffix(text, " kubelet ok → BAD Stopped kubelet.service is stopped\n") || strings.Count(text, "\n") != 1 {
			t.Errorf("got %q, want that the kubelet was stopped", text)
		}
		w.stop(t)
	})
}

func TestAnAgentThatChangesAllTheTimeIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(bubbled(acting().view(), 1))
		w := startWatch(t, f, false, nil)
		began := time.Now()
		var asked int
		for time.Since(began) < 2*time.Second {
			<-time.After(time.Millisecond)
			f.set(func() {
				asked++
				v := *f.view
				v.Generation++
				v.Decision.Reason = time.Now().String()
				f.view = &v
			})
		}
		synctest.Wait()
		if got := strings.Count(w.out.take(), " decision "); got < 2 || got > 12 {
			t.Errorf("got %d lines about the decision for %d changes, want about 10", got, asked)
		}
		w.stop(t)
	})
}

func TestAFrameFitsItsScreen(t *testing.T) {
	v := worlds()["restarts"].view()
	s := sight{show: viewAt(v), agent: v, history: someHistory(), at: now}
	gone := s
	gone.agent, gone.gone = nil, "no agent runs here"
	gone.show = func(now time.Time) view { return viewOfSnapshot(healthySnapshot(), settings{}, now) }
	for file, c := range map[string]struct {
		s             sight
		columns, rows int
	}{
		"watch-100x40": {s, 100, 40}, "watch-80x24": {s, 80, 24}, "watch-60x10": {s, 60, 10}, "watch-gone": {gone, 100, 30},
	} {
		t.Run(file, func(t *testing.T) {
			frame := c.s.frame(now.Add(3*time.Second), c.columns, c.rows)
			if len(frame) > c.rows {
				t.Errorf("got %d lines, want at most %d", len(frame), c.rows)
			}
			text := plain(t, strings.Join(frame, "\n"))
			if file == "watch-gone" {
				text = strings.ReplaceAll(text, (settings{}).nodeName(), "HOST")
			}
			golden.Check(t, "testdata/"+file+".txt", text+"\n")
		})
	}
	for rows := range 4 {
		if frame := s.frame(now, 40, rows); len(frame) > max(rows, 2) {
			t.Errorf("%d rows: got %q", rows, frame)
		}
	}
}

func TestAReaderThatGoesAwayIsAQuietEnd(t *testing.T) {
	for _, gone := range []error{syscall.EPIPE, io.ErrClosedPipe} {
		c := newCommand(t, newFake(acting().view()))
		c.stdout = broken{gone}
		if err := c.watch(t.Context(), wanted, false); err != nil {
			t.Errorf("%v: got %v, want none", gone, err)
		}
	}
	c := newCommand(t, newFake(acting().view()))
	c.stdout = broken{syscall.ENOSPC}
	if err := c.watch(t.Context(), wanted, false); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want that the disk is full", err)
	}
}

func TestAWatchThatNobodyReadsEndsAlsoWhenNothingChanges(t *testing.T) {
	c := newCommand(t, newFake(acting().view()))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c.stdout = w
	ended := make(chan error, 1)
	go func() { ended <- c.watch(t.Context(), wanted, false) }()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("got %v, want a quiet end", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on")
	}
}

// broken is a writer that fails.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func TestATerminalIsRestoredAtTheEnd(t *testing.T) {
	master, terminal := openTerminal(t, 100, 40)
	t.Setenv("TERM", "xterm-256color")
	v := worlds()["paused"].view()
	v.At, v.Started = time.Now(), time.Now()
	f := newFake(v, someHistory()...)
	c := newCommand(t, f)
	c.stdout = terminal
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.watch(ctx, wanted, false) }()
	seen := readUntil(t, master, "Ctrl-C ends")
	for _, want := range []string{enterScreen, "Node edge-7 is UNHEALTHY", "paused by jo", "Last changes:", restBelow} {
		if !strings.Contains(seen, want) {
			t.Errorf("got %q, want %q in it", seen, want)
		}
	}
	resize(t, terminal, 60, 12)
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	readUntil(t, master, "make the window larger")
	f.set(func() {
		v := acting().view()
		v.Generation, v.At, v.Decision.Action = 99, time.Now(), decision.None
		f.view, f.entries = v, []journal.Entry{}
	})
	readUntil(t, master, "Node edge-7 is healthy")
	cancel()
	readUntil(t, master, leaveScreen)
	if err := <-ended; err != nil {
		t.Errorf("got %v, want a quiet end", err)
	}
}

func TestATerminalIsRestoredWhileTheWatchIsStopped(t *testing.T) {
	master, terminal := openTerminal(t, 100, 40)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "status", "--watch", "--live")
	cmd.Env = append(os.Environ(), asProgram+"=1", "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, master, "Ctrl-C ends")
	for _, s := range []struct {
		signal syscall.Signal
		want   string
	}{{syscall.SIGTSTP, leaveScreen}, {syscall.SIGCONT, enterScreen}, {syscall.SIGINT, leaveScreen}} {
		if s.signal == syscall.SIGCONT { // it says that the screen is left just before it stops
			var status syscall.WaitStatus
			if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
				t.Fatalf("got %v and %v, want that it has stopped", status, err)
			}
		}
		if err := cmd.Process.Signal(s.signal); err != nil {
			t.Fatal(err)
		}
		readUntil(t, master, s.want)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("got %v, want a quiet end", err)
	}
}
