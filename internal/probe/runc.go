package probe

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe/parse"
)

func runtimeVersion(out []byte) (name, version string, ok bool) {
	info, ok := parse.RuntimeVersion(out)
	return info.Name, info.Version, ok
}

func (s *Suite) lookAtRunc(ctx context.Context, round time.Time) observe.Observation[observe.Program] {
	facts, _ := s.unitFacts(ctx, round)
	wanted := s.wantedRuntime(ctx, facts)
	path := wanted.path
	if path == "" {
		path = host.FindProgram(wanted.name, facts.containerdPath(s.settings.searchPath))
	}
	p, err := s.lookAtProgram(ctx, programFacts{name: wanted.name, paths: []string{path}, parse: runtimeVersion})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		where := wanted.name + " is not in the PATH of containerd"
		if wanted.path != "" {
			where = wanted.path + " does not exist, though containerd's configuration names it"
		}
		return observe.See(p, observe.Unhealthy, observe.ReasonNotInstalled, "%s: no container can be started", where)
	case err != nil:
		return cannotTellVersion(ctx, p, err)
	}
	return observe.See(p, observe.Healthy, "VersionKnown", "%s %s (%s)", p.Name, p.Version, p.Path)
}

// wantedRuntime is what containerd says it starts containers with; where it can't be asked, runc. It is given a third of the time.
func (s *Suite) wantedRuntime(ctx context.Context, facts units) runtimeProgram {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/3)
		defer cancel()
	}
	if p, err := s.cri.runtimeProgram(ctx, s.runtimeSocket(facts)); err == nil {
		return p
	}
	return runtimeProgram{name: "runc"}
}

// daemonPath is the PATH with which a daemon looks for programs, or fallback where it can't be told.
func daemonPath(pid int, fallback string) string {
	if pid == 0 {
		return fallback
	}
	env, err := host.Environ(pid)
	if err != nil {
		return fallback
	}
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok && path != "" {
			return path
		}
	}
	return fallback
}
