//go:build lab

package states

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/test/azcmagent/standin"
	"github.com/aks-flex-node/agent/test/lab"
)

const silentAPI = "/etc/kubernetes/kubelet.conf"

// hang is something that hangs, and which parts of the snapshot it can take away.
type hang struct {
	name    string
	user    int // who looks; root does not need the bus
	into    string
	arc     string // scenario
	lost    func(*facts)
	limit   string        // the caller's own limit
	longest time.Duration // the longest deadline among what hangs
}

func nothing(*facts) {}

func noUnits(f *facts) { f.KubeletRunning, f.ContainerdRunning = false, false }

const (
	freezeContainerd = "kill -STOP $(systemctl show -P MainPID containerd)\n"
	freezeBus        = "kill -STOP $(systemctl show -P MainPID dbus)\n"
	silentServer     = "systemd-run -q --unit=silent-api --property=Type=simple /usr/local/bin/silent 127.0.0.1:6443\n" +
		"for i in $(seq 100); do ss -ltn | grep -q 127.0.0.1:6443 && exit 0; sleep .05; done; exit 1\n"
)

var hangs = []hang{
	{name: "all", into: freezeContainerd + freezeBus + silentServer, arc: "hangs stubbornly", lost: nothing, longest: 15 * time.Second},
	{name: "all-limited", into: freezeContainerd + freezeBus + silentServer, arc: "leaves a child", lost: nothing, limit: "3s", longest: 3 * time.Second},
	{name: "all-not-root", user: 1000, into: freezeContainerd + freezeBus + silentServer, arc: "hangs", lost: noUnits, limit: "3s", longest: 3 * time.Second},
	{name: "azcmagent", arc: "hangs", lost: nothing, longest: 15 * time.Second},
	{name: "containerd", into: freezeContainerd, arc: "connected", lost: nothing, longest: 5 * time.Second},
	{name: "bus-not-root", user: 1000, into: freezeBus, arc: "connected", lost: noUnits, longest: 5 * time.Second},
	{name: "api", into: silentServer, arc: "connected", lost: nothing, longest: 5 * time.Second},
	{name: "api-limited", into: silentServer, arc: "connected", lost: nothing, limit: "3s", longest: 3 * time.Second},
}

// TestNothingThatHangsMakesALookHang looks ten times in a row at hosts on which things hang. That a look ends in time is asserted with room
// for a busy machine: its deadlines are the agent's own, so what is logged beside them tells more.
func TestNothingThatHangsMakesALookHang(t *testing.T) {
	t.Parallel()
	lab.Require(t, "containerd", "runc", "ctr")
	azcmagent := filepath.Join(t.TempDir(), "azcmagent")
	lab.Must(t, standin.Build(t.Context(), azcmagent))
	silent := lab.Program(t, "github.com/aks-flex-node/agent/test/states/silent")
	for _, c := range hangs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := lab.StartHost(t, lab.HostOptions{Name: "hang-" + c.name})
			lab.Must(t, h.InstallContainerd(t.Context()))
			lab.Must(t, h.CopyIn(t.Context(), azcmagent, "/usr/local/bin/azcmagent", 0o755))
			lab.Must(t, h.WriteFile(t.Context(), "/usr/local/bin/azcmagent.scenario", []byte(c.arc), 0o644))
			lab.Must(t, h.CopyIn(t.Context(), silent, "/usr/local/bin/silent", 0o755))
			lab.Must(t, h.WriteFile(t.Context(), silentAPI, []byte(silentKubeconfig), 0o644))
			lookTenTimes(t, h, c)
		})
	}
}

const silentKubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:6443"}}],"users":[{"name":"u","user":{"token":"t"}}]}`

func lookTenTimes(t *testing.T, h *lab.Host, c hang) {
	t.Helper()
	// Where each look has to wait for azcmagent, it is asked only once a minute: the other nine rounds are those of the rest.
	const rounds = 10
	const room = 10 * time.Second
	look := startCollector(t, h, c.user, "STATES_ARC=1", "STATES_KUBECONFIG="+silentAPI)
	if c.into != "" {
		h.MustExec(t, "sh", "-ec", c.into)
	}
	// No kubelet is installed here: what is left of the host's facts must be right in each round.
	want := facts{ContainerdRunning: true, KubeletVersion: "unknown", KubeletReady: "Unknown",
		RuncVersion: said(t, h, "runc --version"), ContainerdVersion: said(t, h, "containerd --version")}
	c.lost(&want)
	var answers []answer
	for i := range rounds {
		a := look.ask(c.limit)
		if a.Error != "" {
			t.Fatalf("round %d: %s", i, a.Error)
		}
		if got := factsOf(a.Status); got != want {
			t.Errorf("round %d: got %+v, want %+v", i, got, want)
		}
		wantArc := c.arc == "connected" || c.arc == "leaves a child" // that one answers, and leaves something behind that does not end
		if a.Status.ArcStatus.Connected != wantArc {
			t.Errorf("round %d: Arc connected: got %v, want %v", i, a.Status.ArcStatus.Connected, wantArc)
		}
		if a.Took > c.longest+room {
			t.Errorf("round %d took %s, want the longest deadline %s and about a second", i, a.Took, c.longest)
		}
		t.Logf("round %d: %s (deadline %s), %d goroutines, %d files, %d children", i, a.Took.Round(time.Millisecond), c.longest, a.Goroutines, a.Files, a.Children)
		answers = append(answers, a)
	}
	// Connections to what hangs are made and given up all the time, so that the numbers go up and down; one more a round would be five.
	early, late := highest(answers[:rounds/2]), highest(answers[rounds/2:])
	if late.Goroutines > early.Goroutines+3 || late.Files > early.Files+1 || late.Children > early.Children {
		t.Errorf("from the first to the second half: goroutines %d to %d, files %d to %d, children %d to %d; want no growth",
			early.Goroutines, late.Goroutines, early.Files, late.Files, early.Children, late.Children)
	}
	if left := strings.TrimSpace(h.MustExec(t, "sh", "-c", "pgrep -xc azcmagent || true")); left != "0" {
		t.Errorf("got %s processes of azcmagent left, want none", left)
	}
}

func highest(answers []answer) answer {
	var high answer
	for _, a := range answers {
		high.Goroutines, high.Files, high.Children = max(high.Goroutines, a.Goroutines), max(high.Files, a.Files), max(high.Children, a.Children)
	}
	return high
}
