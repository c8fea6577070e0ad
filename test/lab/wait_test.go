//go:build linux

package lab

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitForReturnsAsSoonAsALookIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		err := WaitFor(t.Context(), time.Minute, "three looks", func(context.Context) (bool, string) {
			looks++
			return looks == 3, "too few"
		})
		if err != nil || looks != 3 {
			t.Errorf("got error %v after %d looks, want none after 3", err, looks)
		}
	})
}

func TestWaitForTellsWhatItSawLast(t *testing.T) {
	tests := map[string]struct {
		within, giveUp time.Duration
		look           Look
		want           error
		words          []string
	}{
		"when the time runs out": {
			within: time.Second, giveUp: time.Hour,
			look:  func(context.Context) (bool, string) { return false, "door is shut" },
			want:  context.DeadlineExceeded,
			words: []string{"waited 1s", "the door is open", "door is shut"},
		},
		"when the caller gives up": {
			within: time.Hour, giveUp: time.Second,
			look:  func(context.Context) (bool, string) { return false, "door is shut" },
			want:  errTired,
			words: []string{"gave up waiting", "the door is open", "door is shut"},
		},
		"also when the last look hung": {
			within: time.Second, giveUp: time.Hour,
			look:  hangFromSecond("door is shut"),
			want:  context.DeadlineExceeded,
			words: []string{"door is shut"},
		},
		"also when the only look hung": {
			within: time.Second, giveUp: time.Hour,
			look:  func(ctx context.Context) (bool, string) { <-ctx.Done(); return false, "no answer" },
			want:  context.DeadlineExceeded,
			words: []string{"no answer"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), tt.giveUp, errTired)
				defer cancel()
				err := WaitFor(ctx, tt.within, "the door is open", tt.look)
				if !errors.Is(err, tt.want) {
					t.Fatalf("got error %v, want one that is %v", err, tt.want)
				}
				for _, w := range tt.words {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("got %q, want it to contain %q", err, w)
					}
				}
			})
		})
	}
}

var errTired = errors.New("tired")

// hangFromSecond answers once and then only when it is stopped.
func hangFromSecond(saw string) Look {
	looks := 0
	return func(ctx context.Context) (bool, string) {
		if looks++; looks == 1 {
			return false, saw
		}
		<-ctx.Done()
		return false, "cut short"
	}
}
