package observe

import "time"

// Unit is what systemd says about one unit. Words and values are systemd's own (org.freedesktop.systemd1.Unit and .Service).
type Unit struct {
	Name          string `json:"name"`
	LoadState     string `json:"loadState"`               // loaded, not-found, masked, bad-setting, error
	ActiveState   string `json:"activeState"`             // active, reloading, refreshing, activating, deactivating, inactive, failed
	SubState      string `json:"subState"`                // running, auto-restart, dead, …
	UnitFileState string `json:"unitFileState,omitempty"` // enabled, disabled, masked, …
	Result        string `json:"result,omitempty"`        // success, exit-code, signal, start-limit-hit, …: how the last run ended
	Job           string `json:"job,omitempty"`           // start, stop, restart, … while systemd has one queued
	MainPID       int    `json:"mainPID,omitempty"`
	MainStart     uint64 `json:"-"`                   // start time of that process, in the kernel's ticks; 0 when not known
	NRestarts     int    `json:"nRestarts,omitempty"` // automatic restarts since the unit was last started by someone
	// ExecStart is the first command's path and arguments, as written in the unit: environment variables are not expanded.
	ExecStart []string `json:"execStart,omitempty"`
	// StateChange is when the unit last changed its state; zero when systemd did not say.
	StateChange time.Time `json:"stateChange,omitzero"`
}

// Running reports whether the unit does its work: active, reloading or refreshing. A unit in a restart loop is activating, and isn't.
func (u Unit) Running() bool {
	return u.ActiveState == "active" || u.ActiveState == "reloading" || u.ActiveState == "refreshing"
}

// Exists reports whether systemd knows a unit of that name; a missing unit is not a stopped one.
func (u Unit) Exists() bool { return u.LoadState != "" && u.LoadState != "not-found" }

// Program is an installed program and, where it is a daemon, the process that runs it.
type Program struct {
	// Name is what the program calls itself: runc's path may hold crun or youki.
	Name string `json:"name,omitempty"`
	// Version is that of the running process if there is one, else that of the file. Empty when it can't be told.
	Version string `json:"version,omitempty"`
	// Path is the file's path. Empty when none was found.
	Path string `json:"path,omitempty"`
	// FileVersion is the version of the file at Path.
	FileVersion string `json:"fileVersion,omitempty"`
	// RestartPending: the process still runs another file than the one at Path.
	RestartPending bool `json:"restartPending,omitempty"`
}

// KubeletHealth is the answer of the kubelet's own health endpoint.
type KubeletHealth struct {
	URL        string `json:"url,omitempty"`
	StatusCode int    `json:"statusCode,omitempty"` // 0: no HTTP answer
}

// Runtime is what the container runtime says over the CRI, and what is installed.
type Runtime struct {
	Program
	Socket string `json:"socket,omitempty"`
	// Answers: the daemon answered over the CRI in this look.
	Answers bool `json:"answers"`
	// Conditions of the CRI's Status. NetworkReady false means that no CNI configuration is loaded.
	RuntimeReady bool `json:"runtimeReady"`
	NetworkReady bool `json:"networkReady"`
}

// Values of Node.Ready; these are the words of the snapshot's kubeletReady.
const (
	Ready        = "Ready"
	NotReady     = "NotReady"
	ReadyUnknown = "Unknown"
)

// Node is the Node object as the API server has it.
type Node struct {
	Name   string `json:"name,omitempty"`
	Server string `json:"server,omitempty"`
	// Ready is Ready, NotReady or Unknown: the status of the Ready condition. Reason and Message of the cluster are its own words.
	Ready          string    `json:"ready,omitempty"`
	ClusterReason  string    `json:"clusterReason,omitempty"`
	ClusterMessage string    `json:"clusterMessage,omitempty"`
	LastTransition time.Time `json:"lastTransition,omitzero"`
	LastHeartbeat  time.Time `json:"lastHeartbeat,omitzero"`
	Unschedulable  bool      `json:"unschedulable,omitempty"`
	KubeletVersion string    `json:"kubeletVersion,omitempty"`
	// LeaseRenewed is when the kubelet last renewed its Lease; zero when not known.
	LeaseRenewed time.Time `json:"leaseRenewed,omitzero"`
}

// Arc is what azcmagent says about this machine's Azure Arc registration.
type Arc struct {
	Registered    bool      `json:"registered"` // follows from a resource id or name, not from the connection
	Connected     bool      `json:"connected"`
	Status        string    `json:"status,omitempty"` // Connected, Disconnected, Expired
	MachineName   string    `json:"machineName,omitempty"`
	ResourceID    string    `json:"resourceID,omitempty"`
	Location      string    `json:"location,omitempty"`
	ResourceGroup string    `json:"resourceGroup,omitempty"`
	LastHeartbeat time.Time `json:"lastHeartbeat,omitzero"`
	AgentVersion  string    `json:"agentVersion,omitempty"`
	ErrorCode     string    `json:"errorCode,omitempty"`
	ErrorDetails  string    `json:"errorDetails,omitempty"`
}
