//go:build linux

package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// PauseImage builds the image of pods' sandboxes, test/tools/pause, as an archive in dir, and returns its path. Its name
// is localhost/pause:3.10; containers of it also serve as pods that do nothing.
func PauseImage(ctx context.Context, dir string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", fmt.Errorf("make pause image: %w", err)
	}
	program := filepath.Join(dir, "pause")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./test/tools/pause")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make pause image: go build: %w: %s", err, bytes.TrimSpace(out))
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("make pause image: %w", err)
	}
	archive := filepath.Join(dir, "pause.tar")
	f, err := os.Create(archive)
	if err != nil {
		return "", fmt.Errorf("make pause image: %w", err)
	}
	if err := errors.Join(WriteImage(f, pauseImage, "pause", content), f.Close()); err != nil {
		return "", fmt.Errorf("make pause image: %w", err)
	}
	return archive, nil
}

// WriteImage writes an image archive, in the format of `docker save`, that holds one static program and runs it. The
// image is for this machine's architecture. The same input gives the same bytes.
func WriteImage(w io.Writer, name, program string, content []byte) error {
	var layer bytes.Buffer
	if err := writeTar(&layer, tarFile{program, 0o755, content}); err != nil {
		return err
	}
	type object = map[string]any
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       object{"Entrypoint": []string{"/" + program}},
		"rootfs":       object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]object{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	return writeTar(w,
		tarFile{"manifest.json", 0o644, manifest},
		tarFile{"config.json", 0o644, config},
		tarFile{"layer.tar", 0o644, layer.Bytes()},
	)
}

type tarFile struct {
	name    string
	mode    int64
	content []byte
}

func writeTar(w io.Writer, files ...tarFile) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Format: tar.FormatUSTAR}); err != nil {
			return fmt.Errorf("write image: %w", err)
		}
		if _, err := t.Write(f.content); err != nil {
			return fmt.Errorf("write image: %w", err)
		}
	}
	return t.Close()
}
