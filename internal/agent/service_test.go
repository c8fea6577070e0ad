package agent

import (
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/observe"
)

const (
	kubelet    = decision.KubeletUnit
	containerd = decision.ContainerdUnit

	startTakes = 300 * time.Millisecond // of a unit
	loopPause  = 30 * time.Second       // before systemd starts a failed unit again
)

// service is a unit that lives: it starts, fails, is started again by systemd, is stopped and masked by people.
type service struct {
	observe.Unit
	broken    bool          // it fails soon after each start
	fails     time.Duration // how soon
	loops     bool          // systemd starts it again when it fails
	due       time.Time     // when it changes by itself; zero for never
	stoppedAt time.Time     // by a person, since it last ran; zero for never
}

func (d *service) becomes(active, sub, result, job string) {
	d.ActiveState, d.SubState, d.Result, d.Job, d.StateChange, d.due = active, sub, result, job, time.Now(), time.Time{}
}

// begin is what systemctl start does. It has no effect on what is masked or missing.
func (d *service) begin() {
	if d.LoadState == "loaded" && !d.Running() {
		d.becomes("activating", "start", "success", "start")
		d.due = time.Now().Add(startTakes)
	}
}

// tick does what is due by itself.
func (d *service) tick(now time.Time) (changed bool) {
	switch {
	case d.due.IsZero() || now.Before(d.due):
		return false
	case d.Running() && d.loops:
		d.becomes("activating", "auto-restart", "exit-code", "")
		d.due = now.Add(loopPause)
	case d.Running():
		d.becomes("failed", "failed", "exit-code", "")
	case d.SubState == "auto-restart":
		d.NRestarts++
		d.becomes("activating", "start", "success", "start")
		d.due = now.Add(startTakes)
	default:
		d.becomes("active", "running", "success", "")
		d.MainPID++
		d.stoppedAt = time.Time{}
		if d.broken {
			d.due = now.Add(d.fails)
		}
	}
	return true
}

// stop is what a person does.
func (d *service) stop() {
	if d.Running() || d.ActiveState == "activating" {
		d.becomes("inactive", "dead", "success", "")
		d.stoppedAt = time.Now()
	}
}

// fail makes it fail now, if it runs.
func (d *service) fail() {
	if d.Running() {
		d.due = time.Now()
		d.tick(d.due)
	}
}
