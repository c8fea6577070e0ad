// Package health is what observations mean over time: conditions in Kubernetes form, which do not flap, which show one fault as one
// fault, and which tell a person what to do.
//
// Its heart is one table (table.go): what each condition is called, what it depends on, how long it must be bad before that is worth
// showing, what it means. The Tracker works on any such table and knows nothing of kubelets; what is special about one condition stands
// in its row. No I/O and no clock may enter: callers bring the time and what was seen.
package health

import (
	"fmt"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// Status is whether a condition holds.
type Status string

// The values of a Status. Unknown means that it could not be told; it is never evidence against the node.
const (
	True    Status = "True"
	False   Status = "False"
	Unknown Status = "Unknown"
)

// Severity says how much a condition matters to people.
type Severity string

// The values of a Severity, from mild to grave. None is that of a condition as it should be, and of one that can't be told.
const (
	None     Severity = ""
	Info     Severity = "Info"     // worth knowing; nothing has to be done
	Warning  Severity = "Warning"  // will hurt if nobody acts, or is a loss of sight
	Critical Severity = "Critical" // the node can't do its work, or is about to lose it
)

// Reasons that the Tracker itself gives; all others come from the rows.
const (
	// ReasonDependencyUnhealthy: what this condition depends on is bad, so that nothing about it is news.
	ReasonDependencyUnhealthy = "DependencyUnhealthy"
	// ReasonConfirming: it looks bad, and nothing else is known of it; it is shown as bad once that has lasted.
	ReasonConfirming = "Confirming"
)

// Condition is what observations of one thing mean over time.
type Condition struct {
	Type   string `json:"type"`
	Status Status `json:"status"`
	// Severity is how much the present state matters; a condition that is as it should be can still warn.
	Severity Severity `json:"severity,omitempty"`
	// Reason is one CamelCase word for programs, Message a sentence for people. They may change while the status stays.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// LastTransitionTime is when Status last changed.
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	// LastKnown is the last status that could be told, and LastKnownTime when that was last seen to be so. Empty when it never could.
	LastKnown     Status    `json:"lastKnown,omitempty"`
	LastKnownTime time.Time `json:"lastKnownTime,omitzero"`
	// Pending is what is seen now, while it has not lasted long enough to be shown; nil when what is seen is what is shown.
	Pending *Pending `json:"pending,omitempty"`
}

// Pending is a state that is not shown yet.
type Pending struct {
	Status  Status `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Shown is when it will be shown if it lasts; zero while it is held back because of a condition that this one depends on.
	Shown time.Time `json:"shown,omitzero"`
}

// Text is the condition as one line: status, reason, message, and for an unknown one what it was and how long ago.
func (c Condition) Text(now time.Time) string {
	text := fmt.Sprintf("%s %s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
	if c.Status == Unknown && c.LastKnown != "" {
		age := max(0, now.Sub(c.LastKnownTime)).Round(time.Second) // a clock that was set back must not make it negative
		text += fmt.Sprintf("; it was %s %s ago", c.LastKnown, age)
	}
	return text
}

// Worst returns the gravest of the conditions, and of several equally grave ones the first. found is false when there is nothing to
// report: all are as they should be.
//
// A status that can't be told counts for more than a piece of information and for less than a warning; what is unknown only because of
// something it depends on counts least.
func Worst(conds []Condition) (worst Condition, found bool) {
	most := 0
	for _, c := range conds {
		if r := rank(c); r > most {
			worst, most = c, r
		}
	}
	return worst, most > 0
}

func rank(c Condition) int {
	switch {
	case c.Severity == Critical:
		return 5
	case c.Severity == Warning:
		return 4
	case c.Status == Unknown && c.Reason != ReasonDependencyUnhealthy:
		return 3
	case c.Severity == Info:
		return 2
	case c.Status == Unknown:
		return 1
	}
	return 0
}

// Input is all that conditions are judged by. What was not looked at is a zero observation.
type Input struct {
	Set         *observe.Set // nil: nobody has looked
	Certificate observe.Observation[observe.Certificate]
	Clock       observe.Observation[observe.Clock]
	Disk        observe.Observation[observe.Disk]
	StatusFile  observe.Observation[observe.StatusFile]
}

// Verdict is what one row makes of an Input, before time and dependencies are weighed. The zero value says that the condition does not
// apply here: it is left out.
type Verdict struct {
	Status  Status
	Reason  string
	Message string
	// Severity makes a status that is as it should be warn all the same; a bad one has that of its row. Usually empty.
	Severity Severity
	// At is when it was seen; zero means now.
	At time.Time
}

// Row is one condition of a table.
type Row struct {
	Type string
	// DependsOn names conditions of rows above this one. While one of them is bad, nothing is said about this one.
	DependsOn []string
	// Bad is the status that is the bad one. Empty means False: most conditions are named for what should be.
	Bad Status
	// TimeToVisible is for how long it must be bad before that is shown; 0 shows it at once.
	TimeToVisible time.Duration
	// TimeToSettle is for how long a recovery must last to count as one. A first recovery shows at once all the same; but what gets bad
	// again within this time is shown as bad at once, and from then on stays so until a recovery has lasted. 0: every one counts.
	TimeToSettle time.Duration
	// Severity is that of the bad status.
	Severity Severity
	// Means and Do tell people what the bad status means and what to do about it.
	Means, Do string
	// Judge is a pure function of the time and of what was seen.
	Judge func(now time.Time, in Input) Verdict
}

func (r Row) bad() Status {
	if r.Bad == "" {
		return False
	}
	return r.Bad
}
