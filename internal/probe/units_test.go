package probe

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
)

func TestOneLookAtSystemdIsSpreadOverTheUnits(t *testing.T) {
	at := time.Date(2026, 1, 15, 17, 47, 26, 0, time.UTC)
	u := units{
		kubelet:    running("kubelet.service", 1),
		containerd: observe.Unit{Name: "containerd.service", LoadState: "loaded", ActiveState: "inactive"},
		arc:        running("himdsd.service", 2),
	}
	s, _ := newSuite(t)
	s.settings.arcEnabled = true
	seen := observe.See(u, observe.Healthy, "Seen", "systemd answered")
	seen.At = at
	var set observe.Set
	s.spreadUnits(seen, &set)
	wantSeen(t, set.KubeletUnit, observe.Healthy, observe.ReasonActive, "kubelet.service")
	wantSeen(t, set.ContainerdUnit, observe.Unhealthy, observe.ReasonStopped, "containerd.service")
	wantSeen(t, set.ArcUnit, observe.Healthy, observe.ReasonActive, "himdsd.service")
	if set.KubeletUnit.Value.Name != "kubelet.service" || !set.KubeletUnit.At.Equal(at) || !set.ArcUnit.At.Equal(at) {
		t.Errorf("got %+v, want the unit at the time of the look", set.KubeletUnit)
	}

	before := at.Add(-time.Minute)
	silent := observe.CannotTell[units](observe.ReasonTimeout, "no answer")
	silent.At, silent.Good, silent.GoodAt = at, &u, &before
	s.spreadUnits(silent, &set)
	wantSeen(t, set.ContainerdUnit, observe.Unknown, observe.ReasonTimeout, "no answer")
	last, ok := set.ContainerdUnit.Best()
	if !ok || last.ActiveState != "inactive" || set.ContainerdUnit.GoodAt == nil || !set.ContainerdUnit.GoodAt.Equal(before) || !set.ContainerdUnit.At.Equal(at) {
		t.Errorf("got %+v, want the last known unit and when it was known", set.ContainerdUnit)
	}
}

func TestArcsUnitCountsWhereArcIsToBe(t *testing.T) {
	for _, test := range []struct {
		name    string
		enabled bool
		arc     observe.Unit
		health  observe.Health
		reason  string
	}{
		{"neither enabled nor installed", false, observe.Unit{Name: "himdsd.service", LoadState: "not-found"}, observe.Unknown, observe.ReasonNotEnabled},
		{"not even asked about", false, observe.Unit{}, observe.Unknown, observe.ReasonNotEnabled},
		{"enabled and not installed", true, observe.Unit{Name: "himdsd.service", LoadState: "not-found"}, observe.Unhealthy, observe.ReasonUnitNotFound},
		{"installed and not enabled", false, observe.Unit{Name: "himdsd.service", LoadState: "loaded", ActiveState: "failed"}, observe.Unhealthy, observe.ReasonFailed},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, _ := newSuite(t)
			s.settings.arcEnabled = test.enabled
			all := observe.See(units{arc: test.arc}, observe.Healthy, "Seen", "")
			all.At = time.Now()
			var set observe.Set
			s.spreadUnits(all, &set)
			wantSeen(t, set.ArcUnit, test.health, test.reason)
			if !set.ArcUnit.At.Equal(all.At) {
				t.Errorf("got the time %s, want that of the look", set.ArcUnit.At)
			}
		})
	}
}

// Who needs the units for something else doesn't give its whole time for them.
func TestAProbeWaitsForTheUnitsForAThirdOfItsTime(t *testing.T) {
	s, _ := newSuite(t)
	release := make(chan struct{})
	s.units.look = func(context.Context, time.Time) observe.Observation[units] {
		<-release
		return observe.CannotTell[units]("x", "")
	}
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, known := s.unitFacts(ctx, time.Now()); known || ctx.Err() != nil {
		t.Errorf("got units known: %v, with %v of the probe's own time, want neither", known, ctx.Err())
	}
}

func TestHowTheDaemonsWereStartedIsReadOnce(t *testing.T) {
	t.Setenv("AZURE_CLIENT_ID", "first")
	s, dir := newSuite(t)
	start := func(name string, args ...string) observe.Unit {
		path := putDaemon(t, filepath.Join(dir, name), "")
		pid, _ := startDaemon(t, path, args...)
		p, err := host.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		u := running(filepath.Base(name)+".service", pid, path, "--config=/of-unit")
		u.MainStart = p.Start
		return u
	}
	u := units{kubelet: start("kubelet", "--config=/of-process"), containerd: start("containerd")}
	first := s.asStarted(u)
	if first == nil || !slices.Equal(first.args, []string{"--config=/of-process"}) || !slices.Contains(first.azure, "AZURE_CLIENT_ID=first") || first.path == "" {
		t.Fatalf("got %+v, want the kubelet's arguments and settings and a PATH", first)
	}
	if again := s.asStarted(u); again != first {
		t.Errorf("got %+v, want what was read before: the processes are the same", again)
	}
	for name, other := range map[string]units{
		"the kubelet was restarted":    {kubelet: start("kubelet", "--config=/of-next"), containerd: u.containerd},
		"containerd was restarted":     {kubelet: u.kubelet, containerd: start("containerd")},
		"systemd's child is no daemon": {kubelet: start("systemd-executor"), containerd: u.containerd},
		"the kubelet is stopped":       {kubelet: observe.Unit{ActiveState: "inactive"}, containerd: u.containerd},
		"containerd is stopped":        {kubelet: u.kubelet},
	} {
		s.started = first
		if got := s.asStarted(other); got == first {
			t.Errorf("%s: got what was read of the first processes", name)
		}
	}
	if got := s.asStarted(units{kubelet: start("systemd-executor"), containerd: u.containerd}); got != nil {
		t.Errorf("while systemd's child has not begun with its program: got %+v, want nothing to be kept", got)
	}

	u.started = first
	if args, known := u.kubeletArgs(); !known || !slices.Equal(args, first.args) {
		t.Errorf("got arguments %q, %v, want those that were read", args, known)
	}
	if got := u.azureEnvironment(); !slices.Equal(got, first.azure) {
		t.Errorf("got settings %q, want those that were read", got)
	}
	if got := u.containerdPath("fallback"); got != first.path {
		t.Errorf("got PATH %q, want what was read", got)
	}
}

func TestThePathOfADaemon(t *testing.T) {
	path := putDaemon(t, filepath.Join(t.TempDir(), "containerd"), "")
	t.Setenv("PATH", "/of/the/daemon")
	pid, stop := startDaemon(t, path)
	if got := daemonPath(pid, "/fallback"); got != "/of/the/daemon" {
		t.Errorf("got %q, want that of its environment", got)
	}
	t.Setenv("PATH", "")
	empty, _ := startDaemon(t, path)
	if got := daemonPath(empty, "/fallback"); got != "/fallback" {
		t.Errorf("with an empty one: got %q, want the fallback", got)
	}
	stop()
	for _, none := range []int{0, pid} {
		if got := daemonPath(none, "/fallback"); got != "/fallback" {
			t.Errorf("without a process: got %q, want the fallback", got)
		}
	}
}

func TestSettingsOfAConfig(t *testing.T) {
	cfg := &config.Config{}
	cfg.Node.Name, cfg.Node.Kubelet.Path, cfg.Node.Kubelet.Kubeconfig = "n7", "/opt/kubelet", "/opt/kubeconfig"
	cfg.Paths.Kubernetes.ConfigDir, cfg.Paths.Kubernetes.KubeletDir = "/etc/k", "/var/k"
	got := newSettings(cfg, "v1.2.3")
	if got.nodeName != "n7" || got.kubeletPaths[0] != "/opt/kubelet" || got.userAgent != "aks-flex-node/v1.2.3" || got.kubeletConfig != "/var/k/config.yaml" {
		t.Errorf("got %+v, want what the config says", got)
	}
	if want := []string{"/opt/kubeconfig", "/var/k/kubelet/kubeconfig", "/var/k/kubeconfig", "/etc/k/kubelet.conf"}; !slices.Equal(got.kubeconfigs, want) {
		t.Errorf("got kubeconfigs %q, want %q", got.kubeconfigs, want)
	}
	got = newSettings(nil, "")
	if want := []string{"", "/var/lib/kubelet/kubelet/kubeconfig", "/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubelet.conf"}; !slices.Equal(got.kubeconfigs, want) {
		t.Errorf("without a config: got kubeconfigs %q, want %q", got.kubeconfigs, want)
	}
	if got.searchPath != host.DefaultPath || got.arcEnabled || got.criSocket != "/run/containerd/containerd.sock" {
		t.Errorf("without a config: got %+v, want the usual places and no Arc", got)
	}
}

// The words of systemd itself are tested in package host; here only what a failure to ask it means.
func TestAMachineWithoutSystemd(t *testing.T) {
	s := New(nil, "test")
	defer s.Close()
	got := s.lookAtUnits(t.Context(), time.Now())
	if _, err := s.systemd.Units(t.Context(), "x.service"); !errors.Is(err, host.ErrNoSystemd) {
		wantSeen(t, got, observe.Healthy, "Seen")
		return
	}
	wantSeen(t, got, observe.Unknown, "NoSystemd")
}
