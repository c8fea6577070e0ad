package probe

import (
	"context"
	"errors"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

const (
	kubeletUnit    = "kubelet.service"
	containerdUnit = "containerd.service"
	arcUnit        = "himdsd.service"
)

// units are all units that matter, from one call.
type units struct {
	kubelet, containerd, arc observe.Unit
}

func (s *Suite) lookAtUnits(ctx context.Context, _ time.Time) observe.Observation[units] {
	seen, err := s.systemd.Units(ctx, kubeletUnit, containerdUnit, arcUnit)
	switch {
	case errors.Is(err, host.ErrNoSystemd):
		return observe.CannotTell[units]("NoSystemd", "%v: there are no units to ask about", err)
	case err != nil && ctx.Err() != nil:
		return observe.CannotTell[units](observe.ReasonTimeout, "%v", err)
	case err != nil:
		return observe.CannotTell[units]("SystemdUnavailable", "%v", err)
	}
	return observe.See(units{kubelet: seen[0], containerd: seen[1], arc: seen[2]}, observe.Healthy, "Seen", "systemd answered")
}

// spread makes the observation of one unit out of that of all, which only says whether systemd could be asked.
func spread(all observe.Observation[units], pick func(units) observe.Unit) observe.Observation[observe.Unit] {
	if !all.Known() {
		o := observe.Observation[observe.Unit]{Reason: all.Reason, Message: all.Message, At: all.At, GoodAt: all.GoodAt}
		if all.Good != nil {
			u := pick(*all.Good)
			o.Good = &u
		}
		return o
	}
	o := observe.JudgeUnit(pick(all.Value))
	o.At = all.At
	return o
}

// spreadUnits judges each unit of a look. Arc's is left out where Arc is neither enabled nor installed.
func (s *Suite) spreadUnits(all observe.Observation[units], set *observe.Set) {
	set.KubeletUnit = spread(all, func(u units) observe.Unit { return u.kubelet })
	set.ContainerdUnit = spread(all, func(u units) observe.Unit { return u.containerd })
	set.ArcUnit = spread(all, func(u units) observe.Unit { return u.arc })
	if !s.settings.arcEnabled && !set.ArcUnit.Value.Exists() {
		at := set.ArcUnit.At
		set.ArcUnit = observe.CannotTell[observe.Unit](observe.ReasonNotEnabled, "Azure Arc is neither enabled in the config nor installed")
		set.ArcUnit.At = at
	}
}

// unitFacts are the units for probes that need to know where a program lies or which process runs it. It joins the look at units of the
// same round and waits for it only a third of the time that the asking probe has: that then goes by the last known ones, or (known is
// false) by the usual places.
func (s *Suite) unitFacts(ctx context.Context, round time.Time) (facts units, known bool) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/3)
		defer cancel()
	}
	return s.units.observe(ctx, s.life, round).Best()
}
