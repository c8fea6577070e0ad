//go:build linux

package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// KubeletPath and KubeletHealthz are where a host's kubelet is: the program, and its health page, which only the host's
// own loopback reaches (Host.HTTPClient).
const (
	KubeletPath    = "/usr/local/bin/kubelet"
	KubeletHealthz = "http://127.0.0.1:10248/healthz"
)

const (
	kubeletConfigPath = "/var/lib/kubelet/config.yaml"
	kubeletManifests  = "/etc/kubernetes/manifests"
)

// kubeletConfig is what lets a kubelet work in a host: no cgroups to manage, nothing to ask of the machine's firewall and
// disks, and times that are short for the sake of tests.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
resolvConf: /etc/resolv.conf
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: ` + kubeletManifests + `
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 10s
nodeLeaseDurationSeconds: 4
evictionHard: {memory.available: "1Mi", nodefs.available: "0%", imagefs.available: "0%"}
`

// standaloneConfig is for a kubelet that has no API server to ask who may do what.
const standaloneConfig = `authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`

// InstallKubelet makes a kubelet a unit of the host, kubelet.service, enables it, and returns when it is healthy. The
// program at this path of the machine is copied to KubeletPath. It belongs to no cluster and runs the pods whose manifests
// are in /etc/kubernetes/manifests. InstallContainerd comes first.
func (h *Host) InstallKubelet(ctx context.Context, program string) error {
	if err := h.installKubelet(ctx, program, kubeletConfig+standaloneConfig, "--hostname-override="+h.name); err != nil {
		return fmt.Errorf("install kubelet: %w", err)
	}
	return h.WaitHealthz(ctx, KubeletHealthz, 3*shortly)
}

// installKubelet sets up and starts the unit; flags are added to its command line.
func (h *Host) installKubelet(ctx context.Context, program, config string, flags ...string) error {
	if err := h.CopyIn(ctx, program, KubeletPath, 0o755); err != nil {
		return err
	}
	if err := h.WriteFile(ctx, kubeletConfigPath, []byte(config), 0o644); err != nil {
		return err
	}
	if _, err := h.run(ctx, "mkdir", "-p", kubeletManifests); err != nil {
		return err
	}
	return h.installUnit(ctx, "kubelet.service", h.kubeletUnit(flags))
}

// kubeletUnit is the unit as packages ship it: systemd learns from the kubelet itself when it is up and that it lives.
func (h *Host) kubeletUnit(flags []string) string {
	flags = append([]string{"--config=" + kubeletConfigPath, "--v=2"}, flags...)
	if h.link != nil {
		flags = append(flags, "--node-ip="+h.link.Address.Addr().String())
	}
	return `[Unit]
Description=kubelet: the Kubernetes node agent
Wants=containerd.service
After=containerd.service
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
TimeoutStartSec=120
WatchdogSec=30
ExecStart=` + KubeletPath + ` ` + strings.Join(flags, " ") + `
KillMode=process
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
`
}

// WaitHealthz waits until a page of the host, such as KubeletHealthz, answers with status 200.
func (h *Host) WaitHealthz(ctx context.Context, url string, within time.Duration) error {
	return WaitFor(ctx, within, url+" answers 200 on host "+h.name, h.Healthz(url))
}

// Healthz looks whether a page of the host answers with status 200, for WaitFor.
func (h *Host) Healthz(url string) Look {
	client := h.HTTPClient()
	return func(ctx context.Context) (bool, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false, err.Error()
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return resp.StatusCode == http.StatusOK, resp.Status + ": " + strings.TrimSpace(string(body))
	}
}
