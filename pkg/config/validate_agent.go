package config

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"time"
)

const (
	minInterval = Duration(time.Second)
	// maxStatusInterval keeps a snapshot far from the five minutes from which on readers call it stale, so that one look that fails, or
	// takes long, does not yet make it so.
	maxStatusInterval  = Duration(2*time.Minute + 30*time.Second)
	maxWindow          = Duration(24 * time.Hour)
	defaultEvidenceGap = Duration(2 * time.Minute)
)

// validateLoop judges the keys of the agent's loop and of what it may do.
func (r *report) validateLoop(a AgentConfig) {
	if forms := []string{"text", "json"}; !slices.Contains(forms, a.LogFormat) {
		r.fail("agent.logFormat", "want text or json, got %s", quote(a.LogFormat))
	}
	r.validateIntervals(a)
	if a.MetricsPort < 0 || a.MetricsPort > 65535 {
		r.fail("agent.metricsPort", "want a port from 1 to 65535, or 0 for none, got %d", a.MetricsPort)
	}
	r.validateCommand("agent.bootstrap.command", a.Bootstrap.Command)
	if a.Bootstrap.Timeout <= 0 {
		r.fail("agent.bootstrap.timeout", "want more than 0, got %s", a.Bootstrap.Timeout)
	}
	if a.MaintenanceWindow != nil {
		r.validateWindow("agent.maintenanceWindow", *a.MaintenanceWindow)
	}
	r.validateThresholds("agent.thresholds", a.Thresholds)
}

func (r *report) validateIntervals(a AgentConfig) {
	const key = "agent.statusInterval"
	gap := a.Thresholds.EvidenceGap
	setDefault(&gap, defaultEvidenceGap)
	switch every := a.StatusInterval; {
	case every < minInterval || every > maxStatusInterval:
		r.fail(key, "want %s to %s, got %s: readers call a snapshot stale that is older than 5m", minInterval, maxStatusInterval, every)
	case gap > 0 && every > gap/4*3:
		r.fail(key, "want at most %s, got %s: looks further apart than agent.thresholds.evidenceGap (%s) confirm nothing, and each takes a while",
			gap/4*3, every, gap)
	}
	if a.BootstrapCheckInterval < minInterval {
		r.fail("agent.bootstrapCheckInterval", "want %s or more, got %s", minInterval, a.BootstrapCheckInterval)
	}
}

func (r *report) validateCommand(key string, command []string) {
	for i, word := range command {
		at := fmt.Sprintf("%s[%d]", key, i)
		switch {
		case word == "":
			r.fail(at, "is empty; remove it or fill it in")
		case i == 0 && !path.IsAbs(word):
			r.fail(at, "want the absolute path of a program, got %s", quote(word))
		}
	}
}

func (r *report) validateWindow(key string, w MaintenanceWindowConfig) {
	r.require(key+".start", w.Start, " in agent.maintenanceWindow")
	if _, _, ok := w.StartTime(); !ok {
		r.fail(key+".start", "want a time of the day such as 22:30, got %s", quote(w.Start))
	}
	if w.Duration <= 0 || w.Duration > maxWindow {
		r.fail(key+".duration", "want more than 0 and at most %s, got %s", maxWindow, w.Duration)
	}
	for i, day := range w.Days {
		if _, ok := parseWeekday(day); !ok {
			r.fail(fmt.Sprintf("%s.days[%d]", key, i), "want a day of the week such as Mon or Monday, got %s", quote(day))
		}
	}
}

// validateThresholds wants no field to be negative.
func (r *report) validateThresholds(key string, t ThresholdsConfig) {
	thresholds := reflect.ValueOf(t)
	for _, f := range fieldsOf(thresholds.Type()) {
		at := join(key, f.name)
		switch v := thresholds.Field(f.index).Interface().(type) {
		case Duration:
			r.notNegative(at, v < 0, v)
		case int:
			r.notNegative(at, v < 0, v)
		case []Duration:
			for i, gap := range v {
				r.notNegative(fmt.Sprintf("%s[%d]", at, i), gap < 0, gap)
			}
		}
	}
}

func (r *report) notNegative(path string, negative bool, value any) {
	if negative {
		r.fail(path, "want 0 or more, got %v", value)
	}
}
