//go:build linux

package lab

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestSweepRemovesHostsOfDeadOwnersOnly(t *testing.T) {
	me, err := ownerOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	before, laterBoot := me, me
	before.Start--
	laterBoot.BootID = "another"
	record := func(o owner) string {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tests := map[string]struct {
		record string
		locked bool
		kept   bool
	}{
		"a running owner's is kept":                          {record: record(me), locked: true, kept: true},
		"kept while locked, whatever the record says":        {record: record(deadOwner(t)), locked: true, kept: true},
		"kept while its owner runs, also unlocked":           {record: record(me), kept: true},
		"a dead owner's is removed":                          {record: record(deadOwner(t))},
		"removed if the owner's id is used by another":       {record: record(before)},
		"removed if it is from before the machine's reboot":  {record: record(laterBoot)},
		"removed if its owner died while making it":          {},
		"removed if its owner died while writing the record": {record: `{"pid":`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := place{Base: filepath.Join(t.TempDir(), "base"), Cgroups: t.TempDir()}
			dir := filepath.Join(p.Base, "n1-1")
			if err := os.MkdirAll(filepath.Join(dir, "disk", "upper"), 0o700); err != nil {
				t.Fatal(err)
			}
			if tt.record != "" {
				if err := os.WriteFile(filepath.Join(dir, "owner"), []byte(tt.record), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.locked {
				lock, err := tryLock(filepath.Join(dir, "lock"))
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Close()
			}
			if err := sweep(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); (err == nil) != tt.kept {
				t.Errorf("got %v for the folder, want kept %v", err, tt.kept)
			}
		})
	}
}

// deadOwner describes a process that has ended.
func deadOwner(t *testing.T) owner {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o, err := ownerOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTheLabRefusesAFolderThatOthersCanWrite(t *testing.T) {
	p := place{Base: filepath.Join(t.TempDir(), "base"), Cgroups: t.TempDir()}
	if err := os.Mkdir(p.Base, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.Base, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), p); err == nil {
		t.Error("got no error for a base folder with mode 0777")
	}
	link := place{Base: filepath.Join(t.TempDir(), "link"), Cgroups: p.Cgroups}
	if err := os.Symlink(t.TempDir(), link.Base); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), link); err == nil {
		t.Error("got no error for a base folder that is a link")
	}
}
