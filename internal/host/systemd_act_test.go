package host

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// requests are all that a Systemd can be asked to do.
func requests(s *Systemd) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"State":       func(ctx context.Context) error { _, err := s.State(ctx); return err },
		"ResetFailed": func(ctx context.Context) error { return s.ResetFailed(ctx, "a.service") },
		"Start":       func(ctx context.Context) error { return s.Start(ctx, "a.service") },
		"Restart":     func(ctx context.Context) error { return s.Restart(ctx, "a.service") },
		"Run":         func(ctx context.Context) error { _, err := s.Run(ctx, "a.service"); return err },
		"Forget":      func(ctx context.Context) error { return s.Forget(ctx, "a.service") },
		"StartTransient": func(ctx context.Context) error {
			return s.StartTransient(ctx, Transient{Name: "a.service", Command: []string{"/bin/true"}})
		},
	}
}

// await waits until there is something to read and leaves it unread.
func (p *peer) await() {
	raw, err := p.Conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		panic(err)
	}
	_ = raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
}

func TestActsWhenTheConnectionIsLost(t *testing.T) {
	needsRoot(t)
	f := &fakeSystemd{}
	f.set("a.service", fakeUnit{load: "not-found", active: "inactive"})
	for name := range requests(nil) {
		for _, tc := range []struct {
			name string
			lost bool // the request may have been done
		}{{"after it was read", true}, {"before it was read", false}} {
			t.Run(name+", given a connection lost "+tc.name, func(t *testing.T) {
				leavesNothing(t)
				noBus(t)
				dir := booted(t)
				connections := listen(t, dir, func(n int, p *peer) {
					if n > 1 {
						p.serve(f)
						return
					}
					if p.authenticate() != nil {
						return
					}
					match, ok := p.next() // go-systemd's AddMatch
					if !ok {
						return
					}
					p.send(f.answer(match))
					if tc.lost {
						p.next()
						return
					}
					p.await()
				})
				s := systemdIn(t, dir)
				var err error
				within(t, func() { err = requests(s)[name](t.Context()) })
				repeats := !tc.lost || name != "Restart" && name != "StartTransient"
				if repeats && (err != nil || connections() != 2) {
					t.Errorf("got error %v and %d connections, want it asked again", err, connections())
				}
				if !repeats && (!errors.Is(err, io.EOF) || connections() != 1) {
					t.Errorf("got error %v and %d connections, want the error: it may have been done", err, connections())
				}
			})
		}
	}
}

func TestActsWhenSystemdHangs(t *testing.T) {
	needsRoot(t)
	leavesNothing(t)
	noBus(t)
	dir := booted(t)
	listen(t, dir, func(_ int, p *peer) { p.hang() })
	s := systemdIn(t, dir)
	for name, request := range requests(s) {
		errCause := errors.New("out of time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errCause)
		var err error
		within(t, func() { err = request(ctx) })
		cancel()
		if !errors.Is(err, errCause) {
			t.Errorf("%s: got error %v, want %v", name, err, errCause)
		}
	}
	// Whoever waits for his turn behind one that hangs comes back in time, too.
	slow, end := context.WithCancel(t.Context())
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(started)
		_ = s.Restart(slow, "a.service")
	}()
	<-started
	eventually(t, func() bool { return len(s.turn.taken) == 1 }, func() string { return "nobody asks" })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := ask(ctx, t, s, "a.service"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("behind another: got error %v", err)
	}
	end()
	within(t, func() { <-done })
}

func TestActsWithoutSystemd(t *testing.T) {
	leavesNothing(t)
	noBus(t)
	for name, request := range requests(systemdIn(t, shortFolder(t))) {
		if err := request(t.Context()); !errors.Is(err, ErrNoSystemd) {
			t.Errorf("%s: got error %v, want ErrNoSystemd", name, err)
		}
	}
}

func TestActsSayWhatSystemdIsAsked(t *testing.T) {
	needsRoot(t)
	leavesNothing(t)
	noBus(t)
	f, dir := &fakeSystemd{}, booted(t)
	listen(t, dir, func(_ int, p *peer) { p.serve(f) })
	s := systemdIn(t, dir)
	must(t, s.ResetFailed(t.Context(), "a.service"))
	must(t, s.Start(t.Context(), "b.service"))
	must(t, s.Restart(t.Context(), "c.service"))
	if want := []string{"ResetFailedUnit a.service", "StartUnit b.service replace", "RestartUnit c.service replace"}; !slices.Equal(f.acts, want) {
		t.Errorf("got %q, want %q", f.acts, want)
	}
	if state, err := s.State(t.Context()); state != "degraded" || err != nil {
		t.Errorf("got state %q, %v", state, err)
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	needsRoot(t)
	leavesNothing(t)
	noBus(t)
	f, dir := &fakeSystemd{}, booted(t)
	connections := listen(t, dir, func(_ int, p *peer) { p.serve(f) })
	s := systemdIn(t, dir)
	refuse := func(method, name string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refuses = map[string]*dbus.Error{method: dbus.NewError(name, []any{"no"})}
	}
	for _, tc := range []struct{ method, request, name, want string }{
		{"StartUnit", "Start", "org.freedesktop.systemd1.UnitMasked", "start unit a.service: no (someone masked it on purpose"},
		{"RestartUnit", "Restart", noSuchUnit, "restart unit a.service: no (is it installed?"},
		{"RestartUnit", "Restart", "org.example.Other", "restart unit a.service: no"},
		{"StartUnit", "Start", "org.freedesktop.DBus.Error.AccessDenied", "start unit a.service: no (run as root)"},
		{"ResetFailedUnit", "ResetFailed", noSuchUnit, ""},
		{"ResetFailedUnit", "ResetFailed", "org.example.Other", "reset the failure of unit a.service: no"},
		{"StartTransientUnit", "StartTransient", unitExists, "start transient unit a.service: " + ErrUnitExists.Error()},
	} {
		refuse(tc.method, tc.name)
		err := requests(s)[tc.request](t.Context())
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)) {
			t.Errorf("%s refused with %s: got error %v, want %q", tc.request, tc.name, err, tc.want)
		}
		if tc.name == unitExists && !errors.Is(err, ErrUnitExists) {
			t.Errorf("got error %v, want ErrUnitExists", err)
		}
	}
	if connections() != 1 {
		t.Errorf("got %d connections, want one: a refusal is no reason to hang up", connections())
	}
}
