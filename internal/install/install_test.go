package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aks-flex-node/agent/deploy"
)

const formerUnit = `[Unit]
Description=AKS Flex Node Agent

[Service]
Type=simple
ExecStart=/usr/local/bin/aks-flex-node agent --config /etc/aks-flex-node/config.json
RuntimeDirectory=aks-flex-node
Environment=HTTPS_PROXY=http://user:hidden@proxy:3128 NO_PROXY=10.0.0.0/8
`

func TestInstallOnAFreshMachine(t *testing.T) {
	m := newMachine(t)
	before := m.tree(t)
	must(t, m.Install(t.Context(), true, m.show))
	planned := m.verbs()
	if after := m.tree(t); after != before || m.systemd.takeDid() != "" {
		t.Errorf("dry run: got changes\n%s\nwant none of\n%s", after, before)
	}
	m.mustInstall(t)
	if got := m.verbs(); got != planned || got != "record install install enable have start" {
		t.Errorf("steps: got %q, and %q in the dry run", got, planned)
	}
	if got := m.systemd.takeDid(); got != "enable reload restart" {
		t.Errorf("systemd: got %q, want enable, reload, restart", got)
	}
	m.wantFile(t, ProgramPath, "the new program", 0o755)
	m.wantFile(t, UnitPath, string(deploy.Unit), 0o644)
	wantText(t, "notes", m.notes(), "There is no /etc/aks-flex-node/config.json: the agent only observes")

	installed := m.tree(t)
	m.mustInstall(t)
	if after := m.tree(t); after != installed || m.verbs() != "" || m.systemd.takeDid() != "" {
		t.Errorf("second run: got steps %q and\n%s\nwant nothing done", m.verbs(), after)
	}
}

func TestInstallWhatIsNotAsItIsToBe(t *testing.T) {
	for _, tc := range []struct {
		name    string
		given   func(t *testing.T, m *machine)
		steps   string
		systemd string
	}{
		{"another version", func(t *testing.T, m *machine) { m.program(t, "version 2") }, "record replace restart", "restart"},
		{"permissions were changed", func(t *testing.T, m *machine) {
			must(t, os.Chmod(filepath.Join(m.Root, ProgramPath), 0o777))
		}, "set restart", "restart"},
		{"the program was replaced by hand", func(t *testing.T, m *machine) {
			m.write(t, ProgramPath, "by hand", 0o755)
		}, "keep replace restart", "restart"},
		{"the unit file is gone", func(t *testing.T, m *machine) {
			must(t, os.Remove(filepath.Join(m.Root, UnitPath)))
		}, "install have restart", "reload restart"},
		{"systemd has not read it", func(_ *testing.T, m *machine) { m.systemd.stale = true }, "have restart", "reload restart"},
		{"it was disabled", func(_ *testing.T, m *machine) { m.systemd.enabled = false }, "enable have", "enable reload"},
		{"it was stopped", func(_ *testing.T, m *machine) { m.systemd.running = false }, "start", "restart"},
		{"it was stopped, and is to be left so", func(_ *testing.T, m *machine) { m.systemd.running, m.Start = false, false }, "", ""},
		{"another version, not to be started", func(t *testing.T, m *machine) { m.program(t, "version 2"); m.Start = false }, "record replace", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			m.mustInstall(t)
			m.systemd.takeDid()
			tc.given(t, m)
			m.mustInstall(t)
			if got, did := m.verbs(), m.systemd.takeDid(); got != tc.steps || did != tc.systemd {
				t.Errorf("got steps %q and systemd %q, want %q and %q", got, did, tc.steps, tc.systemd)
			}
			again := m.tree(t)
			m.mustInstall(t)
			if m.verbs() != "" || m.tree(t) != again {
				t.Errorf("once more: got steps %q, want none", m.verbs())
			}
		})
	}
}

func TestInstallRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		given func(t *testing.T, m *machine, at func(string) string)
		want  string
	}{
		{"a program that is a link", func(t *testing.T, _ *machine, at func(string) string) {
			must(t, os.Symlink("/opt/agent", at(ProgramPath)))
		}, "/usr/local/bin/aks-flex-node is a link to /opt/agent"},
		{"a program that is a folder", func(t *testing.T, _ *machine, at func(string) string) {
			must(t, os.Mkdir(at(ProgramPath), 0o755))
		}, "not a regular file"},
		{"a masked unit", func(t *testing.T, _ *machine, at func(string) string) {
			must(t, os.Symlink("/dev/null", at(UnitPath)))
		}, "unmask it first"},
		{"a program that is a link to nothing", func(t *testing.T, _ *machine, at func(string) string) {
			must(t, os.Symlink("/dev/null", at(ProgramPath)))
		}, "/usr/local/bin/aks-flex-node is a link to /dev/null: links are not followed"},
		{"a unit that is a link", func(t *testing.T, m *machine, at func(string) string) {
			m.write(t, "/opt/agent.service", formerUnit, 0o644)
			must(t, os.Symlink("/opt/agent.service", at(UnitPath)))
		}, UnitPath + " is a link to /opt/agent.service"},
		{"a record that is a link", func(t *testing.T, m *machine, at func(string) string) {
			m.write(t, StateDir+"/kept.json", "{}", 0o600)
			must(t, os.Symlink("kept.json", at(StateDir+"/install.json")))
		}, "install.json is a link to kept.json"},
		{"a unit's folder that is a link", func(t *testing.T, _ *machine, at func(string) string) {
			must(t, os.Rename(at("/etc/systemd/system"), at("/etc/systemd/else")))
			must(t, os.Symlink("else", at("/etc/systemd/system")))
		}, "/etc/systemd/system is a link"},
		{"a folder that is a link", func(t *testing.T, _ *machine, at func(string) string) {
			must(t, os.Rename(at("/usr/local"), at("/usr/else")))
			must(t, os.Symlink("else", at("/usr/local")))
		}, "/usr/local is a link"},
		{"a state folder that is a link", func(t *testing.T, _ *machine, at func(string) string) {
			must(t, os.Symlink("/srv", at(StateDir)))
		}, "/var/lib/aks-flex-node is a link"},
		{"a folder that everyone can write", func(t *testing.T, _ *machine, at func(string) string) {
			must(t, os.Chmod(at("/usr/local/bin"), 0o777))
		}, "/usr/local/bin can be written by everyone"},
		{"a folder above that everyone can write", func(t *testing.T, _ *machine, at func(string) string) {
			must(t, os.Chmod(at("/etc/systemd"), 0o1777))
		}, "/etc/systemd can be written by everyone"},
		{"somebody's own unit of that name", func(t *testing.T, m *machine, _ func(string) string) {
			m.write(t, UnitPath, "[Service]\nExecStart=/opt/mine\nRuntimeDirectory=aks-flex-node\n", 0o644)
		}, "say --force"},
		{"a unit of ours that was changed", func(t *testing.T, m *machine, at func(string) string) {
			m.mustInstall(t)
			m.write(t, UnitPath, string(deploy.Unit)+"Nice=5\n", 0o644)
			m.systemd.takeDid()
			must(t, os.Remove(at(ProgramPath)))
		}, "was changed here"},
		{"a record that is broken", func(t *testing.T, m *machine, _ func(string) string) {
			m.write(t, StateDir+"/install.json", "{", 0o600)
		}, "install.json"},
		{"a machine without systemd", func(_ *testing.T, m *machine, _ func(string) string) {
			m.systemd.fails = map[string]error{"look": errors.New("systemd does not run this machine")}
		}, "the service needs systemd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			tc.given(t, m, func(name string) string { return filepath.Join(m.Root, name) })
			before := m.tree(t)
			err := m.install(t)
			if err == nil {
				t.Fatal("got no error")
			}
			wantText(t, "error", err.Error(), tc.want)
			if after := m.tree(t); after != before || m.systemd.takeDid() != "" {
				t.Errorf("got changes\n%s\nwant none of\n%s", after, before)
			}
		})
	}
}

func TestInstallOverASomebodysUnitByForce(t *testing.T) {
	m := newMachine(t)
	m.write(t, UnitPath, "[Service]\nExecStart=/opt/mine\n", 0o644)
	m.Force = true
	m.mustInstall(t)
	m.wantFile(t, UnitPath, string(deploy.Unit), 0o644)
	m.wantFile(t, FormerDir+"/"+deploy.UnitName, "[Service]\nExecStart=/opt/mine\n", 0o644)
}

func TestInstallTakesOverTheFormerAgent(t *testing.T) {
	m := newMachine(t)
	m.write(t, ProgramPath, "former program", 0o755)
	m.write(t, UnitPath, formerUnit, 0o644)
	m.write(t, UnitPath+".d/limits.conf", "[Service]\n", 0o644)
	m.write(t, "/etc/aks-flex-node/config.json", `{"agnet": {}}`, 0o600)
	m.systemd.loaded, m.systemd.enabled, m.systemd.running = true, true, true
	m.mustInstall(t)
	if got := m.verbs(); got != "keep keep record replace replace have restart" {
		t.Errorf("steps: got %q", got)
	}
	m.wantFile(t, ProgramPath, "the new program", 0o755)
	m.wantFile(t, FormerDir+"/aks-flex-node", "former program", 0o755)
	m.wantFile(t, FormerDir+"/"+deploy.UnitName, formerUnit, 0o644)
	m.wantFile(t, "/etc/aks-flex-node/config.json", `{"agnet": {}}`, 0o600)
	for _, want := range []string{"former agent's service is taken over", "Environment=HTTPS_PROXY=… NO_PROXY=…", "limits.conf is left alone", "agnet", "the agent only observes"} {
		wantText(t, "notes", m.notes(), want)
	}
	if strings.Contains(m.notes(), "hidden") {
		t.Errorf("notes: got %q, want no values of the environment", m.notes())
	}
	must(t, os.WriteFile(filepath.Join(m.Root, ProgramPath), []byte("yet another"), 0o755))
	m.mustInstall(t)
	m.wantFile(t, FormerDir+"/aks-flex-node", "former program", 0o755) // the first copy stays
	copies, err := filepath.Glob(filepath.Join(m.Root, FormerDir, "aks-flex-node.*"))
	if err != nil || len(copies) != 1 {
		t.Errorf("second copy: got %q, %v, want one", copies, err)
	}
}

func TestInstallAfterSomebodyWentBackToTheFormerAgent(t *testing.T) {
	m := newMachine(t)
	m.write(t, ProgramPath, "former program", 0o755)
	m.write(t, UnitPath, formerUnit, 0o644)
	m.mustInstall(t)
	for range 2 { // as docs/install.md says, from the copies
		m.write(t, ProgramPath, "former program", 0o755)
		m.write(t, UnitPath, formerUnit, 0o644)
		m.mustInstall(t)
		m.wantFile(t, ProgramPath, "the new program", 0o755)
		m.wantFile(t, UnitPath, string(deploy.Unit), 0o644)
		wantText(t, "notes", m.notes(), "former agent's service is taken over")
	}
	m.write(t, UnitPath, formerUnit+"Nice=5\n", 0o644)
	if err := m.install(t); err == nil || !strings.Contains(err.Error(), "say --force") {
		t.Errorf("a file that was never taken over: got %v, want a refusal", err)
	}
}

func TestAUnitThatWasChangedHereIsNeverTheFormerAgents(t *testing.T) {
	m := newMachine(t)
	m.mustInstall(t)
	changed := string(deploy.Unit) + "Nice=5\n"
	m.write(t, UnitPath, changed, 0o644)
	m.Force = true
	m.mustInstall(t)
	m.wantFile(t, FormerDir+"/"+deploy.UnitName, changed, 0o644)
	m.write(t, UnitPath, changed, 0o644)
	m.Force = false
	if err := m.install(t); err == nil || !strings.Contains(err.Error(), "was changed here") {
		t.Errorf("its copy put back: got %v, want a refusal", err)
	}
}

func TestALinkInPlaceOfTheHalfWrittenFileIsNotFollowed(t *testing.T) {
	m := newMachine(t)
	m.write(t, "/etc/precious", "precious", 0o600)
	must(t, os.Symlink("../../../etc/precious", filepath.Join(m.Root, "/usr/local/bin/.aks-flex-node.new")))
	m.mustInstall(t)
	m.wantFile(t, "/etc/precious", "precious", 0o600)
	m.wantFile(t, ProgramPath, "the new program", 0o755)
}

func TestInstallThatWasInterruptedGoesOn(t *testing.T) {
	for _, at := range []string{"enable", "reload", "restart"} {
		t.Run("at "+at, func(t *testing.T) {
			m := newMachine(t)
			m.write(t, "/usr/local/bin/.aks-flex-node.new", "half of a progr", 0o600)
			m.systemd.fails = map[string]error{at: errors.New("the machine went down")}
			if err := m.install(t); err == nil {
				t.Fatal("got no error")
			}
			m.systemd.fails, m.systemd.enabled, m.systemd.running = nil, at != "enable", false
			m.mustInstall(t)
			m.wantFile(t, ProgramPath, "the new program", 0o755)
			m.wantNone(t, "/usr/local/bin/.aks-flex-node.new")
			if !m.systemd.running || !m.systemd.enabled || !m.systemd.loaded {
				t.Errorf("service: got %+v, want it enabled and running", m.systemd)
			}
			m.mustInstall(t)
			if m.verbs() != "" {
				t.Errorf("once more: got steps %q, want none", m.verbs())
			}
		})
	}
}

func TestInstallSaysWhenTheServiceDoesNotComeUp(t *testing.T) {
	m := newMachine(t)
	m.systemd.broken = true
	synctest.Test(t, func(t *testing.T) {
		err := m.Install(t.Context(), false, m.show)
		if !errors.Is(err, errTooLong) {
			t.Fatalf("got %v, want errTooLong", err)
		}
		wantText(t, "error", err.Error(), "journalctl -u aks-flex-node-agent.service; it is now activating (auto-restart), last result exit-code")
	})
}

func TestOnlyOneInstallsAtATime(t *testing.T) {
	m := newMachine(t)
	var inner error
	err := m.Install(t.Context(), false, func(*Plan) error {
		inner = m.Install(context.Background(), false, m.show) //nolint:usetesting // the same
		return errors.New("not today")
	})
	if err == nil || err.Error() != "not today" {
		t.Errorf("show refuses: got %v", err)
	}
	if inner == nil || !strings.Contains(inner.Error(), "someone else is installing") {
		t.Errorf("second one: got %v, want that someone else is installing", inner)
	}
	m.wantNone(t, ProgramPath)
}

func TestInstallNoticesWhatChangesMeanwhile(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, m *machine)
		want   string
	}{
		{"the program to install", func(t *testing.T, m *machine) { m.program(t, "half of it") }, "its content changed meanwhile"},
		{"the file in its place", func(t *testing.T, m *machine) { m.write(t, ProgramPath, "someone else's", 0o755) }, "it changed since the plan was made"},
		{"a link in its place", func(t *testing.T, m *machine) {
			must(t, os.Symlink("/etc/passwd", filepath.Join(m.Root, ProgramPath)))
		}, "is a link to /etc/passwd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			err := m.Install(t.Context(), false, func(*Plan) error { tc.change(t, m); return nil })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			m.wantNone(t, UnitPath, "/usr/local/bin/.aks-flex-node.new")
			if did := m.systemd.takeDid(); did != "" {
				t.Errorf("systemd: got %q, want nothing", did)
			}
			// The record was there first, so that nothing of ours is ever without one.
			if _, err := os.Stat(filepath.Join(m.Root, StateDir, manifestName)); err != nil {
				t.Errorf("record: %v", err)
			}
		})
	}
}
