package decision

import (
	"slices"

	"github.com/aks-flex-node/agent/internal/observe"
)

// isLinkGround reports whether a ground of NeedsBootstrap speaks of a link, and not of the node.
func isLinkGround(code string) bool { return code == "ArcNotConnected" }

// isSnapshotGround reports whether a ground speaks of the snapshot file, which is the agent's own work, and not of the node.
func isSnapshotGround(code string) bool {
	return slices.Contains([]string{
		"SnapshotMissing", "SnapshotUnreadable", "SnapshotUntrusted", "SnapshotInvalid", "SnapshotStale", "SnapshotInFuture",
	}, code)
}

// isLinkLost reports whether the API server could not be asked about the Node for want of a link to it, or of one that can be trusted.
// That it refuses the credentials is something else.
func isLinkLost(node Streak) bool {
	return node.Health == observe.Unknown && slices.Contains([]string{
		"DNSLookupFailed", "ConnectionRefused", "ConnectionTimeout", "TLSFailed", "APIServerUnavailable", observe.ReasonTimeout,
	}, node.Reason)
}
