// Package decision is what to do: one pure function from what was seen, what was done before and what people want, to one action or to
// none, with everything that led there.
//
// Its three goals, in this order: it never makes a node worse, it explains itself, it mends what a restart or a bootstrap can mend. It
// reaches them with two rules. Only what was seen to be unhealthy, again and again, may lead to an action: what can't be told and a lost
// link never do. And each action has to pass every guard.
//
// No I/O and no clock may enter, and nothing of host, cluster or journal: callers bring plain values.
package decision

import "time"

// Action is what to do now.
type Action string

// The rungs of the ladder, from doing nothing to the strongest, and the hold at its end.
const (
	None      Action = "none"      // nothing is wrong that asks for an action
	Wait      Action = "wait"      // something may be wrong; time or another look will tell, without anybody's doing
	Restart   Action = "restart"   // reset-failed, then start or restart the unit
	Bootstrap Action = "bootstrap" // make this host a node again
	Hold      Action = "hold"      // something is wrong, and the agent deliberately does nothing about it but report
)

// Acts reports whether the action changes the node.
func (a Action) Acts() bool { return a == Restart || a == Bootstrap }

// The units that decisions are about.
const (
	KubeletUnit    = "kubelet.service"
	ContainerdUnit = "containerd.service"
)

// Decision is one action with all that led to it: the document behind `explain`.
type Decision struct {
	At     time.Time `json:"at"`
	Action Action    `json:"action"`
	// Unit is what it is about; empty where it is about none.
	Unit string `json:"unit,omitempty"`
	// Wanted is what would be done if no guard held; empty unless guards keep it from being done.
	Wanted Action `json:"wanted,omitempty"`
	// Reason is one CamelCase word for programs, Message one sentence for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Until is when time alone will lift what now makes it wait or hold; zero where something else has to happen.
	Until time.Time `json:"until,omitzero"`
	// NextLook is when the same observations could lead to another decision, or when another look is needed: look again then, if nothing
	// happens sooner. Zero where only events matter.
	NextLook time.Time `json:"nextLook,omitzero"`
	// Evidence is what was seen of each subject, cause before effect.
	Evidence []Evident `json:"evidence"`
	// Grounds are the codes with which NeedsBootstrap speaks for a bootstrap.
	Grounds    []string    `json:"grounds,omitempty"`
	Thresholds []Threshold `json:"thresholds,omitempty"`
	// Guards is every guard there is, in the order in which they are told.
	Guards []Guard `json:"guards"`
	// Changes says what would lead to another decision.
	Changes []string `json:"changes,omitempty"`
}

// Same reports whether two decisions are the same one, made at another time: how long something has lasted makes no other.
func (d Decision) Same(other Decision) bool {
	return d.Action == other.Action && d.Unit == other.Unit && d.Wanted == other.Wanted && d.Reason == other.Reason
}

// Evident is what was seen of one subject over time.
type Evident struct {
	Subject string    `json:"subject"`
	Health  string    `json:"health"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"` // the first look of those that agree
	Looks   int       `json:"looks"` // how many they are
}

// Threshold is one limit that was weighed.
type Threshold struct {
	Name string `json:"name"`
	Have string `json:"have"`
	Want string `json:"want"`
	Met  bool   `json:"met"`
}

// Guard is one reason that could forbid an action.
type Guard struct {
	Name string `json:"name"`
	// Holds: it forbids the action now.
	Holds bool `json:"holds"`
	// Effect is what becomes of the action while it holds: wait or hold. Reason is one word for that. Both are empty while it does not.
	Effect Action `json:"effect,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Message says why it holds, or why it does not.
	Message string `json:"message"`
	// Until is when it will no longer hold, by time alone; zero where it takes something else.
	Until time.Time `json:"until,omitzero"`
	// Change says what would lift it; empty where time does.
	Change string `json:"change,omitempty"`
}
