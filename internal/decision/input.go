package decision

import (
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// Mode says whether the agent acts at all.
type Mode string

// The modes. Whatever is not Act only observes, so that the zero value does.
const (
	ObserveOnly Mode = "observe-only"
	Act         Mode = "act"
)

// Input is all that a decision depends on. Its zero value leads to waiting: nobody has looked.
type Input struct {
	Now time.Time
	// Mode and DryRun are the operator's will; ModeReason says why the agent only observes, if it does.
	Mode       Mode
	ModeReason string
	DryRun     bool
	// Set is the last look at everything; nil when there was none. Evidence is what looks have shown over time; whether it was fed with
	// Set already makes no difference.
	Set      *observe.Set
	Evidence Evidence
	System   System
	// Grounds are the codes with which NeedsBootstrap speaks for a bootstrap, none when it says no.
	Grounds []string
	// Pauses are all pauses, also those that are over.
	Pauses []Pause
	// Remedy is the one in progress, nil for none.
	Remedy  *Remedy
	History History
	// Window is the maintenance window of now, or the next one; nil when every time is fine.
	Window *Window
	// CanBootstrap: it is configured how.
	CanBootstrap bool
	Thresholds   Thresholds
}

// System is the host as a whole.
type System struct {
	// State is systemd's own word: running, degraded, starting, …; empty when it is not known.
	State string
	// Uptime is the time from boot to Now.
	Uptime time.Duration
}

// Pause is somebody's wish that the agent does nothing.
type Pause struct {
	By     string // command, or the path of the file
	Reason string
	Since  time.Time // zero when not known
	Until  time.Time // zero for no end
}

// Remedy is a remedy in progress.
type Remedy struct {
	Name  string
	Unit  string // what it is about; may be empty
	Step  string
	Since time.Time
}

// History is what the journal knows of earlier attempts. The order does not matter.
type History struct {
	Restarts   []Attempt
	Bootstraps []Attempt
	// Broken says why the journal can't be read or written; empty when it can. Then the budget counts as used.
	Broken string
	// Unknown is for how long the budget counts as used up, since an earlier journal was lost; zero when it is known.
	Unknown time.Duration
}

// Attempt is one restart or bootstrap.
type Attempt struct {
	Unit  string // of a restart
	Began time.Time
	Ended time.Time // zero when its end is not known; then it counts as ended when it began
	// Moved is until when it may itself have stopped the unit: after that it only watched. Zero when that is not known: until its end.
	Moved time.Time
	OK    bool // it did what it was to do; whether that helped, looks will tell
}

func (a Attempt) end() time.Time {
	if a.Ended.Before(a.Began) {
		return a.Began
	}
	return a.Ended
}

// moved is until when a stop of the unit may have been its own work.
func (a Attempt) moved() time.Time {
	if a.Moved.Before(a.Began) {
		return a.end()
	}
	return a.Moved
}

// Window is one maintenance window.
type Window struct {
	From, To time.Time // To is the first moment after it
}
