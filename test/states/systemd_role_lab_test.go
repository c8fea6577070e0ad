//go:build lab

package states

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/lab"
)

// request is what a test asks a host.Systemd that lives inside a host.
type request struct {
	Do        string // a method, or "Count"
	Name      string
	Transient host.Transient
}

// line is a line that it prints: a change that was heard, with what the unit then looked like, or the answer to a request.
type line struct {
	Changed           string
	Unit              observe.Unit
	Answer            bool
	Error             string
	Exists            bool // the error is ErrUnitExists
	State             string
	Run               host.UnitRun
	Goroutines, Files int
}

// serveSystemd watches the units, looks at each that changes, and meanwhile does what standard input asks for, one request a line.
func serveSystemd(units []string) int {
	ctx := context.Background()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func(s line) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(s); err != nil {
			os.Exit(1)
		}
	}
	var s host.Systemd
	go s.Watch(ctx, units, func(unit string) {
		found, err := s.Units(ctx, unit)
		if err != nil {
			found = []observe.Unit{{Name: fmt.Sprint("could not be asked: ", err)}}
		}
		tell(line{Changed: unit, Unit: found[0]})
	})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		tell(answerRequest(ctx, &s, r))
	}
	return 0
}

func answerRequest(ctx context.Context, s *host.Systemd, r request) line {
	var err error
	a := line{Answer: true}
	switch r.Do {
	case "State":
		a.State, err = s.State(ctx)
	case "Start":
		err = s.Start(ctx, r.Name)
	case "Restart":
		err = s.Restart(ctx, r.Name)
	case "ResetFailed":
		err = s.ResetFailed(ctx, r.Name)
	case "StartTransient":
		err = s.StartTransient(ctx, r.Transient)
	case "Run":
		a.Run, err = s.Run(ctx, r.Name)
	case "Forget":
		err = s.Forget(ctx, r.Name)
	case "Count":
		a.Goroutines, a.Files = runtime.NumGoroutine(), count("/proc/self/fd")
	default:
		err = errors.New("no such request: " + r.Do)
	}
	if err != nil {
		a.Error, a.Exists = err.Error(), errors.Is(err, host.ErrUnitExists)
	}
	return a
}

// last returns the last change of a unit from the nth change on.
func last(heard []line, from int, unit string) (s line, ok bool) {
	for _, s := range slices.Backward(heard[min(from, len(heard)):]) {
		if s.Changed == unit {
			return s, true
		}
	}
	return line{}, false
}

// eventually waits until something is so, and fails with what is instead.
func eventually(t *testing.T, isSo func() bool, instead func() string) {
	t.Helper()
	lab.Must(t, lab.WaitFor(t.Context(), 30*time.Second, "it is so", func(context.Context) (bool, string) { return isSo(), instead() }))
}
