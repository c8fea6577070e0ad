package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests name time zones, whatever is installed

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/pkg/config"
)

// validConfig has nothing but what is required.
func validConfig() *config.Config {
	return &config.Config{Azure: config.AzureConfig{
		SubscriptionID: "s", TenantID: "t", ManagedIdentity: &config.ManagedIdentityConfig{},
		TargetCluster: &config.TargetClusterConfig{
			ResourceID: "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c", Location: "l"},
	}}
}

func TestModeIsToActOnlyWithAConfigThatIsRight(t *testing.T) {
	noDrift := validConfig()
	noDrift.Agent.EnableDriftDetectionAndRemediation = new(false)
	dryRun := validConfig()
	dryRun.Agent.DryRun = true
	one, two := validConfig(), validConfig()
	one.Agent.LogLevel = "loud"
	two.Agent.LogLevel, two.Node.MaxPods = "loud", -1
	absent := fmt.Errorf("read config: %w", &fs.PathError{Op: "stat", Path: "/c.json", Err: fs.ErrNotExist})
	for name, c := range map[string]struct {
		cfg         *config.Config
		err         error
		observeOnly bool
		mode        decision.Mode
		reason      string
	}{
		"a valid config":                      {cfg: validConfig(), mode: decision.Act},
		"drift is not to be remedied":         {cfg: noDrift, mode: decision.Act},
		"a dry-run decides as if it acted":    {cfg: dryRun, mode: decision.Act},
		"the flag wins over a valid config":   {cfg: validConfig(), observeOnly: true, mode: decision.ObserveOnly, reason: "it was started with --observe-only"},
		"no config":                           {mode: decision.ObserveOnly, reason: "there is no configuration: write one"},
		"no config, by an error":              {err: absent, mode: decision.ObserveOnly, reason: "there is no configuration: read config: stat /c.json"},
		"a file that can't be read":           {err: errors.New("a\n  b"), mode: decision.ObserveOnly, reason: "the configuration can't be used: a b"},
		"an error beside a config":            {cfg: validConfig(), err: errors.New("x"), mode: decision.ObserveOnly, reason: "the configuration can't be used: x"},
		"one mistake":                         {cfg: one, mode: decision.ObserveOnly, reason: "the configuration has mistakes: agent.logLevel: want"},
		"two mistakes":                        {cfg: two, mode: decision.ObserveOnly, reason: "agent.logLevel: want one of debug, info, warning, error, got \"loud\" (the first of 2 mistakes"},
		"two mistakes when it was loaded":     {err: fmt.Errorf("config x: %w", two.Validate()), mode: decision.ObserveOnly, reason: "can't be used: agent.logLevel: want"},
		"an empty config is not valid either": {cfg: &config.Config{}, mode: decision.ObserveOnly, reason: "azure.subscriptionId"},
	} {
		t.Run(name, func(t *testing.T) {
			mode, reason := modeOf(c.cfg, c.err, c.observeOnly)
			if mode != c.mode || !strings.Contains(reason, c.reason) || (reason == "") != (c.reason == "") || strings.Contains(reason, "\n") {
				t.Errorf("got %s because %q, want %s because %q", mode, reason, c.mode, c.reason)
			}
		})
	}
}

// Each key of agent.thresholds must reach the field of its name, and its documented default must be the one that decisions use.
func TestThresholdsReachDecisionsUnderTheirNames(t *testing.T) {
	cfg := &config.Config{}
	from := reflect.ValueOf(&cfg.Agent.Thresholds).Elem()
	for i := range from.NumField() {
		switch f := from.Field(i); f.Kind() {
		case reflect.Slice:
			f.Set(reflect.ValueOf([]config.Duration{7, 8}))
		default:
			f.SetInt(int64(100 + i))
		}
	}
	to := reflect.ValueOf(thresholdsOf(cfg))
	if to.NumField() != from.NumField() {
		t.Errorf("got %d thresholds in the config, want the %d of decisions", from.NumField(), to.NumField())
	}
	for i := range from.NumField() {
		name := from.Type().Field(i).Name
		got := to.FieldByName(name)
		switch {
		case !got.IsValid():
			t.Errorf("%s: got no such threshold of decisions", name)
		case got.Kind() == reflect.Slice:
			if want := []time.Duration{7, 8}; !reflect.DeepEqual(got.Interface(), want) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		case got.Int() != from.Field(i).Int():
			t.Errorf("%s: got %d, want %d", name, got.Int(), from.Field(i).Int())
		}
	}
	if got := thresholdsOf(nil); !reflect.DeepEqual(got, decision.Thresholds{}) {
		t.Errorf("no config: got %+v, want nothing", got)
	}
	if got := thresholdsOf(&config.Config{}); !reflect.DeepEqual(got, decision.Thresholds{}) {
		t.Errorf("a config without thresholds: got %+v, want nothing", got)
	}
}

func TestThresholdDefaultsAreTheOnesOfDecisions(t *testing.T) {
	want := map[string]string{}
	for name, span := range map[string]time.Duration{
		"confirmFor": decision.ConfirmFor, "evidenceGap": decision.EvidenceGap, "recovered": decision.Recovered,
		"bootstrapAfter": decision.BootstrapAfter, "frozenFor": decision.FrozenFor, "stopHold": decision.StopHold,
		"loopPatience": decision.LoopPatience, "steady": decision.Steady, "minUptime": decision.MinUptime,
		"budgetWindow": decision.BudgetWindow, "coolDown": decision.CoolDown, "maxCoolDown": decision.MaxCoolDown,
	} {
		want[name] = config.Duration(span).String()
	}
	want["confirmLooks"], want["maxBootstraps"] = fmt.Sprint(decision.ConfirmLooks), fmt.Sprint(decision.MaxBootstraps)
	want["restartGaps"] = "30s,1m,2m" // decision keeps these to itself; there are as many as restarts
	if got := strings.Count(want["restartGaps"], ",") + 1; got != decision.MaxRestarts {
		t.Errorf("got %d restart gaps, want %d", got, decision.MaxRestarts)
	}
	for _, k := range config.Keys() {
		name, ok := strings.CutPrefix(k.Path, "agent.thresholds.")
		if ok && k.Default != want[name] {
			t.Errorf("%s: got the default %q, want %q", k.Path, k.Default, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("got no keys for %v", want)
	}
}

func TestWindow(t *testing.T) {
	nightly := config.MaintenanceWindowConfig{Start: "22:30", Duration: hours(4)}
	with := func(start string, h int, days ...string) config.MaintenanceWindowConfig {
		return config.MaintenanceWindowConfig{Start: start, Duration: hours(h), Days: days}
	}
	for name, c := range map[string]struct {
		window   config.MaintenanceWindowConfig
		now      string
		from, to string
	}{
		// 2026-07-01 is a Wednesday.
		"before it, on its day":                  {nightly, "2026-07-01 12:00", "2026-07-01 22:30", "2026-07-02 02:30"},
		"at its first moment":                    {nightly, "2026-07-01 22:30", "2026-07-01 22:30", "2026-07-02 02:30"},
		"within it, before midnight":             {nightly, "2026-07-01 23:59", "2026-07-01 22:30", "2026-07-02 02:30"},
		"within it, after midnight":              {nightly, "2026-07-02 02:29", "2026-07-01 22:30", "2026-07-02 02:30"},
		"at its end the next one counts":         {nightly, "2026-07-02 02:30", "2026-07-02 22:30", "2026-07-03 02:30"},
		"at the turn of the year":                {nightly, "2027-01-01 01:00", "2026-12-31 22:30", "2027-01-01 02:30"},
		"weekly, later in this week":             {with("22:00", 4, "Sat"), "2026-07-01 12:00", "2026-07-04 22:00", "2026-07-05 02:00"},
		"weekly, the day after still open":       {with("22:00", 4, "saturday"), "2026-07-05 01:59", "2026-07-04 22:00", "2026-07-05 02:00"},
		"weekly, just over":                      {with("22:00", 4, "SAT"), "2026-07-05 02:00", "2026-07-11 22:00", "2026-07-12 02:00"},
		"weekly, on the day itself but over":     {with("01:00", 1, "Wed"), "2026-07-01 12:00", "2026-07-08 01:00", "2026-07-08 02:00"},
		"on several days, the next of them":      {with("22:00", 1, "Mon", "Thu"), "2026-07-01 23:00", "2026-07-02 22:00", "2026-07-02 23:00"},
		"around the clock":                       {with("06:00", 24), "2026-07-01 05:59", "2026-06-30 06:00", "2026-07-01 06:00"},
		"clocks go forward within it":            {with("01:00", 4), "2026-03-29 04:00", "2026-03-29 01:00", "2026-03-29 06:00"},
		"clocks go back within it":               {with("01:00", 4), "2026-10-25 03:59", "2026-10-25 01:00", "2026-10-25 04:00"},
		"the day of the change, hours later":     {nightly, "2026-03-29 12:00", "2026-03-29 22:30", "2026-03-30 02:30"},
		"24 hours over the day clocks go back":   {with("12:00", 24, "Sat"), "2026-10-25 10:59", "2026-10-24 12:00", "2026-10-25 11:00"},
		"24 hours over the day clocks go onward": {with("12:00", 24, "Sat"), "2026-03-29 12:30", "2026-03-28 12:00", "2026-03-29 13:00"},
		"from late in the day over a short day":  {with("23:30", 24, "Sat"), "2026-03-30 00:15", "2026-03-28 23:30", "2026-03-30 00:30"},
		// What makes no sense is closed.
		"no start":              {config.MaintenanceWindowConfig{Duration: hours(1)}, "2026-07-01 12:00", "2026-07-01 12:00", "2026-07-01 12:00"},
		"no duration":           {with("12:00", 0), "2026-07-01 12:00", "2026-07-01 12:00", "2026-07-01 12:00"},
		"a day that is no day":  {with("12:00", 1, "Caturday"), "2026-07-01 12:00", "2026-07-01 12:00", "2026-07-01 12:00"},
		"a start that is wrong": {with("25:00", 1), "2026-07-01 12:00", "2026-07-01 12:00", "2026-07-01 12:00"},
	} {
		t.Run(name, func(t *testing.T) {
			got := windowAt(c.window, berlin(t, c.now))
			if from, to := berlin(t, c.from), berlin(t, c.to); !got.From.Equal(from) || !got.To.Equal(to) {
				t.Errorf("at %s: got %s to %s, want %s to %s", c.now, got.From, got.To, from, to)
			}
		})
	}
}

// At 02:30 of these nights it is 02:30 never, or twice. Wherever the window then begins, it is one window of full length, and close.
func TestWindowThatBeginsWhenClocksAreChanged(t *testing.T) {
	w := config.MaintenanceWindowConfig{Start: "02:30", Duration: hours(1)}
	for _, night := range []string{"2026-03-29", "2026-10-25"} {
		var seen []time.Time
		for now := berlin(t, night+" 00:00"); now.Before(berlin(t, night+" 12:00")); now = now.Add(5 * time.Minute) {
			got := windowAt(w, now)
			if got.To.Sub(got.From) != time.Hour || !now.Before(got.To) {
				t.Fatalf("at %s: got %s to %s, want an hour that is not over", now, got.From, got.To)
			}
			if !slices.ContainsFunc(seen, got.From.Equal) {
				seen = append(seen, got.From)
			}
		}
		if len(seen) != 2 {
			t.Fatalf("%s: got windows at %v, want that night's and the next", night, seen)
		}
		if early, late := berlin(t, night+" 01:30"), berlin(t, night+" 03:30"); seen[0].Before(early) || seen[0].After(late) {
			t.Errorf("%s: got a window at %s, want it within an hour of 02:30", night, seen[0])
		}
	}
}

func TestWindowIsAnyTimeWithoutOne(t *testing.T) {
	now := berlin(t, "2026-07-01 12:00")
	for name, cfg := range map[string]*config.Config{"no config": nil, "no window": validConfig()} {
		if got := windowOf(cfg, now); got != nil {
			t.Errorf("%s: got %v, want none", name, got)
		}
	}
	cfg := validConfig()
	cfg.Agent.MaintenanceWindow = &config.MaintenanceWindowConfig{Start: "12:00", Duration: hours(1)}
	for _, now := range []time.Time{now, now.UTC()} { // one of them is not local time
		if local := windowOf(cfg, now).From.In(time.Local); local.Hour() != 12 || local.Minute() != 0 {
			t.Errorf("at %s: got a window at %s, want 12:00 local time whatever zone now is given in", now, local)
		}
	}
}

// In Beirut the clocks go forward at midnight, so that the day begins at one o'clock. It stays that day's window.
func TestWindowAtAMidnightThatIsSkipped(t *testing.T) {
	zone, err := time.LoadLocation("Asia/Beirut")
	if err != nil {
		t.Fatal(err)
	}
	midnight := time.Date(2026, 3, 29, 1, 0, 0, 0, zone) // a Sunday
	w := config.MaintenanceWindowConfig{Start: "00:00", Duration: hours(3), Days: []string{"Sun"}}
	got := windowAt(w, midnight.Add(-12*time.Hour))
	if got.From.Sub(midnight).Abs() > time.Hour || got.To.Sub(got.From) != 3*time.Hour {
		t.Errorf("got %s to %s, want three hours from within an hour of %s", got.From, got.To, midnight)
	}
}

func hours(n int) config.Duration { return config.Duration(n) * config.Duration(time.Hour) }

func berlin(t *testing.T, at string) time.Time {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	moment, err := time.ParseInLocation("2006-01-02 15:04", at, zone)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}
