package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/aks-flex-node/agent/deploy"
	"github.com/aks-flex-node/agent/internal/observe"
)

// LogDir is where the agent keeps a log file, unless the configuration says otherwise; that one is never purged.
const LogDir = "/var/log/aks-flex-node"

func (i *Installer) planUninstall(ctx context.Context, purge bool) (*Plan, error) {
	p := &Plan{}
	units, err := i.Systemd.Units(ctx, deploy.UnitName, kubeletUnit)
	if err != nil {
		return nil, fmt.Errorf("the service can't be looked at: %w", err)
	}
	m, err := i.loadManifest()
	if err != nil {
		return nil, err
	}
	left := map[string][]string{}
	unitGone := i.planUnitRemoval(p, m, units[0], left)
	i.planProgramRemoval(p, m, units[1], unitGone, left)
	i.planRecord(p, m, left)
	if purge {
		i.planPurge(p, unitGone)
	}
	for _, kept := range []string{i.Config, FormerDir} {
		if _, err := os.Lstat(i.at(kept)); err == nil && len(p.Steps) > 0 {
			p.note("%s is left alone.", kept)
		}
	}
	return p, nil
}

// ownedNow looks whether what lies there was put there by us, by the record. Anything that can't be looked at is not ours.
func (i *Installer) ownedNow(p *Plan, m manifest, name string) (exists, ours bool) {
	now, err := i.lookAt(name)
	switch {
	case errors.Is(err, errMasked):
		p.note("The mask %s stays; systemctl unmask %s removes it.", name, path.Base(name))
		return false, false // it runs nothing
	case err != nil:
		p.note("%s is left alone: %v", name, err)
		return true, false
	case now.exists && !m.knows(name, now.sum):
		p.note("%s is left alone: it was changed, or was not put there by this program.", name)
		return true, false
	}
	return now.exists, now.exists
}

// planUnitRemoval plans the end of the service and says whether it will be gone.
func (i *Installer) planUnitRemoval(p *Plan, m manifest, unit observe.Unit, left map[string][]string) (gone bool) {
	exists, ours := i.ownedNow(p, m, UnitPath)
	if exists && !ours {
		if sums := m.Files[UnitPath]; len(sums) > 0 {
			left[UnitPath] = sums
		}
		return false
	}
	if unit.Running() || unit.MainPID > 0 || unit.ActiveState == "activating" || unit.Job != "" {
		p.step(i.stop, "stop %s", deploy.UnitName)
	}
	if !exists {
		return true
	}
	p.step(func(ctx context.Context) error { return i.Systemd.DisableUnit(ctx, deploy.UnitName) }, "disable %s", deploy.UnitName)
	p.step(func(context.Context) error { return i.remove(UnitPath) }, "remove %s", UnitPath)
	p.step(i.Systemd.ReloadUnits, "have systemd read its unit files anew")
	if entries, _ := os.ReadDir(i.at(UnitPath + ".d")); len(entries) > 0 {
		p.note("The drop-ins in %s.d are left alone.", UnitPath)
	}
	return true
}

// planProgramRemoval plans the removal of the program, unless something still needs it.
func (i *Installer) planProgramRemoval(p *Plan, m manifest, kubelet observe.Unit, unitGone bool, left map[string][]string) {
	exists, ours := i.ownedNow(p, m, ProgramPath)
	if !exists {
		return
	}
	why := ""
	g, err := i.findPlugin(kubelet)
	switch {
	case !ours:
	case err != nil:
		why = fmt.Sprintf("it can't be told whether the kubelet gets its credentials from it: %v. Mend that and run this again, or remove it by hand if no kubeconfig of the kubelet runs it", err)
	case i.usesUs(g):
		why = fmt.Sprintf("the kubelet gets its credentials from it (%s), and the node would lose its cluster. Give the kubelet other credentials, or take the node out of its cluster, and run this again", g.kubeconfig)
	case !unitGone:
		why = "the unit file that stays may run it"
	}
	if ours && why == "" {
		p.step(func(context.Context) error { return i.remove(ProgramPath) }, "remove %s", ProgramPath)
		return
	}
	if why != "" {
		p.note("%s is left alone: %s.", ProgramPath, why)
	}
	if sums := m.Files[ProgramPath]; len(sums) > 0 {
		left[ProgramPath] = sums
	}
}

// planRecord plans what becomes of the record: it knows what is still there and was put there by us.
func (i *Installer) planRecord(p *Plan, m manifest, left map[string][]string) {
	if len(m.Files) == len(left) {
		return
	}
	if len(left) == 0 {
		p.step(func(context.Context) error { return i.remove(path.Join(StateDir, manifestName)) }, "remove %s/%s", StateDir, manifestName)
		return
	}
	next := m
	next.Files = left
	p.step(func(context.Context) error { return i.saveManifest(next) }, "record in %s/%s what is left", StateDir, manifestName)
}

// planPurge plans the removal of the agent's own records: by name, since others have things in those folders too. An agent that goes on
// running keeps them.
func (i *Installer) planPurge(p *Plan, unitGone bool) {
	if !unitGone {
		p.note("Nothing is purged, since the service stays.")
		return
	}
	for _, place := range []struct {
		dir   string
		names []string // patterns
	}{
		{StateDir, []string{"journal.db", "journal.db.*", "journal.db-*", "*.log"}},
		{LogDir, []string{"aks-flex-node.log", "aks-flex-node-*.log"}},
	} {
		dir, err := openFolder(i.Root, place.dir, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			p.note("%s is not purged: %v", place.dir, err)
			continue
		}
		dir.close()
		entries, err := os.ReadDir(i.at(place.dir))
		if err != nil {
			p.note("%s is not purged: %v", place.dir, err)
		}
		for _, e := range entries {
			if name := path.Join(place.dir, e.Name()); e.Type().IsRegular() && matches(e.Name(), place.names) {
				p.step(func(context.Context) error { return i.remove(name) }, "remove %s", name)
			}
		}
	}
}

func matches(name string, patterns []string) bool {
	for _, pattern := range patterns {
		if ok, _ := path.Match(pattern, name); ok && !strings.HasPrefix(name, ".") {
			return true
		}
	}
	return false
}

func (i *Installer) remove(name string) error {
	dir, err := openFolder(i.Root, path.Dir(name), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.close()
	return dir.remove(path.Base(name))
}
