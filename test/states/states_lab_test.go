//go:build lab

package states

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/pkg/status"
	"github.com/aks-flex-node/agent/test/lab"
)

// facts are the parts of a snapshot that the host's own tools can tell too.
type facts struct {
	KubeletRunning, ContainerdRunning              bool
	KubeletVersion, ContainerdVersion, RuncVersion string
	KubeletReady                                   string
}

func factsOf(s *status.NodeStatus) facts {
	return facts{s.KubeletRunning, s.ContainerdRunning, s.KubeletVersion, s.ContainerdVersion, s.RuncVersion, s.KubeletReady}
}

// state is one state of a host: how to get there, and how to get back.
type state struct {
	name     string
	dropIn   string // for kubelet.service, put there first
	into     string // a shell script; it waits for what it has to wait for
	back     string
	loops    bool // the state moves: what is asked twice may differ
	headline string
}

// until is shell for waiting until a unit's property has a value.
func until(unit, property, value string) string {
	return fmt.Sprintf(`for i in $(seq 300); do [ "$(systemctl show -P %s %s)" = %s ] && break; sleep .1; done; [ "$(systemctl show -P %[1]s %[2]s)" = %[3]s ]
`, property, unit, value)
}

const (
	dropInPath  = "/run/systemd/system/kubelet.service.d/test.conf"
	dropInGone  = "rm -r /run/systemd/system/kubelet.service.d; systemctl daemon-reload; systemctl reset-failed kubelet; systemctl restart kubelet\n"
	startLimit  = "[Unit]\nStartLimitIntervalSec=60\nStartLimitBurst=3\n[Service]\nType=exec\nRestartSec=50ms\nExecStart=\n"
	kubeletBack = "systemctl restart kubelet\n"
	healthy     = "for i in $(seq 300); do curl -fs -o /dev/null http://127.0.0.1:10248/healthz && exit 0; sleep .1; done; exit 1\n"
	ctrAnswers  = "for i in $(seq 100); do timeout 5 ctr version >/dev/null 2>&1 && break; sleep .1; done\n"
)

var states = []state{
	{name: "all up", headline: "can't be judged"}, // the node has no cluster
	{name: "kubelet stopped", into: "systemctl stop kubelet", back: kubeletBack, headline: "kubelet.service is stopped"},
	{
		name: "kubelet failed", headline: "kubelet.service failed",
		dropIn: "[Service]\nRestart=no\nType=exec\nExecStart=\nExecStart=/bin/false\n",
		into:   "systemctl restart --no-block kubelet; " + until("kubelet", "ActiveState", "failed"),
		back:   dropInGone,
	},
	{
		name: "kubelet start-limit-hit", headline: "systemd no longer restarts it",
		dropIn: startLimit + "ExecStart=/bin/false\n",
		into:   "systemctl restart --no-block kubelet; " + until("kubelet", "ActiveState", "failed"),
		back:   dropInGone,
	},
	{
		name: "kubelet start-limit-hit after clean exits", headline: "systemd has given up restarting it",
		dropIn: startLimit + "ExecStart=/bin/true\n",
		into:   "systemctl restart --no-block kubelet; " + until("kubelet", "Result", "start-limit-hit"),
		back:   dropInGone,
	},
	{
		name: "kubelet in a crash loop", headline: "kubelet.service keeps failing", loops: true,
		dropIn: "[Service]\nType=exec\nRestartSec=1\nExecStart=\nExecStart=/bin/false\n",
		into:   "systemctl restart --no-block kubelet; " + until("kubelet", "NRestarts", "4"),
		back:   dropInGone,
	},
	{
		name: "kubelet masked", headline: "kubelet.service is masked",
		into: "mv /etc/systemd/system/kubelet.service /root/; systemctl stop kubelet; systemctl mask -q kubelet; systemctl daemon-reload",
		back: "systemctl unmask -q kubelet; mv /root/kubelet.service /etc/systemd/system/; systemctl daemon-reload; systemctl start kubelet\n",
	},
	{
		name: "kubelet unit missing", headline: "kubelet.service does not exist",
		into: "systemctl stop kubelet; mv /etc/systemd/system/kubelet.service /root/; systemctl daemon-reload",
		back: "mv /root/kubelet.service /etc/systemd/system/; systemctl daemon-reload; systemctl start kubelet\n",
	},
	{name: "kubelet hangs", into: "kill -STOP $(systemctl show -P MainPID kubelet)", back: "kill -CONT $(systemctl show -P MainPID kubelet)\n", headline: "it hangs"},
	{name: "containerd stopped", into: "systemctl stop containerd", back: "systemctl start containerd\n" + ctrAnswers, headline: "containerd.service is stopped"},
	{
		name: "containerd frozen", headline: "it hangs",
		into: "kill -STOP $(systemctl show -P MainPID containerd)", back: "kill -CONT $(systemctl show -P MainPID containerd)\n" + ctrAnswers,
	},
	{
		name: "containerd's socket missing", headline: "its socket /run/containerd/containerd.sock is missing",
		into: "rm /run/containerd/containerd.sock", back: "systemctl restart containerd\n" + ctrAnswers,
	},
	{name: "runc missing", into: "mv /usr/sbin/runc /root/", back: "mv /root/runc /usr/sbin/\n", headline: "runc is not in the PATH of containerd"},
	{name: "runc replaced by crun", into: "mv /usr/sbin/runc /root/; cp /usr/bin/crun /usr/sbin/runc", back: "mv /root/runc /usr/sbin/runc\n", headline: "can't be judged"},
	{
		name: "kubelet replaced while it runs", headline: "can't be judged",
		into: "cp /usr/local/bin/kubelet /root/; cp /usr/local/bin/other-kubelet /usr/local/bin/kubelet.new; mv /usr/local/bin/kubelet.new /usr/local/bin/kubelet",
		back: "mv /root/kubelet /usr/local/bin/kubelet; systemctl restart kubelet\n",
	},
	{
		name: "containerd replaced while it runs", headline: "can't be judged",
		into: "cp /usr/bin/containerd /root/; cp /usr/local/bin/other-containerd /usr/bin/containerd.new; mv /usr/bin/containerd.new /usr/bin/containerd",
		back: "mv /root/containerd /usr/bin/containerd\n",
	},
	{name: "D-Bus restarted", into: "systemctl restart dbus", headline: "can't be judged"},
	{name: "D-Bus stopped", into: "systemctl stop dbus.socket dbus", back: "systemctl start dbus.socket dbus\n", headline: "can't be judged"},
	{name: "D-Bus frozen", into: "systemctl show -P MainPID dbus >/root/dbus.pid; kill -STOP $(cat /root/dbus.pid)", back: "kill -CONT $(cat /root/dbus.pid)\n", headline: "can't be judged"},
	{name: "systemd re-executed", into: "systemctl daemon-reexec", headline: "can't be judged"},
}

func TestInEveryStateTheSnapshotSaysWhatTheHostsOwnToolsSay(t *testing.T) {
	t.Parallel()
	h := node(t, "states")
	installOthers(t, h)
	warm := startCollector(t, h, 0) // lives through all of it: its connections and caches must never tell of the past
	for _, s := range states {
		t.Run(s.name, func(t *testing.T) {
			if s.back != "" {
				defer func() {
					h.MustExec(t, "sh", "-ec", s.back+healthy)
				}()
			}
			if s.dropIn != "" {
				lab.Must(t, h.WriteFile(t.Context(), dropInPath, []byte(s.dropIn), 0o644))
				h.MustExec(t, "systemctl", "daemon-reload")
			}
			if s.into != "" {
				h.MustExec(t, "sh", "-ec", s.into)
			}
			compare(t, h, warm, s)
		})
	}
}

// compare asks the agent, both ways, and the host's tools. A state that moves is asked about again.
func compare(t *testing.T, h *lab.Host, warm *collector, s state) {
	t.Helper()
	for try := 1; ; try++ {
		want := truth(t, h)
		cold, table, code := oneShot(t, h)
		kept := factsOf(warm.ask("").Status)
		if cold == want && kept == want && strings.Contains(table, s.headline) && code == exitFor(s.headline) {
			return
		}
		if try == 5 || (!s.loops && truth(t, h) == want && try == 2) {
			t.Errorf("in the state %q\nthe host's tools say %+v\nstatus says           %+v (exit %d)\na kept Collector says %+v\nheadline wanted: %q, got\n%s",
				s.name, want, cold, code, kept, s.headline, table)
			return
		}
	}
}

func exitFor(headline string) int {
	if headline == "can't be judged" {
		return 11
	}
	return 10
}

// oneShot runs the agent's program.
func oneShot(t *testing.T, h *lab.Host) (f facts, table string, code int) {
	t.Helper()
	out, err := h.Exec(t.Context(), "aks-flex-node", "status", "--live", "-o", "json")
	lab.Must(t, err)
	var s status.NodeStatus
	if err := json.Unmarshal([]byte(out.Stdout), &s); err != nil {
		t.Fatalf("status printed %q and %q: %v", out.Stdout, out.Stderr, err)
	}
	if s.LastUpdatedReason != status.LastUpdatedReasonPeriodicStatusLoop || time.Since(s.LastUpdated) > time.Minute {
		t.Errorf("got the snapshot %+v, want one made now", s)
	}
	text, err := h.Exec(t.Context(), "aks-flex-node", "status", "--live")
	lab.Must(t, err)
	if text.Code != out.Code {
		t.Logf("two looks differ: exit %d and %d", out.Code, text.Code)
	}
	return factsOf(&s), text.Stdout, text.Code
}

var versionWord = regexp.MustCompile(`^(?:Kubernetes|runc version|crun version|containerd \S+) v?(\S+)`)

// truth asks the host's own tools, each in the way a person would.
func truth(t *testing.T, h *lab.Host) facts {
	t.Helper()
	return facts{
		KubeletRunning:    unitRuns(t, h, "kubelet"),
		ContainerdRunning: unitRuns(t, h, "containerd"),
		// What runs, if it runs, else the file: each says it itself.
		KubeletVersion: said(t, h, `p=$(systemctl show -P MainPID kubelet); exe=/proc/$p/exe; [ "$(basename "$(readlink $exe)" | cut -d' ' -f1)" = kubelet ] || exe=/usr/local/bin/kubelet; $exe --version`),
		ContainerdVersion: said(t, h, `v=$(timeout 5 ctr version 2>/dev/null | sed -n '/^Server/,$s/ *Version: */containerd ctr /p')
			[ -n "$v" ] || { p=$(systemctl show -P MainPID containerd); exe=/proc/$p/exe; [ -e $exe ] || exe=/usr/bin/containerd; v=$($exe --version); }; echo "$v"`),
		RuncVersion:  said(t, h, "runc --version"),
		KubeletReady: "Unknown",
	}
}

// unitRuns asks systemd over its own socket, which works in every state of the bus.
func unitRuns(t *testing.T, h *lab.Host, unit string) bool {
	t.Helper()
	switch state := strings.TrimSpace(h.MustExec(t, "systemctl", "show", "-P", "ActiveState", unit)); state {
	case "active", "reloading", "refreshing":
		return true
	case "inactive", "failed", "activating", "deactivating":
		return false
	default:
		t.Fatalf("unknown state %q of %s", state, unit)
		return false
	}
}

func said(t *testing.T, h *lab.Host, script string) string {
	t.Helper()
	out, err := h.Exec(t.Context(), "sh", "-c", script)
	lab.Must(t, err)
	m := versionWord.FindStringSubmatch(out.Stdout)
	if m == nil {
		return "unknown"
	}
	return m[1]
}

// installOthers puts other versions of kubelet and containerd into a host: real programs whose answer to --version differs.
func installOthers(t *testing.T, h *lab.Host) {
	t.Helper()
	other := lab.Program(t, "github.com/aks-flex-node/agent/test/states/otherversion")
	lab.Must(t, h.CopyIn(t.Context(), other, "/usr/local/bin/other-kubelet", 0o755))
	lab.Must(t, h.CopyIn(t.Context(), other, "/usr/local/bin/other-containerd", 0o755))
}
