package host

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestTransientUnitsThatMakeNoSenseAreRefused(t *testing.T) {
	ok := Transient{Name: "a.service", Command: []string{"/bin/true"}, OutputPath: "/x", Timeout: time.Second}
	for name, tc := range map[string]struct {
		change func(*Transient)
		want   string
	}{
		"given a name without suffix":   {func(u *Transient) { u.Name = "a" }, "must end in .service"},
		"given only a suffix":           {func(u *Transient) { u.Name = ".service" }, "must end in .service"},
		"given another kind of unit":    {func(u *Transient) { u.Name = "a.timer" }, "must end in .service"},
		"given no command":              {func(u *Transient) { u.Command = nil }, "absolute path of a program"},
		"given a program without path":  {func(u *Transient) { u.Command = []string{"true"} }, "absolute path of a program"},
		"given a file without path":     {func(u *Transient) { u.OutputPath = "out" }, "an absolute path"},
		"given a time before the start": {func(u *Transient) { u.Timeout = -1 }, "negative"},
	} {
		u := ok
		tc.change(&u)
		if err := new(Systemd).StartTransient(t.Context(), u); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got error %v, want one that says %q", name, err, tc.want)
		}
	}
	if err := ok.check(); err != nil {
		t.Errorf("given one that makes sense: got error %v", err)
	}
}

func TestWhatBecameOfATransientUnit(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	unit := func(active, sub string, more map[string]any) map[string]any {
		p := map[string]any{"LoadState": "loaded", "ActiveState": active, "SubState": sub, "Result": "success", "Job": []any{uint32(0), "/"}}
		maps.Copy(p, more)
		return p
	}
	job := map[string]any{"Job": []any{uint32(7), "/job/7"}}
	for _, tc := range []struct {
		name string
		in   map[string]any
		want UnitRun
	}{
		{"given none", unit("inactive", "dead", map[string]any{"LoadState": "not-found"}), UnitRun{}},
		{"given one that is queued", unit("inactive", "dead", job), UnitRun{Exists: true, Running: true}},
		{"given one that is queued after a failure", unit("failed", "failed", job), UnitRun{Exists: true, Running: true}},
		{"given one that starts", unit("activating", "start", job), UnitRun{Exists: true, Running: true}},
		{"given one that runs", unit("active", "running", map[string]any{"ExecMainStartTimestamp": uint64(at.UnixMicro())}),
			UnitRun{Exists: true, Running: true, Started: at}},
		{"given one that is being stopped", unit("deactivating", "stop-sigterm", map[string]any{"Result": "timeout"}), UnitRun{Exists: true, Running: true}},
		{"given a success", unit("active", "exited", map[string]any{"ExecMainCode": int32(1), "ExecMainExitTimestamp": uint64(at.UnixMicro())}),
			UnitRun{Exists: true, Result: "success", Ended: at}},
		{"given a failure", unit("failed", "failed", map[string]any{"Result": "exit-code", "ExecMainCode": int32(1), "ExecMainStatus": int32(3)}),
			UnitRun{Exists: true, Result: "exit-code", ExitStatus: 3}},
		{"given a crash", unit("failed", "failed", map[string]any{"Result": "core-dump", "ExecMainCode": int32(3), "ExecMainStatus": int32(11)}),
			UnitRun{Exists: true, Result: "core-dump", ExitStatus: -1, Signal: "SIGSEGV"}},
		{"given one that never began", unit("failed", "failed", map[string]any{"Result": "resources", "StateChangeTimestamp": uint64(at.UnixMicro())}),
			UnitRun{Exists: true, Result: "resources", Ended: at}},
		{"given one that was stopped and is still known", unit("inactive", "dead", nil), UnitRun{Exists: true, Result: "success"}},
		{"given properties of unexpected types", unit("failed", "failed", map[string]any{"Result": 1, "ExecMainCode": "x", "Job": "x"}), UnitRun{Exists: true}},
	} {
		if got := unitRun(tc.in); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
