package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

const (
	// setUpLimit is how long connecting and subscribing may take.
	setUpLimit = 5 * time.Second
	// minBackoff and maxBackoff bound how long after a connection's end, or a failed try, the next one is made.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second

	systemdName   = "org.freedesktop.systemd1"
	systemdObject = "/org/freedesktop/systemd1"
	managerIface  = "org.freedesktop.systemd1.Manager"
)

// Watch calls changed with the name of each of the units that may have changed, until ctx ends. It only hears: a systemd that hangs says
// nothing, and what it says must be looked at to be known. Calls come one at a time; several changes during one become one. After it has
// connected, and each time after it has lost the connection or systemd has read its units' files anew, it calls for every unit, since
// changes may have been missed.
//
// It has a connection of its own and never ends by itself: where systemd can't be heard, or there is none, it goes on trying.
func (s *Systemd) Watch(ctx context.Context, units []string, changed func(unit string)) {
	backoff := minBackoff
	for ctx.Err() == nil {
		began := time.Now()
		_ = s.listen(ctx, units, changed) // whoever looks at the units is told the same
		if time.Since(began) > maxBackoff {
			backoff = minBackoff
		}
		select {
		case <-time.After(backoff/2 + rand.N(backoff/2)): //nolint:gosec // jitter
		case <-ctx.Done():
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// listen is Watch over one connection, until that ends or should be replaced.
func (s *Systemd) listen(ctx context.Context, units []string, changed func(unit string)) error {
	if !s.booted() {
		return ErrNoSystemd
	}
	life, hangUp := context.WithCancel(ctx)
	defer hangUp()
	limit := time.AfterFunc(cmp.Or(s.patience, setUpLimit), hangUp)
	defer limit.Stop()
	heard := newSignals()
	conn, overBus, err := s.dial(life, heard)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := subscribe(life, conn, overBus, heard, units); err != nil {
		return err
	}
	if !limit.Stop() {
		return errors.New("systemd took too long")
	}
	for _, unit := range units {
		changed(unit)
	}
	for {
		select {
		case <-conn.Context().Done():
			return dbus.ErrClosed
		case <-heard.due:
		}
		names, over := heard.take()
		for _, unit := range names {
			changed(unit)
		}
		if over {
			return nil
		}
	}
}

// subscribe asks for the signals of the units.
func subscribe(ctx context.Context, conn *dbus.Conn, overBus bool, heard *signals, units []string) error {
	manager := conn.Object(systemdName, systemdObject)
	if overBus {
		for _, rule := range []string{
			"sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='" + systemdName + "'",
			"sender='" + systemdName + "',interface='" + managerIface + "',member='Reloading'",
		} {
			if err := match(ctx, conn, rule); err != nil {
				return err
			}
		}
		// Without this systemd tells the bus nothing. On its own socket it tells everything to everyone.
		if err := manager.CallWithContext(ctx, managerIface+".Subscribe", 0).Err; err != nil {
			return fmt.Errorf("subscribe to signals: %w", err)
		}
	}
	// A signal names a unit by its primary name, the caller perhaps by an alias.
	var rows []sd.UnitStatus
	if err := manager.CallWithContext(ctx, managerIface+".ListUnitsByNames", 0, units).Store(&rows); err != nil {
		return fmt.Errorf("ask for the names of units: %w", err)
	}
	if len(rows) != len(units) {
		return fmt.Errorf("asked about %d units, told about %d", len(units), len(rows))
	}
	heard.about(rows, units)
	if !overBus {
		return nil
	}
	for _, row := range rows {
		for _, rule := range []string{
			"sender='" + systemdName + "',interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',path='" + string(row.Path) + "'",
			"sender='" + systemdName + "',interface='" + managerIface + "',member='JobRemoved',arg2='" + row.Name + "'",
		} {
			if err := match(ctx, conn, rule); err != nil {
				return err
			}
		}
	}
	return nil
}

func match(ctx context.Context, conn *dbus.Conn, rule string) error {
	if err := conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.AddMatch", 0, "type='signal',"+rule).Err; err != nil {
		return fmt.Errorf("ask the bus for signals: %w", err)
	}
	return nil
}

// signals takes the signals of one connection, in that connection's reader: it only notes what they are about and never waits. What it
// keeps is bounded by the number of units.
type signals struct {
	due chan struct{} // holds one token while something is noted

	mu      sync.Mutex
	units   map[string][]string // as the caller calls them, by primary name and by object path
	changed map[string]bool
	over    bool
}

func newSignals() *signals {
	return &signals{due: make(chan struct{}, 1), units: map[string][]string{}, changed: map[string]bool{}}
}

// about says which units matter: rows are what systemd calls them, names what the caller does.
func (s *signals) about(rows []sd.UnitStatus, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, row := range rows {
		for _, key := range []string{row.Name, string(row.Path)} {
			s.units[key] = append(s.units[key], names[i])
		}
	}
}

// take returns the units that signals were about since the last time, and whether the connection should be replaced: systemd has read
// its units' files anew, or is another than before.
func (s *signals) take() (names []string, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names = slices.Sorted(maps.Keys(s.changed))
	clear(s.changed)
	return names, s.over
}

// DeliverSignal is called by the connection's reader.
//
// Not of interest are UnitNew and UnitRemoved: asking about a unit that does not exist makes systemd load it and drop it again, so that
// whoever looks when they come is told of his own looks for ever. What is dropped has stopped before, which is told.
func (s *signals) DeliverSignal(iface, member string, signal *dbus.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch iface + "." + member {
	case "org.freedesktop.DBus.Properties.PropertiesChanged":
		s.note(string(signal.Path))
	case managerIface + ".JobRemoved": // number, path, unit, result
		s.note(argument[string](signal, 2))
	case managerIface + ".Reloading": // true before, false after
		s.replace(len(signal.Body) == 1 && signal.Body[0] == false)
	case "org.freedesktop.DBus.NameOwnerChanged": // name, old owner, new owner
		s.replace(argument[string](signal, 0) == systemdName)
	}
}

// note keeps that a unit, by its primary name or path, may have changed.
func (s *signals) note(key string) {
	for _, name := range s.units[key] {
		s.changed[name] = true
		s.wake()
	}
}

func (s *signals) replace(due bool) {
	if due {
		s.over = true
		s.wake()
	}
}

func (s *signals) wake() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// argument returns the nth argument of a signal, or the zero value when it isn't there or of another type.
func argument[T any](signal *dbus.Signal, n int) T {
	if n >= len(signal.Body) {
		return *new(T)
	}
	v, _ := signal.Body[n].(T)
	return v
}
