package probe

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe/parse"
)

func (s *Suite) lookAtNode(ctx context.Context, round time.Time) observe.Observation[observe.Node] {
	facts, _ := s.unitFacts(ctx, round)
	if w := s.watcher.Load(); w != nil {
		return judgeAnswer(watched(w.State(), round))
	}
	return judgeAnswer(s.cluster.Node(ctx, s.nodeSource(facts)))
}

// judgeAnswer says what it means what the API server said, or that it said nothing.
func judgeAnswer(answer cluster.Answer, err error) observe.Observation[observe.Node] {
	v := observe.Node{Name: answer.NodeName, Server: answer.Server, LeaseRenewed: answer.LeaseRenewed}
	if err == nil {
		return judgeNode(nodeValue(v, answer.Node))
	}
	reason, message := cluster.ReasonOf(err), cluster.Explain(err, answer.Server)
	if reason == cluster.ReasonNodeNotFound && answer.Server != "" {
		// The one failure that says something about the node: the API server was reached and does not have it.
		v.Ready = observe.ReadyUnknown
		return observe.See(v, observe.Unhealthy, reason, "%s", message)
	}
	return observe.Observation[observe.Node]{Value: v, Reason: reason, Message: message}
}

// believed is how long what a watch said is good for without a sign of life from the other side. A ping brings one every ten seconds.
const believed = 20 * time.Second

// watched turns what a watch knows into an answer.
func watched(state cluster.WatchState, now time.Time) (cluster.Answer, error) {
	silent := now.Sub(state.Confirmed)
	switch {
	case state.Err != nil:
		return state.Answer, state.Err
	case silent > believed:
		return state.Answer, cluster.Silent(silent)
	case !state.Known:
		return state.Answer, cluster.Silent(0)
	case state.Node == nil:
		return state.Answer, cluster.NoNode(state.NodeName)
	}
	return state.Answer, nil
}

// WatchNode keeps the Node known by a watch, for as long as ctx, so that looks cost no request; changed is called, and must not block,
// when it may have changed. It is for whoever looks again and again; it returns when ctx has ended.
func (s *Suite) WatchNode(ctx context.Context, changed func()) {
	w := cluster.NewWatcher(&s.cluster, s.currentSource, changed)
	s.watcher.Store(w)
	defer s.watcher.Store(nil)
	w.Run(ctx)
}

// currentSource goes by what was last seen of the kubelet's unit.
func (s *Suite) currentSource() cluster.Source {
	facts, _ := s.units.latest().Best()
	return s.nodeSource(facts)
}

// nodeSource finds the kubelet's kubeconfig and the node's name.
func (s *Suite) nodeSource(facts units) cluster.Source {
	args, _ := facts.kubeletArgs()
	name := s.settings.nodeName
	if name == "" {
		name = strings.ToLower(strings.TrimSpace(host.FlagValue(args, "hostname-override"))) // as the kubelet does
	}
	return cluster.Source{
		Kubeconfig: s.kubeletKubeconfig(args),
		NodeName:   name,
		HostName:   s.settings.hostName,
		PluginEnv:  facts.azureEnvironment(),
		UserAgent:  s.settings.userAgent,
	}
}

// kubeletKubeconfig is the path of the kubeconfig of a kubelet with these arguments.
func (s *Suite) kubeletKubeconfig(kubeletArgs []string) string {
	return cluster.FindKubeconfig(append([]string{host.FlagValue(kubeletArgs, "kubeconfig")}, s.settings.kubeconfigs...))
}

// identityVariables say where a managed identity is to be had, and whom to trust there.
//
//nolint:gochecknoglobals // a list that nobody changes
var identityVariables = []string{"IDENTITY_ENDPOINT", "IDENTITY_HEADER", "IMDS_ENDPOINT", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// azureEnvironment returns the kubelet's settings for its credential plugin: kubelogin reads AAD_* and AZURE_* variables, which may be
// in the unit's environment instead of the kubeconfig.
func azureEnvironment(pid int) []string {
	if pid == 0 {
		return nil
	}
	env, err := host.Environ(pid)
	if err != nil {
		return nil // only root may look: then a plugin gets what the kubeconfig says
	}
	var azure []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "AAD_") || strings.HasPrefix(name, "AZURE_") || slices.Contains(identityVariables, name) {
			azure = append(azure, e)
		}
	}
	return azure
}

func nodeValue(v observe.Node, n *corev1.Node) observe.Node {
	v.Name = n.Name
	v.Unschedulable = n.Spec.Unschedulable
	v.KubeletVersion = parse.VersionText(n.Status.NodeInfo.KubeletVersion)
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		v.Ready = map[corev1.ConditionStatus]string{
			corev1.ConditionTrue: observe.Ready, corev1.ConditionFalse: observe.NotReady,
		}[c.Status]
		if v.Ready == "" {
			v.Ready = observe.ReadyUnknown
		}
		v.ClusterReason, v.ClusterMessage = c.Reason, c.Message
		v.LastTransition, v.LastHeartbeat = c.LastTransitionTime.Time, c.LastHeartbeatTime.Time
	}
	return v
}

// judgeNode says what the cluster's word means. Unknown there is a finding, not a failure to look: the cluster has not heard from the
// kubelet.
func judgeNode(v observe.Node) observe.Observation[observe.Node] {
	cordoned := ""
	if v.Unschedulable {
		cordoned = "; it is cordoned"
	}
	switch v.Ready {
	case observe.Ready:
		return observe.See(v, observe.Healthy, "NodeReady", "the cluster says that node %s is ready%s", v.Name, cordoned)
	case "":
		return observe.Observation[observe.Node]{Value: v, Reason: "NoReadyCondition", Message: "node " + v.Name + " has no Ready condition yet"}
	}
	return observe.See(v, observe.Unhealthy, "Node"+v.Ready, "the cluster says of node %s: %s: %s%s", v.Name, v.ClusterReason, v.ClusterMessage, cordoned)
}
