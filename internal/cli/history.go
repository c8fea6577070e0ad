package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/localapi"
)

// wideEnough is from which width on the history fits one line an entry.
const wideEnough = 110

// wish is which entries are wanted.
type wish struct {
	since, until timeFlag
	limit        int
	kinds        kindsFlag
}

func newHistory(c *common) *cobra.Command {
	w := wish{since: timeFlag{past: true}, until: timeFlag{past: true}, limit: 50}
	var output string
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show what changed on this node and what was done about it",
		Long: `history shows the changes that the agent has recorded, the newest last: of conditions and decisions, remedies, pauses and
the journal itself. It asks the agent, or reads the journal where none runs. Times are local.

  aks-flex-node history --since 2h
  aks-flex-node history --since 17:00 --until 18:00 --kind decision,remedy

The form json is an array of all that was recorded, in order.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case w.limit < 0:
				return errors.New("--limit must not be negative")
			case !w.since.IsZero() && !w.until.IsZero() && w.until.Before(w.since.Time):
				return fmt.Errorf("--until %s is before --since %s", clock(w.until.Time), clock(w.since.Time))
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := c.history(cmd.Context(), w)
			if err != nil {
				return err
			}
			return c.printHistory(entries, output, time.Now())
		},
	}
	flags := cmd.Flags()
	flags.Var(&w.since, "since", "from this `time` on, or this long ago, such as 2h")
	flags.Var(&w.until, "until", "up to this `time`, or this long ago")
	flags.IntVar(&w.limit, "limit", w.limit, "the last so many entries; 0 shows all")
	flags.Var(&w.kinds, "kind", "only these `kinds`: "+strings.Join(kinds(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kinds(), cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that isn't there
	outputFlag(cmd, &output, "table", "wide", "json")
	return cmd
}

// kinds are those of entries that people may ask for.
func kinds() []string {
	return []string{journal.KindCondition, journal.KindDecision, journal.KindRemedy, journal.KindPause, journal.KindJournal, agent.KindRecovered, agent.KindAgent}
}

// kindsFlag is a flag that takes kinds of entries, separated by commas or one after the other.
type kindsFlag []string

func (f *kindsFlag) String() string { return strings.Join(*f, ",") }

// Type names the flag's argument in the help.
func (f *kindsFlag) Type() string { return "kinds" }

// Set adds kinds.
func (f *kindsFlag) Set(text string) error {
	for kind := range strings.SplitSeq(text, ",") {
		if !slices.Contains(kinds(), kind) {
			return fmt.Errorf("want one or more of %s", strings.Join(kinds(), ", "))
		}
		*f = append(*f, kind)
	}
	return nil
}

// history asks the agent, or reads the journal where none runs.
func (c *common) history(ctx context.Context, w wish) ([]journal.Entry, error) {
	limit := w.limit
	if len(w.kinds) > 0 {
		limit = 0 // the last so many of these kinds are wanted
	}
	entries, err := c.ask().History(ctx, w.since.Time, w.until.Time, limit)
	switch {
	case errors.Is(err, localapi.ErrNotRunning):
		if entries, err = c.recorded(w.since.Time, w.until.Time, limit); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, forbidden(fmt.Errorf("ask the agent for its history: %w", err), "ask the agent for its history")
	}
	if len(w.kinds) > 0 {
		entries = slices.DeleteFunc(entries, func(e journal.Entry) bool { return !slices.Contains(w.kinds, e.Kind) })
	}
	if w.limit > 0 && len(entries) > w.limit {
		entries = entries[len(entries)-w.limit:]
	}
	return entries, nil
}

// recorded reads the history from the journal.
func (c *common) recorded(from, to time.Time, limit int) ([]journal.Entry, error) {
	j, err := c.readJournal()
	if err != nil {
		return nil, err
	}
	defer func() { _ = j.Close() }() // it was only read
	return j.History(from, to, limit)
}

func (c *common) printHistory(entries []journal.Entry, output string, now time.Time) error {
	if output == "json" {
		if entries == nil {
			entries = []journal.Entry{} // an array also when it is empty
		}
		text, err := json.MarshalIndent(entries, "", "  ")
		if err != nil {
			return err
		}
		return c.print(string(text) + "\n")
	}
	if len(entries) == 0 {
		return c.print("Nothing was recorded.\n")
	}
	columns := width(c.stdout)
	if output == "wide" {
		return printStyled(c.stdout, historyWide(entries, now, columns))
	}
	return printStyled(c.stdout, historyTable(entries, now, columns))
}

// historyTable lists entries, one a line where there is room, else in paragraphs.
func historyTable(entries []journal.Entry, now time.Time, columns int) string {
	if columns > 0 && columns < wideEnough {
		return historyNarrow(entries, now, columns)
	}
	rows := [][]string{{"TIME", "AGE", "WHAT", "CHANGE", "MESSAGE"}}
	for _, e := range entries {
		rows = append(rows, []string{clock(e.At), age(now.Sub(e.At)), what(e), dash(change(e)), because(e)})
	}
	return columnsOf(rows, columns)
}

func historyNarrow(entries []journal.Entry, now time.Time, columns int) string {
	var b strings.Builder
	for _, e := range entries {
		text := strings.TrimSpace(what(e) + " " + change(e))
		if why := because(e); why != "" {
			text += " — " + why
		}
		b.WriteString(clock(e.At) + ", " + age(now.Sub(e.At)) + " ago\n")
		b.WriteString(strings.Repeat(" ", indent) + hang(text, columns-indent, indent) + "\n")
	}
	return b.String()
}

// historyWide adds the number and the kind, and whatever else was recorded.
func historyWide(entries []journal.Entry, now time.Time, columns int) string {
	rows := [][]string{{"SEQ", "TIME", "AGE", "KIND", "SUBJECT", "CHANGE", "REASON", "MESSAGE"}}
	for _, e := range entries {
		message := clean(e.Message, longest)
		if len(e.Data) > 0 && e.Kind != journal.KindCondition { // of a condition it is the condition
			message = strings.TrimSpace(message + " " + clean(string(e.Data), longest))
		}
		rows = append(rows, []string{
			strconv.FormatUint(e.Sequence, 10), clock(e.At), age(now.Sub(e.At)), clean(e.Kind, short), dash(clean(e.Subject, short)),
			dash(change(e)), dash(clean(e.Reason, short)), message,
		})
	}
	return columnsOf(rows, columns)
}

// what is an entry's subject; that of a condition speaks for itself.
func what(e journal.Entry) string {
	if e.Kind == journal.KindCondition {
		return clean(e.Subject, short)
	}
	return clean(strings.TrimSpace(e.Kind+" "+e.Subject), short)
}

func change(e journal.Entry) string {
	from, to := clean(e.From, short), clean(e.To, short)
	switch {
	case from == "":
		return to
	case to == "":
		return from + " →"
	}
	return from + " → " + to
}

// because is an entry's reason and message.
func because(e journal.Entry) string {
	switch {
	case e.Reason == "":
		return clean(e.Message, longest)
	case e.Message == "":
		return clean(e.Reason, short)
	}
	return clean(e.Reason, short) + ": " + clean(e.Message, longest)
}
