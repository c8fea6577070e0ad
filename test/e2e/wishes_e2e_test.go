//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/test/lab"
)

const restarted = "restart kubelet.service"

// once is one restart that did its work.
func once() []string { return []string{restarted + " begun", restarted + " succeeded"} }

// TestTheAgentDoesWhatPeopleWant lets one kubelet fail again and again, each time under other wishes of its administrator.
func TestTheAgentDoesWhatPeopleWant(t *testing.T) {
	t.Parallel()
	s := nimble()
	n := installAgent(t, loneNode(t, "lone"), s)
	n.waitView("nothing is to be done", idle)

	failOnce(n)
	n.waitRemedies(once())
	n.isHealed("a kubelet that failed once")
	n.aStoppedKubeletIsLeftAlone()

	done := n.remedies()
	n.MustExec(t, "aks-flex-node", "pause", "--reason", "a trial")
	lab.Must(t, n.WriteFile(t.Context(), agent.PauseFile, []byte("a trial\nuntil: 2099-01-01T00:00:00Z\n"), 0o644))
	failOnce(n)
	n.heeds("paused twice", "Paused", done)
	n.MustExec(t, "aks-flex-node", "resume")
	n.waitView("one pause is left", func(v *agent.View) bool { return len(v.Pauses) == 1 })
	n.heeds("paused by file", "Paused", done)
	n.MustExec(t, "rm", agent.PauseFile)
	done = slices.Concat(done, once())
	n.waitRemedies(done)
	n.isHealed("pauses")

	tomorrow := time.Now().Add(12 * time.Hour).UTC()
	n.reload(s.with(settings{"maintenanceWindow": map[string]any{"start": tomorrow.Format("15:04"), "duration": "1h"}}))
	failOnce(n)
	n.heeds("maintenance window", "OutsideWindow", done)
	n.reload(s.with(settings{"dryRun": true}))
	n.heeds("dry-run", "DryRun", done)
	n.refusesBrokenConfigurations(s)
	n.heeds("dry-run, as before broken configurations", "DryRun", done)
	n.reload(s)
	n.waitRemedies(slices.Concat(done, once()))
	n.isHealed("configurations")
	n.neverHeldDuringARemedy()
}

// isHealed waits until earlier attempts are of no matter any more.
func (n node) isHealed(what string) {
	n.t.Helper()
	n.waitView(what+": nothing is to be done", func(v *agent.View) bool { return idle(v) && condition(v, health.KubeletRunning).Status == health.True })
	n.MustExec(n.t, "systemctl", "is-active", "kubelet")
}

// aStoppedKubeletIsLeftAlone stops the kubelet as an administrator does: for a while that is respected.
func (n node) aStoppedKubeletIsLeftAlone() {
	t := n.t
	t.Helper()
	done := n.remedies()
	before := time.Now()
	n.MustExec(t, "systemctl", "stop", "kubelet")
	v := n.waitView("the stop is respected", held("UnitStopped"))
	if v.Decision.Until.Sub(before) < 20*time.Second || v.Decision.Wanted != "restart" {
		t.Errorf("a stopped kubelet: got the decision %+v, want it left alone for the configured 20 s", v.Decision)
	}
	want := slices.Concat(done, once())
	n.waitRemedies(want)
	entries := n.remedyEntries()
	if got := entries[len(done)].At.Sub(before); got < 20*time.Second {
		t.Errorf("a stopped kubelet was started after %v, want it left alone for 20 s", got)
	}
	n.isHealed("a kubelet that was stopped")
}

// heeds checks that nothing is done about a kubelet that has failed, for a reason, and that everybody can see what would be done else.
func (n node) heeds(name, reason string, done []string) {
	t := n.t
	t.Helper()
	looks := n.waitView(name+": nothing is done", held(reason)).Counters.Looks
	v := n.waitView(name+": some more looks", func(v *agent.View) bool { return v.Counters.Looks > looks+3 })
	if !held(reason)(v) || v.Decision.Wanted != "restart" || v.Decision.Unit != "kubelet.service" {
		t.Errorf("%s: got %s, wanted %q; want a hold for %s that tells of the restart", name, summary(v), v.Decision.Wanted, reason)
	}
	if text := n.MustExec(t, "aks-flex-node", "explain"); !strings.Contains(text, reason) || !strings.Contains(words(text), "restart kubelet.service") {
		t.Errorf("%s: want %s and what would be done in\n%s", name, reason, text)
	}
	if got := n.remedies(); !slices.Equal(got, done) {
		t.Errorf("%s: got the remedies %v, want none after %v", name, got, done)
	}
	if out, err := n.Exec(t.Context(), "systemctl", "is-failed", "kubelet"); err != nil || out.Code != 0 {
		t.Errorf("%s: the kubelet is %s (%v), want it as it was: failed", name, out.Stdout, err)
	}
}

// neverHeldDuringARemedy checks that the agent never said, while it was at work, that it does nothing.
func (n node) neverHeldDuringARemedy() {
	n.t.Helper()
	inProgress := ""
	for _, e := range n.history() {
		switch {
		case e.Kind == journal.KindRemedy && e.To == "begun":
			inProgress = e.Subject
		case e.Kind == journal.KindRemedy:
			inProgress = ""
		case e.Kind == journal.KindDecision && e.To == "hold" && inProgress != "":
			n.t.Errorf("during %s the agent decided to hold, want it to wait: %s: %s", inProgress, e.Reason, e.Message)
		}
	}
}

// reload gives the agent another configuration as an administrator does. It returns before that is taken.
func (n node) reload(s settings) {
	n.t.Helper()
	n.configure(s)
	n.MustExec(n.t, "systemctl", "reload", agentUnit)
}

// refusesBrokenConfigurations writes some: the agent says so, and goes on with the one before.
func (n node) refusesBrokenConfigurations(s settings) {
	t := n.t
	t.Helper()
	v, err := n.view(t.Context())
	lab.Must(t, err)
	good := string(fullConfig(t, s))
	for name, text := range map[string]string{
		"no JSON":         `{"azure": {`,
		"a wrong value":   strings.Replace(good, `"statusInterval": "1s"`, `"statusInterval": "often"`, 1),
		"a missing value": strings.Replace(good, `"subscriptionId"`, `"subscriptionID_"`, 1),
	} {
		told := n.logLines("the one before is kept")
		lab.Must(t, n.WriteFile(t.Context(), configPath, []byte(text), 0o600))
		n.MustExec(t, "systemctl", "reload", agentUnit)
		lab.Must(t, lab.WaitFor(t.Context(), soon, name+": the agent says that it keeps the old one", func(context.Context) (bool, string) {
			lines := n.logLines("the one before is kept")
			return lines > told, fmt.Sprint(lines, " lines")
		}))
		next, err := n.view(t.Context())
		lab.Must(t, err)
		if next.Mode != v.Mode || next.DryRun != v.DryRun || !next.Started.Equal(v.Started) {
			t.Errorf("%s: got the mode %s (%s), dry-run %v, want the agent to go on as before", name, next.Mode, next.ModeReason, next.DryRun)
		}
	}
}

// logLines counts lines of the agent's log that have a word in them.
func (n node) logLines(word string) int {
	n.t.Helper()
	return strings.Count(n.MustExec(n.t, "journalctl", "--no-pager", "-o", "cat", "-u", agentUnit), word)
}

// TestAnAgentWithoutAConfigurationOnlyObserves breaks a node for which the agent has no orders.
func TestAnAgentWithoutAConfigurationOnlyObserves(t *testing.T) {
	t.Parallel()
	c := cluster(t, lab.ClusterOptions{})
	began := time.Now()
	n := installAgent(t, c.MustJoin(t, "n1", lab.JoinOptions{}), nil)
	n.waitView("nothing is to be done", idle)
	failOnce(n)
	v := n.waitViewFor(4*time.Minute, "nothing is done", held("ObserveOnly"))
	if v.Mode != "observe-only" || v.Decision.Wanted != "restart" || !strings.Contains(v.ModeReason, "no configuration") {
		t.Errorf("got mode %s (%s), wanted %q; want an agent that observes and tells what else it would do", v.Mode, v.ModeReason, v.Decision.Wanted)
	}
	if got := n.remedies(); len(got) > 0 {
		t.Errorf("got the remedies %v, want none", got)
	}
	n.MustExec(t, "systemctl", "is-failed", "kubelet")
	if !slices.ContainsFunc(n.history(), func(e journal.Entry) bool { return e.Kind == journal.KindDecision && e.Reason == "ObserveOnly" }) {
		t.Error("the history does not have the decision")
	}
	requests, err := c.Requests("aks-flex-node/", began)
	lab.Must(t, err)
	if len(requests) == 0 {
		t.Error("got no requests at all, want those by which the agent observes")
	}
	for _, r := range requests {
		if !slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
			t.Errorf("got the request %s %s, want the cluster told nothing", r.Verb, r.URI)
		}
	}
	cluster, err := c.Node(t.Context(), "n1")
	lab.Must(t, err)
	if cond, told := conditions(cluster)[agent.NodeConditionType]; told {
		t.Errorf("the Node has the condition %+v, want none", cond)
	}
}
