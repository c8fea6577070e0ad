//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/lab"
)

// clusterState is something that a cluster can think of a node.
type clusterState struct {
	name   string
	into   string // a shell script on the node
	api    string // or a merge patch of the Node; "delete" deletes it
	back   string
	within time.Duration // for the cluster to see it
	want   corev1.ConditionStatus
	ready  string // in the snapshot
	health observe.Health
	table  string // more that the table must say
}

var clusterStates = []clusterState{
	{name: "ready", within: soon, want: corev1.ConditionTrue, ready: observe.Ready, health: observe.Healthy},
	{
		name: "cordoned", api: `{"spec":{"unschedulable":true}}`, within: soon, want: corev1.ConditionTrue, ready: observe.Ready, health: observe.Healthy,
		table: "it is cordoned",
	},
	{
		name: "uncordoned", api: `{"spec":{"unschedulable":null}}`, within: soon, want: corev1.ConditionTrue, ready: observe.Ready, health: observe.Healthy,
	},
	{
		name: "CNI configuration removed", into: "mkdir -p /root/cni; mv /etc/cni/net.d/* /root/cni/", back: "for f in /root/cni/*; do cat $f >/etc/cni/net.d/$(basename $f); done",
		within: time.Minute, want: corev1.ConditionFalse, ready: observe.NotReady, health: observe.Unhealthy,
	},
	{
		name: "containerd stopped", into: "systemctl stop containerd", back: "systemctl start containerd",
		within: 2 * time.Minute, want: corev1.ConditionFalse, ready: observe.NotReady, health: observe.Unhealthy, table: "containerd.service is stopped",
	},
	{
		name: "kubelet stopped past the grace period", into: "systemctl stop kubelet", back: "systemctl start kubelet",
		within: time.Minute, want: corev1.ConditionUnknown, ready: observe.ReadyUnknown, health: observe.Unhealthy, table: "kubelet.service is stopped",
	},
}

// TestStatusShowsWhatTheClusterSays goes through the states of a node; in each, a look and a watch must say what the API server says.
func TestStatusShowsWhatTheClusterSays(t *testing.T) {
	t.Parallel()
	c := cluster(t, lab.ClusterOptions{})
	h := join(t, c, lab.Program(t, "github.com/aks-flex-node/agent/cmd/aks-flex-node"), "n1", lab.JoinOptions{})
	w := startWatcher(t, h)
	for _, s := range clusterStates {
		t.Run(s.name, func(t *testing.T) {
			if s.into != "" {
				h.MustExec(t, "sh", "-ec", s.into)
			}
			if s.api != "" {
				_, err := c.Kubectl(t.Context(), "patch", "node", "n1", "--type=merge", "-p", s.api)
				lab.Must(t, err)
			}
			lab.Must(t, c.WaitReady(t.Context(), "n1", s.want, s.within))
			lab.Must(t, lab.WaitFor(t.Context(), soon, "both ways agree with the cluster", func(ctx context.Context) (bool, string) {
				return agrees(ctx, t, c, h, w, s)
			}))
			if s.back != "" {
				h.MustExec(t, "sh", "-ec", s.back)
				lab.Must(t, c.WaitReady(t.Context(), "n1", corev1.ConditionTrue, 2*time.Minute))
			}
		})
	}
	t.Run("deleted", func(t *testing.T) {
		h.MustExec(t, "systemctl", "stop", "kubelet") // else it could come back
		lab.Must(t, c.Do(t.Context(), http.MethodDelete, "/api/v1/nodes/n1", nil, nil))
		lab.Must(t, lab.WaitFor(t.Context(), soon, "both ways say that the node is gone", func(context.Context) (bool, string) {
			snapshot, table := oneShot(t, h)
			seen := w.look(t).Node
			saw := fmt.Sprintf("snapshot %s, watch %s %s\n%s", snapshot.KubeletReady, seen.Health, seen.Reason, table)
			return snapshot.KubeletReady == observe.ReadyUnknown && seen.Health == observe.Unhealthy && seen.Reason == "NodeNotFound" &&
				strings.Contains(table, "NodeNotFound"), saw
		}))
	})
}

// agrees compares what the API server says now with both ways of the agent.
func agrees(ctx context.Context, t *testing.T, c *lab.Cluster, h *lab.Host, w watcher, s clusterState) (ok bool, saw string) {
	t.Helper()
	snapshot, table := oneShot(t, h)
	seen := w.look(t).Node
	node, err := c.Node(ctx, "n1")
	if err != nil {
		return false, err.Error()
	}
	ready := readyCondition(node)
	saw = fmt.Sprintf("cluster: %s %s %q; watch: %s %+v; snapshot: %s\n%s", ready.Status, ready.Reason, ready.Message, seen.Health, seen.Value, snapshot.KubeletReady, table)
	words := strings.Join(strings.Fields(ready.Message), " ")
	return snapshot.KubeletReady == s.ready && seen.Value.Ready == s.ready && seen.Health == s.health &&
		seen.Value.ClusterReason == ready.Reason && seen.Value.ClusterMessage == ready.Message &&
		(s.health == observe.Healthy || strings.Contains(strings.Join(strings.Fields(table), " "), words)) &&
		strings.Contains(table, s.table) && strings.Contains(table, "its Lease was renewed"), saw
}

func readyCondition(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// TestTheRightNodeIsFound joins nodes whose names and kubeconfigs are where nodes in the field have them.
func TestTheRightNodeIsFound(t *testing.T) {
	t.Parallel()
	c := cluster(t, lab.ClusterOptions{})
	agent := lab.Program(t, "github.com/aks-flex-node/agent/cmd/aks-flex-node")
	older, err := lab.KubeletVersion(t.Context(), "1.36")
	lab.Must(t, err)
	for name, o := range map[string]lab.JoinOptions{
		"edge-1": {Hostname: "EDGE-1", NoHostnameOverride: true, KubeconfigPath: "/var/lib/kubelet/kubelet/kubeconfig"},
		"edge-2": {Hostname: "machine-2", KubeconfigPath: "/var/lib/kubelet/kubeconfig"},
		"edge-3": {KubeconfigPath: "/etc/kubernetes/kubelet.conf", Kubelet: older},
		"edge-4": {KubeconfigPath: "/srv/node/kubeconfig", Hostname: "edge-4"},
		"edge-5": {ExecPlugin: &lab.ExecPlugin{User: "edge-five"}, Hostname: "MACHINE-5"},
	} {
		t.Run(name, func(t *testing.T) {
			h := join(t, c, agent, name, o)
			lab.Must(t, lab.WaitFor(t.Context(), soon, name+" is found", func(context.Context) (bool, string) {
				snapshot, table := oneShot(t, h)
				return snapshot.KubeletReady == observe.Ready && strings.Contains(table, "node "+name+" is ready") &&
					(o.Kubelet == "") == (snapshot.KubeletVersion == "1.37.2"), fmt.Sprintf("%+v\n%s", snapshot, table)
			}))
			// With the kubelet stopped its command line is gone; the unit still tells.
			h.MustExec(t, "systemctl", "stop", "kubelet")
			if snapshot, table := oneShot(t, h); snapshot.KubeletRunning || !strings.Contains(table, "node "+name) {
				t.Errorf("with the kubelet stopped: got %+v\n%s", snapshot, table)
			}
			lab.Must(t, h.Stop())
		})
	}
}
