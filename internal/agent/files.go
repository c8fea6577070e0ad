package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/pkg/status"
)

const (
	// lookAtFilesEvery bounds how long a change goes unseen where the kernel tells of none.
	lookAtFilesEvery = 30 * time.Second
	// maxPauseFile is how much of a pause file is read.
	maxPauseFile = 4 << 10
)

// files looks after the files through which others speak to the agent: the pause file, and the snapshot, which somebody may remove.
type files struct {
	snapshot, pauseFile string
	changed             chan struct{} // cap 1
	newWatcher          func() (*fsnotify.Watcher, error)

	mu     sync.Mutex // guards the fields below
	paused *decision.Pause
	gone   bool
	looked bool
}

func newFiles(snapshot, pauseFile string) *files {
	return &files{snapshot: snapshot, pauseFile: pauseFile, changed: make(chan struct{}, 1), newWatcher: fsnotify.NewWatcher}
}

// ready reports whether anybody has looked yet: before that it is not known whether the agent is paused.
func (f *files) ready() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looked
}

// pause is the pause by file; nil for none.
func (f *files) pause() *decision.Pause {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paused
}

// takeGone reports whether the snapshot went missing or broke since the last call.
func (f *files) takeGone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := f.gone
	f.gone = false
	return gone
}

// run looks until ctx ends. Without the kernel's notices, or where a folder does not exist yet, it looks every half minute.
func (f *files) run(ctx context.Context) {
	tick := time.NewTicker(lookAtFilesEvery)
	defer tick.Stop()
	var notices chan fsnotify.Event
	var failures chan error
	w, err := f.newWatcher()
	if err == nil {
		defer w.Close()
		notices, failures = w.Events, w.Errors
	}
	watch := func() {
		if err != nil {
			return
		}
		for _, dir := range []string{filepath.Dir(f.snapshot), filepath.Dir(f.pauseFile)} {
			if w.Add(dir) != nil { // one that is watched already costs nothing
				_ = w.Add(filepath.Dir(dir)) // which tells when the folder comes; else it is tried again
			}
		}
	}
	watch()
	if f.look(time.Now()) {
		poke(f.changed)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			watch()
		case e := <-notices:
			switch e.Name {
			case f.snapshot, f.pauseFile:
			case filepath.Dir(f.snapshot), filepath.Dir(f.pauseFile):
				watch()
			default:
				continue
			}
		case <-failures: //nolint:errcheck // too many notices at once: what was missed is seen by looking
		}
		if f.look(time.Now()) {
			poke(f.changed)
		}
	}
}

// look reads both files and reports whether anything changed.
func (f *files) look(now time.Time) (changed bool) {
	p := readPauseFile(f.pauseFile, now)
	_, err := status.LoadStatusFromFile(f.snapshot)
	gone := err != nil && !errors.Is(err, fs.ErrPermission)
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = (p == nil) != (f.paused == nil) || p != nil && *p != *f.paused || gone
	changed = changed || !f.looked
	f.paused, f.gone, f.looked = p, gone, true
	return changed
}

// readPauseFile returns the pause that a file asks for: it holds while the file exists, whatever is in it. Its first line is the reason; a
// line "until: TIME" gives it an end. A file that can't be read pauses too: somebody put it there.
func readPauseFile(path string, now time.Time) *decision.Pause {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p := &decision.Pause{By: byFile(path)}
	if err != nil {
		p.Reason = err.Error()
		return p
	}
	p.Since = info.ModTime()
	if p.Since.After(now) {
		p.Since = time.Time{} // the clock was set back
	}
	text, err := host.ReadFile(path, maxPauseFile)
	if err != nil {
		p.Reason = "it can't be read: " + err.Error()
		return p
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if rest, ok := cutWord(line, "until:"); ok {
			if end, ok := parseEnd(rest); ok {
				p.Until = end
			} else {
				p.Reason = strings.TrimSpace(p.Reason + " (its end can't be read: " + line + "; write until: 2026-01-02T15:04:05Z)")
			}
			continue
		}
		if p.Reason == "" {
			p.Reason = line
		}
	}
	return p
}

// byFile is who pauses by a file.
func byFile(path string) string { return "the file " + path }

func cutWord(line, word string) (rest string, ok bool) {
	if len(line) < len(word) || !strings.EqualFold(line[:len(word)], word) {
		return "", false
	}
	return strings.TrimSpace(line[len(word):]), true
}

// parseEnd reads the end of a pause: with a zone, or in local time.
func parseEnd(text string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, true
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
