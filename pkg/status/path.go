package status

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	// runDir is the folder that systemd makes for the service.
	runDir = "/run/aks-flex-node"
	// fallbackDir serves runs outside the service. Anyone may create it
	// first, so trust.go has rules for it.
	fallbackDir = "/tmp/aks-flex-node"

	snapshotName = "status.json"
	lockSuffix   = ".lock"
)

// GetStatusFilePath returns where this machine's snapshot lies:
// /run/aks-flex-node/status.json when that folder exists, as it does once the
// service has run, else /tmp/aks-flex-node/status.json. It looks anew at each
// call, creates nothing, and doesn't tell whether the file exists.
func GetStatusFilePath() string {
	return statusFilePath(runDir, fallbackDir)
}

func statusFilePath(preferred, fallback string) string {
	if info, err := os.Stat(preferred); err == nil && info.IsDir() {
		return filepath.Join(preferred, snapshotName)
	}
	return filepath.Join(fallback, snapshotName)
}

// place is a snapshot's path taken apart once, so that all functions agree on
// its folder and on whether that one is guessable.
type place struct {
	path      string
	dir, base string
	guarded   bool // in the guessable folder: believe nothing unchecked
}

func placeOf(path string) place {
	return placeIn(path, fallbackDir)
}

func placeIn(path, guessable string) place {
	if path == "" {
		return place{} // opening it fails as opening "" does, not as "."
	}
	path = filepath.Clean(path)
	dir := filepath.Dir(path)
	return place{path: path, dir: dir, base: filepath.Base(path), guarded: dir == guessable}
}

// checkName refuses paths that can't name a file, before anything is created.
func (p place) checkName() error {
	switch p.base {
	case "", ".", "..", string(filepath.Separator):
		return fmt.Errorf("status file path %q names no file: give the full path, such as %s", p.path, GetStatusFilePath())
	}
	return nil
}

func (p place) lockPath() string {
	return filepath.Join(p.dir, p.lockName())
}

func (p place) lockName() string {
	return p.base + lockSuffix
}
