package agent

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifier speaks to the service manager, in a goroutine of its own: one that is frozen takes no message.
type notifier struct {
	states chan string
	every  time.Duration // of the watchdog; zero when there is none
	send   func(state string)
}

func newNotifier() *notifier {
	n := &notifier{states: make(chan string, 32), send: send}
	if every, err := daemon.SdWatchdogEnabled(false); err == nil {
		n.every = every
	}
	return n
}

// tell sends a state. It never blocks: one that does not fit is lost, and of those that matter there are few.
func (n *notifier) tell(state string) {
	select {
	case n.states <- state:
	default:
	}
}

// watchdog returns a ticker three times as fast as the service manager asks for, or one that is of no matter where it does not.
func (n *notifier) watchdog() *time.Ticker {
	if n.every <= 0 {
		return time.NewTicker(24 * time.Hour)
	}
	return time.NewTicker(n.every / 3)
}

// run sends until ctx ends, and then what is left, and that the agent ends: nobody else could be sure to be heard then.
func (n *notifier) run(ctx context.Context) {
	for {
		select {
		case s := <-n.states:
			n.send(s)
		case <-ctx.Done():
			for {
				select {
				case s := <-n.states:
					n.send(s)
				default:
					n.send("STOPPING=1")
					return
				}
			}
		}
	}
}

func send(state string) {
	_, _ = daemon.SdNotify(false, state) // whoever does not listen is not told
}
