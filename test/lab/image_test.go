//go:build linux

package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestAnImageArchiveIsWhole(t *testing.T) {
	var archive, again bytes.Buffer
	for _, w := range []io.Writer{&archive, &again} {
		if err := WriteImage(w, "localhost/x:1", "x", []byte("program")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("got different bytes from the same input")
	}
	files := untar(t, archive.Bytes())

	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	decode(t, files["manifest.json"], &manifest)
	if len(manifest) != 1 || len(manifest[0].Layers) != 1 || fmt.Sprint(manifest[0].RepoTags) != "[localhost/x:1]" {
		t.Fatalf("got manifest %+v", manifest)
	}
	layer := files[manifest[0].Layers[0]]
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(t, files[manifest[0].Config], &config)
	if want := fmt.Sprintf("[sha256:%x]", sha256.Sum256(layer)); fmt.Sprint(config.RootFS.DiffIDs) != want {
		t.Errorf("got layer ids %v, want %s", config.RootFS.DiffIDs, want)
	}
	if fmt.Sprint(config.Config.Entrypoint) != "[/x]" || string(untar(t, layer)["x"]) != "program" {
		t.Errorf("got entry point %v in a layer of %d bytes, want /x", config.Config.Entrypoint, len(layer))
	}
}

func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
}
