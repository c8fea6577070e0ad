package install

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/deploy"
	"github.com/aks-flex-node/agent/internal/observe"
)

// fakeSystemd is a systemd whose unit files lie below root. It remembers what it was asked to do.
type fakeSystemd struct {
	root    string
	did     []string
	loaded  bool
	enabled bool
	running bool
	starts  int
	stale   bool
	broken  bool // the service never comes up
	fails   map[string]error
	kubelet observe.Unit
}

func (f *fakeSystemd) do(what string) error {
	f.did = append(f.did, what)
	return f.fails[what]
}

func (f *fakeSystemd) Units(_ context.Context, names ...string) ([]observe.Unit, error) {
	if err := f.fails["look"]; err != nil {
		return nil, err
	}
	us := observe.Unit{Name: deploy.UnitName, LoadState: "not-found", ActiveState: "inactive"}
	if f.loaded {
		us.LoadState, us.UnitFileState = "loaded", map[bool]string{true: "enabled", false: "disabled"}[f.enabled]
	}
	if f.running {
		us.ActiveState, us.SubState, us.MainPID, us.MainStart = "active", "running", 1<<30, uint64(f.starts) // a process that is not there
	}
	if f.broken {
		us.ActiveState, us.SubState, us.Result = "activating", "auto-restart", "exit-code"
	}
	all := []observe.Unit{us, f.kubelet}
	return all[:len(names)], nil
}

func (f *fakeSystemd) UnitIsStale(context.Context, string) (bool, error) { return f.stale, nil }

func (f *fakeSystemd) ReloadUnits(context.Context) error {
	_, err := os.Lstat(filepath.Join(f.root, UnitPath))
	f.loaded, f.stale = err == nil, false
	return f.do("reload")
}

func (f *fakeSystemd) EnableUnit(context.Context, string) error {
	f.enabled = true
	return f.do("enable")
}

func (f *fakeSystemd) DisableUnit(context.Context, string) error {
	f.enabled = false
	return f.do("disable")
}

func (f *fakeSystemd) Restart(context.Context, string) error {
	f.starts++
	f.running = !f.broken
	return f.do("restart")
}

func (f *fakeSystemd) Stop(context.Context, string) error { f.running = false; return f.do("stop") }

func (f *fakeSystemd) takeDid() string {
	did := strings.Join(f.did, " ")
	f.did = nil
	return did
}

// machine is a root folder with a systemd, and an installer for it.
type machine struct {
	*Installer
	systemd *fakeSystemd
	plan    *Plan // the last one that was shown
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	root := t.TempDir()
	m := &machine{systemd: &fakeSystemd{root: root}}
	m.Installer = &Installer{
		Root: root, Systemd: m.systemd, Version: "v1", Start: true, Config: "/etc/aks-flex-node/config.json",
		Program: filepath.Join(t.TempDir(), "new"),
	}
	for _, dir := range []string{"etc/systemd/system", "usr/local/bin", "var/lib"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	m.program(t, "the new program")
	return m
}

// program makes what is installed a program with this content.
func (m *machine) program(t *testing.T, content string) {
	t.Helper()
	must(t, os.WriteFile(m.Program, []byte(content), 0o755))
}

func (m *machine) write(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	p := filepath.Join(m.Root, name)
	must(t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(t, os.WriteFile(p, []byte(content), mode))
	must(t, os.Chmod(p, mode))
}

func (m *machine) show(p *Plan) error { m.plan = p; return nil }

func (m *machine) install(t *testing.T) error {
	t.Helper()
	m.plan = &Plan{}
	return m.Install(t.Context(), false, m.show)
}

func (m *machine) mustInstall(t *testing.T) {
	t.Helper()
	if err := m.install(t); err != nil {
		t.Fatalf("install: got %v, want no error", err)
	}
}

func (m *machine) uninstall(t *testing.T, purge bool) {
	t.Helper()
	m.plan = &Plan{}
	if err := m.Uninstall(t.Context(), false, purge, m.show); err != nil {
		t.Fatalf("uninstall: got %v, want no error", err)
	}
}

// notes are the notes of the last plan, in one text.
func (m *machine) notes() string { return strings.Join(m.plan.Notes, "\n") }

// verbs are the first words of the steps of the last plan.
func (m *machine) verbs() string {
	var out []string
	for _, s := range m.plan.Steps {
		word, _, _ := strings.Cut(s.Text, " ")
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

// tree is everything below the root: names, modes, inodes, times of change, and contents.
func (m *machine) tree(t *testing.T) string {
	t.Helper()
	var lines []string
	must(t, filepath.WalkDir(m.Root, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		content := ""
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(b)
		}
		lines = append(lines, fmt.Sprintf("%s %s %v %q", strings.TrimPrefix(p, m.Root), info.Mode(), info.ModTime(), content))
		return nil
	}))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (m *machine) wantFile(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.Root, name))
	if err != nil || string(b) != content {
		t.Errorf("%s: got %.100q, %v, want %.100q", name, b, err, content)
		return
	}
	info, err := os.Lstat(filepath.Join(m.Root, name))
	must(t, err)
	if info.Mode() != mode {
		t.Errorf("%s: got mode %v, want %v", name, info.Mode(), mode)
	}
}

func (m *machine) wantNone(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(m.Root, name)); err == nil {
			t.Errorf("%s: got a file, want none", name)
		}
	}
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want it to hold %q", what, got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
