package remedy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/observe"
)

// roleVariable tells the test binary, started inside a host of the lab, to be an agent there instead of running tests: "restart UNIT" or
// "bootstrap". Whatever it is, it first finishes what an earlier one left, and then that is all it does. The others set its command's
// time-out, and at which point it is killed.
const (
	roleVariable    = "REMEDY_ROLE"
	timeoutVariable = "REMEDY_TIMEOUT"
	killVariable    = "REMEDY_KILL"
	labFolder       = "/var/lib/remedy"
	labCommand      = "/opt/join"
)

// report is what it prints.
type report struct {
	Resumed bool
	Outcome Outcome
	Error   string
}

func play(role string) int {
	if err := playAgent(context.Background(), role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func playAgent(ctx context.Context, role string) error {
	if err := os.MkdirAll(labFolder, 0o700); err != nil {
		return err
	}
	boot, err := host.BootID()
	if err != nil {
		return err
	}
	moment := func() journal.Moment {
		uptime, _ := host.Uptime() // works on every Linux
		return journal.Moment{Wall: time.Now(), Boot: boot, Uptime: uptime}
	}
	j, _, err := journal.Open(labFolder+"/journal.db", moment(), journal.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()
	m := &mortal{}
	m.left, _ = strconv.Atoi(os.Getenv(killVariable)) // none: never
	timeout, _ := time.ParseDuration(os.Getenv(timeoutVariable))
	r := &Runner{
		Systemd: m, Journal: j, Command: []string{labCommand, "s3cret"}, Timeout: timeout, OutputDir: labFolder, Stable: time.Second,
		KubeletLimit: 5 * time.Second,
		Now: func() journal.Moment {
			m.point()
			return moment()
		},
		Redact: func(s string) string { return strings.ReplaceAll(s, "s3cret", "(secret)") },
	}
	var out report
	o, err := r.Resume(ctx)
	if o != nil || err != nil {
		out.Resumed = true
	} else {
		d := decision.Decision{At: time.Now(), Action: decision.Bootstrap, Unit: decision.KubeletUnit, Reason: "Test"}
		if unit, ok := strings.CutPrefix(role, "restart "); ok {
			d.Action, d.Unit = decision.Restart, unit
		}
		var did Outcome
		did, err = r.Do(ctx, d)
		o = &did
	}
	if o != nil {
		out.Outcome = *o
	}
	if err != nil {
		out.Error = err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// mortal is systemd, before and after each call of which the process may be killed.
type mortal struct {
	host.Systemd
	left int // points until then
}

func (m *mortal) point() {
	if m.left--; m.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (m *mortal) Units(ctx context.Context, names ...string) ([]observe.Unit, error) {
	m.point()
	return m.Systemd.Units(ctx, names...)
}

func (m *mortal) ResetFailed(ctx context.Context, unit string) error {
	m.point()
	defer m.point()
	return m.Systemd.ResetFailed(ctx, unit)
}

func (m *mortal) Start(ctx context.Context, unit string) error {
	m.point()
	defer m.point()
	return m.Systemd.Start(ctx, unit)
}

func (m *mortal) Restart(ctx context.Context, unit string) error {
	m.point()
	defer m.point()
	return m.Systemd.Restart(ctx, unit)
}

func (m *mortal) StartTransient(ctx context.Context, t host.Transient) error {
	m.point()
	defer m.point()
	return m.Systemd.StartTransient(ctx, t)
}

func (m *mortal) Run(ctx context.Context, name string) (host.UnitRun, error) {
	m.point()
	return m.Systemd.Run(ctx, name)
}

func (m *mortal) Forget(ctx context.Context, name string) error {
	m.point()
	defer m.point()
	return m.Systemd.Forget(ctx, name)
}
