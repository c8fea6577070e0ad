package decision

import "time"

// The limits that decisions go by.
const (
	// ConfirmFor is for how long a subject must have been unhealthy in every look before anything is done about it.
	ConfirmFor = time.Minute
	// ConfirmLooks is how many looks that must be at least.
	ConfirmLooks = 3
	// EvidenceGap is from which distance on two looks say nothing about the time between them, and how old a look may be to count: an
	// agent that was stopped for an hour starts anew.
	EvidenceGap = 2 * time.Minute
	// Recovered is for how long kubelet and containerd must have been healthy in every look for earlier attempts to be forgotten: what
	// fails then is a new fault.
	Recovered = 10 * time.Minute

	// MaxRestarts is how often one unit is restarted for one fault.
	MaxRestarts = 3
	// BootstrapAfter is how long after the last restart a unit must still be unhealthy for a bootstrap.
	BootstrapAfter = 5 * time.Minute
	// FrozenFor is how long containerd must have taken connections without an answer before it is restarted though it runs.
	FrozenFor = 2 * time.Minute
	// StopHold is how long a unit that somebody stopped is left alone.
	StopHold = 10 * time.Minute
	// LoopRestarts is from how many restarts by systemd on a unit that does not stay up counts as looping.
	LoopRestarts = 3
	// LoopPatience is for how long a looping unit is left to systemd. After that, or when it loops again after a restart of ours, systemd
	// has shown that it can't mend it.
	LoopPatience = 10 * time.Minute
	// Steady is for how long a unit that looped must have been up before that counts as health.
	Steady = time.Minute
	// MinUptime is how long after boot nothing is done: units are still coming up.
	MinUptime = 5 * time.Minute

	// MaxBootstraps is how many bootstraps are begun within BudgetWindow.
	MaxBootstraps = 3
	// BudgetWindow is how far back attempts count against the budget; older restarts are forgotten too.
	BudgetWindow = 24 * time.Hour
	// CoolDown is how long after a bootstrap the next may begin. It doubles with each one that the node did not recover after.
	CoolDown = 2 * time.Minute
	// MaxCoolDown is where the doubling ends.
	MaxCoolDown = time.Hour
)

// restartGaps returns how long after the first, second and third restart the next step may come. What comes after the third is a
// bootstrap, which waits longer than that anyway.
func restartGaps() []time.Duration {
	return []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute}
}

// Thresholds are the limits as they are to be applied; a zero field means the constant of that name. Others than the constants are for
// tests that can't wait.
type Thresholds struct {
	ConfirmFor     time.Duration
	ConfirmLooks   int
	EvidenceGap    time.Duration
	Recovered      time.Duration
	RestartGaps    []time.Duration // as many as there may be restarts; nil means 30 s, 1 and 2 min
	BootstrapAfter time.Duration
	FrozenFor      time.Duration
	StopHold       time.Duration
	LoopPatience   time.Duration
	Steady         time.Duration
	MinUptime      time.Duration
	MaxBootstraps  int
	BudgetWindow   time.Duration
	CoolDown       time.Duration
	MaxCoolDown    time.Duration
}

// orDefault fills the zero fields.
func (t Thresholds) orDefault() Thresholds {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.ConfirmFor, ConfirmFor}, {&t.EvidenceGap, EvidenceGap}, {&t.Recovered, Recovered}, {&t.BootstrapAfter, BootstrapAfter},
		{&t.FrozenFor, FrozenFor}, {&t.StopHold, StopHold}, {&t.LoopPatience, LoopPatience}, {&t.Steady, Steady}, {&t.MinUptime, MinUptime},
		{&t.BudgetWindow, BudgetWindow}, {&t.CoolDown, CoolDown}, {&t.MaxCoolDown, MaxCoolDown},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if t.ConfirmLooks == 0 {
		t.ConfirmLooks = ConfirmLooks
	}
	if t.MaxBootstraps == 0 {
		t.MaxBootstraps = MaxBootstraps
	}
	if t.RestartGaps == nil {
		t.RestartGaps = restartGaps()
	}
	return t
}

// lookEvery is how often to look while something is being confirmed.
func (t Thresholds) lookEvery() time.Duration { return t.ConfirmFor / time.Duration(t.ConfirmLooks) }
