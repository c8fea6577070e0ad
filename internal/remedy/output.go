package remedy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

const (
	// keepOutputs is of how many bootstraps the output is kept, including the one to come.
	keepOutputs = 5
	// readOutput is how much is read from its end: more than is kept, so that no secret is cut in two before it can be redacted.
	readOutput = 64 << 10
	keepOutput = 2 << 10
)

func outputName(id uint64) string { return fmt.Sprintf("bootstrap-%d.log", id) }

// prepareOutput makes the folder for root only, and room in it for one more output: what lies there may hold secrets.
func prepareOutput(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder for the command's output: %w", err)
	}
	root, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0) //nolint:gosec // the operator's choice
	if err != nil {
		return fmt.Errorf("open the folder for the command's output, which must be no link: %w", err)
	}
	defer root.Close() // only read
	info, err := root.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("the folder for the command's output, %s, belongs to another user: give it to root", dir)
	}
	if info.Mode().Perm() != 0o700 {
		if err := root.Chmod(0o700); err != nil {
			return fmt.Errorf("keep others from the command's output: %w", err)
		}
	}
	names, err := root.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("look for older outputs: %w", err)
	}
	old := outputs(names)
	for _, id := range old[:max(0, len(old)-keepOutputs+1)] {
		if err := os.Remove(filepath.Join(dir, outputName(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an older output: %w", err)
		}
	}
	return nil
}

// outputs returns the remedies of which there is an output, oldest first.
func outputs(names []string) (ids []uint64) {
	for _, name := range names {
		number, ok := strings.CutPrefix(name, "bootstrap-")
		number, log := strings.CutSuffix(number, ".log")
		if id, err := strconv.ParseUint(number, 10, 64); ok && log && err == nil && outputName(id) == name {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// exists reports whether anything has this name.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the command's output: %w", err)
	}
	return true, nil
}

// output is the end of what the command printed, as it may be recorded.
func (w *work) output() (string, error) {
	f, err := os.OpenFile(w.outputPath(), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // it printed nothing, or was never executed
	}
	if err != nil {
		return "", fmt.Errorf("read the command's output: %w", err)
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.Name())
	}
	if err != nil {
		return "", fmt.Errorf("read the command's output: %w", err)
	}
	from := max(0, info.Size()-readOutput)
	b, err := io.ReadAll(io.NewSectionReader(f, from, readOutput))
	if err != nil {
		return "", fmt.Errorf("read the command's output: %w", err)
	}
	return tail(w.redact(plain(string(b))), keepOutput), nil
}

// plain leaves of a program's output what can be shown on any terminal.
func plain(s string) string {
	s = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`).ReplaceAllString(s, "") // colours
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return '\n' // progress bars write over themselves
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// tail is the end of s, of at most limit bytes, beginning with a whole character.
func tail(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-limit:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
