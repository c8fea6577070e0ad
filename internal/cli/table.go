package cli

import (
	"io"
	"os"
	"strings"

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

// table prints the view: what is wrong, the components, what to look at next, and where all this is from.
func (v view) table(columns int) string {
	var b strings.Builder
	b.WriteString(v.headline(columns) + "\n\n")
	rows := [][]string{{"COMPONENT", "HEALTH", "STATE", "VERSION", "SINCE", "DETAIL"}}
	for _, r := range v.rows {
		if v.notANode && r.health != observe.Healthy {
			r.absent = true // on a machine that is no node, none of this is an alarm
		}
		rows = append(rows, []string{r.component, healthWord(r), dash(r.state), dash(r.version), dash(r.since), r.detail})
	}
	b.WriteString(columnsOf(rows, columns))
	if next := v.next(); len(next) > 0 && !v.notANode {
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
	case v.notANode:
		word, text = unsure, v.node+" is not a Kubernetes node: it has no kubelet unit, no kubelet program and no kubeconfig"
	case v.health == observe.Healthy:
		word, text = good, "Node "+v.node+" is healthy"
	case v.health == observe.Unhealthy:
		word, text = bad, "Node "+v.node+" is UNHEALTHY: "+v.worst(observe.Unhealthy).sentence()
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
