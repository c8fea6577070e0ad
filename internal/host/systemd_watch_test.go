package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// watcher is a Watch that runs until the test ends.
type watcher struct {
	t     *testing.T
	mu    sync.Mutex
	heard []string
}

// watch starts one. meanwhile, unless nil, is called with each change.
func watch(t *testing.T, s *Systemd, meanwhile func(unit string), units ...string) *watcher {
	t.Helper()
	w := &watcher{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, units, func(unit string) {
			w.mu.Lock()
			w.heard = append(w.heard, unit)
			w.mu.Unlock()
			if meanwhile != nil {
				meanwhile(unit)
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		within(t, func() { <-done })
	})
	return w
}

func (w *watcher) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.heard)
}

// hears waits until the changes heard since the last time are as wanted.
func (w *watcher) hears(when string, want ...string) {
	w.t.Helper()
	eventually(w.t, func() bool { return len(w.all()) >= len(want) }, func() string {
		return fmt.Sprintf("%s: heard %q, want %q", when, w.all(), want)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.heard[:len(want)]; !slices.Equal(got, want) {
		w.t.Errorf("%s: heard %q, want %q", when, got, want)
	}
	w.heard = w.heard[len(want):]
}

// hearsOf waits until each of the units was heard to change since the last time, whatever else was.
func (w *watcher) hearsOf(when string, units ...string) {
	w.t.Helper()
	missing := func(unit string) bool { return !slices.Contains(w.all(), unit) }
	eventually(w.t, func() bool { return !slices.ContainsFunc(units, missing) }, func() string {
		return fmt.Sprintf("%s: heard %q, want %q", when, w.all(), units)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = nil
}

// watched serves a fake systemd on its private socket; the channel has its side of each connection.
func watched(t *testing.T, f *fakeSystemd) (s *Systemd, peers <-chan *peer) {
	t.Helper()
	needsRoot(t)
	leavesNothing(t)
	noBus(t)
	dir, connections := booted(t), make(chan *peer, 1000)
	listen(t, dir, func(_ int, p *peer) {
		connections <- p
		p.serve(f)
	})
	return systemdIn(t, dir), connections
}

const propertiesIface = "org.freedesktop.DBus.Properties"

func (p *peer) unitChanged(name string) {
	p.signal(unitPathOf(name), propertiesIface, "PropertiesChanged", managerName+".Service", map[string]dbus.Variant{"MainPID": dbus.MakeVariant(uint32(1))}, []string{})
}

func (p *peer) manager(member string, body ...any) {
	p.signal(managerPath, managerName+".Manager", member, body...)
}

func TestWatchHearsOfItsUnitsOnly(t *testing.T) {
	f := &fakeSystemd{}
	f.set("alias.service", fakeUnit{load: "loaded", active: "active", id: "primary.service"})
	s, peers := watched(t, f)
	w := watch(t, s, nil, "a.service", "b.service", "alias.service")
	p := <-peers
	w.hears("when it has connected", "a.service", "b.service", "alias.service")

	p.unitChanged("b.service")
	w.hears("when properties have changed", "b.service")
	p.unitChanged("primary.service")
	w.hears("when those of an alias have, by its primary name", "alias.service")
	p.manager("JobRemoved", uint32(7), dbus.ObjectPath(managerPath+"/job/7"), "a.service", "done")
	w.hears("when a job has ended", "a.service")
	for i := range 3000 {
		other := fmt.Sprintf("other-%d.service", i)
		p.unitChanged(other)
		p.manager("JobRemoved", uint32(7), dbus.ObjectPath(managerPath+"/job/7"), other, "done")
	}
	for _, member := range []string{"UnitNew", "UnitRemoved"} {
		p.manager(member, "a.service", unitPathOf("a.service"))
	}
	p.manager("JobNew", uint32(7), dbus.ObjectPath(managerPath+"/job/7"), "a.service")
	p.manager("JobRemoved")
	p.manager("JobRemoved", uint32(7), "a.service")
	p.manager("JobRemoved", "x", "y", 7.5, "z")
	p.manager("Reloading")
	p.manager("Reloading", "false")
	p.manager("Reloading", true)
	p.signal(unitPathOf("a.service"), "org.example.Other", "PropertiesChanged", "x")
	p.unitChanged("b.service")
	w.hears("after a flood about others, and what is no news", "b.service")

	p.unitChanged("b.service")
	p.manager("Reloading", false)
	w.hears("when systemd has read its files anew", "b.service", "a.service", "b.service", "alias.service")
	p = <-peers
	p.unitChanged("a.service")
	w.hears("and then on", "a.service")
}

func TestSignalsNobodyTakesCostNothing(t *testing.T) {
	s := newSignals()
	s.about([]sd.UnitStatus{{Name: "a.service", Path: unitPathOf("a.service")}, {Name: "b.service", Path: unitPathOf("b.service")}}, []string{"a", "b"})
	within(t, func() {
		for range 1000 {
			for _, unit := range []string{"b.service", "a.service", "other.service"} {
				s.DeliverSignal(propertiesIface, "PropertiesChanged", &dbus.Signal{Path: unitPathOf(unit)})
			}
		}
	})
	if names, over := s.take(); !slices.Equal(names, []string{"a", "b"}) || over {
		t.Errorf("got %q, %v, want each unit once", names, over)
	}
	if names, over := s.take(); len(names) > 0 || over || len(s.units) != 4 {
		t.Errorf("then got %q, %v and %d keys of units, want nothing left", names, over, len(s.units))
	}
}

func TestWatchWaitsForWhoeverIsTold(t *testing.T) {
	s, peers := watched(t, &fakeSystemd{})
	var told sync.Mutex
	busy, free := make(chan struct{}, 1), make(chan struct{})
	w := watch(t, s, func(string) {
		if !told.TryLock() {
			t.Error("told of a change while still busy with the last")
			return
		}
		defer told.Unlock()
		select {
		case busy <- struct{}{}:
		default: // nobody asks any more
		}
		<-free
	}, "a.service")
	p := <-peers
	<-busy
	for range 3000 {
		p.unitChanged("a.service")
	}
	free <- struct{}{}
	<-busy
	close(free)
	p.Close()
	eventually(t, func() bool { return len(w.all()) > 2 }, func() string { return fmt.Sprint("heard only ", w.all()) })
	if got := w.all(); len(got) > 1000 {
		t.Errorf("was told %d times of 3000 changes, want many as one", len(got))
	}
}

func TestWatchWhenTheConnectionIsLost(t *testing.T) {
	for name, end := range map[string]func(*peer){
		"given that it is closed":              func(p *peer) { p.Close() },
		"given half a signal and then the end": func(p *peer) { _, _ = io.WriteString(p, "l\x04\x01\x01\x00\x00"); p.Close() },
		"given bytes without sense":            func(p *peer) { _, _ = io.WriteString(p, strings.Repeat("no message at all", 1000)); p.Close() },
		"given a message that is too long for the D-Bus": func(p *peer) {
			_, _ = io.WriteString(p, "l\x04\x01\x01\xff\xff\xff\xff\x01\x00\x00\x00\xff\xff\xff\xff")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, peers := watched(t, &fakeSystemd{})
			w := watch(t, s, nil, "a.service", "b.service")
			for range 3 {
				p := <-peers
				w.hears("when it has connected", "a.service", "b.service")
				p.unitChanged("b.service")
				w.hears("when a unit has changed", "b.service")
				end(p)
			}
		})
	}
}

func TestWatchGoesOnTrying(t *testing.T) {
	needsRoot(t)
	f := &fakeSystemd{}
	stopAt := func(member string) func(*peer) {
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
	for name, talk := range map[string]func(*peer){
		"given a socket that accepts and says nothing":       (*peer).hang,
		"given one whose handshake never ends":               endlessHandshake,
		"given one that closes at once":                      func(*peer) {},
		"given one that does not answer after the handshake": stopAt("ListUnitsByNames"),
		"given one that sends bytes without sense and stays": func(p *peer) { garbage(p); p.hang() },
		"given a message that is never all sent":             func(p *peer) { endlessMessage(p); p.hang() },
	} {
		t.Run(name+", then it tries again", func(t *testing.T) {
			leavesNothing(t)
			noBus(t)
			dir := booted(t)
			listen(t, dir, func(n int, p *peer) {
				if n == 1 {
					talk(p)
					return
				}
				p.serve(f)
			})
			s := systemdIn(t, dir)
			s.patience = 100 * time.Millisecond
			watch(t, s, nil, "a.service").hears("when it could connect", "a.service")
		})
		t.Run(name+", then it ends with its context", func(t *testing.T) {
			leavesNothing(t)
			noBus(t)
			dir, talked := booted(t), make(chan struct{}, 1000)
			listen(t, dir, func(_ int, p *peer) { talked <- struct{}{}; talk(p) })
			s := systemdIn(t, dir)
			s.patience = time.Hour
			w := watch(t, s, nil, "a.service")
			<-talked
			if got := w.all(); len(got) > 0 {
				t.Errorf("heard %q", got)
			}
		})
	}
}

func TestWatchWithoutSystemd(t *testing.T) {
	leavesNothing(t)
	noBus(t)
	f, dir := &fakeSystemd{}, shortFolder(t)
	w := watch(t, systemdIn(t, dir), nil, "a.service")
	if os.Geteuid() != 0 {
		return // it ends with its context, that is all
	}
	listen(t, dir, func(_ int, p *peer) { p.serve(f) })
	must(t, os.Mkdir(dir+"/"+bootedFolder, 0o755))
	w.hears("when there is one after all", "a.service")
}

func TestWatchOverTheBus(t *testing.T) {
	leavesNothing(t)
	b, f := startBus(t), &fakeSystemd{}
	f.set("alias.service", fakeUnit{load: "loaded", active: "active", id: "primary.service"})
	s := systemdIn(t, booted(t))
	w := watch(t, s, nil, "a.service", "alias.service")
	emit := func(path dbus.ObjectPath, name string, body ...any) { must(t, f.bus.Emit(path, name, body...)) }
	changed := func(unit string) {
		emit(unitPathOf(unit), propertiesIface+".PropertiesChanged", managerName+".Unit", map[string]dbus.Variant{}, []string{})
	}
	leave := b.join(t, f) // the bus may tell of it when Watch has connected already: then it does so again, and tells all twice
	for range 2 {
		w.hearsOf("when systemd came", "a.service", "alias.service")
		changed("other.service")
		changed("primary.service")
		w.hearsOf("when an alias has changed", "alias.service")
		emit(managerPath, managerName+".Manager.JobRemoved", uint32(1), dbus.ObjectPath("/j"), "other.service", "done")
		emit(managerPath, managerName+".Manager.JobRemoved", uint32(1), dbus.ObjectPath("/j"), "a.service", "done")
		w.hearsOf("when a job has ended", "a.service")
		emit(managerPath, managerName+".Manager.Reloading", true)
		emit(managerPath, managerName+".Manager.Reloading", false)
		w.hearsOf("when it has read its files anew", "a.service", "alias.service")
		leave() // as in daemon-reexec
		leave = b.join(t, f)
	}
	w.hearsOf("when systemd came again", "a.service", "alias.service")
	b.stop()
	must(t, os.Remove(strings.TrimPrefix(b.address, "unix:path=")))
	b.start(t)
	b.join(t, f)
	w.hearsOf("when the bus was restarted", "a.service", "alias.service")
}
