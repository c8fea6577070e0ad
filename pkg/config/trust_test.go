package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRootBelievesNoFileThatEverybodyMayWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: others read what they may read")
	}
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if result, err := Load(path); result != nil || err == nil || !strings.Contains(err.Error(), "chmod o-w") {
		t.Errorf("got %+v and error %v, want a refusal that says what to do", result, err)
	}
}
