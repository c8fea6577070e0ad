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
		wantText(t, "notes", m.notes(), "the unit file that stays may run it")
	})
}

func TestUninstallFollowsNoLinks(t *testing.T) {
	for _, tc := range []struct {
		name, link string
		note       string
		steps      string
	}{
		{"the program", ProgramPath, "aks-flex-node is left alone: " + ProgramPath + " is a link to aks-flex-node.moved", "stop disable remove have record remove"},
		{"the program's folder", "/usr/local", "/usr/local is a link or no folder", "stop disable remove have record remove"},
		{"the unit file", UnitPath, "the unit file that stays may run it", ""},
		{"the unit file's folder", "/etc/systemd", "the unit file that stays may run it", ""},
		{"the folder of the log, which stays with what is in it", LogDir, LogDir + " is not purged: " + LogDir + " is a link", "stop disable remove have remove remove"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			m.mustInstall(t)
			m.write(t, LogDir+"/aks-flex-node.log", "log", 0o600)
			at := filepath.Join(m.Root, tc.link)
			must(t, os.Rename(at, at+".moved"))
			must(t, os.Symlink(filepath.Base(at)+".moved", at))
			must(t, m.Uninstall(t.Context(), true, true, m.show))
			wantText(t, "notes", m.notes(), tc.note)
			if got := m.verbs(); got != tc.steps {
				t.Errorf("steps: got %q, want %q", got, tc.steps)
			}
			for _, s := range m.plan.Steps {
				if err := s.do(t.Context()); err != nil {
					t.Errorf("%s: %v", s.Text, err)
				}
			}
			if _, err := os.Stat(at); err != nil {
				t.Errorf("link: got %v, want it left, and what is behind it", err)
			}
		})
	}
	t.Run("the folder of the record", func(t *testing.T) {
		m := newMachine(t)
		m.mustInstall(t)
		at := filepath.Join(m.Root, StateDir)
		must(t, os.Rename(at, at+".moved"))
		must(t, os.Symlink(at+".moved", at))
		before := m.tree(t)
		err := m.Uninstall(t.Context(), false, true, m.show)
		if err == nil || !strings.Contains(err.Error(), StateDir+" is a link") || m.tree(t) != before {
			t.Errorf("got %v, want that the folder is a link, and no changes", err)
		}
	})
}

func TestUninstallOfAMaskedService(t *testing.T) {
	m := newMachine(t)
	m.mustInstall(t)
	at := filepath.Join(m.Root, UnitPath)
	must(t, os.Remove(at))
	must(t, os.Symlink("/dev/null", at))
	m.uninstall(t, true)
	if got := m.verbs(); got != "stop remove remove" {
		t.Errorf("steps: got %q, want the service stopped, and the program and the record removed", got)
	}
	wantText(t, "notes", m.notes(), "The mask "+UnitPath+" stays; systemctl unmask "+deploy.UnitName+" removes it.")
	m.wantNone(t, ProgramPath, StateDir+"/install.json")
	if to, err := os.Readlink(at); to != "/dev/null" {
		t.Errorf("mask: got %q, %v, want it left", to, err)
	}
	m.uninstall(t, true)
	if m.verbs() != "" {
		t.Errorf("second run: got steps %q, want none", m.verbs())
	}
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
