package probe

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe/parse"
)

func containerdVersion(out []byte) (name, version string, ok bool) {
	version, ok = parse.ContainerdVersion(out)
	return "containerd", version, ok
}

func (s *Suite) lookAtContainerd(ctx context.Context, round time.Time) observe.Observation[observe.Runtime] {
	facts, known := s.unitFacts(ctx, round)
	u := facts.containerd
	began := time.Now()
	socket := s.runtimeSocket(facts)
	v := observe.Runtime{Socket: socket}

	// The daemon and the files are asked at the same time, so that a daemon that hangs does not eat the time of the other.
	files := make(chan observe.Program, 1)
	go func() {
		p, _ := s.lookAtProgram(ctx, programFacts{
			name: "containerd", pid: u.MainPID,
			paths: []string{startedBy(u, "containerd")}, search: s.settings.searchPath,
			parse: containerdVersion,
		})
		files <- p // why a version can't be told matters only while the daemon doesn't answer, and then its silence matters more
	}()
	answer, askErr := s.cri.ask(ctx, socket)
	v.Program = <-files
	if askErr == nil {
		return judgeRuntime(v, answer)
	}
	return judgeSilence(ctx, v, u, known, askErr, time.Since(began))
}

// judgeRuntime says what an answer means. That no CNI configuration is loaded is no fault of the runtime: the Node's readiness shows it.
func judgeRuntime(v observe.Runtime, a criAnswer) observe.Observation[observe.Runtime] {
	v.Answers, v.RuntimeReady, v.NetworkReady = true, a.runtimeReady, a.networkReady
	v.Name, v.Version = a.name, parse.VersionText(a.version)
	switch {
	case !a.runtimeReady:
		return observe.See(v, observe.Unhealthy, "RuntimeNotReady", "%s %s says that it is not ready: %.300s", v.Name, v.Version, a.notReady)
	case v.RestartPending:
		return observe.See(v, observe.Healthy, "RestartPending", "%s %s runs, but the file at %s was replaced (%s): it takes over at the next restart",
			v.Name, v.Version, v.Path, orUnknown(v.FileVersion))
	case !a.networkReady:
		return observe.See(v, observe.Healthy, "NetworkNotReady", "%s %s is ready, the pod network is not: %.300s", v.Name, v.Version, a.notReady)
	}
	return observe.See(v, observe.Healthy, "RuntimeReady", "%s %s is ready", v.Name, v.Version)
}

// judgeSilence says what it means that the daemon did not answer.
func judgeSilence(ctx context.Context, v observe.Runtime, u observe.Unit, unitsKnown bool, err error, waited time.Duration) observe.Observation[observe.Runtime] {
	missing := errors.Is(err, fs.ErrNotExist)
	unknown := observe.Observation[observe.Runtime]{Value: v}
	switch {
	case missing && v.Path == "" && !u.Exists() && unitsKnown:
		return observe.See(v, observe.Unhealthy, observe.ReasonNotInstalled, "there is no containerd on this machine")
	case missing && v.Path == "" && !u.Exists():
		unknown.Reason, unknown.Message = observe.ReasonNotInstalled, "there is no containerd in PATH and no socket, and its unit could not be asked about"
	case missing && u.Running():
		return observe.See(v, observe.Unhealthy, "SocketMissing", "containerd runs, but its socket %s is missing: nothing can reach it", v.Socket)
	case missing, errors.Is(err, syscall.ECONNREFUSED):
		return observe.See(v, observe.Unhealthy, "NotRunning", "containerd does not run: nothing listens on %s", v.Socket)
	case errors.Is(err, fs.ErrPermission):
		unknown.Reason, unknown.Message = observe.ReasonPermissionDenied, "this user may not ask containerd on "+v.Socket+": run as root"
	case ctx.Err() != nil && waited >= patience:
		return observe.See(v, observe.Unhealthy, "NotResponding", "containerd took a connection on %s and has not answered for %s: it hangs",
			v.Socket, waited.Round(100*time.Millisecond))
	case ctx.Err() != nil:
		unknown.Reason, unknown.Message = observe.ReasonTimeout, "containerd: no answer after "+waited.Round(time.Millisecond).String()
	case status.Code(err) == codes.Unimplemented:
		return observe.See(v, observe.Unhealthy, "CRIDisabled", "what listens on %s does not speak CRI: is the cri plugin disabled in containerd's configuration?", v.Socket)
	default:
		unknown.Reason, unknown.Message = "RuntimeUnavailable", err.Error()
	}
	return unknown
}

// runtimeSocket is the socket that the kubelet uses, if it names one, else containerd's usual one.
func (s *Suite) runtimeSocket(facts units) string {
	args, known := facts.kubeletArgs()
	cfg, _ := s.kubeletConfigOf(args, known) // an unreadable file leaves the default
	if path, ok := strings.CutPrefix(cfg.ContainerRuntimeEndpoint, "unix://"); ok && strings.HasPrefix(path, "/") {
		return path
	}
	if strings.HasPrefix(cfg.ContainerRuntimeEndpoint, "/") {
		return cfg.ContainerRuntimeEndpoint
	}
	return s.settings.criSocket
}
