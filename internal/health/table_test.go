package health

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

// healthyInput is a look at a node on which all is well, at start.
func healthyInput() Input {
	unit := func(name string) observe.Observation[observe.Unit] {
		return observe.JudgeUnit(observe.Unit{Name: name, LoadState: "loaded", ActiveState: "active", SubState: "running"})
	}
	return Input{
		Set: &observe.Set{
			KubeletUnit: unit("kubelet.service"), ContainerdUnit: unit("containerd.service"), ArcUnit: unit("himdsd.service"),
			Kubelet:       observe.See(observe.Program{Version: "1.33.2"}, observe.Healthy, "VersionKnown", "kubelet 1.33.2"),
			KubeletHealth: observe.See(observe.KubeletHealth{StatusCode: 200}, observe.Healthy, "HealthzOK", "healthy"),
			Containerd:    observe.See(observe.Runtime{Answers: true, RuntimeReady: true}, observe.Healthy, "RuntimeReady", "ready"),
			Runc:          observe.See(observe.Program{Version: "1.1.12"}, observe.Healthy, "VersionKnown", "runc 1.1.12"),
			Node:          observe.See(observe.Node{Server: "https://api:6443", Ready: observe.Ready}, observe.Healthy, "NodeReady", "ready"),
			Arc:           observe.See(observe.Arc{Connected: true}, observe.Healthy, "Connected", "connected"),
		},
		Certificate: certificate(start.Add(-24*time.Hour), start.Add(364*24*time.Hour)),
		Clock:       observe.See(observe.Clock{Synchronized: true}, observe.Healthy, "Seen", "seen"),
		Disk:        observe.See(observe.Disk{Paths: []observe.Space{{Path: "/var/lib", Bytes: 100, BytesFree: 50, Inodes: 100, InodesFree: 50}}}, observe.Healthy, "Seen", "seen"),
		StatusFile:  observe.See(observe.StatusFile{Path: "/run/aks-flex-node/status.json", Written: start}, observe.Healthy, "Seen", "seen"),
	}
}

func certificate(from, to time.Time) observe.Observation[observe.Certificate] {
	return observe.See(observe.Certificate{Path: "kubelet.pem", NotBefore: from, NotAfter: to}, observe.Healthy, "Seen", "seen")
}

// judge asks one row of the table, as Update would.
func judge(t *testing.T, name string, in Input) Verdict {
	t.Helper()
	for _, r := range Table() {
		if r.Type == name {
			return r.Judge(start, in)
		}
	}
	t.Fatalf("the table has no %s", name)
	return Verdict{}
}

func TestTheTableIsSound(t *testing.T) {
	if err := Check(Table()); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"KubeletRunning", "KubeletHealthy", "NodeReady", "ContainerdRunning", "RuntimeReady", "RuncPresent", "RestartPending", "ArcConnected",
		"APIServerReachable", "KubeletCertificateValid", "ClockSynchronized", "DiskSpace", "StatusFileWritable",
	} {
		judge(t, want, healthyInput())
	}
}

func TestOnAHealthyNodeEveryConditionIsAsItShouldBe(t *testing.T) {
	conds := NewTracker().Update(start, healthyInput())
	if len(conds) != len(Table()) {
		t.Errorf("got %d conditions, want all %d", len(conds), len(Table()))
	}
	if worst, found := Worst(conds); found {
		t.Errorf("got %s, want nothing to report", worst.Text(start))
	}
}

func TestWithoutAnyLookAllIsUnknown(t *testing.T) {
	for _, in := range []Input{{}, {Set: &observe.Set{}}} {
		for _, c := range NewTracker().Update(start, in) {
			if c.Status != Unknown || c.Reason != observe.ReasonNotLooked || c.Message == "" {
				t.Errorf("got %s, want it unknown because nobody looked", c.Text(start))
			}
		}
	}
}

// change alters a healthy node.
type change func(*Input)

func unit(active string, load ...string) observe.Observation[observe.Unit] {
	return observe.JudgeUnit(observe.Unit{Name: "x.service", LoadState: append(load, "loaded")[0], ActiveState: active, Result: "success"})
}

func TestWhatConditionsMean(t *testing.T) {
	cannotTell := func(reason string) observe.Observation[observe.Node] {
		return observe.CannotTell[observe.Node](reason, "because")
	}
	dark := observe.CannotTell[observe.Unit]("SystemdUnavailable", "because")
	for _, tc := range []struct {
		name   string
		given  change
		of     string
		status Status // empty: does not apply
		reason string
	}{
		{"given a stopped containerd", func(in *Input) {
			in.Set.ContainerdUnit = unit("inactive")
			in.Set.Containerd = observe.See(observe.Runtime{}, observe.Unhealthy, "NotRunning", "m")
		}, ContainerdRunning, False, "Stopped"},
		{"given a containerd that another unit runs", func(in *Input) { in.Set.ContainerdUnit = unit("inactive", "not-found") }, ContainerdRunning, True, "Answering"},
		{"given that systemd can't be asked and containerd answers", func(in *Input) { in.Set.ContainerdUnit = dark }, ContainerdRunning, True, "Answering"},
		{"given that neither can be asked", func(in *Input) {
			in.Set.ContainerdUnit, in.Set.Containerd = dark, observe.CannotTell[observe.Runtime]("Timeout", "m")
		}, ContainerdRunning, Unknown, "SystemdUnavailable"},
		{"given an old answer, it does not count", func(in *Input) {
			in.Set.ContainerdUnit = dark
			in.Set.Containerd = observe.CannotTell[observe.Runtime]("Timeout", "m")
			in.Set.Containerd.Value.Answers = true
		}, ContainerdRunning, Unknown, "SystemdUnavailable"},

		{"given a containerd that hangs", func(in *Input) {
			in.Set.Containerd = observe.See(observe.Runtime{}, observe.Unhealthy, "NotResponding", "m")
		}, RuntimeReady, False, "NotResponding"},
		{"given that runc is gone", func(in *Input) {
			in.Set.Runc = observe.See(observe.Program{}, observe.Unhealthy, observe.ReasonNotInstalled, "m")
		}, RuncPresent, False, "NotInstalled"},
		{"given that runc's version can't be told", func(in *Input) {
			in.Set.Runc = observe.CannotTell[observe.Program]("VersionFailed", "m")
		}, RuncPresent, Unknown, "VersionFailed"},

		{"given a stopped kubelet", func(in *Input) {
			in.Set.KubeletUnit = unit("inactive")
			in.Set.KubeletHealth = observe.CannotTell[observe.KubeletHealth]("KubeletNotRunning", "m")
		}, KubeletRunning, False, "Stopped"},
		{"given a stopped unit beside something that answers on its port, the unit counts", func(in *Input) { in.Set.KubeletUnit = unit("inactive") }, KubeletRunning, False, "Stopped"},
		{"given a kubelet under another name", func(in *Input) { in.Set.KubeletUnit = unit("inactive", "not-found") }, KubeletRunning, True, "Answering"},
		{"given no kubelet at all", func(in *Input) {
			in.Set.KubeletUnit = unit("inactive", "not-found")
			in.Set.KubeletHealth = observe.CannotTell[observe.KubeletHealth]("KubeletNotRunning", "m")
		}, KubeletRunning, False, "UnitNotFound"},
		{"given that systemd can't be asked and the kubelet answers", func(in *Input) { in.Set.KubeletUnit = dark }, KubeletRunning, True, "Answering"},
		{"given that systemd can't be asked and the kubelet hangs", func(in *Input) {
			in.Set.KubeletUnit = dark
			in.Set.KubeletHealth = observe.See(observe.KubeletHealth{}, observe.Unhealthy, "HealthzSilent", "m")
		}, KubeletRunning, Unknown, "SystemdUnavailable"},
		{"given a kubelet that hangs", func(in *Input) {
			in.Set.KubeletHealth = observe.See(observe.KubeletHealth{}, observe.Unhealthy, "HealthzSilent", "m")
		}, KubeletHealthy, False, "HealthzSilent"},
		{"given that its endpoint is switched off", func(in *Input) {
			in.Set.KubeletHealth = observe.CannotTell[observe.KubeletHealth]("HealthzDisabled", "m")
		}, KubeletHealthy, "", ""},

		{"given a node that is not ready", func(in *Input) {
			in.Set.Node = observe.See(observe.Node{Ready: observe.NotReady}, observe.Unhealthy, "NodeNotReady", "m")
		}, NodeReady, False, "NodeNotReady"},
		{"given that, the API server answers", func(in *Input) {
			in.Set.Node = observe.See(observe.Node{Ready: observe.NotReady}, observe.Unhealthy, "NodeNotReady", "m")
		}, APIServerReachable, True, "Answering"},
		{"given a Node that was deleted", func(in *Input) {
			in.Set.Node = observe.See(observe.Node{}, observe.Unhealthy, cluster.ReasonNodeNotFound, "m")
		}, APIServerReachable, True, "Answering"},
		{"given a Node without conditions", func(in *Input) { in.Set.Node = cannotTell("NoReadyCondition") }, APIServerReachable, True, "Answering"},
		{"given a Node without conditions, its readiness can't be told", func(in *Input) { in.Set.Node = cannotTell("NoReadyCondition") }, NodeReady, Unknown, "NoReadyCondition"},
		{"given that its name can't be resolved", func(in *Input) { in.Set.Node = cannotTell(cluster.ReasonDNS) }, APIServerReachable, False, "DNSLookupFailed"},
		{"given that nothing listens", func(in *Input) { in.Set.Node = cannotTell(cluster.ReasonRefused) }, APIServerReachable, False, "ConnectionRefused"},
		{"given silence", func(in *Input) { in.Set.Node = cannotTell(cluster.ReasonTimeout) }, APIServerReachable, False, "ConnectionTimeout"},
		{"given a wrong certificate", func(in *Input) { in.Set.Node = cannotTell(cluster.ReasonTLS) }, APIServerReachable, False, "TLSFailed"},
		{"given an error of the server", func(in *Input) { in.Set.Node = cannotTell(cluster.ReasonUnavailable) }, APIServerReachable, False, "APIServerUnavailable"},
		{"given that it does not know us", func(in *Input) { in.Set.Node = cannotTell(cluster.ReasonUnauthorized) }, APIServerReachable, False, "Unauthorized"},
		{"given that it forbids", func(in *Input) { in.Set.Node = cannotTell(cluster.ReasonForbidden) }, APIServerReachable, False, "Forbidden"},
		{"given no kubeconfig, it was not asked", func(in *Input) { in.Set.Node = cannotTell(cluster.ReasonKubeconfigMissing) }, APIServerReachable, Unknown, "KubeconfigMissing"},
		{"given no token, it was not asked", func(in *Input) { in.Set.Node = cannotTell(cluster.ReasonPluginFailed) }, APIServerReachable, Unknown, "CredentialPluginFailed"},
		{"given that we gave up, it is not known", func(in *Input) { in.Set.Node = cannotTell(observe.ReasonTimeout) }, APIServerReachable, Unknown, "Timeout"},

		{"given that Arc is cut off", func(in *Input) {
			in.Set.Arc = observe.See(observe.Arc{}, observe.Unhealthy, "Disconnected", "m")
		}, ArcConnected, False, "Disconnected"},
		{"given no Arc", func(in *Input) {
			in.Set.Arc = observe.CannotTell[observe.Arc](observe.ReasonNotEnabled, "m")
		}, ArcConnected, "", ""},

		{"given a new kubelet on disk", func(in *Input) { in.Set.Kubelet.Value.RestartPending = true }, RestartPending, True, "KubeletReplaced"},
		{"given a new containerd on disk", func(in *Input) { in.Set.Containerd.Value.RestartPending = true }, RestartPending, True, "ContainerdReplaced"},
		{"given a new containerd and a kubelet that can't be told, that is enough", func(in *Input) {
			in.Set.Kubelet = observe.CannotTell[observe.Program]("Timeout", "m")
			in.Set.Containerd.Value.RestartPending = true
		}, RestartPending, True, "ContainerdReplaced"},
		{"given a kubelet that can't be told", func(in *Input) {
			in.Set.Kubelet = observe.CannotTell[observe.Program]("VersionFailed", "m")
			in.Set.Kubelet.Value.RestartPending = true // a part of what could not be told
		}, RestartPending, Unknown, "VersionFailed"},
		{"given a containerd that can't be told", func(in *Input) {
			in.Set.Containerd = observe.CannotTell[observe.Runtime]("Timeout", "m")
		}, RestartPending, Unknown, "Timeout"},
		{"given that nothing was replaced", func(*Input) {}, RestartPending, False, "NothingReplaced"},
	} {
		t.Run(tc.of+"/"+tc.name, func(t *testing.T) {
			in := healthyInput()
			tc.given(&in)
			got := judge(t, tc.of, in)
			if got.Status != tc.status || got.Reason != tc.reason || got.Severity != None {
				t.Errorf("got %s (%s) %s, want %s (%s)", got.Status, got.Reason, got.Severity, tc.status, tc.reason)
			}
			if got.Status != "" && got.Message == "" {
				t.Error("got no message for people")
			}
		})
	}
}

func TestContainerdDownIsOneFault(t *testing.T) {
	in := healthyInput()
	in.Set.ContainerdUnit = unit("failed")
	in.Set.Containerd = observe.See(observe.Runtime{}, observe.Unhealthy, "NotRunning", "m")
	in.Set.KubeletUnit = unit("failed")
	in.Set.KubeletHealth = observe.See(observe.KubeletHealth{}, observe.Unhealthy, "HealthzFailed", "m")
	in.Set.Node = observe.See(observe.Node{Ready: observe.NotReady}, observe.Unhealthy, "NodeNotReady", "m")
	onlyFalse(t, in, ContainerdRunning, RuntimeReady, KubeletRunning, KubeletHealthy, NodeReady)
}

func TestALostLinkIsOneFault(t *testing.T) {
	in := healthyInput()
	in.Set.Node = observe.CannotTell[observe.Node](cluster.ReasonTimeout, "m")
	onlyFalse(t, in, APIServerReachable, NodeReady)
}

func TestAnExpiredCertificateIsOneFault(t *testing.T) {
	in := healthyInput()
	in.Certificate = certificate(start.Add(-48*time.Hour), start)
	in.Set.Node = observe.CannotTell[observe.Node](cluster.ReasonUnauthorized, "m")
	onlyFalse(t, in, KubeletCertificateValid, APIServerReachable, NodeReady)
}

// onlyFalse checks that, of a state that lasts, one condition alone is shown as bad, those blocked as unknown for its sake and all
// others as good.
func onlyFalse(t *testing.T, in Input, cause string, blocked ...string) {
	t.Helper()
	tracker := NewTracker()
	var conds []Condition
	for now := start; now.Before(start.Add(4 * time.Minute)); now = now.Add(time.Second) {
		conds = tracker.Update(now, in)
		for _, c := range conds {
			if c.Type != cause && c.Severity != None {
				t.Fatalf("after %s: got %s beside %s", now.Sub(start), c.Text(now), cause)
			}
		}
	}
	for _, c := range conds {
		isBlocked := strings.Contains(" "+strings.Join(blocked, " ")+" ", " "+c.Type+" ")
		switch {
		case c.Type == cause && c.Status != False,
			isBlocked && (c.Status != Unknown || c.Reason != ReasonDependencyUnhealthy),
			c.Type != cause && !isBlocked && c.Status == Unknown:
			t.Errorf("got %s", c.Text(start))
		}
	}
	if worst, _ := Worst(conds); worst.Type != cause {
		t.Errorf("got %s as the worst, want %s", worst.Type, cause)
	}
}

// The probes keep some of their words to themselves; they must not drift apart from ours.
func TestReasonsAreThoseOfTheProbes(t *testing.T) {
	for file, words := range map[string][]string{"kubelethealth.go": {healthzDisabled}, "node.go": {noReadyCondition}} {
		source, err := os.ReadFile(filepath.Join("..", "probe", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !strings.Contains(string(source), `"`+word+`"`) {
				t.Errorf("the probe in %s no longer says %s", file, word)
			}
		}
	}
}
