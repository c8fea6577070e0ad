package probe

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe/parse"
)

// azcmagent is the path of Arc's own agent, or "".
func (s *Suite) azcmagent() string {
	if path := firstFile(s.settings.arcPaths); path != "" {
		return path
	}
	return host.FindProgram("azcmagent", s.settings.searchPath)
}

func (s *Suite) lookAtArc(ctx context.Context, _ time.Time) observe.Observation[observe.Arc] {
	path := s.azcmagent()
	switch {
	case path == "" && !s.settings.arcEnabled:
		return observe.CannotTell[observe.Arc](observe.ReasonNotEnabled, "Azure Arc is neither enabled in the config nor installed")
	case path == "":
		return observe.See(observe.Arc{}, observe.Unhealthy, observe.ReasonNotInstalled, "Azure Arc is enabled in the config, but azcmagent is not installed")
	}
	id, err := host.Identify(path)
	if err == nil {
		err = host.CheckProgram(path, id)
	}
	if err != nil {
		return observe.CannotTell[observe.Arc](versionReason(ctx, err), "%v", err)
	}
	seen, err := askArc(ctx, path)
	if err != nil {
		return observe.CannotTell[observe.Arc](arcReason(ctx, err), "%v", err)
	}
	return judgeArc(arcValue(seen))
}

// askArc asks for JSON and, where the agent is too old for that or prints something else, for its table. They share the deadline.
func askArc(ctx context.Context, path string) (parse.Arc, error) {
	first := ctx
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		first, cancel = context.WithTimeout(ctx, time.Until(end)*2/3)
		defer cancel()
	}
	out, jsonErr := host.Run(first, host.Command{Path: path, Args: []string{"show", "-j"}})
	if seen, ok := parse.ArcJSON(out.Stdout); ok && jsonErr == nil {
		return seen, nil
	}
	out, err := host.Run(ctx, host.Command{Path: path, Args: []string{"show"}})
	if err != nil {
		return parse.Arc{}, withCode(err, out)
	}
	if seen, ok := parse.ArcText(out.Stdout); ok {
		return seen, nil
	}
	return parse.Arc{}, errArcOutput
}

var (
	errArcOutput = errors.New("what azcmagent show prints can't be understood")
	arcCode      = regexp.MustCompile(`\bAZCM[0-9]{4}\b`)
)

// arcError is a failure of azcmagent with the code that it prints for it.
type arcError struct {
	code string
	err  error
}

func (e *arcError) Error() string { return e.code + ": " + e.err.Error() }
func (e *arcError) Unwrap() error { return e.err }

// withCode looks for the AZCM number: the agent prints its messages on standard output.
func withCode(err error, out host.Output) error {
	if code := arcCode.Find(append(out.Stdout, out.Stderr...)); code != nil {
		return &arcError{string(code), err}
	}
	return err
}

func arcReason(ctx context.Context, err error) string {
	var coded *arcError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case ctx.Err() != nil:
		return observe.ReasonTimeout
	case errors.Is(err, errArcOutput), errors.Is(err, host.ErrTooMuchOutput):
		return "ArcNotUnderstood"
	}
	return "ArcUnavailable"
}

func arcValue(a parse.Arc) observe.Arc {
	return observe.Arc{
		Registered: a.Registered, Connected: a.Connected, Status: a.Status, MachineName: a.MachineName, ResourceID: a.ResourceID,
		Location: a.Location, ResourceGroup: a.ResourceGroup, LastHeartbeat: a.LastHeartbeat, AgentVersion: a.AgentVersion,
		ErrorCode: a.ErrorCode, ErrorDetails: a.ErrorDetails,
	}
}

func judgeArc(v observe.Arc) observe.Observation[observe.Arc] {
	reason := "NotConnected" // for a word that we don't know: reasons are for programs
	if v.Status == "Disconnected" || v.Status == "Expired" {
		reason = v.Status
	}
	switch {
	case v.Connected:
		return observe.See(v, observe.Healthy, "Connected", "Azure Arc is connected as %s", v.MachineName)
	case !v.Registered:
		return observe.See(v, observe.Unhealthy, "NotRegistered", "this machine is not registered with Azure Arc")
	case v.ErrorCode != "":
		return observe.See(v, observe.Unhealthy, reason, "Azure Arc says %s: %s %s", v.Status, v.ErrorCode, v.ErrorDetails)
	}
	return observe.See(v, observe.Unhealthy, reason, "Azure Arc says %s", v.Status)
}
