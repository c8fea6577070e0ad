package cli

import (
	"strings"

	"charm.land/lipgloss/v2"
)

const (
	gap = 2 // between columns
	// least is the narrowest that a last column may be: below it, it goes onto lines of its own.
	least = 20
	// indent is that of such lines, and of what continues a line.
	indent = 4
)

// columnsOf lays out rows, the first of which holds the headings, in columns of the width they need. The last column gets what is left of
// the terminal, and is wrapped below itself; where next to nothing is left, it stands below its row. With columns 0 nothing is wrapped.
func columnsOf(rows [][]string, columns int) string {
	widths := make([]int, len(rows[0])-1)
	for _, r := range rows {
		for i := range widths {
			widths[i] = max(widths[i], lipgloss.Width(r[i]))
		}
	}
	left := 0
	for _, w := range widths {
		left += w + gap
	}
	below := columns > 0 && columns-left < least
	var b strings.Builder
	for _, r := range rows {
		var line strings.Builder
		for i, w := range widths {
			line.WriteString(r[i] + strings.Repeat(" ", w-lipgloss.Width(r[i])+gap))
		}
		last := r[len(r)-1]
		switch {
		case !below && columns > 0:
			last = hang(last, columns-left, left)
		case below && last != "":
			last = "\n" + strings.Repeat(" ", indent) + hang(last, columns-indent, indent)
		}
		first, rest, more := strings.Cut(line.String()+last, "\n")
		b.WriteString(strings.TrimRight(first, " ") + "\n")
		if more {
			b.WriteString(rest + "\n")
		}
	}
	return b.String()
}

// hang wraps text at so many columns; every line but the first is indented.
func hang(text string, columns, indented int) string {
	return strings.ReplaceAll(wrap(text, columns), "\n", "\n"+strings.Repeat(" ", indented))
}

// sentence wraps a line that belongs below a heading.
func sentence(text string, columns int) string {
	if columns > 0 {
		columns = max(columns-indent, least)
	}
	return "  " + hang(text, columns, indent) + "\n"
}

// aligned wraps a line that is a row of a table already: below its last cell, if that leaves it enough room, else with that cell on lines
// of its own.
func aligned(line string, columns int) string {
	if columns <= 0 || lipgloss.Width(line) <= columns {
		return line
	}
	cut := len(line) - len(strings.TrimLeft(line, " ")) // where the last cell begins
	if i := strings.LastIndex(line, "  "); i > cut {
		cut = i + 2
	}
	at := max(lipgloss.Width(line[:cut]), indent)
	if at > columns/2 {
		head := strings.TrimRight(line[:cut], " ")
		for lipgloss.Width(head) > columns && strings.Contains(head, "   ") {
			head = strings.ReplaceAll(head, "   ", "  ") // where columns don't fit, they need not stand below each other
		}
		if lipgloss.Width(head) > columns {
			head = hang(head, columns-indent, indent)
		}
		return head + "\n" + strings.Repeat(" ", indent) + hang(line[cut:], columns-indent, indent)
	}
	return line[:cut] + hang(line[cut:], columns-at, at)
}

// wrap breaks plain text into lines of at most so many columns: at spaces, else, in a word that is longer than a line, after a slash or a
// comma, else anywhere. With columns 0 it leaves text as it is.
func wrap(text string, columns int) string {
	if columns <= 0 || lipgloss.Width(text) <= columns && !strings.Contains(text, "\n") {
		return text
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, wrapLine(line, columns)...)
	}
	return strings.Join(lines, "\n")
}

func wrapLine(text string, columns int) (lines []string) {
	var line strings.Builder
	used := 0
	end := func() {
		lines = append(lines, strings.TrimRight(line.String(), " "))
		line.Reset()
		used = 0
	}
	for i, word := range strings.Split(text, " ") {
		space := min(i, 1) // before every word but the first
		pieces := []string{word}
		if lipgloss.Width(word) > columns {
			pieces = piecesOf(word, columns)
		}
		for _, p := range pieces {
			w := lipgloss.Width(p)
			if used > 0 && used+space+w > columns {
				end()
			}
			if used == 0 {
				space = 0 // it does not begin a line
			}
			line.WriteString(strings.Repeat(" ", space) + p)
			used += space + w
			space = 0
		}
	}
	end()
	return lines
}

// piecesOf takes a long word apart: after slashes and commas, and where that does not suffice, anywhere.
func piecesOf(word string, columns int) (pieces []string) {
	var piece strings.Builder
	used := 0
	end := func() {
		if piece.Len() > 0 {
			pieces = append(pieces, piece.String())
		}
		piece.Reset()
		used = 0
	}
	for _, r := range word {
		w := lipgloss.Width(string(r))
		if used+w > columns {
			end()
		}
		piece.WriteRune(r)
		used += w
		if r == '/' || r == ',' {
			end()
		}
	}
	end()
	return pieces
}
