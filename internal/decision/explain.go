package decision

import (
	"fmt"
	"strings"
	"time"
)

// Explain is a decision as people read it: what, why, what was seen, every guard, and what would change it. It ends with a newline.
func Explain(d Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Decision: %s", d.Action)
	if d.Action == Restart {
		fmt.Fprintf(&b, " %s", d.Unit)
	}
	if d.Wanted != "" {
		fmt.Fprintf(&b, " (would %s)", Deed(d.Wanted, d.Unit))
	}
	fmt.Fprintf(&b, " at %s\n  %s: %s\n", stamp(d.At), d.Reason, d.Message)
	if !d.Until.IsZero() {
		fmt.Fprintf(&b, "  until %s (in %s)\n", stamp(d.Until), words(d.Until.Sub(d.At)))
	}
	if len(d.Grounds) > 0 {
		fmt.Fprintf(&b, "  the snapshot asks for a bootstrap: %s\n", strings.Join(d.Grounds, ", "))
	}
	section(&b, "Evidence", d.Evidence, func(e Evident) []string {
		return []string{e.Subject, e.Health, e.Reason, fmt.Sprintf("for %s, %s", words(d.At.Sub(e.Since)), looks(e.Looks)), e.Message}
	})
	section(&b, "Thresholds", d.Thresholds, func(t Threshold) []string {
		return []string{t.Name, fmt.Sprintf("%s of %s", t.Have, t.Want), map[bool]string{true: "reached", false: "not reached"}[t.Met]}
	})
	section(&b, "Guards", d.Guards, func(g Guard) []string {
		effect := "free"
		if g.Holds {
			effect = string(g.Effect)
		}
		return []string{g.Name, effect, g.Message}
	})
	changes := append([]string(nil), d.Changes...)
	if !d.NextLook.IsZero() {
		changes = append(changes, fmt.Sprintf("time: the next look is due by %s (in %s)", stamp(d.NextLook), words(d.NextLook.Sub(d.At))))
	}
	section(&b, "What would change it", changes, func(c string) []string { return []string{c} })
	return b.String()
}

// section writes a headline and a line for each entry, its cells one below the other; nothing where there is no entry.
func section[T any](b *strings.Builder, title string, entries []T, cells func(T) []string) {
	if len(entries) == 0 {
		return
	}
	var widths []int
	for _, e := range entries {
		for i, c := range cells(e) {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, e := range entries {
		var line strings.Builder
		for i, c := range cells(e) {
			fmt.Fprintf(&line, "  %-*s", widths[i], c)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// words is a length of time as people say it: without parts that are zero.
func words(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func looks(n int) string {
	if n == 1 {
		return "1 look"
	}
	return fmt.Sprintf("%d looks", n)
}

func stamp(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }
