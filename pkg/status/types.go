package status

import "time"

// The values of NodeStatus.KubeletReady, and what stands for a version that
// can't be told.
const (
	readyTrue      = "Ready"
	readyFalse     = "NotReady"
	readyUnknown   = "Unknown"
	versionUnknown = "unknown"
)

// NodeStatus is the snapshot: what was last known of this node. A plain value
// without behaviour; copying it is fine. Versions carry no leading "v" and are
// "unknown" when they can't be told; a boolean that can't be told is false.
type NodeStatus struct {
	// KubeletVersion is the version of the kubelet.
	KubeletVersion string `json:"kubeletVersion"`
	// RuncVersion is the version of the low-level container runtime, which
	// may be another program than runc.
	RuncVersion string `json:"runcVersion"`
	// ContainerdVersion is the version of the containerd daemon.
	ContainerdVersion string `json:"containerdVersion"`

	// KubeletRunning says whether systemd counts the kubelet's unit as up.
	KubeletRunning bool `json:"kubeletRunning"`
	// KubeletReady is the Ready condition of the Node object: "Ready",
	// "NotReady" or "Unknown".
	KubeletReady string `json:"kubeletReady"`

	// ContainerdRunning says whether systemd counts containerd's unit as up.
	ContainerdRunning bool `json:"containerdRunning"`

	// ArcStatus is the zero value on a machine without Azure Arc.
	ArcStatus ArcStatus `json:"arcStatus"`

	// LastUpdated is when this snapshot was made, in UTC. A zero time makes
	// it count as stale.
	LastUpdated time.Time `json:"lastUpdated"`
	// LastUpdatedBy and LastUpdatedReason say which part of the agent wrote
	// the snapshot last, and on what occasion.
	LastUpdatedBy     LastUpdatedBy     `json:"lastUpdatedBy,omitempty"`
	LastUpdatedReason LastUpdatedReason `json:"lastUpdatedReason,omitempty"`
	// AgentVersion is the version of the agent that wrote the snapshot.
	AgentVersion string `json:"agentVersion"`
}

// ArcStatus is what Azure Arc's own agent says about this machine.
type ArcStatus struct {
	// Registered is true once the machine has an Arc resource, whether or not
	// it can be reached at the moment.
	Registered bool `json:"registered"`
	// Connected is true only while Arc's agent says so in as many words.
	Connected bool `json:"connected"`
	// MachineName, ResourceID, Location and ResourceGroup name the resource.
	MachineName   string `json:"machineName"`
	ResourceID    string `json:"resourceId,omitempty"`
	Location      string `json:"location,omitempty"`
	ResourceGroup string `json:"resourceGroup,omitempty"`
	// LastHeartbeat is when Arc's agent last reached Azure; zero when it never
	// did or doesn't say. The tag's omitempty has no effect on a time: readers
	// in the field know the key as always present, so it must stay as it is.
	LastHeartbeat time.Time `json:"lastHeartbeat,omitempty"`
	// AgentVersion is the version of Arc's agent, not of ours.
	AgentVersion string `json:"agentVersion,omitempty"`
}

// LastUpdatedBy names the part of the agent that wrote a snapshot.
type LastUpdatedBy string

// The writers of a snapshot.
const (
	// LastUpdatedByUnspecified is a snapshot whose writer didn't say.
	LastUpdatedByUnspecified LastUpdatedBy = ""
	// LastUpdatedByStatusCollectionLoop stands on everything that was observed.
	LastUpdatedByStatusCollectionLoop LastUpdatedBy = "StatusCollectionLoop"
	// LastUpdatedByDriftDetectionAndRemediation stands on marks.
	LastUpdatedByDriftDetectionAndRemediation LastUpdatedBy = "DriftDetectionAndRemediation"
)

// LastUpdatedReason names the occasion on which a snapshot was written.
type LastUpdatedReason string

// The occasions for writing a snapshot.
const (
	// LastUpdatedReasonUnspecified is a snapshot whose writer didn't say.
	LastUpdatedReasonUnspecified LastUpdatedReason = ""
	// LastUpdatedReasonPeriodicStatusLoop goes with collection. Its value has
	// been misspelt in files since the first release; programs compare with
	// it, so the spelling stays.
	LastUpdatedReasonPeriodicStatusLoop LastUpdatedReason = "perodicStatusLoop"
	// LastUpdatedReasonKubernetesVersionDrift goes with marks made because the
	// node runs another Kubernetes version than it should.
	LastUpdatedReasonKubernetesVersionDrift LastUpdatedReason = "kubernetesVersionDrift"
)

// minimalSnapshot is where a change starts when there is nothing to start from:
// everything in it says that it isn't known.
func minimalSnapshot() *NodeStatus {
	return &NodeStatus{
		KubeletVersion:    versionUnknown,
		RuncVersion:       versionUnknown,
		ContainerdVersion: versionUnknown,
		KubeletReady:      readyUnknown,
	}
}
