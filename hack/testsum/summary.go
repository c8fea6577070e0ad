package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc cmd/test2json` and `go help buildjson`.
type event struct {
	Action  string
	Package string
	Test    string // empty for what concerns the whole package
	Output  string
}

type testID struct{ pkg, test string }

type skip struct {
	testID

	reason string
}

// summary turns events into what is shown and counted. Only tests that have not ended are kept in memory, each with a
// bounded part of its output, so that the size of the whole output does not matter. Not safe for concurrent use.
type summary struct {
	console io.Writer
	log     io.Writer
	logPath string
	leftOut []string

	open     map[testID]*clip // what unfinished tests, and packages, printed so far
	passed   int
	failed   []string
	skipped  []skip
	badInPkg map[string]int // failed tests of each package
}

func newSummary(console, log io.Writer, logPath string) *summary {
	return &summary{
		console: console, log: log, logPath: logPath,
		open: map[testID]*clip{}, badInPkg: map[string]int{},
	}
}

// raw takes a line that is for people as it stands, such as an error of the go command.
func (s *summary) raw(line []byte) {
	// Errors of the two writers are not lost: the console's can't be told anyone, the log's stays in its buffer until flushed.
	_, _ = s.log.Write(line)
	_, _ = s.console.Write(line)
}

// line takes a line of `go test -json`. What is no event is treated as raw.
func (s *summary) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		s.raw(line)
		return
	}
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		s.raw([]byte(e.Output))
	case "run", "start":
		s.output(id, "")
	case "output":
		_, _ = io.WriteString(s.log, e.Output)
		s.output(id, e.Output)
	case "pass", "fail", "skip":
		s.end(id, e.Action)
	}
}

func (s *summary) output(id testID, text string) {
	if s.open[id] == nil {
		s.open[id] = &clip{}
	}
	// "=== RUN", "=== NAME" and the like say whose output follows, which the event has told already.
	if !strings.HasPrefix(text, "=== ") {
		s.open[id].add(text)
	}
}

func (s *summary) end(id testID, action string) {
	printed := s.open[id]
	delete(s.open, id)
	switch {
	case id.test == "":
		s.endPackage(id.pkg, action, printed)
	case action == "pass":
		s.passed++
	case action == "skip":
		s.skipped = append(s.skipped, skip{id, reason(printed)})
	case action == "fail":
		s.failTest(id, printed)
	}
}

func (s *summary) failTest(id testID, printed *clip) {
	failure := id.pkg + " " + id.test
	// What a long output of logs would hide from those who see only the end of it.
	if said := firstWords(printed); said != "" {
		failure += ": " + said
	}
	s.failed = append(s.failed, failure)
	s.badInPkg[id.pkg]++
	s.show("=== " + id.pkg + " " + id.test)
	s.show(printed.String(s.logPath))
}

func (s *summary) endPackage(pkg, action string, printed *clip) {
	text := printed.String(s.logPath)
	if action != "fail" {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t") {
				s.show(line)
			}
		}
		return
	}
	s.failUnfinished(func(id testID) bool { return id.pkg == pkg })
	// Nothing of its tests failed, so the package did: it does not build, or TestMain or a leak check says no.
	if s.badInPkg[pkg] == 0 {
		s.failed = append(s.failed, pkg+" (the package as a whole)")
	}
	s.show(text)
}

// failUnfinished counts tests as failed that ended without a word about them: by a panic, a deadline or os.Exit.
func (s *summary) failUnfinished(of func(testID) bool) {
	ids := slices.SortedFunc(maps.Keys(s.open), func(a, b testID) int {
		return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.test, b.test))
	})
	for _, id := range ids {
		if id.test != "" && of(id) {
			s.failTest(id, s.open[id])
			delete(s.open, id)
		}
	}
}

func (s *summary) show(text string) {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, _ = io.WriteString(s.console, text)
}

// finish shows the end of the report and says whether the run was good. execErr is how the command ended.
func (s *summary) finish(execErr error, strict bool) bool {
	s.failUnfinished(func(testID) bool { return true })
	if execErr != nil && len(s.failed) == 0 {
		s.failed = append(s.failed, fmt.Sprintf("the command itself: %v", execErr))
	}
	var b strings.Builder
	for _, f := range s.failed {
		fmt.Fprintf(&b, "failed:   %s\n", f)
	}
	for _, sk := range s.skipped {
		fmt.Fprintf(&b, "skipped:  %s %s: %s\n", sk.pkg, sk.test, sk.reason)
	}
	for _, l := range s.leftOut {
		fmt.Fprintf(&b, "left out: %s\n", l)
	}
	good := len(s.failed) == 0
	if good && s.passed == 0 {
		good = false
		b.WriteString("no test passed, so nothing was shown\n")
	}
	if strict && len(s.skipped)+len(s.leftOut) > 0 {
		good = false
		b.WriteString("nothing may be skipped or left out here (CI or STRICT is set)\n")
	}
	fmt.Fprintf(&b, "whole output: %s\n", s.logPath)
	fmt.Fprintf(&b, "%d passed, %d failed, %d skipped\n", s.passed, len(s.failed), len(s.skipped))
	s.show(b.String())
	_, _ = io.WriteString(s.log, b.String())
	return good
}

// reason is what a skipped test said, on one line.
func reason(printed *clip) string {
	var words []string
	for line := range strings.Lines(printed.String("")) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--- SKIP") {
			words = append(words, strings.Fields(line)...)
		}
	}
	if len(words) == 0 {
		return "no reason given"
	}
	return strings.Join(words, " ")
}

// saidIn finds the lines that a test prints by t.Error and the like, and panics.
var saidIn = regexp.MustCompile(`(?m)^ *(?:\S+\.go:\d+: .*|panic: .*)$`)

// firstWords is the first thing that a failed test said, cut to a line that fits in a list.
func firstWords(printed *clip) string {
	const most = 400
	words := []rune(strings.TrimSpace(saidIn.FindString(printed.String(""))))
	if len(words) > most {
		return string(words[:most]) + "…"
	}
	return string(words)
}

// clipSize is how much of the beginning, and as much of the end, of one test's output is kept. The beginning has the
// message of a panic, the end has what a chatty test died of.
const clipSize = 16 << 10

// clip keeps the beginning and the end of a text. The zero value is empty; a nil clip reads as empty.
type clip struct {
	head, tail []byte
	dropped    int
}

func (c *clip) add(text string) {
	n := min(clipSize-len(c.head), len(text))
	c.head = append(c.head, text[:n]...)
	c.tail = append(c.tail, text[n:]...)
	// Cut only now and then: each cut copies.
	if over := len(c.tail) - clipSize; over > clipSize {
		c.tail = append(c.tail[:0], c.tail[over:]...)
		c.dropped += over
	}
}

// String returns the text, with a note in the place of what was dropped.
func (c *clip) String(logPath string) string {
	if c == nil {
		return ""
	}
	if c.dropped == 0 {
		return string(c.head) + string(c.tail)
	}
	return fmt.Sprintf("%s\n… %d bytes left out, see %s …\n%s", c.head, c.dropped, logPath, c.tail)
}
