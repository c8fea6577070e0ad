package cli

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/status"
	"github.com/aks-flex-node/agent/test/golden"
)

func TestWithAnAgentTheTableAlsoSaysWhatIsDone(t *testing.T) {
	exits := map[string]int{"healthy": ExitHealthy, "link-lost": ExitUnknown}
	for name, w := range worlds() {
		t.Run(name, func(t *testing.T) {
			v := viewOfAgent(w.view(), wanted, now)
			want, ok := exits[name]
			if !ok {
				want = ExitUnhealthy
			}
			if got := v.exit(); got != want {
				t.Errorf("got exit %d, want %d", got, want)
			}
			golden.Check(t, filepath.Join("testdata", "agent-"+name+".txt"), plain(t, v.table(0)))
			golden.Check(t, filepath.Join("testdata", "agent-"+name+"-60.txt"), plain(t, v.table(60)))
		})
	}
}

func TestWideHoldsEverythingThatTheAgentKnows(t *testing.T) {
	for _, name := range []string{"restarts", "host-troubles"} {
		v := worlds()[name].view()
		r := reportOfAgent(v, wanted, filepath.Join(t.TempDir(), "none"), now)
		text, err := r.render("wide", 140)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("testdata", "agent-"+name+"-wide.txt"), plain(t, text))
	}
}

// TestTablesFitTheTerminal holds every form to its width, as far as single words allow.
func TestTablesFitTheTerminal(t *testing.T) {
	for name, w := range worlds() {
		v := w.view()
		for _, columns := range []int{60, 80, 100, 200} {
			texts := map[string]string{
				"table":   viewOfAgent(v, wanted, now).table(columns),
				"explain": explanation{view: v, now: now}.text(columns),
				"history": historyTable(someHistory(), now, columns),
			}
			for form, text := range texts {
				for line := range strings.Lines(plain(t, text)) {
					if got := lipgloss.Width(strings.TrimSuffix(line, "\n")); got > columns {
						t.Errorf("%s, %s at %d columns: got %d in %q", name, form, columns, got, line)
					}
				}
			}
		}
	}
}

func TestWhatAConditionAddsToTheRows(t *testing.T) {
	condition := func(kind string, s health.Status, severity health.Severity) health.Condition {
		return health.Condition{Type: kind, Status: s, Severity: severity, Reason: "Because", Message: "so", LastTransitionTime: now}
	}
	pending := func(c health.Condition, s health.Status) health.Condition {
		c.Pending = &health.Pending{Status: s, Reason: "New", Message: "changed", Shown: now.Add(10 * time.Second)}
		return c
	}
	dependent := condition(health.ClockSynchronized, health.Unknown, health.None)
	dependent.Reason = health.ReasonDependencyUnhealthy
	for name, c := range map[string]struct {
		change    func(*observe.Set)
		condition health.Condition
		word      string // empty: no row
		exit      int
	}{
		"as it should be":       {nil, condition(health.ClockSynchronized, health.True, health.None), "", ExitHealthy},
		"bad and no row has it": {nil, condition(health.ClockSynchronized, health.False, health.Warning), "BAD", ExitUnhealthy},
		"critical":              {nil, condition(health.DiskSpace, health.False, health.Critical), "BAD", ExitUnhealthy},
		"a warning of what is still as it should":    {nil, condition(health.DiskSpace, health.True, health.Warning), "warning", ExitHealthy},
		"a piece of information":                     {nil, condition(health.RestartPending, health.True, health.Info), "info", ExitHealthy},
		"about to get bad":                           {nil, pending(condition(health.ClockSynchronized, health.True, health.None), health.False), "pending", ExitHealthy},
		"can't be told":                              {nil, condition(health.DiskSpace, health.Unknown, health.None), "unknown", ExitUnknown},
		"can't be told, and would only be a warning": {nil, condition(health.ClockSynchronized, health.Unknown, health.None), "unknown", ExitHealthy},
		"can't be told, and is no news anyway":       {nil, condition(health.RestartPending, health.Unknown, health.None), "", ExitHealthy},
		"can't be told for another reason":           {nil, dependent, "", ExitHealthy},
		"a row shows it":                             {failedKubelet, condition(health.KubeletRunning, health.False, health.Critical), "", ExitUnhealthy},
		"its row is well again, it is not yet":       {nil, pending(condition(health.KubeletRunning, health.False, health.Critical), health.True), "BAD", ExitUnhealthy},
		"a lost link is no fault of the node":        {nil, condition(health.APIServerReachable, health.False, health.Warning), "unknown", ExitUnknown},
		"its row shows that it can't be told":        {linkLost, condition(health.APIServerReachable, health.False, health.Warning), "", ExitUnknown},
		"of an agent that knows more than we do":     {nil, condition("Brightness", health.False, health.Warning), "BAD", ExitUnhealthy},
		"another component than the one of a row":    {failedKubelet, condition(health.ClockSynchronized, health.False, health.Warning), "BAD", ExitUnhealthy},
		"there is no such thing on this node: arc":   {nil, condition(health.ArcConnected, health.False, health.Warning), "", ExitHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			w := acting()
			if c.change != nil {
				w = since(20*time.Minute, c.change)
			}
			a := w.view()
			a.Conditions = []health.Condition{c.condition}
			v := viewOfAgent(a, wanted, now)
			word := ""
			if len(v.conditions) > 0 {
				word = plain(t, conditionWord(v.conditions[0]))
			}
			if word != c.word || v.exit() != c.exit {
				t.Errorf("got %q and exit %d, want %q and %d", word, v.exit(), c.word, c.exit)
			}
		})
	}
}

func TestAnAgentThatNoLongerLooksIsNotBelieved(t *testing.T) {
	a := acting().view()
	a.At = now.Add(-fresh)
	if v := viewOfAgent(a, wanted, now); v.exit() != ExitHealthy {
		t.Errorf("five minutes old: got exit %d", v.exit())
	}
	a.At = now.Add(-fresh - time.Second)
	v := viewOfAgent(a, wanted, now)
	if text := plain(t, v.table(0)); v.exit() != ExitUnknown || !strings.Contains(text, "has looked at nothing for 5m1s") {
		t.Errorf("older: got exit %d and %s", v.exit(), text)
	}
}

func TestAnAgentKnowsTheConfigurationThatThisUserMayNotRead(t *testing.T) {
	if v := viewOfAgent(acting().view(), unreadable, now); v.exit() != ExitHealthy {
		t.Errorf("got exit %d, want healthy: %+v", v.exit(), v.rows)
	}
}

func TestTheFirstLineOfTheAgentSaysWhatItMayDo(t *testing.T) {
	pause := decision.Pause{By: "jo", Reason: "lunch", Until: now.Add(time.Hour)}
	file := decision.Pause{By: "the file /etc/aks-flex-node/paused"}
	for name, c := range map[string]struct {
		change func(*world)
		want   string
	}{
		"acts":                   {func(*world) {}, "acting"},
		"dry-run":                {func(w *world) { w.in.DryRun = true }, "acting in words only (dry-run)"},
		"observes":               {func(w *world) { w.in.Mode, w.in.ModeReason = decision.ObserveOnly, "of --observe-only" }, "observing only, because of --observe-only"},
		"observes, nobody knows": {func(w *world) { w.in.Mode = decision.ObserveOnly }, "observing only"},
		"paused":                 {func(w *world) { w.in.Pauses = []decision.Pause{pause} }, "paused by jo (lunch) until 2026-01-15 19:47:26 CET"},
		"paused twice": {func(w *world) { w.in.Pauses = []decision.Pause{pause, file} },
			"paused by jo (lunch) until 2026-01-15 19:47:26 CET and by the file /etc/aks-flex-node/paused"},
		"observes and is paused": {func(w *world) {
			w.in.Mode, w.in.ModeReason, w.in.Pauses = decision.ObserveOnly, "there is no configuration file", []decision.Pause{file}
		}, "observing only, because there is no configuration file, and paused by the file /etc/aks-flex-node/paused"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stance(acting().with(c.change).view()); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWithAnAgentTheFormsForProgramsAreStillTheFile(t *testing.T) {
	c := newCommand(t, newFake(acting().view()))
	a := acting().view()
	a.At, a.Started = time.Now(), time.Now()
	c.agent = newFake(a)
	s := healthySnapshot()
	s.LastUpdated, s.LastUpdatedReason = time.Now().Round(0).UTC(), "marked by another program"
	if err := status.WriteStatusToFile(c.snapshotPath, s); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(c.snapshotPath)
	if err != nil {
		t.Fatal(err)
	}
	if code := c.run(t.Context(), []string{"status", "-o", "json"}); code != ExitHealthy || strings.TrimSpace(c.out.String()) != strings.TrimSpace(string(file)) || c.err.Len() > 0 {
		t.Errorf("got exit %d, %s and %s", code, c.out.String(), c.err.String())
	}
	if err := os.Remove(c.snapshotPath); err != nil {
		t.Fatal(err)
	}
	c.out.Reset()
	code := c.run(t.Context(), []string{"status", "-o", "json"})
	var got status.NodeStatus
	if err := json.Unmarshal(c.out.Bytes(), &got); err != nil || code != ExitHealthy || got.KubeletVersion != "1.32.7" {
		t.Errorf("without the file: got exit %d, %v and %s", code, err, c.out.String())
	}
	if want := "From the agent, since there is no snapshot at"; !strings.Contains(c.err.String(), want) {
		t.Errorf("without the file: got %q on stderr, want %q", c.err.String(), want)
	}
}

func TestStatusSaysWhyItDidNotAskTheAgent(t *testing.T) {
	fake := newFake(nil)
	c := newCommand(t, fake)
	fake.err = fs.ErrPermission
	r, err := c.takeReport(t.Context(), wanted, false)
	if err != nil || !strings.Contains(r.view.source, "this user may not ask the agent; root may") || c.err.Len() > 0 {
		t.Errorf("got %q, %v and %q on stderr", r.view.source, err, c.err.String())
	}
	fake.err = os.ErrDeadlineExceeded
	if _, err := c.takeReport(t.Context(), wanted, false); err != nil || !strings.Contains(c.err.String(), "The agent can't be asked: i/o timeout") {
		t.Errorf("got %v and %q on stderr", err, c.err.String())
	}
}
