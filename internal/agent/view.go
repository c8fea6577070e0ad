package agent

import (
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/pkg/status"
)

// View is what the agent knows, means and does at one moment: the document behind the local API. A View that was handed out never
// changes.
type View struct {
	// Generation grows with each View that differs in more than its ages; it starts anew with the agent's process.
	Generation   uint64    `json:"generation"`
	At           time.Time `json:"at"`
	AgentVersion string    `json:"agentVersion"`
	Started      time.Time `json:"started"`
	// Node is the node's name as far as it is known, else the host's.
	Node string `json:"node"`
	// Mode says whether the agent acts; ModeReason why it only observes, if it does.
	Mode       decision.Mode `json:"mode"`
	ModeReason string        `json:"modeReason,omitempty"`
	DryRun     bool          `json:"dryRun,omitempty"`
	// ConfigProblem says why a configuration that was to be read anew was not put to use; empty when the one in use was the last one read.
	ConfigProblem string `json:"configProblem,omitempty"`
	// Conditions stand in the order cause before effect.
	Conditions []health.Condition `json:"conditions"`
	Decision   decision.Decision  `json:"decision"`
	// Remedy is the one in progress, nil for none.
	Remedy *decision.Remedy `json:"remedy,omitempty"`
	// Pauses are those that hold now.
	Pauses []decision.Pause `json:"pauses,omitempty"`
	// Budget is what is left of tries.
	Budget Budget `json:"budget"`
	// JournalProblem says why nothing can be recorded; empty when it can.
	JournalProblem string `json:"journalProblem,omitempty"`
	// Snapshot is the one that was last written, or that would have been; nil before the first look has ended.
	Snapshot *status.NodeStatus `json:"snapshot,omitempty"`
	Set      observe.Set        `json:"observations"`
	Host     observe.Host       `json:"host"`
	Counters Counters           `json:"counters"`
	Probes   []probe.Stat       `json:"probes"`
}

// Budget is how often the agent has tried, of how often it may.
type Budget struct {
	Bootstraps    int `json:"bootstraps"` // begun within the window
	MaxBootstraps int `json:"maxBootstraps"`
	// Unknown is for how long the budget counts as used up because the journal was lost; zero when it is known.
	Unknown time.Duration `json:"unknown,omitempty"`
}

// Counters count since the agent started.
type Counters struct {
	Looks               uint64 `json:"looks"`     // whole rounds
	Events              uint64 `json:"events"`    // of systemd, the Node's watch and files
	Decisions           uint64 `json:"decisions"` // that differed from the one before
	SnapshotWrites      uint64 `json:"snapshotWrites"`
	SnapshotWriteErrors uint64 `json:"snapshotWriteErrors"`
	// Remedies counts finished ones by name (restart, bootstrap) and outcome (succeeded, failed, …).
	Remedies map[string]map[string]uint64 `json:"remedies,omitempty"`
	// NodeConditionWrites and ClusterErrors concern what the cluster was told.
	NodeConditionWrites uint64 `json:"nodeConditionWrites"`
	ClusterErrors       uint64 `json:"clusterErrors"`
}
