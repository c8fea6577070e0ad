package cli

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watchLines prints the present state, and from then on a line for each change.
func (c *common) watchLines(ctx context.Context, sights <-chan sight) error {
	known := map[string]line{}
	first := true
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if readerGone(c.stdout) {
				return nil // else `status --watch | head` would last until the next change
			}
		case s := <-sights:
			var b strings.Builder
			for _, l := range s.lines(time.Now()) {
				before, met := known[l.name]
				known[l.name] = l
				if text, news := l.since(before, met); news || first {
					b.WriteString(s.at.Local().Format(time.RFC3339) + " " + text + "\n")
				}
			}
			first = false
			if err := c.print(b.String()); err != nil {
				return err
			}
		}
	}
}

// since words the line as a change since it was last told; news is false when nothing that matters has changed.
func (l line) since(before line, met bool) (text string, news bool) {
	parts := []string{l.name}
	switch {
	case !met:
		parts = append(parts, l.word)
	case before.word == l.word && before.reason == l.reason && before.version == l.version && before.other == l.other:
		return "", false
	default:
		parts = append(parts, before.word, "→", l.word)
	}
	parts = append(parts, l.reason)
	if met && before.version != l.version {
		parts = append(parts, "(version "+dash(before.version)+" → "+dash(l.version)+")")
	}
	parts = append(parts, l.message)
	var words []string
	for _, p := range parts {
		if p != "" {
			words = append(words, clean(p, long))
		}
	}
	return strings.Join(words, " "), true
}

// readerGone reports whether w is a pipe that nobody reads any more.
func readerGone(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd())}} //nolint:gosec // a file descriptor fits
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}
