package parse

import (
	"strings"
	"testing"
)

func TestPrintable(t *testing.T) {
	for _, tc := range []struct{ given, text, want string }{
		{"plain text", "a\tb\nc é 世", "a\tb\nc é 世"},
		{"colours", "\x1b[1;38;5;196mred\x1b[0m", "red"},
		{"cursor movement and erasing", "\x1b[2K\x1b[1Gx\x1b[?25l", "x"},
		{"character set", "\x1b(Bx\x1b=", "x"},
		{"title ended by BEL", "\x1b]0;evil\x07x", "x"},
		{"link ended by ST", "\x1b]8;;https://example.com\x1b\\x\x1b]8;;\x1b\\", "x"},
		{"unended title stays on its line", "\x1b]0;evil\nx", "\nx"},
		{"unended title at the end", "x\x1b]0;evil", "x"},
		{"title ended by another escape", "\x1b]0;evil\x1b[0mx", "x"},
		{"escape cut off", "x\x1b", "x"},
		{"colour cut off", "x\x1b[31", "x"},
		{"escape before a line end", "x\x1b\ny\x1b[\nz", "x\ny\nz"},
		{"escape in an escape leaves no escape", "\x1b\x1b[31m[32mx", "[32mx"},
		{"NUL, BEL, DEL and C1", "a\x00b\x07c\x7fd\u0085e\u009b", "abcde"},
		{"BOM, bidirectional overrides, zero width", "\ufeffa\u202eb\u2066c\u200bd\u2028e", "abcde"},
		{"bytes that are no UTF-8", "a\xffb\xc3", "a\ufffdb\ufffd"},
		{"line ends", "a\r\nb\rc\r\r\nd\r", "a\nb\nc\nd\n"},
	} {
		t.Run(tc.given, func(t *testing.T) {
			if got := printable(tc.text); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCleanKeepsAValueOnOneLineAndInBounds(t *testing.T) {
	if got, want := clean(" a\r\n  b\t\tc ", 10), "a b c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := clean("ab cd", 3), "ab"; got != want {
		t.Errorf("cut at a space: got %q, want %q", got, want)
	}
	if got, want := clean("世界", 5), "世"; got != want {
		t.Errorf("cut within a character: got %q, want %q", got, want)
	}
}

func TestPlainDropsTheLineThatTheLimitCuts(t *testing.T) {
	whole := strings.Repeat("x", maxInput-4) + "\nabc"
	if got := plain([]byte(whole)); got != whole {
		t.Errorf("at the limit: got %d bytes, want all %d", len(got), len(whole))
	}
	if got := plain([]byte(whole + "d")); len(got) != maxInput-3 || !strings.HasSuffix(got, "x\n") {
		t.Errorf("one byte more: got %d bytes, want %d and no last line", len(got), maxInput-3)
	}
}
