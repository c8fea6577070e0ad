package probe

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

func lookAtClock(context.Context, time.Time) observe.Observation[observe.Clock] {
	state, err := host.Clock()
	return judgeClock(observe.Clock{Synchronized: state.Synchronized, MaxError: state.MaxError}, err)
}

// judgeClock says what the kernel's word means. How far the clock is off from others is not asked: that needs one of them.
func judgeClock(v observe.Clock, err error) observe.Observation[observe.Clock] {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return observe.CannotTell[observe.Clock](observe.ReasonPermissionDenied, "this process may not ask the kernel about the clock, as in some containers: %v", err)
	case err != nil:
		return observe.CannotTell[observe.Clock]("ClockUnavailable", "the kernel does not say how the clock is: %v", err)
	case !v.Synchronized:
		return observe.See(v, observe.Unhealthy, "NotSynchronized", "the kernel says that nothing keeps the clock in step")
	}
	return observe.See(v, observe.Healthy, "Synchronized", "the clock is kept in step, to within %s", v.MaxError.Round(time.Microsecond))
}
