package config

import (
	"strings"
	"testing"
	"time"
)

func TestOldConfigsStayAsTheyAre(t *testing.T) {
	result := mustLoad(t, []byte(complete))
	wantLines(t, warningTexts(result), nil)
	a := result.Config.Agent
	if a.DryRun || a.MetricsPort != 0 || a.MaintenanceWindow != nil || a.Bootstrap.Command != nil {
		t.Errorf("got %+v, want nothing switched on that was not asked for", a)
	}
	if strings.Contains(result.Config.String(), "thresholds") {
		t.Errorf("got %s, want no thresholds that nobody set", result.Config)
	}
}

func TestTheAgentsMistakesAreReportedAllAtOnce(t *testing.T) {
	data := completeWith(t, "agent", `{
		"logFormat": "xml", "statusInterval": "5m", "bootstrapCheckInterval": "-1s", "metricsPort": 70000,
		"bootstrap": {"command": ["bootstrap", ""], "timeout": "-5m"},
		"maintenanceWindow": {"start": "10pm", "days": ["Mon", "Caturday"]},
		"thresholds": {"confirmLooks": -1, "restartGaps": ["1s", "-2s"], "stopHold": "-10m"}
	}`)
	wantLines(t, mistakes(t, data), []string{
		`agent.logFormat: want text or json, got "xml"`,
		`agent.statusInterval: want 1s to 2m30s, got 5m: readers call a snapshot stale that is older than 5m`,
		`agent.bootstrapCheckInterval: want 1s or more, got -1s`,
		`agent.metricsPort: want a port from 1 to 65535, or 0 for none, got 70000`,
		`agent.bootstrap.command[0]: want the absolute path of a program, got "bootstrap"`,
		`agent.bootstrap.command[1]: is empty; remove it or fill it in`,
		`agent.bootstrap.timeout: want more than 0, got -5m`,
		`agent.maintenanceWindow.start: want a time of the day such as 22:30, got "10pm"`,
		`agent.maintenanceWindow.duration: want more than 0 and at most 24h, got 0s`,
		`agent.maintenanceWindow.days[1]: want a day of the week such as Mon or Monday, got "Caturday"`,
		`agent.thresholds.confirmLooks: want 0 or more, got -1`,
		`agent.thresholds.restartGaps[1]: want 0 or more, got -2s`,
		`agent.thresholds.stopHold: want 0 or more, got -10m`,
	})
}

// A window that is there but empty must not pass for "any time".
func TestAnEmptyWindowIsAMistake(t *testing.T) {
	wantLines(t, mistakes(t, completeWith(t, "agent.maintenanceWindow", `{}`)), []string{
		"agent.maintenanceWindow.start: required in agent.maintenanceWindow, but not set",
		"agent.maintenanceWindow.duration: want more than 0 and at most 24h, got 0s",
	})
	if cfg := mustLoad(t, completeWith(t, "agent.maintenanceWindow", `null`)).Config; cfg.Agent.MaintenanceWindow != nil {
		t.Errorf("null: got %v, want none", cfg.Agent.MaintenanceWindow)
	}
}

func TestLooksMustNotBeFurtherApartThanEvidenceReaches(t *testing.T) {
	for name, c := range map[string]struct {
		interval, gap string
		want          []string
	}{
		"the longest by default":     {`"90s"`, `"2m"`, nil},
		"a longer one, larger gap":   {`"2m30s"`, `"4m"`, nil},
		"the default gap":            {`"2m"`, `"0s"`, []string{"agent.statusInterval: want at most 1m30s, got 2m: looks further apart than agent.thresholds.evidenceGap (2m) confirm nothing, and each takes a while"}},
		"the default interval":       {`"0s"`, `"1m"`, []string{"agent.statusInterval: want at most 45s, got 1m: looks further apart than agent.thresholds.evidenceGap (1m) confirm nothing, and each takes a while"}},
		"a gap that is wrong itself": {`"1m"`, `"-1m"`, []string{"agent.thresholds.evidenceGap: want 0 or more, got -1m"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantLines(t, mistakes(t, completeWith(t, "agent.statusInterval", c.interval, "agent.thresholds.evidenceGap", c.gap)), c.want)
		})
	}
	for _, k := range Keys() {
		if k.Path == "agent.thresholds.evidenceGap" && k.Default != defaultEvidenceGap.String() {
			t.Errorf("got the default %s in the tag, want %s", k.Default, defaultEvidenceGap)
		}
	}
}

func TestZeroWhereThereIsADefaultIsWorthAWarning(t *testing.T) {
	result := mustLoad(t, completeWith(t, "agent.metricsPort", `0`, "agent.statusInterval", `"0s"`, "agent.thresholds.maxBootstraps", `0`,
		"agent.thresholds.restartGaps", `[]`, "agent.bootstrap.command", `[]`))
	wantLines(t, sorted(warningTexts(result)), []string{
		"agent.statusInterval: 0 counts as not set; the default 1m applies",
		"agent.thresholds.maxBootstraps: 0 counts as not set; the default 3 applies",
		"agent.thresholds.restartGaps: [] counts as not set; the default 30s,1m,2m applies",
	})
}

func TestNearestKeyOfTheNewOnes(t *testing.T) {
	for written, want := range map[string]string{
		"agent.maintainanceWindow":    "agent.maintainanceWindow: unknown key; did you mean agent.maintenanceWindow?",
		"agent.statusIntervall":       "agent.statusIntervall: unknown key; did you mean agent.statusInterval?",
		"agent.thresholds.confirmfro": "agent.thresholds.confirmfro: unknown key; did you mean agent.thresholds.confirmFor?",
		"agent.bootstrap.comand":      "agent.bootstrap.comand: unknown key; did you mean agent.bootstrap.command?",
		"bootstrap.command":           "bootstrap: unknown key; did you mean agent.bootstrap?",
		"dryRun":                      "dryRun: unknown key; did you mean agent.dryRun?",
	} {
		wantLines(t, warningTexts(mustLoad(t, completeWith(t, written, `{}`))), []string{want})
	}
}

func TestListsInYAML(t *testing.T) {
	const before, after = "agent: {bootstrap: {command: ", "}}"
	cfg := mustLoad(t, completeYAML(before+"[/b, -1, yes, 08, &a x y, *a]"+after)).Config
	wantLines(t, cfg.Agent.Bootstrap.Command, []string{"/b", "-1", "yes", "08", "x y", "x y"})
	wantLines(t, mistakes(t, completeYAML(before+"[/b, [x], {a: b}, ~]"+after)), []string{
		"agent.bootstrap.command[1]: want text in quotes, got a list",
		"agent.bootstrap.command[2]: want text in quotes, got an object",
		"agent.bootstrap.command[3]: want a value, got null",
	})
	result, err := load("config.yaml", completeYAML(before+"[/b, [x]]"+after), 0o600, nil)
	if err == nil || result.Config.Agent.Bootstrap.Command != nil {
		t.Errorf("got %v and %v, want no half of a command and an error", result.Config.Agent.Bootstrap.Command, err)
	}
	wantLines(t, mistakes(t, completeYAML(before+"/b --quiet"+after)), []string{"agent.bootstrap.command: want a list in brackets, got text"})
}

func TestTheEnvironmentMakesAWindow(t *testing.T) {
	const prefix = "AKS_NODE_CONTROLLER_AGENT_MAINTENANCEWINDOW_"
	cfg := mustLoad(t, []byte(complete), prefix+"START=22:00", prefix+"DURATION=4h", prefix+"DAYS=Mon, Tue").Config
	w := cfg.Agent.MaintenanceWindow
	if w == nil || w.Start != "22:00" || w.Duration != Duration(4*time.Hour) || strings.Join(w.Days, "+") != "Mon+Tue" {
		t.Errorf("got %+v, want what the environment says", w)
	}
	wantLines(t, mistakes(t, []byte(complete), "AKS_NODE_CONTROLLER_AGENT_THRESHOLDS_RESTARTGAPS=1s,x"), []string{
		`agent.thresholds.restartGaps[1]: want a duration with its unit (write "90s" or "2m"), got "x" (from AKS_NODE_CONTROLLER_AGENT_THRESHOLDS_RESTARTGAPS)`})
}

func TestWeekdays(t *testing.T) {
	for names, want := range map[string]string{
		"": "SunMonTueWedThuFriSat", "mon": "Mon", "FRIDAY Wed fri": "WedFri", "sUn": "Sun", "Tuesd": "none", "Mon xx": "none",
	} {
		days, ok := MaintenanceWindowConfig{Days: strings.Fields(names)}.Weekdays()
		got := ""
		for day := time.Sunday; day <= time.Saturday; day++ {
			if days[day] {
				got += day.String()[:3]
			}
		}
		if !ok {
			got += "none"
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", names, got, want)
		}
	}
}

func TestIntervalsOfNoConfigAreTheDefaults(t *testing.T) {
	set := &Config{Agent: AgentConfig{StatusInterval: Duration(time.Second), BootstrapCheckInterval: Duration(time.Hour)}}
	for name, c := range map[string]struct {
		cfg           *Config
		status, check time.Duration
	}{
		"nil": {nil, time.Minute, 2 * time.Minute}, "nothing set": {&Config{}, time.Minute, 2 * time.Minute}, "set": {set, time.Second, time.Hour},
	} {
		if status, check := c.cfg.GetStatusInterval(), c.cfg.GetBootstrapCheckInterval(); status != c.status || check != c.check {
			t.Errorf("%s: got %v and %v, want %v and %v", name, status, check, c.status, c.check)
		}
	}
}
