package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/observe"
)

// systemdIn is a Systemd that looks for systemd in the folder, closed with the test.
func systemdIn(t *testing.T, dir string) *Systemd {
	t.Helper()
	s := &Systemd{folder: dir}
	t.Cleanup(s.Close)
	return s
}

// ask asks about units and fails the test when that does not come back. The context ends with the answer, as those of looks do.
func ask(ctx context.Context, t *testing.T, s *Systemd, names ...string) (units []observe.Unit, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	within(t, func() { units, err = s.Units(ctx, names...) })
	return units, err
}

// running is a service that runs as the process pid.
func running(pid int) fakeUnit {
	return fakeUnit{
		load: "loaded", active: "active", sub: "running",
		unit: map[string]any{"UnitFileState": "enabled", "StateChangeTimestamp": uint64(1_700_000_000_123_456)},
		service: map[string]any{
			"Result": "success", "MainPID": uint32(pid), "NRestarts": uint32(2),
			"ExecStart": commands([]string{"/usr/bin/kubelet", "--config=/etc/k", "$ARGS"}, []string{"/bin/second"}),
		},
	}
}

func runningAs(name string, pid int) observe.Unit {
	main, _ := FindProcess(pid) // zero for one that is gone
	return observe.Unit{
		Name: name, LoadState: "loaded", ActiveState: "active", SubState: "running", UnitFileState: "enabled", Result: "success",
		MainPID: pid, MainStart: main.Start, NRestarts: 2, ExecStart: []string{"/usr/bin/kubelet", "--config=/etc/k", "$ARGS"},
		StateChange: time.UnixMicro(1_700_000_000_123_456),
	}
}

func wantUnits(t *testing.T, got []observe.Unit, err error, want ...observe.Unit) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, error %v\nwant %+v", got, err, want)
	}
}

func TestUnitsOverThePrivateSocket(t *testing.T) {
	needsRoot(t)
	me := os.Getpid()
	failed := fakeUnit{
		load: "loaded", active: "failed", sub: "failed", job: "restart", unit: map[string]any{"UnitFileState": "disabled"},
		service: map[string]any{"Result": "start-limit-hit", "MainPID": uint32(0), "NRestarts": uint32(5), "ExecStart": commands()},
	}
	orphan := running(me)
	orphan.load = "not-found"
	alias := running(me)
	alias.id = "snap.kubelet.service"
	foreign := running(me)
	foreign.service = map[string]any{"MainPID": "a text", "NRestarts": int64(4), "ExecStart": uint32(1)}
	long, longCommand := running(me), append([]string{"/bin/k"}, slices.Repeat([]string{strings.Repeat("x", 1000)}, 1000)...)
	long.service["ExecStart"] = commands(longCommand)
	for _, tc := range []struct {
		name  string
		units map[string]fakeUnit
		ask   []string
		want  []observe.Unit
	}{
		{"given a running unit, all its properties are told", map[string]fakeUnit{"kubelet.service": running(me)},
			[]string{"kubelet.service"}, []observe.Unit{runningAs("kubelet.service", me)}},
		{"given several, they come in the order in which they were asked for, the missing ones too",
			map[string]fakeUnit{"b.service": running(me), "a.service": failed},
			[]string{"c.service", "b.service", "a.service"},
			[]observe.Unit{
				{Name: "c.service", LoadState: "not-found", ActiveState: "inactive", SubState: "dead"},
				runningAs("b.service", me),
				{Name: "a.service", LoadState: "loaded", ActiveState: "failed", SubState: "failed", Job: "restart", UnitFileState: "disabled",
					Result: "start-limit-hit", NRestarts: 5},
			}},
		{"given a unit that runs on without its file, its properties are told too", map[string]fakeUnit{"kubelet.service": orphan},
			[]string{"kubelet.service"}, []observe.Unit{func() observe.Unit {
				u := runningAs("kubelet.service", me)
				u.LoadState = "not-found"
				return u
			}()}},
		{"given an alias, the unit goes by the name that was asked for",
			map[string]fakeUnit{"kubelet.service": alias, "snap.kubelet.service": running(me)},
			[]string{"kubelet.service"}, []observe.Unit{runningAs("kubelet.service", me)}},
		{"given properties of unexpected types, those are not told", map[string]fakeUnit{"kubelet.service": foreign},
			[]string{"kubelet.service"}, []observe.Unit{{
				Name: "kubelet.service", LoadState: "loaded", ActiveState: "active", SubState: "running", UnitFileState: "enabled",
				StateChange: time.UnixMicro(1_700_000_000_123_456),
			}}},
		{"given properties of 1 MB, they are read whole", map[string]fakeUnit{"kubelet.service": long},
			[]string{"kubelet.service"}, []observe.Unit{func() observe.Unit {
				u := runningAs("kubelet.service", me)
				u.ExecStart = slices.Clone(longCommand)
				return u
			}()}},
		{"given no names, there are no units", nil, nil, []observe.Unit{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leavesNothing(t)
			noBus(t)
			f := &fakeSystemd{}
			for name, u := range tc.units {
				f.set(name, u)
			}
			dir := booted(t)
			listen(t, dir, func(_ int, p *peer) { p.serve(f) })
			got, err := ask(t.Context(), t, systemdIn(t, dir), tc.ask...)
			wantUnits(t, got, err, tc.want...)
		})
	}
}

func TestUnitsAsksForPropertiesOnlyWhenTheyCanHaveChanged(t *testing.T) {
	needsRoot(t)
	leavesNothing(t)
	noBus(t)
	const name = "kubelet.service"
	all := []string{"list", "Unit " + name, "Service " + name}
	f, dir := &fakeSystemd{}, booted(t)
	connections := listen(t, dir, func(_ int, p *peer) { p.serve(f) })
	s := systemdIn(t, dir)

	step := func(when string, want observe.Unit, asked ...string) {
		t.Helper()
		got, err := ask(t.Context(), t, s, name)
		wantUnits(t, got, err, want)
		if got := f.takeAsked(); !slices.Equal(got, asked) {
			t.Errorf("%s: asked %q, want %q", when, got, asked)
		}
	}
	first, second := start(t, self(t), "stay").Process.Pid, start(t, self(t), "stay")
	f.set(name, running(first))
	step("the first time", runningAs(name, first), all...)
	step("while it runs on", runningAs(name, first), "list")
	step("while it still runs on", runningAs(name, first), "list")

	reloads, reloading := running(first), runningAs(name, first)
	reloads.active, reloads.sub, reloads.job = "reloading", "reload", "reload"
	reloading.ActiveState, reloading.SubState, reloading.Job = "reloading", "reload", "reload"
	f.set(name, reloads)
	step("while it reloads, by the same process", reloading, "list")

	s.details[name] = func(d details) details { d.at = d.at.Add(-detailsMaxAge); return d }(s.details[name])
	f.set(name, running(first))
	step("after a minute", runningAs(name, first), all...)

	f.set(name, running(second.Process.Pid))
	s.details[name] = func(d details) details { d.main.Start--; return d }(s.details[name])
	step("when another process has the number of its main process", runningAs(name, second.Process.Pid), all...)
	step("and then while it runs on", runningAs(name, second.Process.Pid), "list")
	_ = second.Process.Kill()
	_ = second.Wait()
	step("when its main process is gone", runningAs(name, second.Process.Pid), all...)
	step("as long as it has none", runningAs(name, second.Process.Pid), all...)

	f.set(name, running(first))
	step("when it has one again", runningAs(name, first), all...)
	stopped, gone := running(0), runningAs(name, 0)
	stopped.active, stopped.sub = "inactive", "dead"
	gone.ActiveState, gone.SubState = "inactive", "dead"
	f.set(name, stopped)
	step("when it was stopped", gone, all...)
	step("as long as it is", gone, all...)

	starts, starting := running(first), runningAs(name, first)
	starts.active, starts.sub = "activating", "start"
	starting.ActiveState, starting.SubState = "activating", "start"
	f.set(name, starts)
	step("while it starts", starting, all...)
	f.set(name, running(first))
	step("when it has started, by the same process", runningAs(name, first), all...)
	step("and then while it runs on", runningAs(name, first), "list")

	f.set(name, fakeUnit{})
	step("when it was removed", observe.Unit{Name: name, LoadState: "not-found", ActiveState: "inactive", SubState: "dead"}, "list")
	if got := connections(); got != 1 {
		t.Errorf("got %d connections, want one for all", got)
	}
}

func TestUnitsWhenSystemdRefuses(t *testing.T) {
	needsRoot(t)
	leavesNothing(t)
	noBus(t)
	f, dir := &fakeSystemd{}, booted(t)
	connections := listen(t, dir, func(_ int, p *peer) { p.serve(f) })
	s := systemdIn(t, dir)
	f.fail(dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"you may not look"}))
	if _, err := ask(t.Context(), t, s, "kubelet.service"); err == nil || err.Error() != "ask systemd for its units: you may not look" {
		t.Errorf("got error %v, want systemd's own words", err)
	}
	f.fail(nil)
	f.set("kubelet.service", fakeUnit{load: "loaded", active: "active", propertiesErrorName: "org.freedesktop.DBus.Error.LimitsExceeded"})
	if _, err := ask(t.Context(), t, s, "kubelet.service"); err == nil || err.Error() != "ask systemd for its units: no properties for you" {
		t.Errorf("got error %v, want systemd's own words", err)
	}
	if _, err := ask(t.Context(), t, s, "a.service", "no unit", "b.service"); err == nil || !strings.Contains(err.Error(), "no unit") {
		t.Errorf("given a name that can be no unit's: got error %v, want one that tells the names", err)
	}
	if asked := f.takeAsked(); !slices.Equal(asked, []string{"list", "list", "list"}) || connections() != 1 {
		t.Errorf("asked %q on %d connections, want each question once on the same one: a refusal does not pass", asked, connections())
	}
}

func TestUnitsWithoutSystemd(t *testing.T) {
	leavesNothing(t)
	noBus(t)
	dir := shortFolder(t)
	s := systemdIn(t, dir)
	if units, err := ask(t.Context(), t, s, "kubelet.service"); !errors.Is(err, ErrNoSystemd) || units != nil {
		t.Errorf("given no folder of systemd's: got %+v, %v, want ErrNoSystemd", units, err)
	}
	must(t, os.Mkdir(filepath.Join(dir, bootedFolder), 0o755))
	_, err := ask(t.Context(), t, s, "kubelet.service")
	if err == nil || errors.Is(err, ErrNoSystemd) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("given the folder but no socket: got %v, want an error that says which socket is missing", err)
	}
	var zero Systemd
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		if _, err := zero.Units(t.Context(), "kubelet.service"); !errors.Is(err, ErrNoSystemd) {
			t.Errorf("on this machine: got %v, want ErrNoSystemd", err)
		}
	}
	zero.Close()
}

func TestUnitsAskedByManyAtOnce(t *testing.T) {
	needsRoot(t)
	leavesNothing(t)
	noBus(t)
	f, dir := &fakeSystemd{}, booted(t)
	f.set("kubelet.service", running(os.Getpid()))
	connections := listen(t, dir, func(_ int, p *peer) { p.serve(f) })
	s := systemdIn(t, dir)
	within(t, func() {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20 {
					got, err := s.Units(t.Context(), "kubelet.service")
					wantUnits(t, got, err, runningAs("kubelet.service", os.Getpid()))
				}
			})
		}
		all.Wait()
	})
	if got := connections(); got != 1 {
		t.Errorf("got %d connections, want 1", got)
	}
}

// The clock was set an hour ahead since: what happened a minute ago was a minute ago.
func TestAChangeOfStateIsAsOldAsItIs(t *testing.T) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &up); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	minuteAgo := uint64((time.Duration(up.Nano()) - time.Minute).Microseconds())
	got := stateChange(map[string]any{"StateChangeTimestamp": uint64(now.Add(-time.Hour - time.Minute).UnixMicro()), "StateChangeTimestampMonotonic": minuteAgo}, now)
	if ago := now.Sub(got); ago < time.Minute-time.Millisecond || ago > 2*time.Minute {
		t.Errorf("got %s ago, want a minute", ago)
	}
	if got := stateChange(map[string]any{"StateChangeTimestamp": uint64(1_700_000_000_000_000)}, now); !got.Equal(time.UnixMicro(1_700_000_000_000_000)) {
		t.Errorf("without the monotonic time: got %s, want the other", got)
	}
	if got := stateChange(map[string]any{}, now); !got.IsZero() {
		t.Errorf("without any: got %s, want none", got)
	}
}
