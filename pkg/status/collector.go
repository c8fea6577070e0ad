package status

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/pkg/config"
)

// Collector looks at this node and says what it saw as a snapshot, and judges the snapshot file. It keeps its connections and what it
// learnt about programs from one look to the next, so one Collector should serve for many; they are let go when the Collector is no
// longer in use. Several goroutines may use it.
type Collector struct {
	cfg          *config.Config
	logger       *logrus.Logger
	agentVersion string
	suite        *probe.Suite

	mu     sync.Mutex
	warned map[string]string // by subject: the reason that was logged last
}

// NewCollector returns a Collector for this machine. It does nothing yet: connections are made by the first look. A nil cfg is an empty
// one, a nil logger says nothing. agentVersion is written into each snapshot as it is.
func NewCollector(cfg *config.Config, logger *logrus.Logger, agentVersion string) *Collector {
	c := &Collector{
		cfg: cfg, logger: orSilent(logger), agentVersion: agentVersion,
		suite: probe.New(cfg, agentVersion), warned: map[string]string{},
	}
	// The contract has no Close: connections end with the Collector.
	runtime.AddCleanup(c, func(s *probe.Suite) { s.Close() }, c.suite)
	return c
}

// CollectStatus looks at everything at once and returns the snapshot of what it saw; it does not write it.
//
// What could not be told is unknown in the snapshot ("unknown", "Unknown", false) and logged once as a warning that says why; what was
// known less than three minutes ago is carried over instead. Each look has a deadline of five seconds, Azure Arc's of fifteen, or less
// if ctx has less; so nothing that hangs delays the rest. The only error is that of a ctx which was cancelled.
func (c *Collector) CollectStatus(ctx context.Context) (*NodeStatus, error) {
	set := c.suite.Look(ctx)
	if ctx.Err() == context.Canceled {
		return nil, fmt.Errorf("collect the node's status: %w", context.Cause(ctx))
	}
	c.warn(&set)
	return FromObservations(&set, c.agentVersion, time.Now()), nil
}

// NeedsBootstrap answers from the snapshot file alone whether the node should be set up anew, and logs its reason. It is yes when the
// file is missing, can't be read or is no snapshot; when it is more than five minutes old, or as far in the future; when it says that the
// kubelet isn't running, or the version of the kubelet or of runc is not known; and when Arc is enabled in the config and not connected.
//
//nolint:revive // ctx is unused, and its name is part of the contract
func (c *Collector) NeedsBootstrap(ctx context.Context) bool {
	return needsBootstrap(GetStatusFilePath(), c.cfg, c.logger, time.Now())
}

// warn logs what could not be told, each new reason once: a look a minute would otherwise fill the log with what is known already.
func (c *Collector) warn(set *observe.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range set.Subjects() {
		entry := c.logger.WithFields(logrus.Fields{"subject": s.Name, "reason": s.Reason})
		switch {
		case s.Health != observe.Unknown || s.Reason == observe.ReasonNotEnabled:
			delete(c.warned, s.Name)
		case c.warned[s.Name] == s.Reason:
			entry.Debugf("Still can't tell: %s", s.Message)
		default:
			c.warned[s.Name] = s.Reason
			entry.Warnf("Can't tell: %s", s.Message)
		}
	}
}

// FromObservations turns one look at the node into a snapshot, made at now by an agent of that version. It is the one mapping: the
// Collector and the agent share it. A nil set is one in which nothing is known.
//
// What the look could not tell is taken from the last known value, if the set has one; what it saw is never overruled by that.
func FromObservations(set *observe.Set, agentVersion string, now time.Time) *NodeStatus {
	if set == nil {
		set = &observe.Set{}
	}
	kubeletUnit, _ := set.KubeletUnit.Best()
	containerdUnit, _ := set.ContainerdUnit.Best()
	arc, _ := set.Arc.Best()
	return &NodeStatus{
		KubeletVersion:    version(set.Kubelet, func(p observe.Program) string { return p.Version }),
		RuncVersion:       version(set.Runc, func(p observe.Program) string { return p.Version }),
		ContainerdVersion: version(set.Containerd, func(r observe.Runtime) string { return r.Version }),
		KubeletRunning:    kubeletUnit.Running(),
		KubeletReady:      readiness(set.Node),
		ContainerdRunning: containerdUnit.Running(),
		ArcStatus: ArcStatus{
			Registered: arc.Registered, Connected: arc.Connected, MachineName: arc.MachineName, ResourceID: arc.ResourceID,
			Location: arc.Location, ResourceGroup: arc.ResourceGroup, LastHeartbeat: arc.LastHeartbeat, AgentVersion: arc.AgentVersion,
		},
		LastUpdated:       now.UTC(),
		LastUpdatedBy:     LastUpdatedByStatusCollectionLoop,
		LastUpdatedReason: LastUpdatedReasonPeriodicStatusLoop,
		AgentVersion:      agentVersion,
	}
}

// version prefers what this look saw, be it all or in part, to what an earlier one did.
func version[T any](o observe.Observation[T], of func(T) string) string {
	if v := of(o.Value); v != "" {
		return v
	}
	if v, ok := o.Best(); ok && of(v) != "" {
		return of(v)
	}
	return versionUnknown
}

func readiness(o observe.Observation[observe.Node]) string {
	n, _ := o.Best()
	switch n.Ready {
	case observe.Ready:
		return readyTrue
	case observe.NotReady:
		return readyFalse
	}
	return readyUnknown
}
