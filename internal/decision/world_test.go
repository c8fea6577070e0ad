package decision

import (
	"math/rand/v2"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// daemon is a unit that lives: it starts, fails, is restarted by systemd, is stopped and masked by people.
type daemon struct {
	unit      observe.Unit
	broken    bool          // it fails soon after each start
	loops     bool          // systemd restarts it when it fails
	fails     time.Duration // how soon
	next      time.Time     // when it changes by itself; zero for never
	stoppedAt time.Time     // by a person, since it last ran; zero for never
}

func (d *daemon) becomes(now time.Time, active, sub, result string) {
	d.unit.ActiveState, d.unit.SubState, d.unit.Result, d.unit.Job, d.unit.StateChange = active, sub, result, "", now
	d.next = time.Time{}
}

// start is what systemctl start does. It has no effect on what is masked or missing.
func (d *daemon) start(now time.Time) {
	if d.unit.LoadState != "loaded" || d.unit.Running() {
		return
	}
	d.unit.NRestarts = 0
	d.run(now)
}

func (d *daemon) run(now time.Time) {
	d.becomes(now, "active", "running", "success")
	d.stoppedAt = time.Time{}
	if d.broken {
		d.next = now.Add(d.fails)
	}
}

func (d *daemon) fail(now time.Time) {
	if !d.loops {
		d.becomes(now, "failed", "failed", "exit-code")
		return
	}
	d.becomes(now, "activating", "auto-restart", "exit-code")
	d.next = now.Add(10 * time.Second)
}

// stop is what a person does.
func (d *daemon) stop(now time.Time) {
	if d.unit.ActiveState != "inactive" {
		d.becomes(now, "inactive", "dead", "success")
	}
	d.stoppedAt = now
}

// tick does what is due by itself.
func (d *daemon) tick(now time.Time) (changed bool) {
	if d.next.IsZero() || now.Before(d.next) {
		return false
	}
	if d.unit.Running() {
		d.fail(now)
	} else {
		d.unit.NRestarts++
		d.run(now)
	}
	return true
}

// host is the truth about a host, of which looks see a part.
type host struct {
	r                   *rand.Rand
	now, boot           time.Time
	kubelet, containerd daemon
	healthz, cri        string // why they are not well though they run; empty for well
	dark                bool   // systemd can't be asked
	linkCut, arcCut     bool
	notReady, noRunc    bool
	elsewhere           bool // a kubelet runs under another name
	mendable            bool // a bootstrap helps
}

func newHost(r *rand.Rand, now time.Time) *host {
	h := &host{r: r, now: now, boot: now.Add(-time.Hour), mendable: true}
	for name, d := range map[string]*daemon{KubeletUnit: &h.kubelet, ContainerdUnit: &h.containerd} {
		d.unit = observe.Unit{Name: name, LoadState: "loaded", UnitFileState: "enabled"}
		d.run(h.boot)
	}
	return h
}

// state is systemd's word for the whole.
func (h *host) state() string {
	if h.now.Sub(h.boot) < 40*time.Second {
		return "starting"
	}
	return "running"
}

// see makes a look at the host. Arc is looked at once a minute at most.
func (h *host) see(old *observe.Set) *observe.Set {
	set := &observe.Set{}
	healthy(set)
	kubelet(h.kubelet.unit)(set)
	containerd(h.containerd.unit)(set)
	if h.kubelet.unit.Running() && h.healthz != "" {
		healthz(h.healthz)(set)
	}
	if h.containerd.unit.Running() && h.cri != "" {
		runtime(h.cri)(set)
	}
	if h.elsewhere && !h.kubelet.unit.Running() {
		set.KubeletHealth = observe.See(observe.KubeletHealth{StatusCode: 200}, observe.Healthy, "HealthzOK", "healthy")
	}
	up := (h.kubelet.unit.Running() || h.elsewhere) && h.containerd.unit.Running() && h.healthz == "" && h.cri == ""
	if !up || h.notReady {
		node(observe.NotReady, "NodeNotReady")(set)
	}
	if h.linkCut || h.r.IntN(100) == 0 {
		link([]string{"ConnectionTimeout", "DNSLookupFailed", "ConnectionRefused", "Timeout"}[h.r.IntN(4)])(set)
	}
	if h.noRunc {
		set.Runc = observe.See(observe.Program{}, observe.Unhealthy, observe.ReasonNotInstalled, "no runc")
	}
	if h.arcCut {
		arcLost(set)
	}
	if h.r.IntN(50) == 0 {
		set.KubeletHealth = observe.CannotTell[observe.KubeletHealth]("Timeout", "no answer")
	}
	if h.dark {
		noSystemd(set)
	}
	for _, at := range []*time.Time{&set.KubeletUnit.At, &set.ContainerdUnit.At, &set.ArcUnit.At, &set.Kubelet.At, &set.KubeletHealth.At,
		&set.Containerd.At, &set.Runc.At, &set.Node.At, &set.Arc.At} {
		*at = h.now
	}
	if old != nil && h.now.Sub(old.Arc.At) < time.Minute {
		set.Arc = old.Arc
	}
	return set
}

// endRestart is what a restart by the agent leads to.
func (h *host) endRestart(unit string) (ok bool) {
	if h.dark {
		return false
	}
	d := h.daemon(unit)
	if d.unit.Running() {
		d.becomes(h.now, "inactive", "dead", "success") // restart: stop first
	}
	d.start(h.now)
	if !d.broken {
		h.setSickness(unit, "")
	}
	return d.unit.Running()
}

// endBootstrap is what the bootstrap command leads to. One that fails may leave anything.
func (h *host) endBootstrap(began time.Time) (ok bool) {
	if !h.mendable || h.linkCut {
		switch h.r.IntN(3) {
		case 0:
			h.kubelet.unit.LoadState = "loaded"
			h.kubelet.becomes(began.Add(time.Second), "inactive", "dead", "success")
		case 1:
			h.kubelet.unit.LoadState = "loaded"
			h.kubelet.broken, h.kubelet.fails = true, 3*time.Second
			h.kubelet.start(h.now)
		}
		return false
	}
	for _, d := range []*daemon{&h.kubelet, &h.containerd} {
		d.unit.LoadState, d.unit.UnitFileState, d.broken, d.next = "loaded", "enabled", false, time.Time{}
		d.start(h.now)
	}
	h.healthz, h.cri = "", ""
	return true
}

func (h *host) daemon(unit string) *daemon {
	if unit == ContainerdUnit {
		return &h.containerd
	}
	return &h.kubelet
}

// setSickness makes a daemon that runs unwell, or well.
func (h *host) setSickness(unit, reason string) {
	if unit == ContainerdUnit {
		h.cri = reason
	} else {
		h.healthz = reason
	}
}

// reboot stops all and starts what is enabled.
func (h *host) reboot() {
	h.boot, h.healthz, h.cri, h.dark = h.now, "", "", false
	for _, d := range []*daemon{&h.kubelet, &h.containerd} {
		d.unit.NRestarts = 0
		d.becomes(time.Time{}, "inactive", "dead", "success")
		if d.unit.LoadState == "loaded" && d.unit.UnitFileState == "enabled" {
			d.run(h.now)
		}
	}
}

// repair is what a person does in the end.
func (h *host) repair() {
	for _, d := range []*daemon{&h.kubelet, &h.containerd} {
		d.unit.LoadState, d.unit.UnitFileState, d.broken, d.loops, d.next = "loaded", "enabled", false, false, time.Time{}
		d.start(h.now)
	}
	h.healthz, h.cri, h.dark, h.linkCut, h.arcCut, h.notReady, h.noRunc, h.elsewhere = "", "", false, false, false, false, false, false
}
