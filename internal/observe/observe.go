// Package observe holds the plain words in which the agent speaks about what it sees: health, observation, and one value type for each
// subject. Probes fill them, everything below reads them.
//
// Only data and judgements that need nothing but that data may enter. It does no I/O, has no clock, and imports nothing of ours, so that
// the rules which act on observations can be tested with plain values.
package observe

import (
	"fmt"
	"time"
)

// Health says what an observation means for the node.
type Health int

// Unknown is the zero value on purpose: what nobody has looked at is not known, and what is not known is never evidence against the node.
const (
	// Unknown: the probe could not tell. The observation's reason and message say why.
	Unknown Health = iota
	// Healthy: seen, and as it should be.
	Healthy
	// Unhealthy: seen, and not as it should be.
	Unhealthy
)

// String returns "Unknown", "Healthy" or "Unhealthy".
func (h Health) String() string {
	switch h {
	case Healthy:
		return "Healthy"
	case Unhealthy:
		return "Unhealthy"
	case Unknown:
		return "Unknown"
	}
	return fmt.Sprintf("Health(%d)", int(h))
}

// MarshalText writes the word, not the number, so that documents for programs stay readable and the numbers free to change.
func (h Health) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads the word.
func (h *Health) UnmarshalText(text []byte) error {
	for _, known := range []Health{Unknown, Healthy, Unhealthy} {
		if string(text) == known.String() {
			*h = known
			return nil
		}
	}
	return fmt.Errorf("no health is called %.20q", text)
}

// Observation is what one look at one subject saw. The zero value means that nobody has looked.
//
// Value holds what was seen when Health is not Unknown. When it is Unknown, Value may still hold the parts that could be told (for
// example the version of a binary on disk while the daemon does not answer); a field that could not be told is its zero value.
type Observation[T any] struct {
	Value  T      `json:"value"`
	Health Health `json:"health"`
	// Reason is one CamelCase word for programs, Message one sentence for people. Both are empty only in the zero value.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// At is when the look ended.
	At time.Time `json:"at"`
	// Good and GoodAt are the last value that was known and when it was, kept for a short while by whoever runs the probe. GoodAt is
	// zero when there is none. They are set only while Health is Unknown: for showing what was, never for judging what is.
	Good   *T         `json:"lastKnown,omitempty"`
	GoodAt *time.Time `json:"lastKnownAt,omitempty"`
}

// Known reports whether the look could tell.
func (o Observation[T]) Known() bool { return o.Health != Unknown }

// Best returns the value seen or, when this look could not tell, the last known one. ok is false when there is neither.
func (o Observation[T]) Best() (value T, ok bool) {
	switch {
	case o.Known():
		return o.Value, true
	case o.Good != nil:
		return *o.Good, true
	}
	return o.Value, false
}

// Verdict is an observation without its value: what tables and warnings need of any subject.
type Verdict struct {
	Health  Health
	Reason  string
	Message string
	At      time.Time
}

// Verdict drops the value.
func (o Observation[T]) Verdict() Verdict { return Verdict{o.Health, o.Reason, o.Message, o.At} }

// See builds an observation of a value; the time is added by the runner of the probe.
func See[T any](v T, h Health, reason, format string, args ...any) Observation[T] {
	return Observation[T]{Value: v, Health: h, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// CannotTell builds an unknown observation.
func CannotTell[T any](reason, format string, args ...any) Observation[T] {
	return Observation[T]{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Reasons that more than one subject uses.
const (
	ReasonNotLooked        = "NotLooked"        // no look has been made
	ReasonTimeout          = "Timeout"          // the look did not end within its deadline
	ReasonAbandoned        = "Abandoned"        // an earlier look hangs and can't even be ended; no new one is started until it is
	ReasonCanceled         = "Canceled"         // the caller gave up
	ReasonPanic            = "ProbePanicked"    // a bug in the probe
	ReasonPermissionDenied = "PermissionDenied" // this user may not look
	ReasonNotInstalled     = "NotInstalled"     // the program isn't there
	ReasonNotEnabled       = "NotEnabled"       // neither configured nor installed: nothing to look at
)

// Set is one look at everything. A subject that was not looked at is the zero observation.
type Set struct {
	KubeletUnit    Observation[Unit]          `json:"kubeletUnit"`
	ContainerdUnit Observation[Unit]          `json:"containerdUnit"`
	ArcUnit        Observation[Unit]          `json:"arcUnit"` // himdsd, the service behind azcmagent
	Kubelet        Observation[Program]       `json:"kubelet"`
	KubeletHealth  Observation[KubeletHealth] `json:"kubeletHealth"`
	Containerd     Observation[Runtime]       `json:"containerd"`
	Runc           Observation[Program]       `json:"runc"`
	Node           Observation[Node]          `json:"node"`
	Arc            Observation[Arc]           `json:"arc"`
}

// Subject is one named verdict of a Set.
type Subject struct {
	Name string
	Verdict
}

// Subjects lists every verdict of the set in the order in which people read them: cause before effect.
func (s *Set) Subjects() []Subject {
	return []Subject{
		{"containerd unit", s.ContainerdUnit.Verdict()},
		{"containerd", s.Containerd.Verdict()},
		{"runc", s.Runc.Verdict()},
		{"kubelet unit", s.KubeletUnit.Verdict()},
		{"kubelet version", s.Kubelet.Verdict()},
		{"kubelet health", s.KubeletHealth.Verdict()},
		{"node", s.Node.Verdict()},
		{"arc unit", s.ArcUnit.Verdict()},
		{"arc", s.Arc.Verdict()},
	}
}
