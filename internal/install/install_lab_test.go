//go:build lab

package install

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/deploy"
	"github.com/aks-flex-node/agent/test/lab"
)

// as plays a part on a host and returns what it printed, and whether it succeeded.
func as(t *testing.T, h *lab.Host, role, flags string, env ...string) (string, bool) {
	t.Helper()
	cmd := h.Self(t.Context())
	cmd.Env = append(append(cmd.Env, roleVariable+"="+role, "INSTALL_FLAGS="+flags, "INSTALL_VERSION=v1"), env...)
	out, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended { //nolint:errorlint // of this very command
		t.Fatalf("%s: %v", role, err)
	}
	return string(out), err == nil
}

func mustAs(t *testing.T, h *lab.Host, role, flags string, env ...string) string {
	t.Helper()
	out, ok := as(t, h, role, flags, env...)
	if !ok {
		t.Fatalf("%s %s: got\n%s\nwant success", role, flags, out)
	}
	return out
}

// files lists what lies in the places that matter, with contents' checksums.
func files(t *testing.T, h *lab.Host) string {
	t.Helper()
	return h.MustExec(t, "sh", "-c", `find /etc/systemd /usr/local/bin /var/lib/aks-flex-node /var/log/aks-flex-node /run/aks-flex-node -printf '%p %m %U %l\n' -type f -exec sha256sum {} \; 2>/dev/null | sort`)
}

func show(t *testing.T, h *lab.Host, property string) string {
	t.Helper()
	return strings.TrimSpace(h.MustExec(t, "systemctl", "show", "-P", property, deploy.UnitName))
}

func TestFreshInstallOnARealHost(t *testing.T) {
	t.Parallel()
	lab.Require(t, "containerd", "runc")
	h := lab.StartHost(t, lab.HostOptions{Name: "install"})
	h.MustExec(t, "sh", "-ec", `mkdir -p /root/others /var/opt/azcmagent/log; echo x >/root/others/file; chown -R 1:1 /root/others /var/opt/azcmagent; chmod 700 /root/others /var/opt/azcmagent`)
	h.MustExec(t, "systemd-run", "-q", "--unit=others.socket", "--socket-property=ListenStream=/run/others.sock", "--socket-property=SocketUser=daemon", "--socket-property=SocketMode=0600", "--unit=others", "/bin/true")
	const volume = "/var/lib/kubelet/pods/1/volumes/nfs"
	h.MustExec(t, "sh", "-ec", "mkdir -p $0; mount -t tmpfs none $0", volume)
	before := files(t, h)
	planned := mustAs(t, h, "install", "dry-run")
	if after := files(t, h); after != before || show(t, h, "LoadState") != "not-found" {
		t.Errorf("dry run: got\n%s\nwant no change of\n%s", after, before)
	}
	if out := mustAs(t, h, "install", ""); out != planned {
		t.Errorf("plan: got\n%s\nand in the dry run\n%s", out, planned)
	}
	for property, want := range map[string]string{"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active", "NeedDaemonReload": "no", "NRestarts": "0", "FragmentPath": UnitPath} {
		if got := show(t, h, property); got != want {
			t.Errorf("%s: got %s, want %s", property, got, want)
		}
	}
	pid, installed := show(t, h, "MainPID"), files(t, h)
	// Remounting one whose server is gone would hang the start.
	if got := h.MustExec(t, "sh", "-ec", "grep $0 /proc/$1/mountinfo | cut -d' ' -f6", volume, pid); !strings.HasPrefix(got, "rw") {
		t.Errorf("a pod's volume as the service sees it: got %q, want it untouched (rw)", got)
	}
	if out := mustAs(t, h, "install", ""); strings.Contains(out, "step:") || show(t, h, "MainPID") != pid || files(t, h) != installed {
		t.Errorf("second run: got\n%s\nwant nothing to do", out)
	}
	t.Run("the sandbox lets the agent do its work, and no more", func(t *testing.T) {
		b, err := h.ReadFile(sandboxFile)
		lab.Must(t, err)
		var results map[string]string
		lab.Must(t, json.Unmarshal(b, &results))
		for what, got := range results {
			if not := strings.HasPrefix(what, "NOT "); not != (got != "") {
				t.Errorf("%s: got %q", what, got)
			}
		}
		if len(results) < 20 {
			t.Errorf("got %d results, want all", len(results))
		}
		h.MustExec(t, "sh", "-c", "for i in $(seq 100); do [ -e /root/outside ] && exit 0; sleep .1; done; exit 1")
	})
	t.Run("a drop-in that systemd has not read is put to use", func(t *testing.T) {
		const dropIn = UnitPath + ".d/mine.conf"
		lab.Must(t, h.WriteFile(t.Context(), dropIn, []byte("[Service]\n"), 0o644))
		h.MustExec(t, "systemctl", "daemon-reload")
		lab.Must(t, h.WriteFile(t.Context(), dropIn, []byte("[Service]\nEnvironment=MINE=1\n"), 0o644))
		if got := show(t, h, "NeedDaemonReload"); got != "yes" {
			t.Fatalf("NeedDaemonReload: got %s", got)
		}
		mustAs(t, h, "install", "")
		if got := show(t, h, "Environment") + " " + show(t, h, "NeedDaemonReload"); got != "MINE=1 no" || show(t, h, "MainPID") == pid {
			t.Errorf("got %s, want the drop-in read and the service restarted", got)
		}
	})
	t.Run("it comes back, and with the machine", func(t *testing.T) {
		h.MustExec(t, "kill", "-9", show(t, h, "MainPID"))
		lab.Must(t, h.WaitActive(t.Context(), deploy.UnitName, time.Minute))
		lab.Must(t, h.Reboot(t.Context()))
		lab.Must(t, h.WaitActive(t.Context(), deploy.UnitName, time.Minute))
	})
	t.Run("uninstall takes it away", func(t *testing.T) {
		mustAs(t, h, "uninstall", "purge")
		after := files(t, h)
		for _, name := range []string{ProgramPath + " ", UnitPath + " ", manifestName, "multi-user.target.wants/" + deploy.UnitName} {
			if strings.Contains(after, name) {
				t.Errorf("got %s left in\n%s", name, after)
			}
		}
		if got := show(t, h, "LoadState") + " " + show(t, h, "ActiveState"); got != "not-found inactive" {
			t.Errorf("unit: got %s, want it gone", got)
		}
		if out := mustAs(t, h, "uninstall", ""); strings.Contains(out, "step:") {
			t.Errorf("second run: got\n%s\nwant nothing to do", out)
		}
	})
}

// formerAgent is a stand-in for the former agent: a program that runs as a service, and that the kubelet gets its credentials from.
const formerAgent = `#!/bin/sh
case $1 in
agent) exec sleep infinity ;;
token) cat /root/former-answer || { echo "former: the link is down" >&2; exit 1; } ;;
esac
`

func TestTakeOverOfAFormerAgentOnARealHost(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	h := lab.StartHost(t, lab.HostOptions{Name: "takeover"})
	write := func(name, content string, mode fs.FileMode) {
		t.Helper()
		lab.Must(t, h.WriteFile(t.Context(), name, []byte(content), mode))
	}
	write(ProgramPath, formerAgent, 0o755)
	write(UnitPath, formerUnit+"[Install]\nWantedBy=multi-user.target\n", 0o644)
	write("/etc/aks-flex-node/config.json", `{"agent": {"logLevel": "info"}}`, 0o600)
	write("/var/lib/kubelet/kubelet/kubeconfig", kubeconfig(ProgramPath), 0o600)
	write("/etc/systemd/system/"+deploy.UnitName+".d/mine.conf", "[Service]\nEnvironment=MINE=1\n", 0o644)
	h.MustExec(t, "systemctl", "enable", "-q", "--now", deploy.UnitName)
	write("/root/former-answer", answer, 0o600)
	before, pid := files(t, h), show(t, h, "MainPID")

	refused := func(flags, want string) {
		t.Helper()
		out, ok := as(t, h, "install", flags)
		if ok || !strings.Contains(out, want) {
			t.Errorf("install %s: got success %v and\n%s\nwant %q", flags, ok, out, want)
		}
		if files(t, h) != before || show(t, h, "MainPID") != pid {
			t.Errorf("install %s: got changes, want none", flags)
		}
	}
	refused("", "this would cut the kubelet's credentials")
	refused("force", "this would cut the kubelet's credentials")
	h.MustExec(t, "mv", "/root/former-answer", "/root/kept")
	refused("", "neither does now")
	h.MustExec(t, "mv", "/root/kept", "/root/former-answer")

	write(pluginAnswer, answer, 0o600)
	out := mustAs(t, h, "install", "")
	wantText(t, "notes", out, "The new program gets them too")
	if got := show(t, h, "Type") + " " + show(t, h, "ActiveState"); got != "notify active" || show(t, h, "MainPID") == pid {
		t.Errorf("service: got %s, want the new one to run", got)
	}
	if got := show(t, h, "Environment"); got != "MINE=1" {
		t.Errorf("drop-in: got environment %q, want it kept", got)
	}
	if got := h.MustExec(t, "cat", FormerDir+"/aks-flex-node"); got != formerAgent {
		t.Errorf("copy of the former program: got %.60q", got)
	}
	out = mustAs(t, h, "uninstall", "purge")
	wantText(t, "notes", out, ProgramPath+" is left alone: the kubelet gets its credentials from it")
	if got := h.MustExec(t, ProgramPath, "token", "kubelogin"); got != answer {
		t.Errorf("plugin: got %q after uninstall, want it to work", got)
	}
	h.MustExec(t, "test", "-e", "/etc/systemd/system/"+deploy.UnitName+".d/mine.conf", "-a", "-e", "/etc/aks-flex-node/config.json")
}

func TestInstallRefusesMountsOnARealHost(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	h := lab.StartHost(t, lab.HostOptions{Name: "mounts"})
	for name, target := range map[string]string{"the program": ProgramPath, "the unit": UnitPath} {
		t.Run(name, func(t *testing.T) {
			h.MustExec(t, "sh", "-ec", "echo x >/root/other; touch "+target+"; mount --bind /root/other "+target)
			before := files(t, h)
			out, ok := as(t, h, "install", "")
			if ok || !strings.Contains(out, target+" is a mount point") {
				t.Errorf("got %q, want a refusal", out)
			}
			if after := files(t, h); after != before {
				t.Errorf("got\n%s\nwant no change of\n%s", after, before)
			}
			h.MustExec(t, "sh", "-ec", "umount "+target+"; rm "+target)
		})
	}
	t.Run("a file system that is read-only", func(t *testing.T) {
		h.MustExec(t, "sh", "-ec", "mount --bind /usr/local/bin /usr/local/bin; mount -o remount,bind,ro /usr/local/bin")
		out, ok := as(t, h, "install", "")
		if ok || !strings.Contains(out, "must be part of the image") {
			t.Errorf("got %q, want a refusal", out)
		}
		h.MustExec(t, "umount", "/usr/local/bin")
	})
	mustAs(t, h, "install", "no-start")
	if got := show(t, h, "UnitFileState") + " " + show(t, h, "ActiveState"); got != "enabled inactive" {
		t.Errorf("without a start: got %s, want it enabled and inactive", got)
	}
	for name, target := range map[string]string{"uninstall, the program": ProgramPath, "uninstall, the unit": UnitPath} {
		t.Run(name, func(t *testing.T) {
			h.MustExec(t, "mount", "--bind", target, target)
			out := mustAs(t, h, "uninstall", "")
			wantText(t, "notes", out, target+" is left alone: "+target+" is a mount point")
			h.MustExec(t, "umount", target)
			if got := h.MustExec(t, "ls", ProgramPath, target); !strings.Contains(got, target) {
				t.Errorf("got %s, want both left", got)
			}
			mustAs(t, h, "install", "no-start")
		})
	}
	t.Run("uninstall of a masked service that runs", func(t *testing.T) {
		mustAs(t, h, "install", "")
		h.MustExec(t, "sh", "-ec", "rm "+UnitPath+"; systemctl mask -q "+deploy.UnitName)
		if got := show(t, h, "LoadState") + " " + show(t, h, "ActiveState"); got != "masked active" {
			t.Fatalf("got %s, want it masked and active", got)
		}
		mustAs(t, h, "uninstall", "")
		if got := show(t, h, "LoadState") + " " + show(t, h, "ActiveState"); got != "masked inactive" {
			t.Errorf("got %s, want it stopped, and the mask left", got)
		}
		h.MustExec(t, "test", "!", "-e", ProgramPath)
		if out := mustAs(t, h, "uninstall", ""); strings.Contains(out, "step:") {
			t.Errorf("second run: got\n%s\nwant nothing to do", out)
		}
	})
}

// TestAKubeletThatDoesNotRunHidesItsKubeconfig has systemd itself say what it knows of a unit whose arguments are in an EnvironmentFile.
func TestAKubeletThatDoesNotRunHidesItsKubeconfig(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	h := lab.StartHost(t, lab.HostOptions{Name: "hidden"})
	write := func(name, content string, mode fs.FileMode) {
		t.Helper()
		lab.Must(t, h.WriteFile(t.Context(), name, []byte(content), mode))
	}
	mustAs(t, h, "install", "no-start")
	write("/srv/k/kubeconfig", kubeconfig(ProgramPath), 0o600)
	write("/etc/default/kubelet", "KUBELET_ARGS=--kubeconfig=/srv/k/kubeconfig\n", 0o644)
	write("/etc/systemd/system/kubelet.service", "[Service]\nEnvironmentFile=/etc/default/kubelet\nExecStart=/usr/local/bin/kubelet $KUBELET_ARGS\n", 0o644)
	write("/root/other", "another program", 0o755)
	h.MustExec(t, "systemctl", "daemon-reload")
	const hidden = "the kubelet does not run, and its unit has the arguments in variables: start it"
	out, ok := as(t, h, "install", "dry-run", "INSTALL_PROGRAM=/root/other")
	if ok || !strings.Contains(out, hidden) {
		t.Errorf("install: got success %v and\n%s\nwant a refusal", ok, out)
	}
	wantText(t, "uninstall", mustAs(t, h, "uninstall", "dry-run"), hidden)
}

// TestTheRealProgramInstallsItself has nothing made up: the program of this release, on a machine with a kubelet and containerd. What it
// sees from within its sandbox is what it sees without.
func TestTheRealProgramInstallsItself(t *testing.T) {
	t.Parallel()
	lab.Require(t, "containerd", "runc", "ctr")
	tools, err := lab.KubernetesTools(t.Context(), "kubelet")
	lab.Must(t, err)
	program := lab.Program(t, "github.com/aks-flex-node/agent/cmd/aks-flex-node")
	h := lab.StartHost(t, lab.HostOptions{Name: "real"})
	lab.Must(t, h.InstallContainerd(t.Context()))
	lab.Must(t, h.InstallKubelet(t.Context(), filepath.Join(tools, "kubelet")))
	const download = "/root/aks-flex-node-linux-amd64"
	lab.Must(t, h.CopyIn(t.Context(), filepath.Clean(program), download, 0o755))
	wantText(t, "dry run", h.MustExec(t, download, "install", "--dry-run"), "Nothing was changed (--dry-run).")
	h.MustExec(t, "test", "!", "-e", ProgramPath)
	wantText(t, "install", h.MustExec(t, download, "install"), "Done.")
	if got := show(t, h, "ActiveState") + " " + show(t, h, "NRestarts"); got != "active 0" {
		t.Errorf("service: got %s, want it active at once", got)
	}
	type snapshot struct {
		KubeletVersion, RuncVersion, ContainerdVersion string
		KubeletRunning, ContainerdRunning              bool
	}
	var outside, inside snapshot
	live, err := h.Exec(t.Context(), download, "status", "--live", "-o", "json")
	lab.Must(t, err)
	lab.Must(t, json.Unmarshal([]byte(live.Stdout), &outside))
	if outside.KubeletVersion == "unknown" || !outside.ContainerdRunning {
		t.Fatalf("from outside: got %+v", outside)
	}
	lab.Must(t, lab.WaitFor(t.Context(), time.Minute, "the same in the snapshot", func(context.Context) (bool, string) {
		b, err := h.ReadFile("/run/aks-flex-node/status.json")
		if err == nil {
			err = json.Unmarshal(b, &inside)
		}
		return err == nil && inside == outside, fmt.Sprintf("%+v, %v, and from outside %+v", inside, err, outside)
	}))
	wantText(t, "again", h.MustExec(t, ProgramPath, "install"), "Nothing to do")
	h.MustExec(t, "systemctl", "reload", deploy.UnitName)
	wantText(t, "uninstall", h.MustExec(t, ProgramPath, "uninstall", "--purge"), "Done.")
	h.MustExec(t, "test", "!", "-e", ProgramPath)
}
