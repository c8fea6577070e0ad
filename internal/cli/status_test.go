package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
	"github.com/aks-flex-node/agent/test/golden"
)

var now = time.Date(2026, 1, 15, 17, 47, 26, 0, time.UTC)

// plain is what a pipe gets of a styled text.
func plain(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := printStyled(&b, text); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// healthySet is a look at a node on which all is well.
func healthySet() *observe.Set {
	unit := func(name string, up time.Duration) observe.Observation[observe.Unit] {
		o := observe.JudgeUnit(observe.Unit{Name: name, LoadState: "loaded", ActiveState: "active", SubState: "running", StateChange: now.Add(-up)})
		o.At = now
		return o
	}
	s := &observe.Set{
		KubeletUnit:    unit("kubelet.service", 49*time.Hour),
		ContainerdUnit: unit("containerd.service", 30*24*time.Hour),
		Kubelet: observe.See(observe.Program{Name: "kubelet", Version: "1.32.7", FileVersion: "1.32.7", Path: "/usr/local/bin/kubelet"},
			observe.Healthy, "VersionKnown", "kubelet 1.32.7 (/usr/local/bin/kubelet)"),
		KubeletHealth: observe.See(observe.KubeletHealth{StatusCode: 200}, observe.Healthy, "HealthzOK", "the kubelet says that it is healthy"),
		Containerd: observe.See(observe.Runtime{Program: observe.Program{Name: "containerd", Version: "1.7.20"}, Answers: true, RuntimeReady: true, NetworkReady: true},
			observe.Healthy, "RuntimeReady", "containerd 1.7.20 is ready"),
		Runc: observe.See(observe.Program{Name: "runc", Version: "1.1.12", Path: "/usr/sbin/runc"}, observe.Healthy, "VersionKnown", "runc 1.1.12 (/usr/sbin/runc)"),
		Node: observe.See(observe.Node{Name: "edge-7", Ready: observe.Ready, LastTransition: now.Add(-5 * time.Hour)},
			observe.Healthy, "NodeReady", "the cluster says that node edge-7 is ready"),
		Arc:     observe.CannotTell[observe.Arc](observe.ReasonNotEnabled, "Azure Arc is neither enabled in the config nor installed"),
		ArcUnit: observe.CannotTell[observe.Unit](observe.ReasonNotEnabled, "Azure Arc is neither enabled in the config nor installed"),
	}
	s.Kubelet.At, s.KubeletHealth.At, s.Containerd.At, s.Runc.At, s.Node.At, s.Arc.At, s.ArcUnit.At = now, now, now, now, now, now, now
	return s
}

func failedKubelet(s *observe.Set) {
	s.KubeletUnit = observe.JudgeUnit(observe.Unit{Name: "kubelet.service", LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart",
		Result: "exit-code", NRestarts: 12, StateChange: now.Add(-3 * time.Second)})
	s.KubeletHealth = observe.CannotTell[observe.KubeletHealth]("KubeletNotRunning", "nothing listens")
	s.Node = observe.See(observe.Node{Name: "edge-7", Ready: observe.NotReady, LastTransition: now.Add(-4 * time.Minute)},
		observe.Unhealthy, "NodeNotReady", "the cluster says of node edge-7: KubeletNotReady: container runtime is down")
}

func noNode(s *observe.Set) {
	*s = observe.Set{
		KubeletUnit:    observe.CannotTell[observe.Unit]("NoSystemd", "systemd does not run this machine"),
		ContainerdUnit: observe.CannotTell[observe.Unit]("NoSystemd", "systemd does not run this machine"),
		Kubelet:        observe.CannotTell[observe.Program](observe.ReasonNotInstalled, "there is no kubelet"),
		Containerd:     observe.See(observe.Runtime{}, observe.Unhealthy, observe.ReasonNotInstalled, "there is no containerd on this machine"),
		Runc:           observe.See(observe.Program{}, observe.Unhealthy, observe.ReasonNotInstalled, "runc is not in the PATH of containerd"),
		Node:           observe.CannotTell[observe.Node]("KubeconfigMissing", "there is no kubeconfig"),
		Arc:            observe.CannotTell[observe.Arc](observe.ReasonNotEnabled, "not enabled"),
	}
}

// What can be known of the configuration.
var (
	wanted     = settings{cfg: &config.Config{}}
	unreadable = settings{unreadable: fmt.Errorf("read config: %w", &fs.PathError{Op: "open", Path: "/etc/aks-flex-node/config.json", Err: fs.ErrPermission})}
)

func noKubeletUnit(s *observe.Set) {
	noNode(s)
	s.KubeletUnit = observe.JudgeUnit(observe.Unit{Name: "kubelet.service", LoadState: "not-found", ActiveState: "inactive"})
}

func systemdSilent(s *observe.Set) {
	noNode(s)
	s.KubeletUnit = observe.CannotTell[observe.Unit](observe.ReasonTimeout, "systemd has not answered for 5s")
}

func arcNotInstalled(s *observe.Set) {
	s.Arc = observe.See(observe.Arc{}, observe.Unhealthy, observe.ReasonNotInstalled, "Azure Arc is enabled in the config, but azcmagent is not installed")
}

func TestATableTellsAtOnceWhatIsWrongAndWhatToLookAt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*observe.Set)
		s      settings
		width  int
		exit   int
	}{
		"healthy":                   {func(*observe.Set) {}, wanted, 0, ExitHealthy},
		"crash-loop":                {failedKubelet, wanted, 0, ExitUnhealthy},
		"crash-loop-narrow":         {failedKubelet, wanted, 80, ExitUnhealthy},
		"link-lost":                 {linkLost, wanted, 0, ExitUnknown},
		"containerd-hangs":          {containerdHangs, wanted, 0, ExitUnhealthy},
		"restart-pending":           {restartPending, wanted, 0, ExitHealthy},
		"no-node":                   {noNode, settings{}, 0, ExitUnknown},
		"no-kubelet-unit":           {noKubeletUnit, settings{}, 0, ExitUnknown},
		"systemd-silent":            {systemdSilent, settings{}, 0, ExitUnknown},
		"config-unreadable":         {func(*observe.Set) {}, unreadable, 0, ExitUnknown},
		"config-unreadable-no-node": {noNode, unreadable, 0, ExitUnhealthy},
		"arc-not-installed":         {arcNotInstalled, wanted, 0, ExitUnhealthy},
		"node-to-be":                {noNode, wanted, 0, ExitUnhealthy},
		"crun-and-cordoned":         {crunAndCordoned, wanted, 0, ExitHealthy},
		"stopped-by-someone":        {stopped, wanted, 0, ExitUnhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			set := healthySet()
			c.change(set)
			v := viewOfSet(set, c.s, now)
			if v.node != "edge-7" {
				v.node = "host" // not this machine's name
			}
			v.source = "Looked live just now (as asked)."
			if got := v.exit(); got != c.exit {
				t.Errorf("got exit %d, want %d", got, c.exit)
			}
			golden.Check(t, filepath.Join("testdata", name+".txt"), plain(t, v.table(c.width)))
		})
	}
}

func linkLost(s *observe.Set) {
	s.Node = observe.Observation[observe.Node]{Value: observe.Node{Name: "edge-7", Server: "https://cluster.example:443"}, Reason: "ConnectionTimeout",
		Message: "the API server https://cluster.example:443 did not answer in time: check the link"}
}

func containerdHangs(s *observe.Set) {
	s.Containerd = observe.See(observe.Runtime{Program: observe.Program{Version: "1.7.20"}}, observe.Unhealthy, "NotResponding",
		"containerd took a connection on /run/containerd/containerd.sock and has not answered for 4.7s: it hangs")
}

func restartPending(s *observe.Set) {
	s.Kubelet.Value.RestartPending, s.Kubelet.Value.FileVersion = true, "1.33.1"
	s.Kubelet.Message = "kubelet 1.32.7 runs, but the file at /usr/local/bin/kubelet was replaced (1.33.1): it takes over at the next restart"
}

func crunAndCordoned(s *observe.Set) {
	s.Runc.Value = observe.Program{Name: "crun", Version: "1.8.1", Path: "/usr/bin/crun"}
	s.Node.Value.Unschedulable = true
	s.Node.Message += "; it is cordoned"
}

func stopped(s *observe.Set) {
	s.KubeletUnit = observe.JudgeUnit(observe.Unit{Name: "kubelet.service", LoadState: "loaded", ActiveState: "inactive", SubState: "dead",
		Result: "success", StateChange: now.Add(-20 * time.Minute)})
}

func healthySnapshot() *status.NodeStatus {
	return status.FromObservations(healthySet(), "v0.3.0", now)
}

func TestASnapshotIsShownWithItsAge(t *testing.T) {
	s := healthySnapshot()
	v := viewOfSnapshot(s, settings{}, now.Add(12*time.Second))
	v.node, v.rows[3].next = "edge-7", "kubectl describe node edge-7"
	if v.exit() != ExitHealthy {
		t.Errorf("got exit %d", v.exit())
	}
	golden.Check(t, "testdata/snapshot.txt", plain(t, v.table(0)))

	s.KubeletRunning, s.KubeletReady = false, "Unknown"
	v = viewOfSnapshot(s, settings{cfg: &config.Config{Azure: config.AzureConfig{Arc: &config.ArcConfig{Enabled: true}}, Node: config.NodeConfig{Name: "edge-7"}}}, now.Add(12*time.Second))
	if v.exit() != ExitUnhealthy {
		t.Errorf("got exit %d", v.exit())
	}
	golden.Check(t, "testdata/snapshot-bad.txt", plain(t, v.table(0)))
}

func TestTheSnapshotIsUsedOnlyWhileItIsFresh(t *testing.T) {
	for name, c := range map[string]struct {
		updated time.Time
		content string
		want    string // in the problem; empty: used
	}{
		"just written":             {updated: now},
		"five minutes old":         {updated: now.Add(-5 * time.Minute)},
		"a moment more":            {updated: now.Add(-5*time.Minute - time.Nanosecond), want: "the agent does not keep it fresh"},
		"five minutes ahead":       {updated: now.Add(5 * time.Minute)},
		"a moment more than that":  {updated: now.Add(5*time.Minute + time.Nanosecond), want: "did the clock jump?"},
		"without a time":           {want: "has no time"},
		"broken":                   {content: "{", want: "can't be used"},
		"missing":                  {content: "-", want: "there is no snapshot at"},
		"a snapshot and then more": {content: "{}{}", want: "can't be used"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "status.json")
			s := healthySnapshot()
			s.LastUpdated = c.updated
			switch c.content {
			case "":
				if err := status.WriteStatusToFile(path, s); err != nil {
					t.Fatal(err)
				}
			case "-":
			default:
				if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, problem := readSnapshot(path, now)
			if (c.want == "") != (problem == "") || !strings.Contains(problem, c.want) {
				t.Errorf("got %q, want %q", problem, c.want)
			}
		})
	}
}

func TestJSONAndYAMLAreExactlyTheSnapshot(t *testing.T) {
	s := healthySnapshot()
	r := report{snapshot: s, view: viewOfSnapshot(s, settings{}, now), now: now}
	text, err := r.render("json", 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "status.json")
	if err := status.WriteStatusToFile(path, s); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSuffix(text, "\n") != strings.TrimSuffix(string(file), "\n") {
		t.Errorf("got %s, want the file's bytes %s", text, file)
	}
	if text, err = r.render("yaml", 0); err != nil || !strings.Contains(text, "kubeletReady: Ready\n") {
		t.Errorf("got %q, %v", text, err)
	}
	if text, err = r.render("wide", 0); err != nil || !strings.Contains(text, "kubeletReady: Ready\n") || !strings.Contains(text, "COMPONENT") {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestALiveLookAtThisMachineAnswers(t *testing.T) {
	r, err := withoutAgent(t).takeReport(t.Context(), wanted, false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := r.render("json", 0)
	var s status.NodeStatus
	if err != nil || json.Unmarshal([]byte(text), &s) != nil || s.LastUpdated.IsZero() {
		t.Errorf("got %q, %v", text, err)
	}
	if wide, _ := r.render("wide", 100); !strings.Contains(wide, "kubelet health") || !strings.Contains(strings.Join(strings.Fields(wide), " "), "Looked live just now (no agent runs here, and there is no snapshot at") {
		t.Errorf("got %q", wide)
	}
}

func TestALookThatIsInterruptedIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := withoutAgent(t).takeReport(ctx, settings{}, true); err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v, want interrupted", err)
	}
}

func TestAgesAreReadable(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", 119 * time.Second: "119s", 121 * time.Second: "2m1s", 10 * time.Minute: "10m",
		179 * time.Minute: "179m", 3 * time.Hour: "3h", 47 * time.Hour: "47h", 48 * time.Hour: "2d", 800 * time.Hour: "33d",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%s): got %s, want %s", d, got, want)
		}
	}
}
