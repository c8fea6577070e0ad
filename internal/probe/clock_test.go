package probe

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

func TestWhatTheKernelsWordAboutItsClockMeans(t *testing.T) {
	inStep := observe.Clock{Synchronized: true, MaxError: 1234567 * time.Nanosecond}
	for _, tc := range []struct {
		name   string
		state  observe.Clock
		err    error
		health observe.Health
		reason string
		words  string
	}{
		{"given a clock in step", inStep, nil, observe.Healthy, "Synchronized", "in step, to within 1.235ms"},
		{"given one that nothing corrects", observe.Clock{}, nil, observe.Unhealthy, "NotSynchronized", "nothing keeps the clock in step"},
		{"given a container that may not ask", observe.Clock{}, fmt.Errorf("ask: %w", syscall.EPERM), observe.Unknown, observe.ReasonPermissionDenied, "may not ask"},
		{"given a kernel that can't tell", observe.Clock{}, syscall.ENOSYS, observe.Unknown, "ClockUnavailable", "not implemented"},
		{"given another failure", observe.Clock{}, errors.New("odd"), observe.Unknown, "ClockUnavailable", "odd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := judgeClock(tc.state, tc.err)
			wantSeen(t, got, tc.health, tc.reason, tc.words)
			if got.Known() && got.Value != tc.state {
				t.Errorf("got %+v, want what the kernel said, %+v", got.Value, tc.state)
			}
		})
	}
}

// Whether this machine's clock is kept in step is not for a test to say.
func TestTheClockOfThisMachine(t *testing.T) {
	got := lookAtClock(t.Context(), time.Now())
	if got.Reason == "" || got.Message == "" {
		t.Errorf("got %+v, want a reason and a message", got)
	}
	if got.Known() && got.Value.Synchronized != (got.Health == observe.Healthy) {
		t.Errorf("got %+v, want it healthy when it is kept in step, and only then", got)
	}
}
