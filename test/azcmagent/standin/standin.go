// Package standin puts the stand-in for azcmagent where a test wants it and tells it what to play.
package standin

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

const program = "github.com/aks-flex-node/agent/test/azcmagent"

// Build builds the stand-in at path. It is static and runs on any Linux of this machine's kind. The caller must be inside the module.
func Build(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", path, program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the stand-in for azcmagent: %w\n%s", err, out)
	}
	return nil
}

// Play makes the stand-in at path play a scenario from its next start on: a name in scenarios.json, or a JSON object of that form.
func Play(path, scenario string) error {
	file, next := path+".scenario", path+".scenario.next"
	if err := os.WriteFile(next, []byte(scenario+"\n"), 0o644); err != nil {
		return fmt.Errorf("choose a scenario: %w", err)
	}
	// Renamed into place, since the stand-in may be starting just now.
	if err := os.Rename(next, file); err != nil {
		return fmt.Errorf("choose a scenario: %w", err)
	}
	return nil
}
