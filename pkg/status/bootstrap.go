package status

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/pkg/config"
)

// maxSnapshotAge is how old a snapshot may be, and how far in the future,
// before it says nothing about the node any more.
const maxSnapshotAge = 5 * time.Minute

// ground is one thing that speaks for a bootstrap: a code for programs, which
// never changes, and a text for people.
type ground struct {
	code string
	text string
}

// Every ground there is. The first four concern the file, and each stands
// alone; the others concern what it says, and several can hold at once.
const (
	groundSnapshotMissing    = "SnapshotMissing"
	groundSnapshotUnreadable = "SnapshotUnreadable"
	groundSnapshotUntrusted  = "SnapshotUntrusted"
	groundSnapshotInvalid    = "SnapshotInvalid"

	groundKubeletNotRunning     = "KubeletNotRunning"
	groundArcNotConnected       = "ArcNotConnected"
	groundSnapshotStale         = "SnapshotStale"
	groundSnapshotInFuture      = "SnapshotInFuture"
	groundKubeletVersionUnknown = "KubeletVersionUnknown"
	groundRuncVersionUnknown    = "RuncVersionUnknown"
)

// needsBootstrap answers from the file at path alone, and logs why: a yes at
// info, a no, which is the usual answer every other minute, at debug. A nil cfg
// means that Arc is off.
func needsBootstrap(path string, cfg *config.Config, logger *logrus.Logger, now time.Time) bool {
	grounds := fileGrounds(path, cfg.IsARCEnabled(), now)
	entry := orSilent(logger).WithField("path", path)
	if len(grounds) == 0 {
		entry.Debug("No bootstrap needed: the snapshot is fresh and shows a running kubelet")
		return false
	}
	entry.WithField("grounds", codesOf(grounds)).Infof("Bootstrap needed: %s", textOf(grounds))
	return true
}

// fileGrounds returns all grounds that the file at path gives, none for a
// healthy node.
func fileGrounds(path string, arcEnabled bool, now time.Time) []ground {
	s, err := LoadStatusFromFile(path)
	if err != nil {
		return []ground{loadGround(path, err)}
	}
	return snapshotGrounds(s, arcEnabled, now)
}

func loadGround(path string, err error) ground {
	_, distrusted := errors.AsType[*distrustError](err)
	_, broken := errors.AsType[*notSnapshotError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ground{groundSnapshotMissing, fmt.Sprintf("there is no snapshot at %s", path)}
	case distrusted:
		return ground{groundSnapshotUntrusted, err.Error()}
	case broken:
		return ground{groundSnapshotInvalid, err.Error()}
	case errors.Is(err, fs.ErrPermission):
		return ground{groundSnapshotUnreadable, fmt.Sprintf("this user may not read the snapshot (%v); run as root to know more", err)}
	default:
		return ground{groundSnapshotUnreadable, fmt.Sprintf("the snapshot could not be read: %v", err)}
	}
}

// snapshotGrounds returns all grounds that s gives, in the order of their
// constants. A nil s gives one: that it is missing.
func snapshotGrounds(s *NodeStatus, arcEnabled bool, now time.Time) []ground {
	if s == nil {
		return []ground{{groundSnapshotMissing, "there is no snapshot"}}
	}
	age := now.Sub(s.LastUpdated)
	rules := []struct {
		holds bool
		ground
	}{
		{!s.KubeletRunning, ground{groundKubeletNotRunning, "the kubelet isn't running"}},
		{arcEnabled && !s.ArcStatus.Connected, ground{groundArcNotConnected, "Arc is enabled but not connected"}},
		{s.LastUpdated.IsZero() || age > maxSnapshotAge, ground{groundSnapshotStale, staleText(s, age)}},
		{age < -maxSnapshotAge, ground{groundSnapshotInFuture, fmt.Sprintf("the snapshot is from %v in the future", -age)}},
		{isUnknown(s.KubeletVersion), ground{groundKubeletVersionUnknown, "the kubelet's version is not known"}},
		{isUnknown(s.RuncVersion), ground{groundRuncVersionUnknown, "runc's version is not known"}},
	}
	var grounds []ground
	for _, rule := range rules {
		if rule.holds {
			grounds = append(grounds, rule.ground)
		}
	}
	return grounds
}

func staleText(s *NodeStatus, age time.Duration) string {
	if s.LastUpdated.IsZero() {
		return "the snapshot has no time"
	}
	return fmt.Sprintf("the snapshot is %v old, more than %v", age, maxSnapshotAge)
}

func isUnknown(version string) bool {
	return version == "" || version == versionUnknown
}

// codesOf returns plain strings: the agent, and whoever else hooks the logger,
// reads them there.
func codesOf(grounds []ground) []string {
	codes := make([]string, len(grounds))
	for i, g := range grounds {
		codes[i] = g.code
	}
	return codes
}

func textOf(grounds []ground) string {
	texts := make([]string, len(grounds))
	for i, g := range grounds {
		texts[i] = g.text
	}
	return strings.Join(texts, "; ")
}
