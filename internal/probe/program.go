package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

// maxVersions bounds the cache of versions; a node has four programs and now and then a new one.
const maxVersions = 32

// versionOf takes name and version from what a program prints for --version.
type versionOf func(out []byte) (name, version string, ok bool)

// versionCache remembers what a program said its version is, by the identity of its file: running it once is enough, since the same
// file says the same again. Failures are not kept.
type versionCache struct {
	mu    sync.Mutex
	known map[host.Identity]observe.Program
}

// replacementDeadline is for the version of a file beside the program that runs: it leaves time for the look to come to its end.
const replacementDeadline = 3 * time.Second

// errNoVersion says that a program ran but printed no version.
var errNoVersion = errors.New("its output holds no version")

// get returns name and version of the program at path, running it if it was not seen before.
func (c *versionCache) get(ctx context.Context, path string, parse versionOf) (observe.Program, error) {
	id, err := host.Identify(path)
	if err != nil {
		return observe.Program{}, err
	}
	c.mu.Lock()
	p, ok := c.known[id]
	c.mu.Unlock()
	if ok {
		return p, nil
	}
	if err := host.CheckProgram(path, id); err != nil {
		return observe.Program{}, err
	}
	out, err := host.Run(ctx, host.Command{Path: path, Args: []string{"--version"}})
	if err != nil {
		return observe.Program{}, err
	}
	if p.Name, p.Version, ok = parse(out.Stdout); !ok {
		return observe.Program{}, fmt.Errorf("%s --version: %w", path, errNoVersion)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxVersions {
		c.known = map[host.Identity]observe.Program{}
	}
	c.known[id] = p
	return p, nil
}

// programFacts is what to look for.
type programFacts struct {
	name  string // of the file
	pid   int    // main process of its unit; 0 for none
	paths []string
	// search is a PATH in which the program is looked for when it is at none of the paths; empty for none.
	search string
	parse  versionOf
	// check refuses a file before it is run; nil for none
	check func(path string) error
}

// lookAtProgram finds out which version of a program lies on disk and which one runs. err says why a version could not be told; it is
// fs.ErrNotExist when there is neither file nor process.
func (s *Suite) lookAtProgram(ctx context.Context, f programFacts) (observe.Program, error) {
	p := observe.Program{Path: firstFile(f.paths)}
	if p.Path == "" && f.search != "" {
		p.Path = host.FindProgram(f.name, f.search)
	}
	exe, started, err := host.Executable(f.pid)
	if f.pid == 0 || err != nil || filepath.Base(started) != f.name {
		// Nothing runs, or this user may not see what does, or the unit's main process is a wrapper: the file is all there is.
		file, err := s.programVersion(ctx, p.Path, f)
		p.Name, p.Version, p.FileVersion = file.Name, file.Version, file.Version
		return p, err
	}
	// What runs comes first, and its file's version is the lesser news: one that was put in its place, and hangs, must not hide it.
	running, runErr := s.programVersion(ctx, exe, f)
	inTime, cancel := context.WithTimeout(ctx, replacementDeadline)
	defer cancel()
	file, _ := s.programVersion(inTime, p.Path, f)
	p.Name, p.FileVersion = file.Name, file.Version
	p.RestartPending = p.Path != "" && !sameFile(exe, p.Path)
	if runErr != nil {
		if !p.RestartPending {
			p.Version = file.Version
		}
		return p, runErr
	}
	p.Name, p.Version = running.Name, running.Version
	return p, nil
}

func (s *Suite) programVersion(ctx context.Context, path string, f programFacts) (observe.Program, error) {
	if path == "" {
		return observe.Program{}, &fs.PathError{Op: "find", Path: f.name, Err: fs.ErrNotExist}
	}
	if f.check != nil {
		if err := f.check(path); err != nil {
			return observe.Program{}, err
		}
	}
	return s.versions.get(ctx, path, f.parse)
}

// sameFile compares the files that two paths lead to. A change of mode or of the number of links is none of the content.
func sameFile(a, b string) bool {
	x, errX := host.Identify(a)
	y, errY := host.Identify(b)
	return errX != nil || errY != nil || (x.Dev == y.Dev && x.Ino == y.Ino && x.Size == y.Size && x.Mtime == y.Mtime)
}

func firstFile(paths []string) string {
	for _, p := range paths {
		if p == "" {
			continue
		}
		if _, err := host.Identify(p); err == nil {
			return p
		}
	}
	return ""
}

// startedBy returns the path with which a unit starts its program, if it starts that program directly.
func startedBy(u observe.Unit, name string) string {
	if len(u.ExecStart) > 0 && filepath.Base(u.ExecStart[0]) == name {
		return u.ExecStart[0]
	}
	return ""
}

// cannotTellVersion turns an error of lookAtProgram into an observation.
func cannotTellVersion(ctx context.Context, p observe.Program, err error) observe.Observation[observe.Program] {
	o := observe.Observation[observe.Program]{Value: p, Reason: versionReason(ctx, err), Message: err.Error()}
	return o
}

func versionReason(ctx context.Context, err error) string {
	var exit *host.ExitError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return observe.ReasonNotInstalled
	case errors.Is(err, fs.ErrPermission):
		return observe.ReasonPermissionDenied
	case errors.Is(err, host.ErrNotTrusted):
		return "ProgramNotTrusted"
	case errors.Is(err, errNoVersion), errors.Is(err, host.ErrTooMuchOutput):
		return "VersionNotUnderstood"
	case ctx.Err() != nil:
		return observe.ReasonTimeout
	case errors.As(err, &exit):
		return "VersionFailed"
	}
	return "VersionUnavailable"
}
