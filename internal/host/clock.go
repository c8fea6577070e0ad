package host

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ClockState is what the kernel says about its clock.
type ClockState struct {
	// Synchronized: something keeps the clock in step with others.
	Synchronized bool
	// MaxError is the kernel's bound of how wrong the clock may be; zero when it gives none.
	MaxError time.Duration
}

// unboundedError is where the kernel stops counting the error of a clock that nobody corrects (NTP_PHASE_LIMIT).
const unboundedError = 16 * time.Second

// Clock asks the kernel about its clock. Anyone may.
func Clock() (ClockState, error) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return ClockState{}, fmt.Errorf("ask the kernel about its clock (adjtimex): %w", err)
	}
	return clockState(time.Duration(t.Maxerror) * time.Microsecond), nil
}

// clockState judges by the error alone, as timedatectl does: the flag for "not synchronized" is also how chrony keeps the kernel from
// writing the hardware clock.
func clockState(maxError time.Duration) ClockState {
	if maxError >= unboundedError {
		return ClockState{}
	}
	return ClockState{Synchronized: true, MaxError: maxError}
}
