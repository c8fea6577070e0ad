package parse

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits in bytes: of the output that is looked at, of a returned version or name, and of a returned id or message.
const (
	maxInput  = 1 << 20
	maxName   = 256
	maxDetail = 1 << 10
)

// plain makes a tool's output fit for line matching: bounded, printable, with "\n" as the only line end.
// Of an output that is too long, the line that the limit cuts is dropped: half a version is a wrong version.
func plain(out []byte) string {
	if len(out) > maxInput {
		out = out[:maxInput]
		out = out[:bytes.LastIndexByte(out, '\n')+1]
	}
	return printable(string(out))
}

// clean makes one value fit for terminals and JSON: on one line, trimmed, and at most limit bytes, cut between characters.
func clean(s string, limit int) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	if len(s) > limit {
		s = strings.TrimSpace(strings.ToValidUTF8(s[:limit], ""))
	}
	return s
}

// printable drops terminal escape sequences and every character that has no look of its own, except "\n" and "\t".
// Bytes that are not UTF-8 become U+FFFD and not nothing, so that they cannot turn a broken word into a good one.
func printable(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] == '\x1b' {
			i += escapeLen(s[i:])
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case r == '\n' || r == '\t' || !hidden(r):
			b.WriteRune(r)
		case r == '\r' && (i == len(s) || s[i] != '\r' && s[i] != '\n'):
			b.WriteByte('\n') // a progress line; in "\r\n" and "\r\r\n" the "\n" alone counts
		}
	}
	return b.String()
}

// hidden tells control characters and those that only steer others: bidirectional overrides, byte order marks, zero-width ones, line separators.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// escapeLen returns how many bytes the terminal escape sequence at the start of s takes. It never reaches over a line's end.
func escapeLen(s string) int {
	span := func(i int, lo, hi byte) int {
		for i < len(s) && lo <= s[i] && s[i] <= hi {
			i++
		}
		return i
	}
	final := func(i int, lo byte) int {
		if i < len(s) && lo <= s[i] && s[i] <= '~' {
			i++
		}
		return i
	}
	if len(s) < 2 {
		return 1
	}
	switch s[1] {
	case '[': // colours, cursor movement
		return final(span(span(2, '0', '?'), ' ', '/'), '@')
	case ']', 'P', 'X', '^', '_': // titles, links and other strings
		return stringEscapeLen(s)
	default:
		return final(span(1, ' ', '/'), '0')
	}
}

// stringEscapeLen measures an escape sequence that carries a string. What ends the string (BEL, or an escape) is left to the caller, which drops
// it too.
func stringEscapeLen(s string) int {
	if end := strings.IndexAny(s[2:], "\a\x1b\r\n"); end >= 0 {
		return 2 + end
	}
	return len(s)
}
