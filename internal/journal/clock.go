package journal

import "time"

const (
	// blindStep is the most that two looks at the clock count for when no boot is known: then only the wall clock is left, and that can
	// jump by years.
	blindStep = time.Hour
	// tickStep is how often the running of time is written down while something ages.
	tickStep = 10 * time.Minute
)

// Moment is a point in time as the caller knows it. The journal has no clock of its own.
//
// Budgets are counted with Boot and Uptime, since the wall clock of a node can be wrong by years and be put right at any time. Without
// them (Boot empty) they are still safe, but age slowly: see [Journal.Attempts].
type Moment struct {
	// Wall is what people read, and what a pause with an end is compared with.
	Wall time.Time `json:"wall"`
	// Boot is /proc/sys/kernel/random/boot_id, or any text that another boot of this host does not have.
	Boot string `json:"boot,omitempty"`
	// Uptime is CLOCK_BOOTTIME: the time since the host started, with the time that it was suspended.
	Uptime time.Duration `json:"uptime,omitempty"`
	// Synced says that Wall agrees with a time server (adjtimex). Only then is the time that the host was off believed.
	Synced bool `json:"synced,omitempty"`
}

// tally is the journal's own clock: how much time is known to have passed since the journal was begun. It never runs ahead of true time
// (as long as Uptime is right, and Wall where it claims to be Synced) and never backwards, whatever the wall clock does.
type tally struct {
	Version int           `json:"v"`
	Total   time.Duration `json:"total"`
	Last    Moment        `json:"last"`
	// Off is when the host was last seen before it went off, while the time it was off is not counted yet: zero when there is no such time
	// or when it can't be told.
	Off time.Time `json:"off,omitzero"`
}

// advance returns the tally as of now.
func (t tally) advance(now Moment) tally {
	t.Version = formatVersion
	var step time.Duration
	switch {
	case t.Last.Wall.IsZero() && t.Last.Boot == "": // the first look
	case now.Boot == "" || t.Last.Boot == "":
		step = min(max(now.Wall.Sub(t.Last.Wall), 0), blindStep)
		t.Off = time.Time{}
	case now.Boot == t.Last.Boot:
		if now.Uptime < t.Last.Uptime {
			return t // an older moment, told late: to step back to it would count the time since then twice
		}
		step = now.Uptime - t.Last.Uptime
	default:
		// The host was started anew. It has been up for Uptime; before that it was off for a time that only the wall clock knows.
		step = max(now.Uptime, 0)
		t.Off = time.Time{}
		if t.Last.Synced {
			t.Off = t.Last.Wall
		}
	}
	if !t.Off.IsZero() && now.Synced && now.Boot != "" {
		started := now.Wall.Add(-now.Uptime)
		step += max(started.Sub(t.Off), 0)
		t.Off = time.Time{}
	}
	t.Total += step
	t.Last = now
	return t
}

// since returns how long ago then was, by the uptime of the host; ok is false when the host was started anew in between or when the boot
// is not known.
func since(then, now Moment) (passed time.Duration, ok bool) {
	if then.Boot == "" || then.Boot != now.Boot {
		return 0, false
	}
	return max(now.Uptime-then.Uptime, 0), true
}
