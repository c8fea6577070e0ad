package probe

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
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
	started                  *started // nil: to be read when needed
}

// started is how the daemons' processes were started. It stays the same as long as they do, and is kept for as long.
type started struct {
	kubelet, containerd host.Process
	args                []string // the kubelet's
	azure               []string // of the kubelet's environment
	path                string   // PATH of containerd
}

// asStarted returns how the daemons were started: what is known of these processes, or what /proc says of them now.
func (s *Suite) asStarted(u units) *started {
	now := started{
		kubelet:    host.Process{PID: u.kubelet.MainPID, Start: u.kubelet.MainStart},
		containerd: host.Process{PID: u.containerd.MainPID, Start: u.containerd.MainStart},
	}
	if now.kubelet.Start == 0 || now.containerd.Start == 0 {
		return nil // one that does not run may be another the next time
	}
	if k := s.started; k != nil && k.kubelet == now.kubelet && k.containerd == now.containerd {
		return k
	}
	if !runsItsProgram(u.kubelet.MainPID) || !runsItsProgram(u.containerd.MainPID) {
		return nil // what /proc says of it may still change
	}
	now.args, _ = kubeletArgs(u.kubelet)
	now.azure = azureEnvironment(u.kubelet.MainPID)
	now.path = daemonPath(u.containerd.MainPID, s.settings.searchPath)
	s.started = &now
	return s.started
}

// runsItsProgram reports whether a unit's main process is past the moment at which it is still systemd's own child, with systemd's
// arguments and environment: the unit counts as active, and its signal may have woken us, before its program begins.
func runsItsProgram(pid int) bool {
	_, name, err := host.Executable(pid)
	if err != nil || strings.HasPrefix(filepath.Base(name), "systemd") {
		return false
	}
	line, err := host.CommandLine(pid)
	return err == nil && len(line) > 0 // it is empty for a moment in between
}

// kubeletArgs returns the kubelet's arguments; see the function of that name.
func (u units) kubeletArgs() (args []string, known bool) {
	if u.started != nil {
		return u.started.args, true
	}
	return kubeletArgs(u.kubelet)
}

// azureEnvironment returns the kubelet's settings for its credential plugin; see the function of that name.
func (u units) azureEnvironment() []string {
	if u.started != nil {
		return u.started.azure
	}
	return azureEnvironment(u.kubelet.MainPID)
}

// containerdPath returns the PATH in which containerd looks for programs.
func (u units) containerdPath(fallback string) string {
	if u.started != nil {
		return u.started.path
	}
	return daemonPath(u.containerd.MainPID, fallback)
}

// unitNames are the units that matter; Arc's where Arc is enabled or installed.
func (s *Suite) unitNames() []string {
	if s.settings.arcEnabled || s.azcmagent() != "" {
		return []string{kubeletUnit, containerdUnit, arcUnit}
	}
	return []string{kubeletUnit, containerdUnit}
}

func (s *Suite) lookAtUnits(ctx context.Context, _ time.Time) observe.Observation[units] {
	seen, err := s.systemd.Units(ctx, s.unitNames()...)
	switch {
	case errors.Is(err, host.ErrNoSystemd):
		return observe.CannotTell[units]("NoSystemd", "%v: there are no units to ask about", err)
	case err != nil && ctx.Err() != nil:
		return observe.CannotTell[units](observe.ReasonTimeout, "%v", err)
	case err != nil:
		return observe.CannotTell[units]("SystemdUnavailable", "%v", err)
	}
	u := units{kubelet: seen[0], containerd: seen[1]}
	if len(seen) > 2 {
		u.arc = seen[2]
	}
	u.started = s.asStarted(u)
	return observe.See(u, observe.Healthy, "Seen", "systemd answered")
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
	return s.units.anew(ctx, s.life, round).Best()
}

// lastFacts are what was last seen of the units, for probes that look seldom and can do with that. The units are only looked at where
// nobody has yet.
func (s *Suite) lastFacts(ctx context.Context, round time.Time) units {
	last := s.units.latest()
	if last.At.IsZero() {
		facts, _ := s.unitFacts(ctx, round)
		return facts
	}
	facts, _ := last.Best()
	return facts
}
