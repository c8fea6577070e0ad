package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"charm.land/lipgloss/v2"
)

const (
	// enterScreen: the alternate screen, so that what the terminal showed comes back; no cursor; no wrapping by the terminal, which would
	// spoil the count of lines.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	eraseLine   = "\x1b[K"
	restBelow   = "\x1b[J"
)

// watchScreen keeps a terminal up to date, each second and with each change.
func (c *common) watchScreen(ctx context.Context, sights <-chan sight) (err error) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	stopped, continued := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTSTP)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(stopped)
	defer signal.Stop(continued)
	if err := c.print(enterScreen + home + restBelow + "Looking …"); err != nil {
		return err
	}
	defer func() {
		if left := c.print(leaveScreen); err == nil {
			err = left
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var latest *sight
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-sights:
			latest = &s
		case <-tick.C:
		case <-resized:
		case <-stopped: // Ctrl-Z: whoever gets the terminal meanwhile gets it as it was
			if err := c.print(leaveScreen); err != nil {
				return err
			}
			for len(continued) > 0 {
				<-continued // from before
			}
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				return fmt.Errorf("stop: %w", err)
			}
			<-continued // this thread may run on for a moment before all of the process has stopped
			if err := c.print(enterScreen); err != nil {
				return err
			}
		}
		if latest == nil {
			continue
		}
		columns, rows := size(c.stdout)
		if err := drawFrame(c.stdout, latest.frame(time.Now(), columns, rows)); err != nil {
			return err
		}
	}
}

// drawFrame puts lines over what the screen shows, in one write so that nothing flickers. Each line is erased before it is written: where
// the terminal doesn't wrap, the cursor stays on the last column, and erasing from there would take a character of a full line.
func drawFrame(w io.Writer, lines []string) error {
	above, last := lines[:len(lines)-1], lines[len(lines)-1]
	var b strings.Builder
	for _, l := range above {
		b.WriteString(eraseLine + lipgloss.Sprint(l) + "\n")
	}
	_, err := io.WriteString(w, home+b.String()+restBelow+lipgloss.Sprint(last))
	return err
}

// frame is a screen of so many columns and rows: the state, what the agent does, the last changes and advice as far as there is room, and
// a line about the watch itself.
func (s sight) frame(now time.Time, columns, rows int) []string {
	v := s.show(now).clean()
	lines := linesOf(v.state(columns))
	keep := max(rows-1, 1) // the foot is one line
	if deeds := v.deeds(columns); deeds != "" {
		// What is being done about it stays in sight, however much is wrong.
		more := cut(append([]string{""}, linesOf(deeds)...), max(keep/2, 2))
		lines = append(cut(lines, max(keep-len(more), 2)), more...)
	}
	// What is added has an empty line above it, and the changes a heading.
	if room := min(rows-len(lines)-3, lastChanges); room > 0 && len(s.history) > 0 {
		lines = append(lines, "", strong.Render("Last changes:"))
		for _, e := range s.history[max(0, len(s.history)-room):] {
			event := strings.TrimSpace(what(e) + " " + change(e))
			lines = append(lines, strings.TrimRight("  "+recent(e.At, now)+"  "+event+"  "+because(e), " "))
		}
	}
	for _, part := range []string{v.advice(columns), paint(faint, wrap(v.source, columns))} {
		if more := linesOf(part); part != "" && len(lines)+len(more)+2 <= rows {
			lines = append(append(lines, ""), more...)
		}
	}
	lines = append(cut(lines, keep), s.foot(now))
	for i, l := range lines {
		lines[i] = lipgloss.NewStyle().Inline(true).MaxWidth(columns).Render(l)
	}
	return lines
}

// cut leaves at most so many lines, the last of which says what is missing.
func cut(lines []string, most int) []string {
	if len(lines) <= most {
		return lines
	}
	return append(lines[:most-1:most-1], unsure.Render(fmt.Sprintf("… %d more lines: make the window larger", len(lines)-most+1)))
}

func linesOf(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// foot says when this is from, and whether an agent tells it.
func (s sight) foot(now time.Time) string {
	text := faint.Render(clock(now) + ", as of " + age(now.Sub(s.at)) + " ago. Ctrl-C ends.")
	if s.gone == "" {
		return text
	}
	gone := clean(s.gone, short)
	return unsure.Render(strings.ToUpper(gone[:1])+gone[1:]) + faint.Render(", looking every "+age(lookEvery)+". ") + text
}

// recent words a time briefly: its zone stands in the foot, and today's date too.
func recent(t, now time.Time) string {
	if now.Sub(t) < 24*time.Hour {
		return t.Local().Format(time.TimeOnly)
	}
	return t.Local().Format("01-02 15:04")
}
