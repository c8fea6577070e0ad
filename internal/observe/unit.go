package observe

import (
	"fmt"
	"strings"
)

// Reasons of a unit that is not healthy.
const (
	ReasonActive       = "Active"
	ReasonUnitNotFound = "UnitNotFound"
	ReasonUnitMasked   = "UnitMasked"
	ReasonUnitBroken   = "UnitNotLoadable"
	ReasonActivating   = "Activating"
	ReasonAutoRestart  = "AutoRestart"
	ReasonCrashLoop    = "CrashLoop"
	ReasonStopping     = "Deactivating"
	ReasonStopped      = "Stopped"
	ReasonStartLimit   = "StartLimitHit"
	ReasonFailed       = "Failed"
)

// crashLoopRestarts is from how many automatic restarts on a unit that isn't up counts as looping: one or two happen on a busy boot.
const crashLoopRestarts = 3

// JudgeUnit says what a unit's state means. It looks at LoadState first, since a missing unit is not a stopped one.
func JudgeUnit(u Unit) Observation[Unit] {
	health, reason, detail := judgeUnit(u)
	return See(u, health, reason, "%s %s", u.Name, detail)
}

func judgeUnit(u Unit) (health Health, reason, detail string) {
	switch u.LoadState {
	case "not-found":
		// A unit can run on after its file was removed: then it runs.
		if !u.Running() {
			return Unhealthy, ReasonUnitNotFound, "does not exist"
		}
	case "masked":
		if !u.Running() {
			return Unhealthy, ReasonUnitMasked, "is masked: systemd will not start it until it is unmasked"
		}
	case "bad-setting", "error":
		if !u.Running() {
			return Unhealthy, ReasonUnitBroken, fmt.Sprintf("can't be loaded (%s): its unit file has an error", u.LoadState)
		}
	}
	switch {
	case u.Running():
		return Healthy, ReasonActive, "is " + u.ActiveState + restarts(u)
	case u.ActiveState == "activating" && u.NRestarts >= crashLoopRestarts:
		return Unhealthy, ReasonCrashLoop, "keeps failing" + ended(u) + restarts(u)
	case u.ActiveState == "activating" && strings.HasPrefix(u.SubState, "auto-restart"): // also auto-restart-queued, since systemd 254
		return Unhealthy, ReasonAutoRestart, "failed" + ended(u) + " and will be restarted by systemd" + restarts(u)
	case u.ActiveState == "activating":
		return Unhealthy, ReasonActivating, "is starting"
	case u.ActiveState == "deactivating":
		return Unhealthy, ReasonStopping, "is stopping"
	case u.ActiveState == "failed" && u.Result == "start-limit-hit":
		return Unhealthy, ReasonStartLimit, "failed too often: systemd has given up restarting it" + restarts(u)
	case u.ActiveState == "failed" && u.NRestarts > 0:
		// Mostly it has hit its start limit too: the result says so only when the last run ended well, else it keeps the cause of that.
		return Unhealthy, ReasonFailed, "failed" + ended(u) + ", and systemd no longer restarts it" + restarts(u)
	case u.ActiveState == "failed":
		return Unhealthy, ReasonFailed, "failed" + ended(u)
	case u.ActiveState == "inactive":
		return Unhealthy, ReasonStopped, "is stopped"
	}
	return Unknown, "UnknownState", fmt.Sprintf("is in a state this agent does not know: %q (%q)", u.ActiveState, u.SubState)
}

func ended(u Unit) string {
	if u.Result == "" || u.Result == "success" {
		return ""
	}
	return " (" + u.Result + ")"
}

func restarts(u Unit) string {
	switch u.NRestarts {
	case 0:
		return ""
	case 1:
		return ", restarted once by systemd"
	}
	return fmt.Sprintf(", restarted %d times by systemd", u.NRestarts)
}
