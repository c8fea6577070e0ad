package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestUnitsOverTheBus(t *testing.T) {
	leavesNothing(t)
	b, f := startBus(t), &fakeSystemd{}
	f.set("kubelet.service", running(os.Getpid()))
	b.join(t, f)
	got, err := ask(t.Context(), t, systemdIn(t, booted(t)), "kubelet.service", "nope.service")
	if err != nil || len(got) != 2 || got[1].Exists() {
		t.Fatalf("got %+v, %v, want two units, the second missing", got, err)
	}
	wantUnits(t, got[:1], err, runningAs("kubelet.service", os.Getpid()))
}

func TestUnitsOverTheBusWhenThePrivateSocketIsOfNoUse(t *testing.T) {
	needsRoot(t)
	for name, talk := range map[string]func(*peer){
		"given a private socket that closes at once":               func(*peer) {},
		"given a private socket that answers with no sense":        func(p *peer) { _, _ = p.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"given a private socket that does not let this user in":    func(p *peer) { _, _ = p.Write([]byte("REJECTED\r\n")) },
		"given a private socket that wants a way in we don't know": func(p *peer) { _, _ = p.Write([]byte("REJECTED KERBEROS_V4\r\n")); p.hang() },
	} {
		t.Run(name+", then the bus is asked", func(t *testing.T) {
			leavesNothing(t)
			b, f, dir := startBus(t), &fakeSystemd{}, booted(t)
			f.set("kubelet.service", running(os.Getpid()))
			b.join(t, f)
			var ended atomic.Int32
			connections := listen(t, dir, func(_ int, p *peer) {
				talk(p)
				ended.Add(1)
			})
			got, err := ask(t.Context(), t, systemdIn(t, dir), "kubelet.service")
			wantUnits(t, got, err, runningAs("kubelet.service", os.Getpid()))
			if connections() != 1 {
				t.Errorf("got %d connections to the private socket, want 1", connections())
			}
			eventually(t, func() bool { return ended.Load() == 1 }, func() string { return "the useless connection was kept" })
		})
	}
}

func TestUnitsWhenSystemdIsNotOnTheBus(t *testing.T) {
	leavesNothing(t)
	b, f := startBus(t), &fakeSystemd{}
	f.set("kubelet.service", running(os.Getpid()))
	s := systemdIn(t, booted(t))

	_, err := ask(t.Context(), t, s, "kubelet.service")
	if err == nil || !strings.Contains(err.Error(), managerName) {
		t.Errorf("given no systemd on the bus: got error %v, want the bus's word about it", err)
	}
	leave := b.join(t, f)
	got, err := ask(t.Context(), t, s, "kubelet.service")
	wantUnits(t, got, err, runningAs("kubelet.service", os.Getpid()))

	leave()
	if _, err := ask(t.Context(), t, s, "kubelet.service"); err == nil {
		t.Error("when it left the bus: got no error")
	}
	b.join(t, f)
	got, err = ask(t.Context(), t, s, "kubelet.service")
	wantUnits(t, got, err, runningAs("kubelet.service", os.Getpid()))
}

func TestUnitsWhenTheBusIsRestarted(t *testing.T) {
	leavesNothing(t)
	b, f := startBus(t), &fakeSystemd{}
	f.set("kubelet.service", running(os.Getpid()))
	b.join(t, f)
	s := systemdIn(t, booted(t))
	got, err := ask(t.Context(), t, s, "kubelet.service")
	wantUnits(t, got, err, runningAs("kubelet.service", os.Getpid()))

	b.stop()
	if _, err := ask(t.Context(), t, s, "kubelet.service"); err == nil {
		t.Error("while it is stopped: got no error")
	}
	must(t, os.Remove(strings.TrimPrefix(b.address, "unix:path=")))
	b.start(t)
	b.join(t, f)
	got, err = ask(t.Context(), t, s, "kubelet.service")
	wantUnits(t, got, err, runningAs("kubelet.service", os.Getpid()))
}

func TestUnitsWhenTheServiceBehindTheBusHangs(t *testing.T) {
	leavesNothing(t)
	b, f := startBus(t), &fakeSystemd{}
	b.join(t, f)
	f.mu.Lock() // it has the question and does not answer
	errCause := errors.New("out of time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errCause)
	defer cancel()
	s := systemdIn(t, booted(t))
	if units, err := ask(ctx, t, s, "kubelet.service"); !errors.Is(err, errCause) || units != nil {
		t.Errorf("got %+v, %v, want error %v", units, err, errCause)
	}
	f.mu.Unlock()
	f.set("kubelet.service", running(os.Getpid()))
	got, err := ask(t.Context(), t, s, "kubelet.service")
	wantUnits(t, got, err, runningAs("kubelet.service", os.Getpid()))
}

func TestUnitsOverTheBusAsAnotherUser(t *testing.T) {
	needsRoot(t)
	b, f, dir := startBus(t), &fakeSystemd{}, booted(t)
	connections := listen(t, dir, func(_ int, p *peer) { p.serve(f) })
	f.set("kubelet.service", running(os.Getpid()))
	b.join(t, f)
	exe := filepath.Join(openFolder(t), "test")
	copyProgram(t, self(t), exe)
	cmd := execAs(t, someoneElse, exe, "ask", dir, "kubelet.service")
	cmd.Env = append(cmd.Env, "DBUS_SYSTEM_BUS_ADDRESS="+b.address)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "kubelet.service active\n<nil>\n") || connections() != 0 {
		t.Errorf("got %q, %v, and %d connections to root's own socket, want an answer over the bus and none", out, err, connections())
	}
}
