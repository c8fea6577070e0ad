package host

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

func TestUnitsWhenSystemdHangs(t *testing.T) {
	needsRoot(t)
	f := &fakeSystemd{}
	f.set("kubelet.service", running(os.Getpid()))
	answerUntil := func(member string) func(*peer) {
		return func(p *peer) {
			if p.authenticate() != nil {
				return
			}
			for call, ok := p.next(); ok && call.Headers[dbus.FieldMember].Value() != member; call, ok = p.next() {
				p.send(f.answer(call))
			}
			p.hang()
		}
	}
	for name, talk := range map[string]func(p *peer){
		"given a socket that accepts and says nothing":          (*peer).hang,
		"given one that stops in the middle of the handshake":   func(p *peer) { _, _ = io.WriteString(p, "REJECTED EXT"); p.hang() },
		"given one whose handshake never ends":                  endlessHandshake,
		"given one that stops after the handshake":              answerUntil("AddMatch"),
		"given one that stops at the question for units":        answerUntil("ListUnitsByNames"),
		"given one that stops at the question for properties":   answerUntil("GetAll"),
		"given one that sends half an answer":                   func(p *peer) { halfAnswer(p, f) },
		"given one that sends bytes without sense and stays":    func(p *peer) { garbage(p); p.hang() },
		"given one that sends a message that is never all sent": func(p *peer) { endlessMessage(p); p.hang() },
	} {
		for how, end := range map[string]func(context.Context, error) (context.Context, context.CancelFunc){
			"it comes back at the deadline with the cause": func(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, 100*time.Millisecond, cause)
			},
			"it comes back when it is cancelled with the cause": func(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
				return ctx, func() { cancel(nil) }
			},
		} {
			t.Run(name+", then "+how, func(t *testing.T) {
				leavesNothing(t)
				noBus(t)
				dir := booted(t)
				listen(t, dir, func(_ int, p *peer) { talk(p) })
				s := systemdIn(t, dir)
				errCause := errors.New("out of time")
				ctx, cancel := end(t.Context(), errCause)
				defer cancel()
				if units, err := ask(ctx, t, s, "kubelet.service"); !errors.Is(err, errCause) || units != nil {
					t.Errorf("got %+v, %v, want error %v", units, err, errCause)
				}
				if s.conn != nil {
					t.Error("a connection was kept on which nothing will ever come back")
				}
			})
		}
	}
}

func endlessHandshake(p *peer) {
	_, _ = p.r.ReadString('\n')
	_, _ = io.WriteString(p, "REJECTED EXTERNAL\r\n")
	for _, err := p.r.ReadString('\n'); err == nil; _, err = p.r.ReadString('\n') {
		_, _ = io.WriteString(p, "DATA 00\r\n")
	}
}

func halfAnswer(p *peer, f *fakeSystemd) {
	if p.authenticate() != nil {
		return
	}
	call, ok := p.next()
	if !ok {
		return
	}
	var whole strings.Builder
	_ = f.answer(call).EncodeTo(&whole, binary.LittleEndian)
	_, _ = io.WriteString(p, whole.String()[:whole.Len()/2])
	p.hang()
}

func garbage(p *peer) {
	if p.authenticate() == nil {
		_, _ = io.WriteString(p, strings.Repeat("no message at all", 1000))
	}
}

func endlessMessage(p *peer) {
	if p.authenticate() == nil {
		_, _ = io.WriteString(p, "l\x02\x00\x01\x00\x00\x00\x04\x01\x00\x00\x00\x08\x00\x00\x00\x05\x01u\x00\x01\x00\x00\x00") // 64 MiB follow
	}
}

func TestUnitsWhenTheConnectionIsLost(t *testing.T) {
	needsRoot(t)
	f := &fakeSystemd{}
	f.set("kubelet.service", running(os.Getpid()))
	want := runningAs("kubelet.service", os.Getpid())
	drop := func(*peer) {}
	dropAtQuestion := func(p *peer) {
		if p.authenticate() == nil {
			for call, ok := p.next(); ok && call.Headers[dbus.FieldMember].Value() != "ListUnitsByNames"; call, ok = p.next() {
				p.send(f.answer(call))
			}
		}
	}
	serve := func(p *peer) { p.serve(f) }
	for _, tc := range []struct {
		name        string
		talk        []func(*peer) // on each connection; the last one goes on
		connections int
		fails       bool
	}{
		{"given one lost while it asked, it asks again on a new one", []func(*peer){dropAtQuestion, serve}, 2, false},
		{"given several lost, it asks again", []func(*peer){dropAtQuestion, dropAtQuestion, dropAtQuestion, serve}, 4, false},
		{"given that each is lost, it gives up", []func(*peer){dropAtQuestion}, attempts, true},
		{"given a socket that closes at once and no bus, it gives up", []func(*peer){drop}, attempts, true},
		{"given bytes without sense and then an end, it asks again", []func(*peer){garbage, serve}, 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			noBus(t)
			dir := booted(t)
			connections := listen(t, dir, func(n int, p *peer) { tc.talk[min(n, len(tc.talk))-1](p) })
			got, err := ask(t.Context(), t, systemdIn(t, dir), "kubelet.service")
			if tc.fails && (err == nil || errors.Is(err, ErrNoSystemd) || !strings.HasPrefix(err.Error(), "ask systemd for its units: ")) {
				t.Errorf("got %+v, %v, want an error that says that systemd could not be asked", got, err)
			}
			if !tc.fails {
				wantUnits(t, got, err, want)
			}
			if got := connections(); got != tc.connections {
				t.Errorf("got %d connections, want %d", got, tc.connections)
			}
		})
	}
}

func TestUnitsMakesALostConnectionAnew(t *testing.T) {
	needsRoot(t)
	leavesNothing(t)
	noBus(t)
	f, dir := &fakeSystemd{}, booted(t)
	f.set("kubelet.service", running(os.Getpid()))
	var mu sync.Mutex
	var last net.Conn
	connections := listen(t, dir, func(_ int, p *peer) {
		mu.Lock()
		last = p
		mu.Unlock()
		p.serve(f)
	})
	s := systemdIn(t, dir)
	for i := range 3 {
		got, err := ask(t.Context(), t, s, "kubelet.service")
		wantUnits(t, got, err, runningAs("kubelet.service", os.Getpid()))
		mu.Lock()
		last.Close()
		mu.Unlock()
		if got := connections(); got != i+1 {
			t.Errorf("got %d connections after %d were lost", got, i)
		}
	}
	s.Close()
	got, err := ask(t.Context(), t, s, "kubelet.service")
	wantUnits(t, got, err, runningAs("kubelet.service", os.Getpid()))
	s.Close()
	s.Close()
}
