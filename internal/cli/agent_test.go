package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/pkg/config"
)

func TestRootDoesOnlyWhatRootWrote(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: others do what they may, at their own risk")
	}
	dir := t.TempDir()
	file := func(name string, mode os.FileMode, uid, gid int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("{}"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", 0o640, 0, 1000)
	for name, c := range map[string]struct{ path, command, want string }{
		"root's own":                            {good, "", ""},
		"root's group is root":                  {file("group", 0o660, 0, 0), "", ""},
		"another's":                             {file("another", 0o600, 1000, 0), "", "only root may be able to write"},
		"writable for a group":                  {file("writable", 0o660, 0, 1000), "", "only root may be able to write"},
		"writable for all":                      {file("all", 0o666, 0, 0), "", "only root may be able to write"},
		"a command of root's":                   {good, file("command", 0o755, 0, 0), ""},
		"a command of another's":                {good, file("other", 0o755, 1000, 0), "agent.bootstrap.command"},
		"a command that others can write":       {good, file("open", 0o777, 0, 0), "agent.bootstrap.command"},
		"a command that is not there (yet)":     {good, filepath.Join(dir, "none"), ""},
		"a configuration that is there no more": {filepath.Join(dir, "gone"), "", "look at the configuration"},
	} {
		cfg := &config.Config{}
		if c.command != "" {
			cfg.Agent.Bootstrap.Command = []string{c.command}
		}
		err := trusted(c.path, cfg)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
