package config

// AgentConfig is about the agent itself.
type AgentConfig struct {
	LogLevel string `json:"logLevel,omitempty" doc:"debug, info, warning or error"`
	LogDir   string `json:"logDir,omitempty" doc:"folder of the log file"`
	// LogFormat is about the log; text is for people, json for programs.
	LogFormat string `json:"logFormat,omitempty" doc:"text or json: the form of the log's lines"`
	// EnableDriftDetectionAndRemediation is nil when nothing is said, which means yes. It is about drift alone: whether the agent restarts
	// and bootstraps does not depend on it.
	EnableDriftDetectionAndRemediation *bool `json:"enableDriftDetectionAndRemediation,omitempty" doc:"whether drift from the desired state is looked for and remedied; restarts and bootstraps of a node that is down do not depend on it"`
	// DryRun makes the agent say what it would do, and do nothing.
	DryRun bool `json:"dryRun,omitempty" doc:"say what would be done to the node, and do nothing"`
	// StatusInterval is the time between two looks at everything; see [Config.GetStatusInterval].
	StatusInterval Duration `json:"statusInterval,omitempty" doc:"time between two looks at everything, each of which refreshes the snapshot; from 1s to 2m30s and at most three quarters of thresholds.evidenceGap (1m30s by default)"`
	// BootstrapCheckInterval is the time between two answers to the question whether the node needs a bootstrap; see
	// [Config.GetBootstrapCheckInterval].
	BootstrapCheckInterval Duration `json:"bootstrapCheckInterval,omitempty" doc:"time between two answers to the question whether the node needs a bootstrap, when nothing else asks it; 1s or more"`
	// MetricsPort is the port of the metrics page on the loopback address; 0 means none.
	MetricsPort int                  `json:"metricsPort,omitempty" doc:"port of the metrics page on 127.0.0.1, which a reload moves; 0 for none"`
	Bootstrap   AgentBootstrapConfig `json:"bootstrap" doc:"how this host is set up anew"`
	// MaintenanceWindow is when the agent may act on the node; nil means at any time.
	MaintenanceWindow *MaintenanceWindowConfig `json:"maintenanceWindow,omitempty" doc:"when the agent may act on the node; without it at any time"`
	Thresholds        ThresholdsConfig         `json:"thresholds,omitzero" doc:"limits that decisions go by; others than the defaults are for tests that can't wait"`
}

// AgentBootstrapConfig says how the host is set up anew. Without a command the agent never does so.
type AgentBootstrapConfig struct {
	// Command is the program and its arguments; no shell reads it. It is no secret: it is logged and shown.
	Command []string `json:"command,omitempty" doc:"program, as an absolute path, and its arguments; no shell reads them. They are logged and shown, so put no secrets there. Without it the node is never bootstrapped"`
	// Timeout is how long the command may take before it is ended.
	Timeout Duration `json:"timeout,omitempty" doc:"how long the command may take before it is ended"`
}

// MaintenanceWindowConfig is a part of the day in the host's local time. It always lasts as long as Duration says, also when the clocks
// change. See [MaintenanceWindowConfig.StartTime] and [MaintenanceWindowConfig.Weekdays] for what the texts mean.
type MaintenanceWindowConfig struct {
	Start    string   `json:"start,omitempty" doc:"when it begins, HH:MM in the local time of the host; required"`
	Duration Duration `json:"duration,omitempty" doc:"how long it lasts, also past midnight, up to 24h; required"`
	Days     []string `json:"days,omitempty" doc:"days on which it begins, such as Mon or Monday; without them every day"`
}

// ThresholdsConfig are the limits that decisions go by; a zero field means the default.
type ThresholdsConfig struct {
	ConfirmFor     Duration   `json:"confirmFor,omitempty" default:"1m" doc:"how long something must be unhealthy in every look before anything is done about it"`
	ConfirmLooks   int        `json:"confirmLooks,omitempty" default:"3" doc:"how many looks that must be at least"`
	EvidenceGap    Duration   `json:"evidenceGap,omitempty" default:"2m" doc:"how far apart two looks may be and still say something about the time between them"`
	Recovered      Duration   `json:"recovered,omitempty" default:"10m" doc:"how long kubelet and containerd must be healthy for earlier attempts to be forgotten"`
	RestartGaps    []Duration `json:"restartGaps,omitempty" default:"30s,1m,2m" doc:"how long after each restart of a unit the next step may come; as many as there may be restarts for one fault"`
	BootstrapAfter Duration   `json:"bootstrapAfter,omitempty" default:"5m" doc:"how long after the last restart a unit must still be unhealthy for a bootstrap"`
	FrozenFor      Duration   `json:"frozenFor,omitempty" default:"2m" doc:"how long containerd must take connections without an answer to be restarted though it runs"`
	StopHold       Duration   `json:"stopHold,omitempty" default:"10m" doc:"how long a unit that somebody stopped is left alone"`
	LoopPatience   Duration   `json:"loopPatience,omitempty" default:"10m" doc:"how long a unit that keeps failing is left to systemd"`
	Steady         Duration   `json:"steady,omitempty" default:"1m" doc:"how long a unit that kept failing must be up to count as healthy"`
	MinUptime      Duration   `json:"minUptime,omitempty" default:"5m" doc:"how long after boot nothing is done"`
	MaxBootstraps  int        `json:"maxBootstraps,omitempty" default:"3" doc:"how many bootstraps are begun within budgetWindow"`
	BudgetWindow   Duration   `json:"budgetWindow,omitempty" default:"24h" doc:"how far back attempts count against the budget"`
	CoolDown       Duration   `json:"coolDown,omitempty" default:"2m" doc:"how long after a bootstrap the next may begin; doubles with each that did not help"`
	MaxCoolDown    Duration   `json:"maxCoolDown,omitempty" default:"1h" doc:"where that doubling ends"`
}
