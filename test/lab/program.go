//go:build linux

package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program builds a program of this module, static so that it runs in every host, and returns its path. It goes when the test ends.
func Program(t testing.TB, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}
