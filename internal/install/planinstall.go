package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/aks-flex-node/agent/deploy"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/pkg/config"
)

// target is a file to be installed.
type target struct {
	path string
	mode os.FileMode
	sum  string
	size int64
	open func() (io.ReadCloser, error)

	now  found // what lies there
	ours bool  // and this program put it there, or it is the very same
}

// replace says that something is to be done.
func (t target) replace() bool { return !t.now.as(t.sum, t.mode) }

// targets looks at what is to be installed, and at what lies in those places. What is the very same is ours, whoever put it there.
func (i *Installer) targets(m manifest) (program, unit target, err error) {
	sum, size, err := i.sumOfProgram()
	if err != nil {
		return program, unit, err
	}
	program = target{path: ProgramPath, mode: programMode, sum: sum, size: size, open: i.openProgram}
	ofUnit := sha256.Sum256(deploy.Unit)
	unit = target{path: UnitPath, mode: unitMode, sum: hex.EncodeToString(ofUnit[:]), size: int64(len(deploy.Unit)), open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(deploy.Unit)), nil
	}}
	for _, t := range []*target{&program, &unit} {
		if t.now, err = i.lookAt(t.path); err != nil {
			return program, unit, err
		}
		t.ours = t.now.exists && (t.now.sum == t.sum || m.knows(t.path, t.now.sum))
	}
	return program, unit, nil
}

func (i *Installer) openProgram() (io.ReadCloser, error) { return os.Open(i.Program) }

func (i *Installer) sumOfProgram() (sum string, size int64, err error) {
	f, err := i.openProgram()
	if err != nil {
		return "", 0, fmt.Errorf("read the program to install: %w", err)
	}
	defer f.Close() // only read
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, fmt.Errorf("read the program to install: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

func (i *Installer) planInstall(ctx context.Context) (*Plan, error) {
	p := &Plan{}
	units, err := i.Systemd.Units(ctx, deploy.UnitName, kubeletUnit)
	if err != nil {
		return nil, fmt.Errorf("the service needs systemd: %w", err)
	}
	m, err := i.loadManifest()
	if err != nil {
		return nil, err
	}
	program, unit, err := i.targets(m)
	if err != nil {
		return nil, err
	}
	if err := i.judgeUnit(p, unit, &m); err != nil {
		return nil, err
	}
	if program.now.sum != program.sum {
		if err := i.keepsCredentials(ctx, p, units[1], program); err != nil {
			return nil, err
		}
	}
	i.checkConfig(p)
	i.noteOverrides(p)
	i.planFiles(p, m, program, unit)
	return p, i.planService(ctx, p, units[0], program.replace(), unit.replace())
}

// judgeUnit refuses to replace a unit file that is neither ours nor the former agent's. One that we once put there and that is another now
// was changed by somebody, also where it looks like the former agent's: ours does too. Only the very file that was taken over before is the
// former agent's again.
func (i *Installer) judgeUnit(p *Plan, unit target, m *manifest) error {
	if !unit.now.exists || unit.ours {
		return nil
	}
	text, err := i.readSmall(unit.path)
	if err != nil {
		return err
	}
	if wasOurs := len(m.Files[UnitPath]) > 0; !wasOurs && isFormers(text) || m.Former == unit.now.sum {
		m.Former = unit.now.sum
		p.note("The former agent's service is taken over. Its program and its unit file are kept in %s.", FormerDir)
		for _, line := range environmentLines(text) {
			p.note("The former unit file had a line that the new one has not; where it is needed, put it into a drop-in (systemctl edit %s): %s", deploy.UnitName, line)
		}
		return nil
	}
	if !i.Force {
		return fmt.Errorf("%s was changed here, or was not put there by this program: to have it replaced (a copy is kept in %s), say --force; what is to be different on this machine goes into a drop-in (systemctl edit %s)",
			unit.path, FormerDir, deploy.UnitName)
	}
	p.note("%s was changed here, or was not put there by this program. It is replaced all the same (--force).", unit.path)
	return nil
}

// checkConfig tells what is wrong with a configuration that is there already; it is kept as it is.
func (i *Installer) checkConfig(p *Plan) {
	result, err := config.Load(i.at(i.Config))
	if result != nil {
		for _, w := range result.Warnings {
			p.note("%s: warning: %s", i.Config, w)
		}
	}
	mistakes, wrong := errors.AsType[config.KeyErrors](err)
	switch {
	case wrong:
		for _, e := range mistakes {
			p.note("%s: mistake: %s", i.Config, e)
		}
		p.note("With these mistakes the agent only observes: mend them, and reload it (systemctl reload %s).", deploy.UnitName)
	case errors.Is(err, fs.ErrNotExist):
		p.note("There is no %s: the agent only observes.", i.Config)
	case err != nil:
		p.note("The configuration can't be used, so that the agent only observes: %v", err)
	}
}

// noteOverrides tells what else has a say in what the service is: it is left alone.
func (i *Installer) noteOverrides(p *Plan) {
	for _, dir := range []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"} {
		entries, _ := os.ReadDir(i.at(path.Join(dir, deploy.UnitName+".d"))) // none where it can't be read: then systemd can't either
		for _, e := range entries {
			p.note("The drop-in %s is left alone.", path.Join(dir, deploy.UnitName+".d", e.Name()))
		}
		if other := path.Join(dir, deploy.UnitName); other != UnitPath {
			if _, err := os.Lstat(i.at(other)); err == nil {
				p.note("There is another unit file of that name, %s: the one in /etc counts.", other)
			}
		}
	}
}

// planFiles plans what is put where. The record of it comes first, then the program, so that there is never a unit without one.
func (i *Installer) planFiles(p *Plan, m manifest, program, unit target) {
	next, news := m, false
	for _, t := range []target{program, unit} {
		if len(m.Files[t.path]) == 0 || m.Files[t.path][0] != t.sum {
			next, news = next.with(t.path, t.sum), true
		}
	}
	for _, t := range []target{program, unit} {
		if t.now.exists && !t.ours {
			p.step(func(context.Context) error { return i.keep(t) }, "keep a copy of %s in %s", t.path, FormerDir)
		}
	}
	if news {
		p.step(func(context.Context) error { return i.saveManifest(next) }, "record in %s/%s what is installed", StateDir, manifestName)
	}
	if program.replace() {
		p.step(func(context.Context) error { return i.put(program) }, "%s %s (version %s, %d bytes, sha256 %.12s)", verb(program), program.path, i.Version, program.size, program.sum)
	}
	if unit.replace() {
		p.step(func(context.Context) error { return i.put(unit) }, "%s %s", verb(unit), unit.path)
	}
}

func verb(t target) string {
	switch {
	case !t.now.exists:
		return "install"
	case t.now.sum == t.sum:
		return "set owner and permissions of"
	}
	return "replace"
}

func (i *Installer) put(t target) error {
	dir, err := openFolder(i.Root, path.Dir(t.path), programMode)
	if err != nil {
		return err
	}
	defer dir.close()
	if now, err := dir.look(path.Base(t.path)); err != nil {
		return err
	} else if now != t.now {
		return errors.New("it changed since the plan was made: run this again")
	}
	content, err := t.open()
	if err != nil {
		return err
	}
	defer content.Close() // only read
	return dir.put(path.Base(t.path), content, t.sum, t.mode)
}

// keep puts a copy of what lies at a target's place among the former files. Another copy of that name stays too.
func (i *Installer) keep(t target) error {
	from, err := openFolder(i.Root, path.Dir(t.path), 0)
	if err != nil {
		return err
	}
	defer from.close()
	state, err := openFolder(i.Root, StateDir, stateMode)
	if err != nil {
		return err
	}
	state.close()
	to, err := openFolder(i.Root, FormerDir, stateMode)
	if err != nil {
		return err
	}
	defer to.close()
	name := path.Base(t.path)
	there, err := to.look(name)
	if err != nil || there.sum == t.now.sum {
		return err
	}
	if there.exists {
		name += "." + t.now.sum[:12]
	}
	content, err := from.read(path.Base(t.path))
	if err != nil {
		return err
	}
	defer content.Close() // only read
	return to.put(name, content, t.now.sum, os.FileMode(t.now.mode&0o755))
}

// readSmall reads a text such as a unit file.
func (i *Installer) readSmall(name string) (string, error) {
	const most = 1 << 20
	b, err := host.ReadFile(i.at(name), most)
	return string(b), err
}
