package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
)

func TestLinesBreakAtSpacesElseWherePathsDo(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		columns int
		want    string
	}{
		"fits":                         {"one two", 7, "one two"},
		"at a space":                   {"one two three", 8, "one two\nthree"},
		"a path that fits the next":    {"see /usr/local/bin", 14, "see\n/usr/local/bin"},
		"a path longer than a line":    {"file /var/lib/kubelet/config.yaml is bad", 20, "file /var/lib/\nkubelet/config.yaml\nis bad"},
		"a list without spaces":        {"cpu,memory,pids,hugetlb", 12, "cpu,memory,\npids,hugetlb"},
		"neither space nor slash":      {"abcdefghij", 4, "abcd\nefgh\nij"},
		"its own lines stay":           {"a\nb c", 2, "a\nb\nc"},
		"wide characters":              {"日本語 日本", 6, "日本語\n日本"},
		"more than one space":          {"a  b", 10, "a  b"},
		"no terminal, nothing wrapped": {"one two three", 0, "one two three"},
		"empty":                        {"", 5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wrap(c.text, c.columns); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzWrap(f *testing.F) {
	for _, s := range []string{"", "one two", "/usr/local/bin/kubelet", "日本語", "a,b,c  d", strings.Repeat("x", 100)} {
		f.Add(s, 10)
	}
	f.Fuzz(func(t *testing.T, s string, columns int) {
		s = clean(s, long)
		columns = 2 + max(columns, 0)%100
		got := wrap(s, columns)
		bare := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if !utf8.ValidString(got) || bare(got) != bare(s) {
			t.Errorf("got %q of %q", got, s)
		}
	})
}

func TestALastColumnWithoutRoomGoesBelow(t *testing.T) {
	rows := [][]string{{"COMPONENT", "DETAIL"}, {"containerd", "is not ready for anything"}, {"runc", ""}}
	for columns, want := range map[int]string{
		0:  "COMPONENT   DETAIL\ncontainerd  is not ready for anything\nrunc\n",
		32: "COMPONENT   DETAIL\ncontainerd  is not ready for\n            anything\nrunc\n",
		31: "COMPONENT\n    DETAIL\ncontainerd\n    is not ready for anything\nrunc\n",
	} {
		if got := columnsOf(rows, columns); got != want {
			t.Errorf("%d columns: got\n%swant\n%s", columns, got, want)
		}
	}
}

func TestARowIsWrappedBelowItsLastCell(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"fits":             {"  mode  free", "  mode  free"},
		"below its cell":   {"  mode  free  the agent acts and acts and acts", "  mode  free  the agent acts and\n              acts and acts"},
		"a plain sentence": {"  Reason: the agent acts and acts and acts", "  Reason: the agent acts and\n    acts and acts"},
		"no room below":    {"  a             b            the agent acts", "  a             b\n    the agent acts"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := aligned(c.line, 34); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			for line := range strings.SplitSeq(c.want, "\n") {
				if lipgloss.Width(line) > 34 {
					t.Errorf("%q is wider than 34", line)
				}
			}
		})
	}
}

func TestTimesAndSpansAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-15T16:30:00Z": "2026-01-15T16:30:00Z", "2026-01-15T16:30:00+02:00": "2026-01-15T14:30:00Z", "2026-01-15 17:30": "2026-01-15T16:30:00Z",
		"2026-01-15T17:30:05": "2026-01-15T16:30:05Z", "2026-01-15": "2026-01-14T23:00:00Z", "17:30": "2026-01-15T16:30:00Z", "07:00:09": "2026-01-15T06:00:09Z",
	} {
		got, err := parseTime(text, now.In(time.Local))
		if err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: got %s and %v, want %s", text, got.UTC(), err, want)
		}
	}
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "2h": 2 * time.Hour, "1.5d": 36 * time.Hour, "1h30m": 90 * time.Minute} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%s: got %s and %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "0s", "-1h", "NaNd", "-3d", "1e300d", "99999999h", "2", "2 h"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q: got %s, want an error", text, got)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"", "17:30", "2026-01-15", "2026-01-15T16:30:00Z", "0000-01-01", "2d", "1e9d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if when, err := parseTime(s, now); err == nil && when.IsZero() && !strings.HasPrefix(s, "0001") {
			t.Errorf("%q: got no time and no error", s)
		}
		if d, err := parseSpan(s); err == nil && (d <= 0 || d > maxSpan) {
			t.Errorf("%q: got %s", s, d)
		}
	})
}
