package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/observe"
)

// Colours repeat what the words say, they never say it alone. The eight basic ones follow the terminal's own theme.
//
//nolint:gochecknoglobals // values that nobody changes; Go has no constants of this type
var (
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
	unsure = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	faint  = lipgloss.NewStyle().Faint(true)
	strong = lipgloss.NewStyle().Bold(true)
)

// width returns how many columns the terminal has, or 0 when w is none: then nothing is wrapped.
func width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ) // a file descriptor fits an int
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// printStyled writes text with its colours as far as w can show them: none into a pipe or with NO_COLOR.
func printStyled(w io.Writer, text string) error {
	_, err := lipgloss.Fprint(w, text)
	return err
}

// Most characters that a value from elsewhere may take: what is longer is no version, or no sentence for a person.
const (
	short   = 80   // a cell for a name, a version, a state or a time
	long    = 400  // a detail or an advice
	longest = 4000 // a note or a finding, which may list many things
)

// clean makes a text of at most most characters that a terminal shows and doesn't obey. Versions and messages come from files and
// programs that this one doesn't trust: they could colour, overwrite or reorder what stands beside them, or add rows of their own.
func clean(s string, most int) string {
	var out []rune
	space := false // the last one was a newline or a tab
	for i := 0; i < len(s) && len(out) <= most; {
		r, size := utf8.DecodeRuneInString(s[i:])
		layout := r == '\n' || r == '\r' || r == '\t'
		switch {
		case layout && space:
		case layout:
			out = append(out, ' ')
		case r == utf8.RuneError && size == 1:
			out = append(out, []rune(fmt.Sprintf(`\x%02x`, s[i]))...)
		case unicode.IsControl(r): // with U+0080 to U+009F, which some terminals obey as they do ESC
			out = append(out, []rune(fmt.Sprintf(`\x%02x`, r))...)
		case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			out = append(out, []rune(fmt.Sprintf(`\u{%x}`, r))...)
		default:
			out = append(out, r)
		}
		space = layout
		i += size
	}
	if len(out) > most {
		out = append(out[:most-1], '…')
	}
	return string(out)
}

// clean returns the view with every text fit for a terminal.
func (v view) clean() view {
	rows := make([]row, len(v.rows))
	for i, r := range v.rows {
		r.component, r.state, r.version, r.since = clean(r.component, short), clean(r.state, short), clean(r.version, short), clean(r.since, short)
		r.detail, r.next = clean(r.detail, long), clean(r.next, long)
		rows[i] = r
	}
	v.node, v.source, v.doubt, v.rows = clean(v.node, short), clean(v.source, long), clean(v.doubt, long), rows
	return v
}

// table prints the view: what is wrong, the components, what to look at next, and where all this is from.
func (v view) table(columns int) string {
	v = v.clean()
	var b strings.Builder
	b.WriteString(v.headline(columns) + "\n\n")
	rows := [][]string{{"COMPONENT", "HEALTH", "STATE", "VERSION", "SINCE", "DETAIL"}}
	for _, r := range v.rows {
		if v.notANode != "" && r.health != observe.Healthy {
			r.absent = true // on a machine that is no node, none of this is an alarm
		}
		rows = append(rows, []string{r.component, healthWord(r), dash(r.state), dash(r.version), dash(r.since), r.detail})
	}
	b.WriteString(columnsOf(rows, columns))
	if next := v.next(); len(next) > 0 && v.notANode == "" {
		b.WriteString("\n" + strong.Render("Look next:") + "\n")
		for _, n := range next {
			b.WriteString("  " + n + "\n")
		}
	}
	b.WriteString("\n" + paint(faint, wrap(v.source, columns)) + "\n")
	return b.String()
}

func (v view) headline(columns int) string {
	var word lipgloss.Style
	var text string
	switch {
	case v.notANode != "":
		word, text = unsure, v.node+" is not a Kubernetes node: "+v.notANode
	case v.health == observe.Healthy:
		word, text = good, "Node "+v.node+" is healthy"
	case v.health == observe.Unhealthy:
		word, text = bad, "Node "+v.node+" is UNHEALTHY: "+v.worst(observe.Unhealthy).sentence()
	case v.doubt != "":
		word, text = unsure, v.node+" can't be judged: "+v.doubt
	default:
		word, text = unsure, "Node "+v.node+" can't be judged: "+v.worst(observe.Unknown).sentence()
	}
	return paint(word, wrap(text, columns))
}

// paint styles each line by itself: lipgloss would fill them up to one width.
func paint(style lipgloss.Style, text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = style.Render(strings.TrimRight(lines[i], " "))
	}
	return strings.Join(lines, "\n")
}

func (r row) sentence() string {
	s := r.detail
	if s == "" {
		s = r.component + " is " + r.state
	}
	if r.since != "" {
		s += ", for " + r.since
	}
	return s
}

func (v view) next() []string {
	var next []string
	for _, r := range v.rows {
		if r.next != "" && !r.absent && r.health != observe.Healthy {
			next = append(next, r.next)
		}
	}
	return next
}

func healthWord(r row) string {
	switch {
	case r.absent:
		return faint.Render("-")
	case r.health == observe.Healthy:
		return good.Render("ok")
	case r.health == observe.Unhealthy:
		return bad.Render("BAD")
	}
	return unsure.Render("unknown")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// columnsOf lays out rows, the first of which holds the headings, in columns of the width they need. The last column gets what is left of
// the terminal, and is wrapped below itself.
func columnsOf(rows [][]string, columns int) string {
	const gap = 2
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
	const least = 20 // a narrower last column is worse than the terminal's own wrapping
	room := 0
	if columns-left >= least {
		room = columns - left
	}
	var b strings.Builder
	for _, r := range rows {
		var line strings.Builder
		for i, w := range widths {
			line.WriteString(r[i] + strings.Repeat(" ", w-lipgloss.Width(r[i])+gap))
		}
		last := strings.ReplaceAll(wrap(r[len(r)-1], room), "\n", "\n"+strings.Repeat(" ", left))
		b.WriteString(strings.TrimRight(line.String()+last, " ") + "\n")
	}
	return b.String()
}

func wrap(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	return lipgloss.Wrap(text, columns, " ")
}
