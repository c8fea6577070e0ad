package observe

import (
	"reflect"
	"testing"
)

func TestJudgeUnit(t *testing.T) {
	for _, tc := range []struct {
		name    string
		unit    Unit
		health  Health
		reason  string
		message string // behind the unit's name
	}{
		{"given a running unit", Unit{LoadState: "loaded", ActiveState: "active", SubState: "running", Result: "success"},
			Healthy, ReasonActive, "is active"},
		{"given one that did its work and stays active", Unit{LoadState: "loaded", ActiveState: "active", SubState: "exited"},
			Healthy, ReasonActive, "is active"},
		{"given one that was restarted once", Unit{LoadState: "loaded", ActiveState: "active", SubState: "running", NRestarts: 1},
			Healthy, ReasonActive, "is active, restarted once by systemd"},
		{"given one that was restarted often but is up", Unit{LoadState: "loaded", ActiveState: "active", SubState: "running", NRestarts: 12},
			Healthy, ReasonActive, "is active, restarted 12 times by systemd"},
		{"given one that reloads", Unit{LoadState: "loaded", ActiveState: "reloading", SubState: "reload"}, Healthy, ReasonActive, "is reloading"},
		{"given one that refreshes", Unit{LoadState: "loaded", ActiveState: "refreshing", SubState: "refresh"}, Healthy, ReasonActive, "is refreshing"},

		{"given no unit of that name", Unit{LoadState: "not-found", ActiveState: "inactive", SubState: "dead"},
			Unhealthy, ReasonUnitNotFound, "does not exist"},
		{"given one whose file was removed after it failed", Unit{LoadState: "not-found", ActiveState: "failed", SubState: "failed", Result: "exit-code"},
			Unhealthy, ReasonUnitNotFound, "does not exist"},
		{"given one that runs on after its file was removed", Unit{LoadState: "not-found", ActiveState: "active", SubState: "running"},
			Healthy, ReasonActive, "is active"},
		{"given a masked one", Unit{LoadState: "masked", ActiveState: "inactive", SubState: "dead", UnitFileState: "masked"},
			Unhealthy, ReasonUnitMasked, "is masked: systemd will not start it until it is unmasked"},
		{"given one that was masked after it failed", Unit{LoadState: "masked", ActiveState: "failed", SubState: "failed", Result: "exit-code"},
			Unhealthy, ReasonUnitMasked, "is masked: systemd will not start it until it is unmasked"},
		{"given one that runs on though it was masked", Unit{LoadState: "masked", ActiveState: "active", SubState: "running"},
			Healthy, ReasonActive, "is active"},
		{"given one whose file has an error", Unit{LoadState: "bad-setting", ActiveState: "inactive", SubState: "dead"},
			Unhealthy, ReasonUnitBroken, "can't be loaded (bad-setting): its unit file has an error"},
		{"given one whose file can't be read", Unit{LoadState: "error", ActiveState: "inactive", SubState: "dead"},
			Unhealthy, ReasonUnitBroken, "can't be loaded (error): its unit file has an error"},
		{"given one that runs on though its file has an error now", Unit{LoadState: "bad-setting", ActiveState: "active", SubState: "running"},
			Healthy, ReasonActive, "is active"},

		{"given one that starts", Unit{LoadState: "loaded", ActiveState: "activating", SubState: "start", Result: "success"},
			Unhealthy, ReasonActivating, "is starting"},
		{"given one that starts again after two failures", Unit{LoadState: "loaded", ActiveState: "activating", SubState: "start", NRestarts: 2},
			Unhealthy, ReasonActivating, "is starting"},
		{"given one that waits to be restarted for the first time",
			Unit{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", Result: "exit-code"},
			Unhealthy, ReasonAutoRestart, "failed (exit-code) and will be restarted by systemd"},
		{"given one that waits to be restarted after it ended well",
			Unit{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", Result: "success", NRestarts: 1},
			Unhealthy, ReasonAutoRestart, "failed and will be restarted by systemd, restarted once by systemd"},
		{"given one that was restarted twice and waits again",
			Unit{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", Result: "signal", NRestarts: 2},
			Unhealthy, ReasonAutoRestart, "failed (signal) and will be restarted by systemd, restarted 2 times by systemd"},
		{"given the third restart, it loops",
			Unit{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", Result: "exit-code", NRestarts: 3},
			Unhealthy, ReasonCrashLoop, "keeps failing (exit-code), restarted 3 times by systemd"},
		{"given a loop seen while it starts", Unit{LoadState: "loaded", ActiveState: "activating", SubState: "start", Result: "success", NRestarts: 400},
			Unhealthy, ReasonCrashLoop, "keeps failing, restarted 400 times by systemd"},
		{"given a restart that systemd has queued", Unit{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart-queued", Result: "watchdog"},
			Unhealthy, ReasonAutoRestart, "failed (watchdog) and will be restarted by systemd"},

		{"given that systemd gave up",
			Unit{LoadState: "loaded", ActiveState: "failed", SubState: "failed", Result: "start-limit-hit", NRestarts: 5},
			Unhealthy, ReasonStartLimit, "failed too often: systemd has given up restarting it, restarted 5 times by systemd"},
		{"given that it gave up at the first start", Unit{LoadState: "loaded", ActiveState: "failed", SubState: "failed", Result: "start-limit-hit"},
			Unhealthy, ReasonStartLimit, "failed too often: systemd has given up restarting it"},
		{"given that it gave up after a failure whose cause it kept",
			Unit{LoadState: "loaded", ActiveState: "failed", SubState: "failed", Result: "exit-code", NRestarts: 5},
			Unhealthy, ReasonFailed, "failed (exit-code), and systemd no longer restarts it, restarted 5 times by systemd"},
		{"given a failed one", Unit{LoadState: "loaded", ActiveState: "failed", SubState: "failed", Result: "oom-kill"},
			Unhealthy, ReasonFailed, "failed (oom-kill)"},
		{"given a failed one that does not say how", Unit{LoadState: "loaded", ActiveState: "failed", SubState: "failed"},
			Unhealthy, ReasonFailed, "failed"},
		{"given a stopped one", Unit{LoadState: "loaded", ActiveState: "inactive", SubState: "dead", Result: "success"},
			Unhealthy, ReasonStopped, "is stopped"},
		{"given one that stops", Unit{LoadState: "loaded", ActiveState: "deactivating", SubState: "stop-sigterm", Job: "stop"},
			Unhealthy, ReasonStopping, "is stopping"},

		{"given a state that did not exist when this was written", Unit{LoadState: "loaded", ActiveState: "maintenance", SubState: "cleaning"},
			Unknown, "UnknownState", `is in a state this agent does not know: "maintenance" ("cleaning")`},
		{"given a way of being loaded that did not exist then, the state counts", Unit{LoadState: "stub", ActiveState: "inactive", SubState: "dead"},
			Unhealthy, ReasonStopped, "is stopped"},
		{"given nothing at all", Unit{}, Unknown, "UnknownState", `is in a state this agent does not know: "" ("")`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.unit.Name = "kubelet.service"
			got := JudgeUnit(tc.unit)
			want := Observation[Unit]{Value: tc.unit, Health: tc.health, Reason: tc.reason, Message: "kubelet.service " + tc.message}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestUnitRunningAndExists(t *testing.T) {
	for active, want := range map[string]bool{
		"active": true, "reloading": true, "refreshing": true,
		"activating": false, "deactivating": false, "inactive": false, "failed": false, "maintenance": false, "": false, "Active": false,
	} {
		if got := (Unit{ActiveState: active}).Running(); got != want {
			t.Errorf("Running in the state %q: got %v, want %v", active, got, want)
		}
	}
	for load, want := range map[string]bool{
		"loaded": true, "masked": true, "bad-setting": true, "error": true, "stub": true, "not-found": false, "": false,
	} {
		if got := (Unit{LoadState: load}).Exists(); got != want {
			t.Errorf("Exists when loaded as %q: got %v, want %v", load, got, want)
		}
	}
}
