package probe

import (
	"context"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

// Latest returns the latest observation of everything. It never waits and begins nothing. The time of an observation is when its look
// ended, so that it is the same for as long as there is no newer one. A look that hangs takes the place of the one before, as of when it
// was given up. A subject that was not looked at is the zero observation.
func (s *Suite) Latest() (observe.Set, observe.Host) {
	set := observe.Set{
		Kubelet:       s.kubelet.current(),
		KubeletHealth: s.kubeletHealth.current(),
		Containerd:    s.containerd.current(),
		Runc:          s.runc.current(),
		Node:          s.node.current(),
		Arc:           s.arc.current(),
	}
	if units := s.units.current(); !units.At.IsZero() {
		s.spreadUnits(units, &set)
	}
	return set, observe.Host{
		Clock:       s.clock.current(),
		Certificate: s.certificate.current(),
		Disk:        s.disk.current(),
	}
}

// OnLanded has landed called whenever a look has ended and is in Latest; it must not block. It is to be set before the first look.
func (s *Suite) OnLanded(landed func()) { s.shared.landed = landed }

// Cluster is the way to the API server that the looks use, for whoever tells the cluster something. The source goes by what was last seen
// of the kubelet; finding its kubeconfig may wait for a file system.
func (s *Suite) Cluster() (*cluster.Client, cluster.Source) { return &s.cluster, s.currentSource() }

// WatchUnits calls changed, which must not block, with the name of each unit that may have changed, for as long as ctx. It is for whoever
// looks again and again; it returns when ctx has ended.
func (s *Suite) WatchUnits(ctx context.Context, changed func(unit string)) {
	s.systemd.Watch(ctx, s.unitNames(), changed)
}

// Stat is how one probe fares.
type Stat struct {
	Name string `json:"name"`
	// Looks is how many looks have ended, Failures how many of them could not tell; that there was nothing to look at is no failure.
	Looks    uint64 `json:"looks"`
	Failures uint64 `json:"failures"`
	// Last is how long the last look took, in nanoseconds.
	Last time.Duration `json:"last"`
	// Hangs: a look is under way that was given up, since it did not end at its deadline.
	Hangs bool `json:"hangs,omitempty"`
}

// Stats returns how each probe has fared since the Suite was made, always in the same order. It does not wait.
func (s *Suite) Stats() []Stat {
	return []Stat{
		s.units.stat(), s.containerd.stat(), s.runc.stat(), s.kubelet.stat(), s.kubeletHealth.stat(), s.node.stat(), s.arc.stat(),
		s.clock.stat(), s.certificate.stat(), s.disk.stat(),
	}
}
