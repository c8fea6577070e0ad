package health

import (
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

// Reasons of the probes that decide whether a condition applies.
const (
	healthzDisabled  = "HealthzDisabled"  // the kubelet's health endpoint is switched off: there is nothing to judge
	noReadyCondition = "NoReadyCondition" // the API server answered, and the Node is too new to have the condition
)

// take makes a verdict of an observation's own word.
func take(v observe.Verdict) Verdict {
	if v.At.IsZero() && v.Reason == "" {
		return Verdict{Status: Unknown, Reason: observe.ReasonNotLooked, Message: "nobody has looked yet"}
	}
	status := map[observe.Health]Status{observe.Healthy: True, observe.Unhealthy: False}[v.Health]
	if status == "" {
		status = Unknown
	}
	return Verdict{Status: status, Reason: v.Reason, Message: v.Message, At: v.At}
}

// takeApplicable is take, where the observation does not say that there is nothing to look at.
func takeApplicable(v observe.Verdict, notApplicable string) Verdict {
	if v.Reason == notApplicable {
		return Verdict{}
	}
	return take(v)
}

func (in Input) set() *observe.Set {
	if in.Set == nil {
		return &observe.Set{}
	}
	return in.Set
}

// judgeContainerdUnit goes by the unit, and for one that does not run or can't be asked about by the daemon's own answer: what answers
// runs, whatever started it.
func judgeContainerdUnit(_ time.Time, in Input) Verdict {
	unit := in.set().ContainerdUnit
	if unit.Health != observe.Healthy && in.set().ContainerdAnswers() {
		return Verdict{Status: True, Reason: "Answering", Message: "containerd answers, though not as the unit containerd.service", At: in.Set.Containerd.At}
	}
	return take(unit.Verdict())
}

func judgeRuntime(_ time.Time, in Input) Verdict { return take(in.set().Containerd.Verdict()) }

func judgeRunc(_ time.Time, in Input) Verdict { return take(in.set().Runc.Verdict()) }

// judgeKubeletUnit goes by the unit, and for one that does not exist or can't be asked about by the kubelet's own answer.
func judgeKubeletUnit(_ time.Time, in Input) Verdict {
	unit := in.set().KubeletUnit
	elsewhere := !unit.Known() || unit.Reason == observe.ReasonUnitNotFound
	if elsewhere && in.set().KubeletAnswers() {
		return Verdict{Status: True, Reason: "Answering", Message: "a kubelet answers, though not as the unit kubelet.service", At: in.Set.KubeletHealth.At}
	}
	return take(unit.Verdict())
}

func judgeKubeletHealth(_ time.Time, in Input) Verdict {
	return takeApplicable(in.set().KubeletHealth.Verdict(), healthzDisabled)
}

func judgeNode(_ time.Time, in Input) Verdict { return take(in.set().Node.Verdict()) }

// judgeAPIServer goes by what became of the question about the Node. It is False when the question was sent and no answer or a refusal
// came back, Unknown when it could not even be sent.
func judgeAPIServer(_ time.Time, in Input) Verdict {
	o := in.set().Node
	v := take(o.Verdict())
	if o.Known() || o.Reason == noReadyCondition {
		return Verdict{Status: True, Reason: "Answering", Message: "the API server " + o.Value.Server + " answers", At: o.At}
	}
	switch o.Reason {
	case cluster.ReasonDNS, cluster.ReasonRefused, cluster.ReasonTimeout, cluster.ReasonTLS, cluster.ReasonUnavailable,
		cluster.ReasonUnauthorized, cluster.ReasonForbidden:
		v.Status = False
	}
	return v
}

func judgeArc(_ time.Time, in Input) Verdict {
	return takeApplicable(in.set().Arc.Verdict(), observe.ReasonNotEnabled)
}

// judgeRestartPending: one program that waits for its restart is enough to know; that none does is known only of all.
func judgeRestartPending(_ time.Time, in Input) Verdict {
	kubelet, containerd := in.set().Kubelet, in.set().Containerd
	switch {
	case kubelet.Known() && kubelet.Value.RestartPending:
		return Verdict{Status: True, Reason: "KubeletReplaced", Message: kubelet.Message, At: kubelet.At}
	case containerd.Known() && containerd.Value.RestartPending:
		return Verdict{Status: True, Reason: "ContainerdReplaced", Message: containerd.Message, At: containerd.At}
	case !kubelet.Known():
		return take(kubelet.Verdict())
	case !containerd.Known():
		return take(containerd.Verdict())
	}
	return Verdict{Status: False, Reason: "NothingReplaced", Message: "what runs is what is installed", At: kubelet.At}
}
