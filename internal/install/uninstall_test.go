package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/deploy"
)

func TestUninstallTakesAwayWhatWasInstalled(t *testing.T) {
	m := newMachine(t)
	m.write(t, "/etc/aks-flex-node/config.json", "{}", 0o600)
	m.mustInstall(t)
	m.systemd.takeDid()
	m.write(t, StateDir+"/journal.db", "journal", 0o600)
	m.write(t, StateDir+"/kubernetes/v1/kubelet", "what the kubelet's unit runs", 0o755)
	m.write(t, LogDir+"/aks-flex-node.log", "log", 0o600)
	m.write(t, LogDir+"/former.log", "someone's", 0o600)
	before := m.tree(t)
	must(t, m.Uninstall(t.Context(), true, true, m.show))
	if m.tree(t) != before || m.systemd.takeDid() != "" {
		t.Errorf("dry run: got changes, want none")
	}

	m.uninstall(t, false)
	if got := m.systemd.takeDid(); got != "stop disable reload" {
		t.Errorf("systemd: got %q, want stop, disable, reload", got)
	}
	m.wantNone(t, ProgramPath, UnitPath, StateDir+"/install.json")
	m.wantFile(t, "/etc/aks-flex-node/config.json", "{}", 0o600)
	m.wantFile(t, StateDir+"/journal.db", "journal", 0o600)
	m.uninstall(t, false)
	if m.verbs() != "" {
		t.Errorf("second run: got steps %q, want none", m.verbs())
	}

	m.uninstall(t, true)
	m.wantNone(t, StateDir+"/journal.db", LogDir+"/aks-flex-node.log")
	m.wantFile(t, StateDir+"/kubernetes/v1/kubelet", "what the kubelet's unit runs", 0o755)
	m.wantFile(t, LogDir+"/former.log", "someone's", 0o600)
	m.wantFile(t, "/etc/aks-flex-node/config.json", "{}", 0o600)
}

func TestUninstallLeavesWhatIsNotOurs(t *testing.T) {
	t.Run("given a machine where install never ran", func(t *testing.T) {
		m := newMachine(t)
		m.write(t, ProgramPath, "former program", 0o755)
		m.write(t, UnitPath, formerUnit, 0o644)
		m.systemd.loaded, m.systemd.enabled, m.systemd.running = true, true, true
		before := m.tree(t)
		m.uninstall(t, true)
		if m.tree(t) != before || m.systemd.takeDid() != "" {
			t.Errorf("got steps %q, want nothing done", m.verbs())
		}
		wantText(t, "notes", m.notes(), UnitPath+" is left alone: it was changed, or was not put there")
		wantText(t, "notes", m.notes(), ProgramPath+" is left alone")
	})
	t.Run("given a program that was replaced", func(t *testing.T) {
		m := newMachine(t)
		m.mustInstall(t)
		m.write(t, ProgramPath, "by hand", 0o755)
		m.uninstall(t, false)
		m.wantNone(t, UnitPath)
		m.wantFile(t, ProgramPath, "by hand", 0o755)
	})
	t.Run("given a unit file that was changed, its program stays too", func(t *testing.T) {
		m := newMachine(t)
		m.mustInstall(t)
		m.systemd.takeDid()
		m.write(t, UnitPath, string(deploy.Unit)+"Nice=5\n", 0o644)
		m.uninstall(t, true)
		m.wantFile(t, ProgramPath, "the new program", 0o755)
		if did := m.systemd.takeDid(); did != "" {
			t.Errorf("systemd: got %q, want nothing", did)
		}
		wantText(t, "notes", m.notes(), "the unit file that stays runs it")
	})
	t.Run("given links in their places", func(t *testing.T) {
		m := newMachine(t)
		m.mustInstall(t)
		at := filepath.Join(m.Root, ProgramPath)
		must(t, os.Rename(at, at+".moved"))
		must(t, os.Symlink("aks-flex-node.moved", at))
		m.uninstall(t, false)
		wantText(t, "notes", m.notes(), "is a link to aks-flex-node.moved")
		m.wantFile(t, ProgramPath+".moved", "the new program", 0o755)
		if _, err := os.Lstat(at); err != nil {
			t.Errorf("link: got %v, want it left", err)
		}
	})
}

func TestUninstallLeavesTheProgramThatTheKubeletNeeds(t *testing.T) {
	m := newMachine(t)
	m.mustInstall(t)
	m.write(t, "/var/lib/kubelet/kubelet/kubeconfig", kubeconfig(ProgramPath), 0o600)
	m.uninstall(t, false)
	m.wantNone(t, UnitPath)
	m.wantFile(t, ProgramPath, "the new program", 0o755)
	wantText(t, "notes", m.notes(), "the kubelet gets its credentials from it (/var/lib/kubelet/kubelet/kubeconfig)")
	m.uninstall(t, false)
	if m.verbs() != "" {
		t.Errorf("second run: got steps %q, want none", m.verbs())
	}

	m.write(t, "/var/lib/kubelet/kubelet/kubeconfig", "clusters: [", 0o600)
	m.uninstall(t, false)
	wantText(t, "notes", m.notes(), "it can't be told whether")
	m.wantFile(t, ProgramPath, "the new program", 0o755)

	must(t, os.Remove(filepath.Join(m.Root, "/var/lib/kubelet/kubelet/kubeconfig")))
	m.uninstall(t, false) // it is still known to be ours
	m.wantNone(t, ProgramPath, StateDir+"/install.json")
}

func TestReinstallAfterUninstall(t *testing.T) {
	m := newMachine(t)
	m.mustInstall(t)
	m.uninstall(t, true)
	m.mustInstall(t)
	m.wantFile(t, ProgramPath, "the new program", 0o755)
	if strings.Contains(m.verbs(), "keep") {
		t.Errorf("steps: got %q, want no copy of anything", m.verbs())
	}
}
