package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// feed hands events to s as the lines of `go test -json` they are.
func feed(t *testing.T, s *summary, events ...event) {
	t.Helper()
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("make an event: %v", err)
		}
		s.line(append(line, '\n'))
	}
}

func out(pkg, test, text string) event {
	return event{Action: "output", Package: pkg, Test: test, Output: text}
}

func TestSummary(t *testing.T) {
	exit1 := errors.New("exit status 1")
	for _, tc := range []struct {
		name     string
		events   []event
		execErr  error
		leftOut  []string
		strict   bool
		good     bool
		shows    []string
		notShown []string
	}{
		{
			name: "given only tests that pass, closing lines and the count are shown and nothing else",
			events: []event{
				{Action: "start", Package: "p"},
				{Action: "run", Package: "p", Test: "TestA"},
				out("p", "TestA", "=== RUN   TestA\n"), out("p", "TestA", "chatter\n"), out("p", "TestA", "--- PASS: TestA (0.00s)\n"),
				{Action: "pass", Package: "p", Test: "TestA"},
				out("p", "", "PASS\n"), out("p", "", "ok  \tp\t0.01s\n"),
				{Action: "pass", Package: "p"},
				out("q", "", "?   \tq\t[no test files]\n"),
				{Action: "skip", Package: "q"},
			},
			good:     true,
			shows:    []string{"ok  \tp\t0.01s\n", "?   \tq\t[no test files]\n", "\n1 passed, 0 failed, 0 skipped\n"},
			notShown: []string{"chatter", "RUN", "PASS"},
		},
		{
			name: "given a test that fails, its output is shown and that of its neighbour is not",
			events: []event{
				{Action: "run", Package: "p", Test: "TestA"}, {Action: "run", Package: "p", Test: "TestB"},
				out("p", "TestA", "=== RUN   TestA\n"), out("p", "TestB", "fine\n"), out("p", "TestA", "    a_test.go:3: got 1, want 2\n"),
				out("p", "TestA", "--- FAIL: TestA (0.00s)\n"),
				{Action: "fail", Package: "p", Test: "TestA"}, {Action: "pass", Package: "p", Test: "TestB"},
				out("p", "", "FAIL\n"), out("p", "", "FAIL\tp\t0.01s\n"),
				{Action: "fail", Package: "p"},
			},
			execErr:  exit1,
			shows:    []string{"=== p TestA\n    a_test.go:3: got 1, want 2\n--- FAIL: TestA", "FAIL\tp\t0.01s\n", "failed:   p TestA: a_test.go:3: got 1, want 2\n", "\n1 passed, 1 failed, 0 skipped\n"},
			notShown: []string{"fine", "=== RUN", "exit status", "p TestB"},
		},
		{
			name: "given a panic, the test that never ended counts as failed and its output is shown",
			events: []event{
				{Action: "run", Package: "p", Test: "TestA"},
				out("p", "TestA", "panic: oh no\n"),
				out("p", "", "FAIL\tp\t0.01s\n"),
				{Action: "fail", Package: "p"},
			},
			execErr: exit1,
			shows:   []string{"panic: oh no\n", "failed:   p TestA: panic: oh no\n", "\n0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name: "given a test that ends without a word, it counts as failed",
			events: []event{
				{Action: "run", Package: "p", Test: "TestA"}, {Action: "fail", Package: "p"},
			},
			execErr: exit1,
			shows:   []string{"failed:   p TestA\n"},
		},
		{
			name: "given a command that is ended from outside, the tests that it ran count as failed",
			events: []event{
				{Action: "run", Package: "p", Test: "TestA"}, out("p", "TestA", "still waiting\n"),
			},
			execErr: exit1,
			shows:   []string{"=== p TestA\nstill waiting\n", "failed:   p TestA\n", "\n0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name: "given a package that does not build, the compiler's words are shown and it counts as one failure",
			events: []event{
				{Action: "build-output", Output: "# p\np.go:1: undefined: x\n"}, {Action: "build-fail"},
				out("p", "", "FAIL\tp [build failed]\n"), {Action: "fail", Package: "p"},
			},
			execErr: exit1,
			shows:   []string{"undefined: x", "FAIL\tp [build failed]\n", "failed:   p (the package as a whole)\n", "\n0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name: "given a package whose tests pass and that still fails, what it printed is shown",
			events: []event{
				{Action: "run", Package: "p", Test: "TestA"}, {Action: "pass", Package: "p", Test: "TestA"},
				out("p", "", "goleak: found unexpected goroutines\n"), {Action: "fail", Package: "p"},
			},
			execErr: exit1,
			shows:   []string{"goleak: found", "\n1 passed, 1 failed, 0 skipped\n"},
		},
		{
			name:    "given a command that fails before any test, it is the failure",
			execErr: exit1,
			shows:   []string{"failed:   the command itself: exit status 1\n", "\n0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name:  "given no test at all, the run is bad",
			shows: []string{"no test passed", "0 passed, 0 failed, 0 skipped\n"},
		},
		{
			name:   "given a skipped test, it is listed with its reason and the run is good",
			events: skippedAndPassed(),
			good:   true,
			shows:  []string{"skipped:  p TestA: a_test.go:9: needs root: mounts\n", "\n1 passed, 0 failed, 1 skipped\n"},
		},
		{
			name:   "given a skipped test where nothing may be, the run is bad",
			events: skippedAndPassed(),
			strict: true,
			shows:  []string{"nothing may be skipped", "\n1 passed, 0 failed, 1 skipped\n"},
		},
		{
			name:    "given something left out, it is said",
			events:  skippedAndPassed()[3:],
			leftOut: []string{"the race detector: no C compiler"},
			good:    true,
			shows:   []string{"left out: the race detector: no C compiler\n"},
		},
		{
			name:    "given something left out where nothing may be, the run is bad",
			events:  skippedAndPassed()[3:],
			leftOut: []string{"the race detector: no C compiler"},
			strict:  true,
			shows:   []string{"nothing may be skipped"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var console, log bytes.Buffer
			s := newSummary(&console, &log, "test.log")
			s.leftOut = tc.leftOut
			feed(t, s, tc.events...)
			if got := s.finish(tc.execErr, tc.strict); got != tc.good {
				t.Errorf("the run is good: got %v, want %v", got, tc.good)
			}
			for _, want := range tc.shows {
				if !strings.Contains("\n"+console.String(), want) {
					t.Errorf("the console lacks %q; got:\n%s", want, console.String())
				}
			}
			for _, bad := range tc.notShown {
				if strings.Contains(console.String(), bad) {
					t.Errorf("the console has %q; got:\n%s", bad, console.String())
				}
			}
			for _, e := range tc.events {
				if e.Action == "output" && !strings.Contains(log.String(), e.Output) {
					t.Errorf("the log lacks %q", e.Output)
				}
			}
		})
	}
}

func skippedAndPassed() []event {
	return []event{
		{Action: "run", Package: "p", Test: "TestA"},
		out("p", "TestA", "    a_test.go:9: needs root:\n        mounts\n--- SKIP: TestA (0.00s)\n"),
		{Action: "skip", Package: "p", Test: "TestA"},
		{Action: "run", Package: "p", Test: "TestB"}, {Action: "pass", Package: "p", Test: "TestB"},
		out("p", "", "ok  \tp\t0.01s\n"), {Action: "pass", Package: "p"},
	}
}

func TestClipKeepsBeginningAndEnd(t *testing.T) {
	var c clip
	c.add("the first line\n")
	var size int
	for i := range 100_000 {
		line := fmt.Sprintf("line %d of many that nobody will read\n", i)
		size += len(line)
		c.add(line)
	}
	c.add("the last line\n")
	got := c.String("test.log")
	if !strings.HasPrefix(got, "the first line\n") || !strings.HasSuffix(got, "the last line\n") {
		t.Errorf("beginning or end is gone; got %q … %q", got[:40], got[len(got)-40:])
	}
	if !strings.Contains(got, "bytes left out, see test.log") {
		t.Error("nothing says that something was left out")
	}
	if limit := 4 * clipSize; len(got) > limit || size < 2*limit {
		t.Errorf("got %d bytes of %d, want at most %d", len(got), size, limit)
	}
}

// TestRun runs real commands: a shell that prints what `go test -json` would.
func TestRun(t *testing.T) {
	const pass = `printf '{"Action":"run","Package":"p","Test":"T"}\n{"Action":"pass","Package":"p","Test":"T"}\n'; `
	for _, tc := range []struct {
		name, script string
		wantErr      bool
		shows        string
	}{
		{"given a good run, no error", pass, false, "1 passed, 0 failed, 0 skipped\n"},
		{"given words on stderr, they are shown, also without a newline at the end", pass + `printf 'a warning' >&2`, false, "a warning\n"},
		{"given a line that is no event, it is shown", pass + `echo '{"x":1}'`, false, "{\"x\":1}\n"},
		{"given a command that fails, an error", pass + `exit 3`, true, "the command itself: exit status 3"},
		{"given an event in two writes, it counts once", pass + `printf '{"Action":"run","Package":"p","Te'; printf 'st":"U"}\n{"Action":"pass","Package":"p","Test":"U"}\n'`, false, "2 passed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var console bytes.Buffer
			logPath := filepath.Join(t.TempDir(), "test.log")
			err := run([]string{"-log", logPath, "--", "sh", "-c", tc.script}, &console)
			if (err != nil) != tc.wantErr {
				t.Errorf("error: got %v, want one: %v", err, tc.wantErr)
			}
			if !strings.Contains(console.String(), tc.shows) {
				t.Errorf("the console lacks %q; got:\n%s", tc.shows, console.String())
			}
			log, err := os.ReadFile(logPath)
			if err != nil || !strings.Contains(string(log), " passed, ") {
				t.Errorf("the log lacks the count: %q, %v", log, err)
			}
		})
	}
}

func TestRunRefusesWhatItCannotDo(t *testing.T) {
	for name, args := range map[string][]string{
		"no command":          {},
		"an unknown flag":     {"-nope"},
		"a log that can't be": {"-log", filepath.Join(t.TempDir(), "no", "such", "folder"), "--", "true"},
		"an unknown command":  {"--", "/no/such/command"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(args, new(bytes.Buffer)); err == nil {
				t.Error("got no error")
			}
		})
	}
}
