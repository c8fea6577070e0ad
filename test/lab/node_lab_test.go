//go:build linux && lab

package lab

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestContainerdIsAUnitOfAHost(t *testing.T) {
	Require(t, "containerd", "runc", "ctr")
	t.Parallel()
	h := StartHost(t, HostOptions{Name: "n1"})
	Must(t, h.InstallContainerd(t.Context()))
	if got := h.MustExec(t, "systemctl", "is-active", "containerd"); got != "active\n" {
		t.Errorf("got %q, want active", got)
	}
	if got := h.MustExec(t, "ctr", "version"); strings.Count(got, "Version:") != 2 {
		t.Errorf("ctr version: got %q, want those of client and server", got)
	}

	h.MustExec(t, "systemctl", "stop", "containerd")
	if active, saw := h.UnitActive("containerd.service")(t.Context()); active || !strings.Contains(saw, "ActiveState=inactive") {
		t.Errorf("stopped: got active %v, saw %q, want it to be seen inactive", active, saw)
	}
	Must(t, h.PowerCut(t.Context()))
	Must(t, h.Boot(t.Context()))
	Must(t, h.WaitActive(t.Context(), "containerd.service", shortly)) // enabled
}

func TestAKubeletRunsPodsOnAHost(t *testing.T) {
	Require(t, "containerd", "runc", "ctr", "go")
	t.Parallel()
	began := time.Now()
	tools, err := KubernetesTools(t.Context(), "kubelet")
	Must(t, err)
	pause, err := PauseImage(t.Context(), t.TempDir())
	Must(t, err)
	t.Logf("programs after %v", time.Since(began))

	began = time.Now()
	sw := NewSwitch(t, netip.MustParsePrefix("10.88.0.1/24"))
	h := StartHost(t, HostOptions{Name: "n1", Link: &Link{sw, netip.MustParsePrefix("10.88.0.101/24"), sw.Address()}})
	Must(t, h.InstallContainerd(t.Context()))
	Must(t, h.ImportImage(t.Context(), pause))
	t.Logf("containerd after %v", time.Since(began))
	Must(t, h.InstallKubelet(t.Context(), filepath.Join(tools, "kubelet")))
	t.Logf("kubelet healthy after %v", time.Since(began))
	if got := h.MustExec(t, "systemctl", "is-active", "kubelet"); got != "active\n" {
		t.Errorf("got %q, want active", got)
	}
	if got := h.MustExec(t, KubeletPath, "--version"); !strings.HasPrefix(got, "Kubernetes v") {
		t.Errorf("got version %q", got)
	}

	Must(t, h.WriteFile(t.Context(), kubeletManifests+"/p.yaml", []byte(staticPod), 0o644))
	running := func(ctx context.Context) (bool, string) {
		out, err := h.run(ctx, "ctr", "--namespace", "k8s.io", "tasks", "list")
		if err != nil {
			return false, err.Error()
		}
		return strings.Count(out, "RUNNING") == 2, out // the sandbox and the container
	}
	Must(t, WaitFor(t.Context(), time.Minute, "the static pod runs", running))
	t.Logf("pod runs after %v", time.Since(began))

	began = time.Now()
	Must(t, h.PowerCut(t.Context()))
	Must(t, h.Boot(t.Context()))
	Must(t, h.WaitHealthz(t.Context(), KubeletHealthz, time.Minute))
	t.Logf("kubelet healthy %v after a power cut", time.Since(began))
	Must(t, WaitFor(t.Context(), time.Minute, "the static pod runs after a power cut", running))
	t.Logf("pod runs %v after a power cut", time.Since(began))
	Must(t, h.Reboot(t.Context()))
	Must(t, h.WaitHealthz(t.Context(), KubeletHealthz, time.Minute))
}

func TestAKubeletIsHealthyWithoutANetwork(t *testing.T) {
	Require(t, "containerd", "runc", "ctr", "go")
	t.Parallel()
	tools, err := KubernetesTools(t.Context(), "kubelet")
	Must(t, err)
	h := StartHost(t, HostOptions{Name: "n1"})
	Must(t, h.InstallContainerd(t.Context()))
	Must(t, h.InstallKubelet(t.Context(), filepath.Join(tools, "kubelet")))
}

const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "` + pauseImage + `", imagePullPolicy: Never}]
`
