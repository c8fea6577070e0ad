package status

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const stranger = 12345

func TestOnlyTheFallbackFolderIsGuarded(t *testing.T) {
	for path, want := range map[string]bool{
		"/tmp/aks-flex-node/status.json":               true,
		"/tmp/aks-flex-node/other.json":                true,
		"//tmp/./aks-flex-node//status.json":           true,
		"/tmp/x/../aks-flex-node/status.json":          true,
		"/tmp/aks-flex-node/sub/status.json":           false,
		"/tmp/aks-flex-node":                           false,
		"/tmp/status.json":                             false,
		"/run/aks-flex-node/status.json":               false,
		"/run/tmp/aks-flex-node/status.json":           false,
		"/tmp/aks-flex-node/../aks-flex-node2/st.json": false,
		"": false,
	} {
		if got := placeOf(path).guarded; got != want {
			t.Errorf("%q: got guarded %v, want %v", path, got, want)
		}
	}
}

// guessable is a folder under the rules of the one in /tmp, with a snapshot.
func guessable(t *testing.T) place {
	t.Helper()
	dir := filepath.Join(sharedFolder(t), "aks-flex-node")
	p := placeIn(filepath.Join(dir, "status.json"), dir)
	must(t, write(p, fullSnapshot()))
	return p
}

func TestTrustsWhatOnlyThisUserOrRootCanHaveWritten(t *testing.T) {
	for _, folderMode := range []os.FileMode{0o700, 0o755} {
		for _, fileMode := range []os.FileMode{0o600, 0o644, 0o400} {
			p := guessable(t)
			must(t, os.Chmod(p.dir, folderMode))
			must(t, os.Chmod(p.path, fileMode))
			s, err := load(p)
			must(t, err)
			if *s != *fullSnapshot() {
				t.Errorf("got %+v", *s)
			}
			must(t, update(p, increment))
			must(t, write(p, fullSnapshot()))
			remove(nil, p)
			if got := names(t, p.dir); !slices.Equal(got, []string{"status.json.lock"}) {
				t.Errorf("got files %v", got)
			}
		}
	}
}

func TestAnotherUserTrustsItsOwnFilesAndRoots(t *testing.T) {
	needsRoot(t, "becomes another user")
	tests := map[string]struct {
		folderOwner, fileOwner int
		command, want          string
	}{
		"its own":                        {stranger, stranger, "write", ""},
		"its own, reading":               {stranger, stranger, "load", ""},
		"root's file in its own folder":  {stranger, 0, "load", ""},
		"root's folder, its own file":    {0, stranger, "load", ""},
		"root's folder is closed to it":  {0, stranger, "write", "permission denied"},
		"a third user's folder":          {stranger + 1, stranger, "load", "belongs to user 12346, who is neither root nor user 12345"},
		"a third user's folder, writing": {stranger + 1, stranger, "write", "belongs to user 12346"},
		"a third user's file":            {stranger, stranger + 1, "load", "belongs to user 12346"},
		"a third user's file, writing":   {stranger, stranger + 1, "write", "belongs to user 12346"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := guessable(t)
			must(t, os.Chmod(p.dir, 0o755))  // as some umasks make it
			must(t, os.Chmod(p.path, 0o644)) // so that others may read
			must(t, os.Remove(p.lockPath()))
			must(t, os.Chown(p.dir, tt.folderOwner, -1))
			must(t, os.Chown(p.path, tt.fileOwner, -1))
			out, err := helper(t, tt.command, p.path, uidVariable+"=12345", "STATUS_TEST_GUESSABLE="+p.dir).CombinedOutput()
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v: %s", err, out)
				}
				return
			}
			if err == nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("got %q (%v), want %q", out, err, tt.want)
			}
		})
	}
}

func TestBelievesAndTouchesNothingPlanted(t *testing.T) {
	tests := map[string]struct {
		root  bool
		plant func(t *testing.T, p place)
		want  string
		// readable: a bad lock file concerns writers only.
		readable bool
		// removable: our folder is fine, so what lies in it may be unlinked.
		removable bool
	}{
		"the folder is a link": {plant: func(t *testing.T, p place) {
			must(t, os.Rename(p.dir, p.dir+"2"))
			must(t, os.Symlink(p.dir+"2", p.dir))
		}, want: "is a link"},
		"the folder is a dangling link": {plant: func(t *testing.T, p place) {
			must(t, os.RemoveAll(p.dir))
			must(t, os.Symlink(p.dir+"2", p.dir))
		}, want: "is a link"},
		"the folder is a file": {plant: func(t *testing.T, p place) {
			must(t, os.RemoveAll(p.dir))
			writeFile(t, p.dir, "{}")
		}, want: "no folder at all"},
		"the folder is someone else's": {root: true, plant: func(t *testing.T, p place) {
			must(t, os.Chown(p.dir, stranger, -1))
		}, want: "belongs to user 12345"},
		"others can write the folder": {plant: func(t *testing.T, p place) {
			must(t, os.Chmod(p.dir, 0o777))
		}, want: "can be written by others (mode 0777)"},
		"even if it is sticky": {plant: func(t *testing.T, p place) {
			must(t, os.Chmod(p.dir, 0o777|os.ModeSticky))
		}, want: "can be written by others"},
		"its group can write the folder": {plant: func(t *testing.T, p place) {
			must(t, os.Chmod(p.dir, 0o770))
		}, want: "can be written by others"},
		"the file is a link": {plant: func(t *testing.T, p place) {
			must(t, os.Rename(p.path, p.dir+"-target"))
			must(t, os.Symlink(p.dir+"-target", p.path))
		}, want: "is a link", removable: true},
		"the file is a link inside the folder": {plant: func(t *testing.T, p place) {
			must(t, os.Rename(p.path, p.path+"-target"))
			must(t, os.Symlink("status.json-target", p.path))
		}, want: "is a link", removable: true},
		"the file is someone else's": {root: true, plant: func(t *testing.T, p place) {
			must(t, os.Chown(p.path, stranger, -1))
		}, want: "belongs to user 12345", removable: true},
		"others can write the file": {plant: func(t *testing.T, p place) {
			must(t, os.Chmod(p.path, 0o602))
		}, want: "can be written by others (mode 0602)", removable: true},
		"its group can write the file": {plant: func(t *testing.T, p place) {
			must(t, os.Chmod(p.path, 0o620))
		}, want: "can be written by others", removable: true},
		"the lock file is a link": {plant: func(t *testing.T, p place) {
			must(t, os.Remove(p.lockPath()))
			must(t, os.Symlink(p.dir+"-target", p.lockPath()))
		}, want: "is a link", readable: true, removable: true},
		"the lock file is someone else's": {root: true, plant: func(t *testing.T, p place) {
			must(t, os.Chown(p.lockPath(), stranger, -1))
		}, want: "belongs to user 12345", readable: true, removable: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.root {
				needsRoot(t, "gives a file to another user")
			}
			p := guessable(t)
			tt.plant(t, p)
			parent := filepath.Dir(p.dir)
			before := tree(t, parent)

			if s, err := load(p); tt.readable {
				must(t, err)
			} else {
				assertDistrust(t, "load", err, tt.want)
				if s != nil {
					t.Errorf("load: believed %+v", *s)
				}
			}
			for name, err := range map[string]error{
				"write":  write(p, &NodeStatus{}),
				"update": update(p, increment),
			} {
				if tt.readable { // the error of the lock, which needn't be of our type
					if err == nil || !strings.Contains(err.Error(), tt.want) {
						t.Errorf("%s: got error %v, want %q", name, err, tt.want)
					}
					continue
				}
				assertDistrust(t, name, err, tt.want)
			}
			mark(nil, p, time.Time{})
			if got := tree(t, parent); got != before {
				t.Errorf("got\n%s\nwant as before\n%s", got, before)
			}

			remove(nil, p)
			got := tree(t, parent)
			if !tt.removable && got != before {
				t.Errorf("removal: got\n%s\nwant as before\n%s", got, before)
			}
			if _, err := os.Lstat(p.path); tt.removable && !os.IsNotExist(err) {
				t.Errorf("removal: it is still there (%v)", err)
			}
			if tt.removable && strings.Contains(before, "target: {") && !strings.Contains(got, "target: {") {
				t.Errorf("removal followed a link:\n%s", got)
			}
		})
	}
}

func assertDistrust(t *testing.T, name string, err error, want string) {
	t.Helper()
	if _, ok := errors.AsType[*distrustError](err); !ok || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got error %v, want a refusal with %q", name, err, want)
	}
	if os.IsNotExist(err) {
		t.Errorf("%s: the error %v says that the file doesn't exist", name, err)
	}
}

// tree describes all files below dir: name, mode and content or target.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			content, err = os.Readlink(path)
		case info.Mode().IsRegular():
			content = readFile(t, path)
		}
		all.WriteString(info.Mode().String() + " " + path + ": " + content + "\n")
		return err
	}))
	return all.String()
}

func TestNoticesAFolderSwappedWhileItIsOpened(t *testing.T) {
	p := guessable(t)
	checked, err := openDir(p)
	must(t, err)
	must(t, os.Rename(p.dir, p.dir+"2"))
	must(t, os.Mkdir(p.dir, 0o700))
	swapped, err := os.OpenRoot(p.dir)
	must(t, err)
	f := &folder{place: p, dir: checked, root: swapped}
	defer f.close()
	assertDistrust(t, "open", f.sameFolder(), "was replaced while it was being opened")
}
