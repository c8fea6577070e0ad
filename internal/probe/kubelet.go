package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe/parse"
)

func kubeletVersion(out []byte) (name, version string, ok bool) {
	version, ok = parse.KubeletVersion(out)
	return "kubelet", version, ok
}

func (s *Suite) lookAtKubelet(ctx context.Context, round time.Time) observe.Observation[observe.Program] {
	facts, known := s.unitFacts(ctx, round)
	u := facts.kubelet
	p, err := s.lookAtProgram(ctx, programFacts{
		name:  "kubelet",
		pid:   u.MainPID,
		paths: append([]string{startedBy(u, "kubelet")}, s.settings.kubeletPaths...), search: s.settings.searchPath,
		parse: kubeletVersion,
		check: checkKubelet,
	})
	switch {
	case err != nil && notInstalled(p, err) && known:
		return observe.See(p, observe.Unhealthy, observe.ReasonNotInstalled, "there is no kubelet on this machine (looked at its unit, /usr/local/bin and PATH)")
	case err != nil && notInstalled(p, err):
		return observe.CannotTell[observe.Program](observe.ReasonNotInstalled, "there is no kubelet in /usr/local/bin or PATH, and its unit could not be asked about")
	case err != nil:
		return cannotTellVersion(ctx, p, err)
	case p.Path == "":
		return observe.See(p, observe.Healthy, "FileMissing", "kubelet %s runs, but its file was removed: it can't be started again", p.Version)
	case p.RestartPending:
		return observe.See(p, observe.Healthy, "RestartPending", "kubelet %s runs, but the file at %s was replaced (%s): it takes over at the next restart",
			p.Version, p.Path, orUnknown(p.FileVersion))
	}
	return observe.See(p, observe.Healthy, "VersionKnown", "kubelet %s (%s)", p.Version, p.Path)
}

func notInstalled(p observe.Program, err error) bool {
	return p.Path == "" && errors.Is(err, fs.ErrNotExist)
}

func orUnknown(version string) string {
	if version == "" {
		return "unknown version"
	}
	return version
}

// checkKubelet lets root run only a real program: nothing else was ever a kubelet, and a script may do anything.
func checkKubelet(path string) error {
	if os.Geteuid() == 0 && !host.IsELF(path) {
		return fmt.Errorf("%s is not a Linux program: %w", path, host.ErrNotTrusted)
	}
	return nil
}

// kubeletArgs returns the arguments that the kubelet was started with, or else those that its unit would start it with. known is false
// when neither can be told.
func kubeletArgs(u observe.Unit) (args []string, known bool) {
	if u.MainPID > 0 {
		if line, err := host.CommandLine(u.MainPID); err == nil && len(line) > 0 {
			return line[1:], true
		}
	}
	if len(u.ExecStart) > 0 {
		return u.ExecStart[1:], true
	}
	return nil, false
}
