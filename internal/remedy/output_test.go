package remedy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/aks-flex-node/agent/internal/journal"
)

func TestOutputsAreForRootOnlyAndTheLastOnesAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	must(t, os.MkdirAll(dir, 0o755))
	for _, id := range []int{9, 10, 1, 2, 100, 3} {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("bootstrap-%d.log", id)), nil, 0o600))
	}
	for _, name := range []string{"journal.db", "bootstrap-x.log", "bootstrap-1.log.gz", "bootstrap-007.log"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	must(t, prepareOutput(dir))
	entries, err := os.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{"bootstrap-007.log", "bootstrap-1.log.gz", "bootstrap-10.log", "bootstrap-100.log", "bootstrap-3.log", "bootstrap-9.log", "bootstrap-x.log", "journal.db"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got mode %v and error %v, want 0700", info.Mode(), err)
	}
}

func TestAFolderThatIsNotOursIsRefused(t *testing.T) {
	parent := t.TempDir()
	link, file := filepath.Join(parent, "link"), filepath.Join(parent, "file")
	must(t, os.Symlink(t.TempDir(), link))
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{link, file, filepath.Join(file, "below")} {
		if err := prepareOutput(dir); err == nil {
			t.Errorf("%s: got no error", dir)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: gives a folder to another user")
	}
	other := filepath.Join(parent, "other")
	must(t, os.Mkdir(other, 0o700))
	must(t, os.Chown(other, 1234, 1234))
	if err := prepareOutput(other); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("got error %v, want it refused", err)
	}
}

func TestOutputIsReadFromItsEnd(t *testing.T) {
	w := &work{Runner: &Runner{OutputDir: t.TempDir(), Redact: func(s string) string { return strings.ReplaceAll(s, "s3cret", "***") }}, rem: journal.Remedy{ID: 7}}
	path := w.outputPath()
	if got, err := w.output(); got != "" || err != nil {
		t.Errorf("without a file: got %q and error %v, want nothing", got, err)
	}
	// The secret lies where what is kept begins.
	must(t, os.WriteFile(path, []byte(strings.Repeat("x", 100<<10)+"s3cret"+strings.Repeat("y", keepOutput-3)), 0o600))
	if got, err := w.output(); err != nil || len(got) != keepOutput || strings.ContainsAny(got, "s3cret") || !strings.HasPrefix(got, "***y") {
		t.Errorf("got %d bytes %.20q and error %v, want the end, redacted", len(got), got, err)
	}
	must(t, os.Remove(path))
	must(t, syscall.Mkfifo(path, 0o600))
	if _, err := w.output(); err == nil {
		t.Error("a FIFO: got no error")
	}
	must(t, os.Remove(path))
	must(t, os.Symlink("/etc/passwd", path))
	if got, err := w.output(); err == nil {
		t.Errorf("a link: got %q and no error", got)
	}
	if there, err := exists(path); !there || err != nil {
		t.Errorf("a link: got %v and error %v, want it to count as there", there, err)
	}
	if _, err := exists(filepath.Join("/dev/null", "x")); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a file: got error %v, want one", err)
	}
}

func FuzzPlainOutput(f *testing.F) {
	for _, seed := range []string{"", "joined\n", "\x1b[1;31mred\x1b[0m\r50%\r100%\n", "\xff\xfe\x00", strings.Repeat("ä", 2000), "\x1b[", "\u009b31m"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := tail(plain(s), keepOutput)
		if len(got) > keepOutput || !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\x00\r\u009b") {
			t.Errorf("got %q of %q, want at most %d bytes of plain text", got, s, keepOutput)
		}
	})
}
