package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"
)

const (
	manifestName = "install.json"
	// maxManifest bounds what is read of a manifest, in bytes; one that we wrote is below 4 KiB.
	maxManifest = 1 << 20
	// keptSums is how many checksums are kept for each file, of what was put there last.
	keptSums = 5
)

// manifest is the record of what this program put on this machine, so that nothing else is ever taken for it.
type manifest struct {
	Version string    `json:"version"` // of the program that wrote it
	At      time.Time `json:"at"`
	// Files lists by path the SHA-256 of what was put there, the newest first. It is written before the files are, so that also what
	// a crash left behind is known.
	Files map[string][]string `json:"files"`
	// Former is the SHA-256 of the former agent's unit file that was taken over last, so that it is known when somebody went back to it.
	Former string `json:"former,omitempty"`
}

// knows says whether content of that sum was put there by this program.
func (m manifest) knows(path, sum string) bool { return slices.Contains(m.Files[path], sum) }

// with returns a manifest that knows one more content of a file.
func (m manifest) with(path, sum string) manifest {
	files := maps.Clone(m.Files)
	if files == nil {
		files = map[string][]string{}
	}
	sums := append([]string{sum}, slices.DeleteFunc(slices.Clone(files[path]), func(s string) bool { return s == sum })...)
	files[path] = sums[:min(len(sums), keptSums)]
	m.Files = files
	return m
}

// loadManifest reads the manifest. One that is missing is empty; one that is broken is an error.
func (i *Installer) loadManifest() (manifest, error) {
	m := manifest{}
	dir, err := openFolder(i.Root, StateDir, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	defer dir.close()
	what, err := dir.look(manifestName)
	if err != nil || !what.exists {
		return m, err
	}
	file, err := dir.read(manifestName)
	if err != nil {
		return m, err
	}
	defer file.Close() // only read
	b, err := io.ReadAll(io.LimitReader(file, maxManifest))
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return manifest{}, fmt.Errorf("read %s/%s: %w: move it away if it is broken; what is installed then counts as someone else's", StateDir, manifestName, err)
	}
	return m, nil
}

func (i *Installer) saveManifest(m manifest) error {
	m.Version, m.At = i.Version, i.now()
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	dir, err := openFolder(i.Root, StateDir, stateMode)
	if err != nil {
		return err
	}
	defer dir.close()
	return dir.put(manifestName, bytes.NewReader(append(b, '\n')), "", 0o600)
}
