package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
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

// cleanLines is clean for a text of several lines that are ours.
func cleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = clean(lines[i], longest)
	}
	return strings.Join(lines, "\n")
}

// clean returns the view with every text fit for a terminal.
func (v view) clean() view {
	v.node, v.source, v.doubt, v.notANode = clean(v.node, short), clean(v.source, long), clean(v.doubt, long), clean(v.notANode, long)
	v.rows, v.conditions = cleanRows(v.rows), cleanRows(v.conditions)
	lines := make([]string, len(v.agent))
	for i, l := range v.agent {
		lines[i] = clean(l, longest/4) // a decision tells all that holds it
	}
	v.agent = lines
	return v
}

func cleanRows(given []row) []row {
	rows := make([]row, len(given))
	for i, r := range given {
		r.component, r.state, r.version, r.since = clean(r.component, short), clean(r.state, short), clean(r.version, short), clean(r.since, short)
		r.detail, r.next = clean(r.detail, long), clean(r.next, long)
		rows[i] = r
	}
	return rows
}

// table prints the view: what is wrong, the components, what to look at next, what the agent does, and where all this is from.
func (v view) table(columns int) string {
	v = v.clean()
	parts := []string{v.state(columns), v.advice(columns), v.deeds(columns), paint(faint, wrap(v.source, columns)) + "\n"}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "\n")
}

// state is the headline with the components and the conditions; the view must be clean.
func (v view) state(columns int) string {
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
	if len(v.conditions) > 0 && v.notANode == "" {
		rows := [][]string{{"CONDITION", "STATUS", "SINCE", "DETAIL"}}
		for _, r := range v.conditions {
			rows = append(rows, []string{r.component, conditionWord(r), r.since, r.detail})
		}
		b.WriteString("\n" + columnsOf(rows, columns))
	}
	return b.String()
}

// advice says what to look at next; empty when nothing.
func (v view) advice(columns int) string {
	next := v.next()
	if len(next) == 0 || v.notANode != "" {
		return ""
	}
	var b strings.Builder
	b.WriteString(strong.Render("Look next:") + "\n")
	for _, n := range next {
		b.WriteString(sentence(n, columns))
	}
	return b.String()
}

// deeds says what the agent does; empty without one.
func (v view) deeds(columns int) string {
	var b strings.Builder
	for _, l := range v.agent {
		b.WriteString(hang(l, columns-min(columns, 2), 2) + "\n")
	}
	return b.String()
}

// conditionWord says of a condition how it is; its state is a word of its own where that is neither good nor bad.
func conditionWord(r row) string {
	if r.state != "" {
		return unsure.Render(r.state)
	}
	return healthWord(r)
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
	for _, r := range v.all() {
		if r.next != "" && !r.absent && r.health != observe.Healthy {
			next = append(next, r.next)
		}
	}
	return next
}

func healthWord(r row) string {
	word := wordOf(r)
	switch {
	case r.absent:
		return faint.Render(word)
	case r.health == observe.Healthy:
		return good.Render(word)
	case r.health == observe.Unhealthy:
		return bad.Render(word)
	}
	return unsure.Render(word)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
