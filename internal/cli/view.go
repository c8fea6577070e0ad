package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/status"
)

// reasonNoSystemd is the reason of units on a machine that systemd doesn't run.
const reasonNoSystemd = "NoSystemd"

// view is a node's state as a person reads it: one headline, a row for each component, and what to look at next.
type view struct {
	node     string
	health   observe.Health
	notANode string // why this machine is no node; empty when it is one or that can't be told
	doubt    string // why it can't be told whether this machine is a node; empty when it can
	rows     []row
	source   string

	// What only a running agent tells: conditions that no row shows, and what it does, one thing a line.
	conditions []row
	agent      []string
}

// row is one component, or one condition.
type row struct {
	component string
	health    observe.Health
	absent    bool // neither wanted nor there: nothing to judge
	state     string
	version   string
	since     string
	detail    string
	next      string // what to run or to read next when it isn't healthy
}

// exit is the exit status of the view.
func (v view) exit() int {
	switch {
	case v.notANode != "":
		return ExitUnknown
	case v.health == observe.Healthy:
		return ExitHealthy
	case v.health == observe.Unhealthy:
		return ExitUnhealthy
	}
	return ExitUnknown
}

// conclude sets the health of the whole: unhealthy if anything is, else unknown if anything is.
func (v *view) conclude() {
	v.health = observe.Healthy
	for _, r := range v.all() {
		switch {
		case r.absent:
		case r.health == observe.Unhealthy:
			v.health = observe.Unhealthy
			return
		case r.health == observe.Unknown:
			v.health = observe.Unknown
		}
	}
}

// all is everything that the health of the whole depends on.
func (v view) all() []row { return slices.Concat(v.rows, v.conditions) }

// worst returns the first row of the given health, or the zero row: rows stand in the order cause before effect.
func (v view) worst(h observe.Health) row {
	for _, r := range v.all() {
		if !r.absent && r.health == h {
			return r
		}
	}
	return row{}
}

// viewOfSet makes the view of a live look.
func viewOfSet(set *observe.Set, s settings, now time.Time) view {
	v := view{node: s.nodeName(), rows: []row{containerdRow(set, now), runcRow(set), kubeletRow(set, now), nodeRow(set, now), arcRow(set, now)}}
	if n := set.Node.Value.Name; n != "" {
		v.node = n
	}
	s.judgeArc(&v.rows[len(v.rows)-1])
	v.conclude()
	if !s.wanted() {
		v.notANode, v.doubt = notANode(set)
	}
	if v.doubt != "" {
		v.health = observe.Unknown // what a node lacks is no fault of a machine that may be none
	}
	return v
}

// notANode says why a machine that nobody wants to be a node is none, or else, where only the unit could make it one and systemd
// doesn't say whether there is such a unit, why that can't be told. Both are empty for a machine with something of a node.
func notANode(set *observe.Set) (why, doubt string) {
	if set.Kubelet.Reason != observe.ReasonNotInstalled || set.Node.Reason != cluster.ReasonKubeconfigMissing {
		return "", ""
	}
	switch {
	case set.KubeletUnit.Reason == observe.ReasonUnitNotFound:
		return "it has no kubelet unit, no kubelet program and no kubeconfig", ""
	case set.KubeletUnit.Reason == reasonNoSystemd:
		return "systemd does not run here, and there is no kubelet program and no kubeconfig", ""
	case set.KubeletUnit.Health == observe.Unknown:
		return "", "whether it has a kubelet unit is not known (" + set.KubeletUnit.Message + ")"
	}
	return "", ""
}

// judgeArc corrects the last word on Arc where the configuration could not be read. What is bad stays bad: that needs no configuration.
func (s settings) judgeArc(r *row) {
	if s.unreadable == nil || !r.absent && r.health == observe.Unhealthy {
		return
	}
	r.absent, r.health, r.state, r.since = false, observe.Unknown, "ConfigUnreadable", ""
	r.detail = "whether Arc is enabled can't be told: " + oneLine(s.unreadable)
	r.next = "run as root; if that doesn't help: aks-flex-node config check"
}

func containerdRow(set *observe.Set, now time.Time) row {
	r := unitRow("containerd", set.ContainerdUnit, now)
	c := set.Containerd
	r.version = c.Value.Version
	switch {
	case c.Value.Answers && c.Health == observe.Healthy:
		// It works, whatever starts it: another unit, or none where there is no systemd.
		r.health = observe.Healthy
		if r.state == "" || !set.ContainerdUnit.Value.Running() {
			r.state, r.since = "Answering", ""
		}
		r.detail = c.Message
	case r.health == observe.Healthy || c.Reason == observe.ReasonNotInstalled:
		r.health, r.state, r.detail, r.since = c.Health, c.Reason, c.Message, "" // the unit's time is not that of this
	case r.health == observe.Unknown && c.Health == observe.Unhealthy:
		r.health, r.state, r.detail, r.since = c.Health, c.Reason, c.Message, "" // the unit's time is not that of this
	}
	r.next = unitAdvice("containerd", set.ContainerdUnit, r)
	return r
}

func runcRow(set *observe.Set) row {
	o := set.Runc
	r := row{component: "runc", health: o.Health, state: "Installed", version: o.Value.Version, detail: o.Message}
	if o.Value.Name != "" && o.Value.Name != "runc" {
		r.component = "runc (" + o.Value.Name + ")"
	}
	if o.Health != observe.Healthy {
		r.state = o.Reason
		r.next = "install runc (https://github.com/opencontainers/runc), or correct BinaryName in /etc/containerd/config.toml"
	} else {
		r.detail = o.Value.Path
	}
	return r
}

func kubeletRow(set *observe.Set, now time.Time) row {
	r := unitRow("kubelet", set.KubeletUnit, now)
	r.version = set.Kubelet.Value.Version
	switch {
	case r.health == observe.Healthy && set.KubeletHealth.Health == observe.Unhealthy:
		r.health, r.state, r.detail, r.since = observe.Unhealthy, set.KubeletHealth.Reason, set.KubeletHealth.Message, ""
	case r.health == observe.Healthy && set.Kubelet.Health == observe.Unknown:
		r.detail = "its version can't be told: " + set.Kubelet.Message
	case r.health == observe.Healthy && set.Kubelet.Value.RestartPending:
		r.detail = set.Kubelet.Message
	case r.health == observe.Unknown && set.KubeletHealth.Health == observe.Healthy:
		r.health, r.state, r.detail, r.since = observe.Healthy, "Answering", set.KubeletHealth.Message, ""
	case r.health != observe.Healthy && set.Kubelet.Reason == observe.ReasonNotInstalled && !set.KubeletUnit.Value.Exists():
		r.state, r.detail, r.since = observe.ReasonNotInstalled, set.Kubelet.Message, ""
	}
	r.next = unitAdvice("kubelet", set.KubeletUnit, r)
	return r
}

func nodeRow(set *observe.Set, now time.Time) row {
	o := set.Node
	r := row{component: "node", health: o.Health, state: o.Value.Ready, detail: o.Message}
	if r.state == "" {
		r.state = o.Reason
	}
	if !o.Value.LastTransition.IsZero() {
		r.since = age(now.Sub(o.Value.LastTransition))
	}
	if !o.Value.LeaseRenewed.IsZero() {
		r.detail += "; its Lease was renewed " + age(now.Sub(o.Value.LeaseRenewed)) + " ago"
	}
	switch {
	case o.Health == observe.Unhealthy:
		r.next = "kubectl describe node " + o.Value.Name
	case o.Health == observe.Unknown:
		r.next = nodeAdvice(o)
	}
	return r
}

func nodeAdvice(o observe.Observation[observe.Node]) string {
	switch o.Reason {
	case cluster.ReasonKubeconfigMissing:
		return "has this node joined its cluster? The kubelet writes its kubeconfig when it does"
	case cluster.ReasonKubeconfigUnreadable:
		return "run as root: the kubelet's kubeconfig is for root only"
	case cluster.ReasonKubeconfigInvalid, cluster.ReasonKubeconfigUnsafe:
		return "look at the kubelet's kubeconfig; it must be whole, of root, and writable by root only"
	case cluster.ReasonForbidden:
		return "apply deploy/rbac.yaml for this node's identity"
	case cluster.ReasonPluginFailed:
		return "run the kubeconfig's credential plugin by hand as root"
	case cluster.ReasonDNS, cluster.ReasonRefused, cluster.ReasonTimeout, cluster.ReasonTLS:
		return "check the link: curl -k " + o.Value.Server + "/version"
	}
	return ""
}

func arcRow(set *observe.Set, now time.Time) row {
	o := set.Arc
	r := row{component: "arc", health: o.Health, state: o.Reason, version: o.Value.AgentVersion, detail: o.Message}
	switch {
	case o.Reason == observe.ReasonNotEnabled:
		r.absent, r.state = true, "NotEnabled"
	case !o.Value.LastHeartbeat.IsZero():
		r.detail += "; last heartbeat " + age(now.Sub(o.Value.LastHeartbeat)) + " ago"
	}
	switch {
	case o.Health == observe.Healthy || r.absent:
	case o.Reason == observe.ReasonNotInstalled:
		r.next = "install azcmagent, or set azure.arc.enabled to false"
	default:
		r.next = "azcmagent show; azcmagent check"
	}
	return r
}

// unitRow is a row about a unit, before what its program says is added.
func unitRow(component string, o observe.Observation[observe.Unit], now time.Time) row {
	r := row{component: component, health: o.Health, state: o.Reason, detail: o.Message}
	if o.Health == observe.Healthy {
		r.state = "Running"
	}
	looping := o.Reason == observe.ReasonCrashLoop || o.Reason == observe.ReasonAutoRestart // then the last change is one of many
	if !o.Value.StateChange.IsZero() && !looping {
		r.since = age(now.Sub(o.Value.StateChange))
	}
	return r
}

func unitAdvice(name string, o observe.Observation[observe.Unit], r row) string {
	if r.health != observe.Unhealthy {
		return ""
	}
	switch {
	case r.state == observe.ReasonNotInstalled, o.Reason == observe.ReasonUnitNotFound:
		return "install " + name + ", or set this node up anew"
	case o.Reason == reasonNoSystemd:
		return "" // no systemctl and no journal
	case o.Reason == observe.ReasonUnitMasked:
		return "systemctl unmask " + name + " (somebody masked it on purpose)"
	case o.Reason == observe.ReasonUnitBroken:
		return "systemd-analyze verify " + name + ".service"
	case o.Reason == observe.ReasonStopped:
		return "systemctl start " + name + " (somebody stopped it: journalctl -u " + name + " -n 50)"
	}
	return "journalctl -u " + name + " -n 50 --no-pager"
}

// viewOfSnapshot makes the view of a snapshot that was read. It holds no reasons and no times of change.
func viewOfSnapshot(s *status.NodeStatus, known settings, now time.Time) view {
	v := view{node: known.nodeName(), source: fmt.Sprintf("From the agent's snapshot of %s ago. Reasons and times: aks-flex-node status --live", age(now.Sub(s.LastUpdated)))}
	v.rows = []row{
		serviceRow("containerd", s.ContainerdRunning, s.ContainerdVersion),
		{component: "runc", health: knownVersion(s.RuncVersion), state: "Installed", version: s.RuncVersion},
		serviceRow("kubelet", s.KubeletRunning, s.KubeletVersion),
		{component: "node", health: readyHealth(s.KubeletReady), state: s.KubeletReady, detail: readyDetail(s.KubeletReady), next: "kubectl describe node " + v.node},
		{component: "arc", health: observe.Healthy, state: "Connected", version: s.ArcStatus.AgentVersion, detail: s.ArcStatus.MachineName},
	}
	arc := &v.rows[len(v.rows)-1]
	switch {
	case s.ArcStatus.Connected:
	case !known.cfg.IsARCEnabled() && !s.ArcStatus.Registered:
		arc.absent, arc.state = true, observe.ReasonNotEnabled
	default:
		arc.health, arc.state, arc.detail, arc.next = observe.Unhealthy, "NotConnected", "Azure Arc is not connected", "azcmagent show; azcmagent check"
	}
	known.judgeArc(arc)
	v.conclude()
	return v
}

func serviceRow(name string, running bool, version string) row {
	if !running {
		return row{component: name, health: observe.Unhealthy, state: "NotRunning", version: version, detail: name + ".service does not run", next: "systemctl status " + name}
	}
	r := row{component: name, health: knownVersion(version), state: "Running", version: version}
	if r.health != observe.Healthy {
		r.detail = "its version can't be told"
	}
	return r
}

func knownVersion(v string) observe.Health {
	if v == "" || v == "unknown" {
		return observe.Unknown
	}
	return observe.Healthy
}

func readyHealth(ready string) observe.Health {
	switch ready {
	case observe.Ready:
		return observe.Healthy
	case observe.NotReady:
		return observe.Unhealthy
	}
	return observe.Unknown
}

func readyDetail(ready string) string {
	switch ready {
	case observe.Ready:
		return ""
	case observe.NotReady:
		return "the cluster says that this node is not ready"
	}
	return "what the cluster says of this node is not known"
}
