package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

func wantVersion(t *testing.T, c *versionCache, path, want string) {
	t.Helper()
	p, err := c.get(t.Context(), path, runtimeVersion)
	if err != nil || p.Version != want || p.Name != "runc" {
		t.Errorf("got %+v and error %v, want runc %s", p, err, want)
	}
}

func TestAProgramIsAskedOnceForItsVersion(t *testing.T) {
	var c versionCache
	path := putScript(t, filepath.Join(t.TempDir(), "runc"), "echo runc version 1.1.12")
	for range 3 {
		wantVersion(t, &c, path, "1.1.12")
	}
	link := filepath.Join(filepath.Dir(path), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	wantVersion(t, &c, link, "1.1.12")
	if got := runsOf(t, path); got != 1 {
		t.Errorf("the program ran %d times, want once: it is the same file", got)
	}
}

func TestAReplacedProgramIsAskedAgain(t *testing.T) {
	var c versionCache
	path := putScript(t, filepath.Join(t.TempDir(), "runc"), "echo runc version 1.1.12")
	wantVersion(t, &c, path, "1.1.12")
	putScript(t, path, "echo runc version 1.1.13") // of the same length
	wantVersion(t, &c, path, "1.1.13")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho run >>"+path+".runs\necho runc version 1.1.14\n"), 0o755); err != nil { // in place
		t.Fatal(err)
	}
	wantVersion(t, &c, path, "1.1.14")
	if got := runsOf(t, path); got != 3 {
		t.Errorf("the program ran %d times, want once for each content", got)
	}
}

func TestAFailureIsNotKept(t *testing.T) {
	for _, test := range []struct {
		name, body string
		want       error
		reason     string
	}{
		{"it prints something else", "echo hello", errNoVersion, "VersionNotUnderstood"},
		{"it prints its version where errors go", "echo runc version 1.1.12 >&2", errNoVersion, "VersionNotUnderstood"},
		{"it fails", "echo runc version 1.1.12; exit 1", nil, "VersionFailed"},
		{"it is killed", "kill -9 $$", nil, "VersionFailed"},
		{"it floods", "exec yes", host.ErrTooMuchOutput, "VersionNotUnderstood"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c versionCache
			// The first time it does as the case says, then it is well: a machine short of memory, say.
			path := filepath.Join(t.TempDir(), "runc")
			putScript(t, path, fmt.Sprintf("if [ -e %s.well ]; then echo runc version 1.1.12; exit; fi\n%s", path, test.body))
			for range 2 {
				p, err := c.get(t.Context(), path, runtimeVersion)
				if err == nil || (test.want != nil && !errors.Is(err, test.want)) || p != (observe.Program{}) {
					t.Errorf("got %+v and error %v, want only an error (%v)", p, err, test.want)
				}
				if got := versionReason(t.Context(), err); got != test.reason {
					t.Errorf("got reason %s of %v, want %s", got, err, test.reason)
				}
			}
			if got := runsOf(t, path); got != 2 {
				t.Errorf("the program ran %d times, want a new try each time", got)
			}
			putFile(t, path+".well", nil, 0o644)
			wantVersion(t, &c, path, "1.1.12")
		})
	}
}

func TestReasonsWhyAVersionCanNotBeTold(t *testing.T) {
	var c versionCache
	dir := t.TempDir()
	hanging := putScript(t, filepath.Join(dir, "hangs"), "exec sleep 600")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context
		path string
		want string
	}{
		{"it is not there", t.Context(), filepath.Join(dir, "nothing"), observe.ReasonNotInstalled},
		{"it is a folder", t.Context(), dir, "ProgramNotTrusted"},
		{"the look ends first", ended, hanging, observe.ReasonTimeout},
		{"it may not be executed", t.Context(), putFile(t, filepath.Join(dir, "text"), []byte("#!/bin/sh\n"), 0o644), observe.ReasonPermissionDenied},
		{"it is of another architecture", t.Context(), putFile(t, filepath.Join(dir, "other"), []byte("\x7fELF\x02\x01\x01"), 0o755), "VersionUnavailable"},
	} {
		_, err := c.get(test.ctx, test.path, runtimeVersion)
		if got := versionReason(test.ctx, err); err == nil || got != test.want {
			t.Errorf("%s: got reason %s of error %v, want %s", test.name, got, err, test.want)
		}
	}
}

func TestRootRunsOnlyProgramsOfRoot(t *testing.T) {
	needsRoot(t, "other users run what they may run")
	for name, spoil := range map[string]func(path string) error{
		"it belongs to another user":         func(path string) error { return os.Chown(path, nobody, 0) },
		"everybody can write it":             func(path string) error { return os.Chmod(path, 0o777) },
		"a group that is not root's can too": func(path string) error { return errors.Join(os.Chown(path, 0, nobody), os.Chmod(path, 0o775)) },
	} {
		t.Run(name, func(t *testing.T) {
			var c versionCache
			path := putScript(t, filepath.Join(t.TempDir(), "runc"), "echo runc version 1.1.12")
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			_, err := c.get(t.Context(), path, runtimeVersion)
			if !errors.Is(err, host.ErrNotTrusted) || versionReason(t.Context(), err) != "ProgramNotTrusted" {
				t.Errorf("got error %v, want %v", err, host.ErrNotTrusted)
			}
			if got := runsOf(t, path); got != 0 {
				t.Errorf("the program ran %d times", got)
			}
		})
	}
}

func TestTheCacheOfVersionsIsBounded(t *testing.T) {
	var c versionCache
	dir := t.TempDir()
	for i := range 2*maxVersions + 1 {
		wantVersion(t, &c, putScript(t, filepath.Join(dir, fmt.Sprint(i)), "echo runc version 1.1.12"), "1.1.12")
	}
	if got := len(c.known); got > maxVersions {
		t.Errorf("got %d versions kept, want at most %d", got, maxVersions)
	}
}

func TestWhichFileIsTaken(t *testing.T) {
	dir := t.TempDir()
	a, b := putFile(t, filepath.Join(dir, "a"), nil, 0o644), putFile(t, filepath.Join(dir, "b"), nil, 0o644)
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		paths []string
		want  string
	}{
		{"none", nil, ""},
		{"the first that is there", []string{"", dir + "/no", dir + "/dangling", b, a}, b},
		{"none that is there", []string{"", dir + "/no"}, ""},
	} {
		if got := firstFile(test.paths); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestWhatAUnitStarts(t *testing.T) {
	for _, test := range []struct {
		name      string
		execStart []string
		want      string
	}{
		{"the program itself", []string{"/opt/bin/kubelet", "--v=2"}, "/opt/bin/kubelet"},
		{"a wrapper", []string{"/bin/sh", "-c", "/opt/bin/kubelet"}, ""},
		{"a program of a longer name", []string{"/opt/bin/kubelet-wrapper"}, ""},
		{"nothing that is known", nil, ""},
	} {
		if got := startedBy(observe.Unit{ExecStart: test.execStart}, "kubelet"); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestTheSameFile(t *testing.T) {
	dir := t.TempDir()
	a := putFile(t, filepath.Join(dir, "a"), []byte("x"), 0o755)
	linked := filepath.Join(dir, "linked")
	if err := os.Link(a, linked); err != nil { // changes the ctime of both
		t.Fatal(err)
	}
	copied := putFile(t, filepath.Join(dir, "copied"), []byte("x"), 0o755)
	for _, test := range []struct {
		name string
		a, b string
		want bool
	}{
		{"a file and itself", a, a, true},
		{"two names of one file", a, linked, true},
		{"a file and its copy", a, copied, false},
		{"one that can't be looked at is not said to differ", a, dir + "/no", true},
	} {
		if got := sameFile(test.a, test.b); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
