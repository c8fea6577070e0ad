//go:build linux

package lab

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"
)

// pollEvery is the pause between two looks at something awaited.
const pollEvery = 50 * time.Millisecond

// Look is one look at something awaited: whether it is as wanted, and in words what was seen. Its context ends with the
// wait, so that a look that hangs cannot outlast it.
type Look func(ctx context.Context) (done bool, saw string)

// WaitFor looks again and again until the look is done. The error says what was awaited and what was seen last; it wraps
// context.DeadlineExceeded when the time ran out, or the reason why ctx ended.
func WaitFor(ctx context.Context, within time.Duration, what string, look Look) error {
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last := "nothing"
	for first := true; ; first = false {
		done, saw := look(waiting)
		if done {
			return nil
		}
		// A look that the deadline cut short tells only that. The one before it tells more.
		if first || waiting.Err() == nil {
			last = saw
		}
		select {
		case <-tick.C:
		case <-waiting.Done():
		}
		if ctx.Err() != nil {
			return fmt.Errorf("gave up waiting until %s; last seen: %s: %w", what, last, context.Cause(ctx))
		}
		if waiting.Err() != nil {
			return fmt.Errorf("waited %v until %s; last seen: %s: %w", within, what, last, waiting.Err())
		}
	}
}

// Must fails the test at once if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Converse starts a command and returns the ends of a conversation with it. At the end of the test its standard input is closed, and its end
// is waited for.
func Converse(t testing.TB, cmd *exec.Cmd) (in io.Writer, out io.Reader) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	Must(t, err)
	out, err = cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return stdin, out
}
