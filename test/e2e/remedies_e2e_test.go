//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/pkg/status"
	"github.com/aks-flex-node/agent/test/lab"
)

const (
	commandPath = "/usr/local/sbin/make-node" // the bootstrap command
	runsPath    = "/var/tmp/runs"             // what it did, a line for each begin and end
	unitPath    = "/etc/systemd/system/kubelet.service"
	unitCopy    = "/root/kubelet.service"
	outputs     = "/var/lib/aks-flex-node/bootstrap-*.log"

	// What a careless command prints.
	bootstrapToken = "abcdef.0123456789abcdef"
	clientSecret   = "Zx8~not-a-real-secret-7Qp"
)

// Scripts that break a node so that it stays broken, and one that mends what removeUnit did.
const (
	removeUnit  = "cp -n " + unitPath + " " + unitCopy + "; systemctl stop kubelet; rm " + unitPath + "; systemctl daemon-reload"
	restoreUnit = "cp " + unitCopy + " " + unitPath + "; systemctl daemon-reload; systemctl start kubelet"
	failAtOnce  = "mkdir -p " + unitPath + ".d; printf '[Service]\\nType=exec\\nExecStart=\\nExecStart=/bin/false\\nRestart=no\\n' >" + unitPath + ".d/20-broken.conf; " +
		"systemctl daemon-reload; systemctl restart kubelet || true"
)

// installCommand puts a script in place as the bootstrap command: it takes down that it ran, and prints secrets.
func installCommand(t testing.TB, h *lab.Host, script string) {
	t.Helper()
	text := "#!/bin/sh\necho begin >>" + runsPath + "\necho 'joining with " + bootstrapToken + " and " + clientSecret + "'\n" + script + "\n" +
		"code=$?; echo end >>" + runsPath + "; exit $code\n"
	lab.Must(t, h.WriteFile(t.Context(), commandPath, []byte(text), 0o755))
}

// runs are the lines that the command wrote.
func (n node) runs() string {
	n.t.Helper()
	return strings.Join(strings.Fields(n.MustExec(n.t, "sh", "-c", "cat "+runsPath+" 2>/dev/null; true")), " ")
}

// withCommand are settings with which the command is run.
func withCommand(s settings) settings {
	return s.with(settings{"bootstrap": map[string]any{"command": []string{commandPath}, "timeout": "2m"}})
}

// limits are the scaled settings with other limits for some.
func limits(more map[string]any) settings {
	s := scaled()
	if all, ok := s["thresholds"].(map[string]any); ok {
		maps.Copy(all, more)
	}
	return s
}

// withSecret is fullConfig of a node that authenticates by a secret.
func withSecret(t testing.TB, s settings) []byte {
	t.Helper()
	var c struct {
		Azure map[string]any `json:"azure"`
		Agent any            `json:"agent"`
	}
	lab.Must(t, json.Unmarshal(fullConfig(t, s), &c))
	delete(c.Azure, "managedIdentity")
	c.Azure["servicePrincipal"] = map[string]any{"tenantId": c.Azure["tenantId"], "clientId": c.Azure["subscriptionId"], "clientSecret": clientSecret}
	b, err := json.Marshal(c)
	lab.Must(t, err)
	return b
}

// remedies are the remedies that the agent recorded, as "NAME begun" and "NAME OUTCOME".
func (n node) remedies() (all []string) {
	n.t.Helper()
	for _, e := range n.remedyEntries() {
		all = append(all, e.Subject+" "+e.To)
	}
	return all
}

func (n node) remedyEntries() (all []journal.Entry) {
	n.t.Helper()
	for _, e := range n.history() {
		if e.Kind == journal.KindRemedy {
			all = append(all, e)
		}
	}
	return all
}

// times is a list so often.
func times(n int, list ...string) []string { return slices.Repeat(list, n) }

// held reports whether the agent holds for a reason, and is at nothing.
func held(reason string) func(*agent.View) bool {
	return func(v *agent.View) bool {
		return v.Decision.Action == "hold" && v.Decision.Reason == reason && v.Remedy == nil
	}
}

// idle reports whether nothing is to be done and nothing is being done.
func idle(v *agent.View) bool { return v.Decision.Action == "none" && v.Remedy == nil }

// anew waits for an agent that is not the one before, and has looked a few times.
func (n node) anew(before time.Time, what string, is func(*agent.View) bool) *agent.View {
	n.t.Helper()
	return n.waitView("an agent started anew: "+what, func(v *agent.View) bool { return v.Started.After(before) && v.Counters.Looks > 4 && is(v) })
}

// TestABootstrapThatNeverHelpsIsGivenUp breaks nodes for good. The agent tries what its budget allows, and then leaves the rest to people,
// whatever is restarted.
func TestABootstrapThatNeverHelpsIsGivenUp(t *testing.T) {
	t.Parallel()
	c := cluster(t, lab.ClusterOptions{})
	for name, broken := range map[string]struct {
		how      string
		restarts int
	}{
		"without-unit": {removeUnit, 0},
		"fails":        {failAtOnce, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := c.MustJoin(t, name, lab.JoinOptions{})
			installCommand(t, h, "false")
			lab.Must(t, h.WriteFile(t.Context(), configPath, withSecret(t, withCommand(scaled()).with(settings{"logLevel": "debug"})), 0o600)) // and keeps secrets even so
			n := installAgent(t, h, nil)
			n.waitView("nothing is to be done", idle)
			n.MustExec(t, "sh", "-ec", broken.how)
			v := n.waitViewFor(6*time.Minute, "the agent gives up", held("BudgetUsedUp"))
			want := append(times(broken.restarts, "restart kubelet.service begun", "restart kubelet.service failed"), times(3, "bootstrap begun", "bootstrap failed")...)
			if got := n.remedies(); !slices.Equal(got, want) {
				t.Errorf("got the remedies\n%v, want\n%v", got, want)
			}
			n.pausesGrew(3*time.Second, 6*time.Second)
			n.showsThatItGaveUp(v, c)
			n.keepsSecrets()
			n.neverHeldDuringARemedy()
			for what, again := range map[string]func(){
				"agent restarted": func() { n.MustExec(t, "systemctl", "restart", agentUnit) },
				"host rebooted":   func() { lab.Must(t, n.Reboot(t.Context())) },
				"power cut":       func() { lab.Must(t, n.PowerCut(t.Context())); lab.Must(t, n.Boot(t.Context())) },
			} {
				again()
				v = n.anew(v.Started, what, held("BudgetUsedUp"))
				if got := n.remedies(); !slices.Equal(got, want) {
					t.Errorf("%s: got the remedies\n%v, want those from before:\n%v", what, got, want)
				}
				if v.Budget.Bootstraps != 3 {
					t.Errorf("%s: got the budget %+v, want it used up", what, v.Budget)
				}
			}
			if got := n.runs(); got != strings.TrimSpace(strings.Repeat("begin end ", 3)) {
				t.Errorf("the command ran like this: %s, want three times", got)
			}
		})
	}
}

// pausesGrew checks that between bootstraps there were pauses of at least so long.
func (n node) pausesGrew(least ...time.Duration) {
	n.t.Helper()
	var begun, ended []time.Time
	for _, e := range n.remedyEntries() {
		switch {
		case e.Subject != "bootstrap":
		case e.To == "begun":
			begun = append(begun, e.At)
		default:
			ended = append(ended, e.At)
		}
	}
	if len(begun) != len(least)+1 || len(ended) != len(begun) {
		n.t.Errorf("got %d bootstraps begun and %d ended, want %d", len(begun), len(ended), len(least)+1)
		return
	}
	for i, want := range least {
		if got := begun[i+1].Sub(ended[i]); got < want-50*time.Millisecond { // times of one clock, ages of another
			n.t.Errorf("the pause after bootstrap %d was %v, want %v at least", i+1, got, want)
		}
	}
}

// showsThatItGaveUp looks at everything by which people and programs learn that the agent has given up.
func (n node) showsThatItGaveUp(v *agent.View, c *lab.Cluster) {
	t := n.t
	t.Helper()
	if v.Decision.Wanted != "bootstrap" || v.Budget != (agent.Budget{Bootstraps: 3, MaxBootstraps: 3}) || condition(v, health.KubeletRunning).Status != health.False {
		t.Errorf("explain -o json: got %s, wanted %q, budget %+v; want a hold, else a bootstrap, with 3 of 3 used and the kubelet's condition false",
			summary(v), v.Decision.Wanted, v.Budget)
	}
	const budget = "3 of 3 bootstraps"
	out, err := n.Exec(t.Context(), "aks-flex-node", "status")
	lab.Must(t, err)
	if out.Code != 10 || !strings.Contains(words(out.Stdout), budget) {
		t.Errorf("status: got exit code %d, want 10, and %q in\n%s", out.Code, budget, out.Stdout)
	}
	if text := n.MustExec(t, "aks-flex-node", "explain"); !strings.Contains(words(text), budget) || !strings.Contains(text, "BudgetUsedUp") {
		t.Errorf("explain: want %q and BudgetUsedUp in\n%s", budget, text)
	}
	n.hasMetrics(`aks_flex_node_bootstrap_budget_used 3`, `aks_flex_node_decision{action="hold",reason="BudgetUsedUp"} 1`,
		`aks_flex_node_remedies_total{name="bootstrap",outcome="failed"} 3`)
	lab.Must(t, lab.WaitFor(t.Context(), 2*time.Minute, "the cluster knows", func(ctx context.Context) (bool, string) {
		events, err := c.Kubectl(ctx, "get", "events", "--field-selector", "involvedObject.name="+n.Name(), "-o", "custom-columns=:.reason,:.message", "--no-headers")
		if err != nil {
			return false, err.Error()
		}
		described, err := c.Kubectl(ctx, "describe", "node", n.Name())
		if err != nil {
			return false, err.Error()
		}
		node, err := c.Node(ctx, n.Name())
		if err != nil {
			return false, err.Error()
		}
		cond := conditions(node)[agent.NodeConditionType]
		return strings.Contains(events, "BudgetUsedUp") && strings.Contains(described, "BudgetUsedUp") && cond.Status == corev1.ConditionFalse, fmt.Sprintf("events: %s; condition: %+v", events, cond)
	}))
}

// words is a text without the line breaks and alignment of a table.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// hasMetrics checks that the page of metrics has these lines.
func (n node) hasMetrics(lines ...string) {
	n.t.Helper()
	page := n.get("/metrics")
	for _, line := range lines {
		if !strings.Contains(page, "\n"+line+"\n") {
			n.t.Errorf("metrics: want the line %s in\n%s", line, page)
		}
	}
}

// get reads a page of the agent's socket.
func (n node) get(path string) string {
	n.t.Helper()
	client := http.Client{Timeout: soon, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", n.Root()+"/run/aks-flex-node/agent.sock")
		},
	}}
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://agent"+path, http.NoBody)
	lab.Must(n.t, err)
	answer, err := client.Do(req)
	lab.Must(n.t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	lab.Must(n.t, err)
	return string(b)
}

// keepsSecrets checks that what the command printed is kept for root, and that no secret in it is shown anywhere else.
func (n node) keepsSecrets() {
	t := n.t
	t.Helper()
	modes := n.MustExec(t, "sh", "-ec", "stat -c %a:%U "+outputs+"; grep -l "+clientSecret+" "+outputs+" >/dev/null; stat -c %a:%U /var/lib/aks-flex-node")
	if got := words(modes); got != "600:root 600:root 600:root 700:root" {
		t.Errorf("the command's outputs and their folder: got %s, want them for root alone", got)
	}
	entries, err := json.Marshal(n.history())
	lab.Must(t, err)
	texts := map[string]string{"history": string(entries), "view": n.get("/v1/view"), "metrics": n.get("/metrics")}
	for what, script := range map[string]string{
		"journalctl":    "journalctl --no-pager -o export --all",
		"the log":       "cat /var/log/aks-flex-node/*",
		"explain":       "aks-flex-node explain",
		"status":        "aks-flex-node status -o wide || true",
		"history, wide": "aks-flex-node history -o wide",
	} {
		texts[what] = n.MustExec(t, "sh", "-ec", script)
	}
	file, err := n.ReadFile(journalFile)
	lab.Must(t, err)
	texts["the journal's file"] = string(file)
	for what, text := range texts {
		for _, secret := range []string{bootstrapToken, clientSecret} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s shows %s: …%s", what, secret, text[max(0, at-200):at])
			}
		}
	}
	if !strings.Contains(texts["the journal's file"], "joining with") {
		t.Error("the journal does not have the end of the command's output")
	}
}

// TestABootstrapThatHelpsTheSecondTime ends with a node like any other, for which the next fault is a new one.
func TestABootstrapThatHelpsTheSecondTime(t *testing.T) {
	t.Parallel()
	c := cluster(t, lab.ClusterOptions{})
	h := c.MustJoin(t, "n1", lab.JoinOptions{})
	installCommand(t, h, "[ $(grep -c begin "+runsPath+") = 2 ] && { "+restoreUnit+"; }")
	n := installAgent(t, h, withCommand(scaled()))
	n.waitView("nothing is to be done", idle)
	n.MustExec(t, "sh", "-ec", removeUnit)
	want := []string{"bootstrap begun", "bootstrap failed", "bootstrap begun", "bootstrap succeeded"}
	n.waitRemedies(want)
	ended := n.remedyEntries()[3].At
	lab.Must(t, c.WaitReady(t.Context(), "n1", corev1.ConditionTrue, 2*time.Minute))
	n.waitView("normal life", func(v *agent.View) bool {
		_, bad := gravest(v)
		return idle(v) && !bad && condition(v, health.NodeReady).Status == health.True && condition(v, health.KubeletHealthy).Status == health.True
	})
	n.waitSnapshot("a fresh one of a node that works", func(s *status.NodeStatus) bool {
		return s.KubeletRunning && s.KubeletReady == "Ready" && s.LastUpdated.After(ended)
	})
	lab.Must(t, lab.WaitFor(t.Context(), 2*time.Minute, "the cluster knows", func(ctx context.Context) (bool, string) {
		node, err := c.Node(ctx, "n1")
		if err != nil {
			return false, err.Error()
		}
		cond := conditions(node)[agent.NodeConditionType]
		// Nothing keeps the clock of a lab host in step, which is what is left to tell. When it was written does not matter: times in the
		// cluster are whole seconds, and the kubelet is well a moment before the remedy has ended.
		return cond.Status == corev1.ConditionTrue || strings.HasPrefix(cond.Message, health.ClockSynchronized), fmt.Sprintf("%+v", cond)
	}))
	lab.Must(t, lab.WaitFor(t.Context(), 2*time.Minute, "the fault is over", func(context.Context) (bool, string) {
		entries := n.history()
		return slices.ContainsFunc(entries, func(e journal.Entry) bool { return e.Kind == "recovered" }), fmt.Sprint(len(entries), " entries")
	}))
	failOnce(n)
	n.waitRemedies(append(want, "restart kubelet.service begun", "restart kubelet.service succeeded"))
	if got := n.runs(); got != "begin end begin end" {
		t.Errorf("the command ran like this: %s, want twice", got)
	}
}

// gravest is a critical condition that does not hold.
func gravest(v *agent.View) (health.Condition, bool) {
	for _, c := range v.Conditions {
		if c.Severity == health.Critical && c.Status != health.True {
			return c, true
		}
	}
	return health.Condition{}, false
}

// waitRemedies waits until the agent has recorded these remedies, and no others.
func (n node) waitRemedies(want []string) {
	n.t.Helper()
	lab.Must(n.t, lab.WaitFor(n.t.Context(), 3*time.Minute, fmt.Sprint("the remedies ", want), func(context.Context) (bool, string) {
		got := n.remedies()
		if len(got) > len(want) {
			n.t.Fatalf("got the remedies\n%v, want\n%v", got, want)
		}
		return slices.Equal(got, want), fmt.Sprint(got)
	}))
}

// failOnce kills a kubelet that systemd does not start again by itself.
func failOnce(n node) {
	n.t.Helper()
	n.MustExec(n.t, "sh", "-ec", "mkdir -p "+unitPath+".d; printf '[Service]\\nRestart=no\\n' >"+unitPath+".d/10-once.conf; systemctl daemon-reload; systemctl kill -s KILL kubelet")
}
