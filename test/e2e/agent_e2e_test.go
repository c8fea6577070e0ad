//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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
	agentUnit    = "aks-flex-node-agent.service"
	agentProgram = "github.com/aks-flex-node/agent/cmd/aks-flex-node"
	snapshotPath = "/run/aks-flex-node/status.json"
	configPath   = "/etc/aks-flex-node/config.json"
)

// settings are keys of the agent's section of the configuration, by their names there.
type settings map[string]any

// scaled are the limits that decisions go by, a hundredth or so of what they are, for tests that can't wait.
func scaled() settings {
	return settings{
		"statusInterval": "2s", "bootstrapCheckInterval": "2s",
		"thresholds": map[string]any{
			"confirmFor": "3s", "confirmLooks": 3, "evidenceGap": "30s", "recovered": "20s", "restartGaps": []string{"3s", "3s", "3s"},
			"bootstrapAfter": "5s", "frozenFor": "8s", "stopHold": "20s", "loopPatience": "10s", "steady": "3s", "minUptime": "1ms",
			"coolDown": "3s", "maxCoolDown": "10s", "budgetWindow": "1h",
		},
	}
}

// with returns the settings with others added or replaced.
func (s settings) with(more settings) settings {
	all := settings{}
	for _, m := range []settings{s, more} {
		maps.Copy(all, m)
	}
	return all
}

// fullConfig is a configuration with which the agent acts.
func fullConfig(t testing.TB, s settings) []byte {
	t.Helper()
	b, err := json.MarshalIndent(map[string]any{
		"azure": map[string]any{
			"subscriptionId": "00000000-0000-0000-0000-000000000001", "tenantId": "00000000-0000-0000-0000-000000000002", "managedIdentity": map[string]any{},
			"targetCluster": map[string]any{
				"resourceId": "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c1",
				"location":   "westeurope",
			},
		},
		"agent": s,
	}, "", "  ")
	lab.Must(t, err)
	return b
}

// node is a host on which the agent runs as its service.
type node struct {
	*lab.Host
	t testing.TB
}

// installAgent installs the agent on a host, as a user would, with a configuration or (nil) without, and waits until it can be asked.
func installAgent(t testing.TB, h *lab.Host, s settings) node {
	t.Helper()
	n := node{h, t}
	if s != nil {
		n.configure(s)
	}
	lab.Must(t, h.CopyIn(t.Context(), lab.Program(t, agentProgram), "/root/aks-flex-node", 0o755))
	out, err := h.Exec(t.Context(), "/root/aks-flex-node", "install")
	if err != nil {
		t.Fatalf("install: %v\n%s%s", err, out.Stdout, out.Stderr)
	}
	t.Cleanup(func() {
		if t.Failed() {
			n.dump()
		}
	})
	n.waitView("the agent answers", func(*agent.View) bool { return true })
	return n
}

// configure writes the configuration; it is read at the next start or reload.
func (n node) configure(s settings) {
	n.t.Helper()
	n.MustExec(n.t, "mkdir", "-p", filepath.Dir(configPath))
	lab.Must(n.t, n.WriteFile(n.t.Context(), configPath, fullConfig(n.t, s), 0o600))
}

// dump shows what the agent said, for a test that failed.
func (n node) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	for _, argv := range [][]string{
		{"systemctl", "status", "--no-pager", "-l", agentUnit, "kubelet", "containerd"}, {"journalctl", "--no-pager", "-n", "80", "-u", agentUnit},
		{"tail", "-n", "80", "/var/log/aks-flex-node/aks-flex-node.log"}, {"aks-flex-node", "explain"}, {"aks-flex-node", "history"},
	} {
		out, _ := n.Exec(ctx, argv...)
		n.t.Logf("%v:\n%s%s", argv, out.Stdout, out.Stderr)
	}
}

// view asks the agent for all it knows.
func (n node) view(ctx context.Context) (*agent.View, error) {
	out, err := n.Exec(ctx, "aks-flex-node", "explain", "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out.Stderr)
	}
	v := &agent.View{}
	if err := json.Unmarshal([]byte(out.Stdout), v); err != nil {
		return nil, fmt.Errorf("%w in %.200q", err, out.Stdout)
	}
	if v.Started.IsZero() {
		return nil, fmt.Errorf("no agent answers: %s", out.Stderr)
	}
	return v, nil
}

// waitView waits until what the agent knows is as wanted.
func (n node) waitView(what string, is func(*agent.View) bool) *agent.View {
	n.t.Helper()
	return n.waitViewFor(2*time.Minute, what, is)
}

func (n node) waitViewFor(within time.Duration, what string, is func(*agent.View) bool) (last *agent.View) {
	n.t.Helper()
	lab.Must(n.t, lab.WaitFor(n.t.Context(), within, what, func(ctx context.Context) (bool, string) {
		v, err := n.view(ctx)
		if err != nil {
			return false, err.Error()
		}
		last = v
		return is(v), summary(v)
	}))
	return last
}

// summary is a View in a few words.
func summary(v *agent.View) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "decision %s %s (%s): %s;", v.Decision.Action, v.Decision.Unit, v.Decision.Reason, v.Decision.Message)
	for _, c := range v.Conditions {
		fmt.Fprintf(&b, " %s=%s(%s)", c.Type, c.Status, c.Reason)
	}
	return b.String()
}

// condition returns a condition of a View; the zero one where it does not apply.
func condition(v *agent.View, kind string) health.Condition {
	for _, c := range v.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return health.Condition{}
}

// history returns what the agent recorded.
func (n node) history() []journal.Entry {
	n.t.Helper()
	out := n.MustExec(n.t, "aks-flex-node", "history", "--limit", "0", "-o", "json")
	var entries []journal.Entry
	if err := json.Unmarshal([]byte(out), &entries); err != nil {
		n.t.Fatalf("history: %v in %.200q", err, out)
	}
	return entries
}

// snapshot reads the snapshot's file as it is.
func (n node) snapshot() (*status.NodeStatus, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s", n.PID(), snapshotPath))
	if err != nil {
		return nil, err
	}
	s := &status.NodeStatus{}
	return s, json.Unmarshal(b, s)
}

// TestTheAgentOnAHealthyNode is the agent's first minutes on a node that works.
func TestTheAgentOnAHealthyNode(t *testing.T) {
	t.Parallel()
	c := cluster(t, lab.ClusterOptions{})
	n := installAgent(t, c.MustJoin(t, "n1", lab.JoinOptions{}), settings{})
	lab.Must(t, c.WaitReady(t.Context(), "n1", corev1.ConditionTrue, time.Minute))
	v := n.waitView("nothing is to be done", func(v *agent.View) bool {
		return v.Decision.Action == "none" && condition(v, health.NodeReady).Status == health.True && condition(v, health.KubeletHealthy).Status == health.True
	})
	if v.Mode != "act" || v.JournalProblem != "" {
		t.Errorf("got mode %s (%s) and journal problem %q, want an agent that acts", v.Mode, v.ModeReason, v.JournalProblem)
	}
	s, err := n.snapshot()
	if err != nil || !s.KubeletRunning || s.KubeletReady != "Ready" || !s.ContainerdRunning {
		t.Errorf("got snapshot %+v, %v; want that of a healthy node", s, err)
	}
	lab.Must(t, lab.WaitFor(t.Context(), time.Minute, "the Node says so", func(ctx context.Context) (bool, string) {
		node, err := c.Node(ctx, "n1")
		if err != nil {
			return false, err.Error()
		}
		for _, cond := range node.Status.Conditions {
			if cond.Type == agent.NodeConditionType {
				return true, string(cond.Status)
			}
		}
		return false, "no such condition"
	}))
	t.Log(n.MustExec(t, "sh", "-c", "aks-flex-node status -o wide; true"))
	t.Log(n.MustExec(t, "sh", "-c", "systemctl status --no-pager "+agentUnit+"; true"))
}
