//go:build linux

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// pauseImage is the name of the image by which containerd keeps a pod's namespaces. PauseImage makes it.
const pauseImage = "localhost/pause:3.10"

// containerdConfig holds what a host needs. There is no cpu controller on a hybrid cgroup tree, so containers get no
// cgroups of their own; a lab has no right to lower an OOM score, and AppArmor is the machine's.
const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  disable_cgroup = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  sandbox_image = "` + pauseImage + `"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
`

const containerdUnit = `[Unit]
Description=containerd container runtime
After=network.target local-fs.target

[Service]
Type=notify
ExecStart=/usr/bin/containerd
Delegate=yes
KillMode=process
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
`

// InstallContainerd makes the machine's containerd and runc a unit of the host, containerd.service, enables it, and
// returns when containerd answers. Pods get addresses from 10.244.0.0/24; WriteCNIConfig changes that.
// Tests that use it call Require with "containerd", "runc" and "ctr".
func (h *Host) InstallContainerd(ctx context.Context) error {
	if err := h.WriteFile(ctx, "/etc/containerd/config.toml", []byte(containerdConfig), 0o644); err != nil {
		return fmt.Errorf("install containerd: %w", err)
	}
	if err := h.WriteCNIConfig(ctx, netip.MustParsePrefix("10.244.0.0/24")); err != nil {
		return fmt.Errorf("install containerd: %w", err)
	}
	if err := h.installUnit(ctx, "containerd.service", containerdUnit); err != nil {
		return fmt.Errorf("install containerd: %w", err)
	}
	return WaitFor(ctx, shortly, "containerd answers on host "+h.name, func(ctx context.Context) (bool, string) {
		if _, err := h.run(ctx, "ctr", "version"); err != nil {
			return false, err.Error()
		}
		return true, ""
	})
}

// WriteCNIConfig sets the network from which containerd gives pods their addresses. Different hosts of a cluster need
// different ones.
func (h *Host) WriteCNIConfig(ctx context.Context, pods netip.Prefix) error {
	conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"lab","plugins":[`+
		`{"type":"bridge","bridge":"cni0","isGateway":true,"ipam":{"type":"host-local","ranges":[[{"subnet":%q}]]}},`+
		`{"type":"loopback"}]}`+"\n", pods)
	return h.WriteFile(ctx, "/etc/cni/net.d/10-bridge.conflist", []byte(conf), 0o644)
}

// ImportImage loads an image archive of the machine into the containerd of the host, where the kubelet looks for images.
func (h *Host) ImportImage(ctx context.Context, archive string) error {
	const at = "/var/tmp/lab-image.tar"
	if err := h.CopyIn(ctx, archive, at, 0o600); err != nil {
		return fmt.Errorf("import image: %w", err)
	}
	if _, err := h.run(ctx, "ctr", "--namespace", "k8s.io", "images", "import", at); err != nil {
		return fmt.Errorf("import image: %w", err)
	}
	_, err := h.run(ctx, "rm", at)
	return err
}

// installUnit writes a unit, enables it so that it comes up at each boot, and starts it.
func (h *Host) installUnit(ctx context.Context, name, text string) error {
	if err := h.WriteFile(ctx, "/etc/systemd/system/"+name, []byte(text), 0o644); err != nil {
		return err
	}
	for _, argv := range [][]string{{"daemon-reload"}, {"--quiet", "enable", name}} {
		if _, err := h.run(ctx, append([]string{"systemctl"}, argv...)...); err != nil {
			return err
		}
	}
	if _, err := h.run(ctx, "systemctl", "start", name); err != nil {
		return fmt.Errorf("%w\n%s", err, h.logTail(ctx, 20, "--unit", name))
	}
	return nil
}

// WaitActive waits until systemd calls a unit active. The error shows the unit's state and the end of its log.
func (h *Host) WaitActive(ctx context.Context, unit string, within time.Duration) error {
	err := WaitFor(ctx, within, unit+" is active on host "+h.name, h.UnitActive(unit))
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\n%s", err, h.logTail(ctx, 20, "--unit", unit))
	}
	return err
}

// UnitActive looks whether a unit is active, for WaitFor.
func (h *Host) UnitActive(unit string) Look {
	return func(ctx context.Context) (bool, string) {
		out, err := h.run(ctx, "systemctl", "show", "--property=LoadState,ActiveState,SubState,Result,NRestarts", unit)
		if err != nil {
			return false, err.Error()
		}
		fields := strings.Fields(out)
		return slices.Contains(fields, "ActiveState=active"), strings.Join(fields, " ")
	}
}
