package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/pkg/config"
)

// modeOf says whether the agent acts, and why not if it doesn't. It acts only with a configuration that is right in everything: half an
// order is none. The switch agent.enableDriftDetectionAndRemediation is about drift alone and makes no difference here.
func modeOf(cfg *config.Config, loadErr error, observeOnly bool) (mode decision.Mode, reason string) {
	switch {
	case observeOnly && loadErr != nil && !errors.Is(loadErr, fs.ErrNotExist):
		return decision.ObserveOnly, "it was started with --observe-only; besides, the configuration can't be used: " + firstMistake(loadErr)
	case observeOnly:
		return decision.ObserveOnly, "it was started with --observe-only"
	case errors.Is(loadErr, fs.ErrNotExist):
		return decision.ObserveOnly, "there is no configuration: " + firstMistake(loadErr)
	case loadErr != nil:
		return decision.ObserveOnly, "the configuration can't be used: " + firstMistake(loadErr)
	case cfg == nil:
		return decision.ObserveOnly, "there is no configuration: write one for the agent to act, and test it with aks-flex-node config check"
	}
	if err := cfg.Validate(); err != nil {
		return decision.ObserveOnly, "the configuration has mistakes: " + firstMistake(err)
	}
	return decision.Act, ""
}

// firstMistake is an error on one line: of several mistakes in a configuration the first, and how many there are.
func firstMistake(err error) string {
	mistakes, ok := errors.AsType[config.KeyErrors](err)
	switch {
	case !ok || len(mistakes) == 0:
		return strings.Join(strings.Fields(err.Error()), " ")
	case len(mistakes) == 1:
		return mistakes[0].Error()
	}
	return fmt.Sprintf("%v (the first of %d mistakes; list them with aks-flex-node config check)", mistakes[0], len(mistakes))
}

// thresholdsOf returns the limits that decisions go by; zero fields mean the constants. It is the zero value for a nil Config.
func thresholdsOf(cfg *config.Config) decision.Thresholds {
	if cfg == nil {
		return decision.Thresholds{}
	}
	t := cfg.Agent.Thresholds
	var gaps []time.Duration // nil, which means the default, when none are given
	for _, gap := range t.RestartGaps {
		gaps = append(gaps, time.Duration(gap))
	}
	return decision.Thresholds{
		ConfirmFor:     time.Duration(t.ConfirmFor),
		ConfirmLooks:   t.ConfirmLooks,
		EvidenceGap:    time.Duration(t.EvidenceGap),
		Recovered:      time.Duration(t.Recovered),
		RestartGaps:    gaps,
		BootstrapAfter: time.Duration(t.BootstrapAfter),
		FrozenFor:      time.Duration(t.FrozenFor),
		StopHold:       time.Duration(t.StopHold),
		LoopPatience:   time.Duration(t.LoopPatience),
		Steady:         time.Duration(t.Steady),
		MinUptime:      time.Duration(t.MinUptime),
		MaxBootstraps:  t.MaxBootstraps,
		BudgetWindow:   time.Duration(t.BudgetWindow),
		CoolDown:       time.Duration(t.CoolDown),
		MaxCoolDown:    time.Duration(t.MaxCoolDown),
	}
}

// windowOf returns the maintenance window of now, or the next one, in the local time of the host; nil when every time is fine.
func windowOf(cfg *config.Config, now time.Time) *decision.Window {
	if cfg == nil || cfg.Agent.MaintenanceWindow == nil {
		return nil
	}
	return windowAt(*cfg.Agent.MaintenanceWindow, now.In(time.Local))
}

// windowAt is windowOf in the time zone of now. A window that makes no sense is one that has just ended: the agent does not act outside
// the hours it was given because it could not read them.
//
// A window lasts for its duration on every night. If clocks are put forward or back over its start, it still begins once, within an hour
// of that time.
func windowAt(w config.MaintenanceWindowConfig, now time.Time) *decision.Window {
	hour, minute, startOK := w.StartTime()
	days, daysOK := w.Weekdays()
	if !startOK || !daysOK || w.Duration <= 0 {
		return &decision.Window{From: now, To: now}
	}
	year, month, today := now.Date()
	// Two days back for a window of 24 hours that began late in the day before, when clocks were changed; eight ahead for one day a week.
	for day := today - 2; day <= today+8; day++ {
		from := time.Date(year, month, day, hour, minute, 0, 0, now.Location())
		to := from.Add(time.Duration(w.Duration))
		// The weekday of the date: the start itself may have been moved into another day with the clocks.
		if days[time.Date(year, month, day, 12, 0, 0, 0, time.UTC).Weekday()] && now.Before(to) {
			return &decision.Window{From: from, To: to}
		}
	}
	return &decision.Window{From: now, To: now} // never reached: each weekday comes within eight days
}
