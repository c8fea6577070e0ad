package cli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/localapi"
	"github.com/aks-flex-node/agent/test/golden"
)

// someHistory is a bad hour.
func someHistory() []journal.Entry {
	at := func(ago time.Duration) time.Time { return now.Add(-ago) }
	all := []journal.Entry{
		{At: at(50 * time.Hour), Kind: journal.KindJournal, Reason: "Begun", Message: "there was none"},
		{At: at(time.Hour), Kind: journal.KindPause, Subject: "jo (aks-flex-node pause)", To: "paused", Message: "new switch"},
		{At: at(50 * time.Minute), Kind: journal.KindPause, Subject: "jo (aks-flex-node resume)", From: "paused", To: "resumed"},
		{At: at(20 * time.Minute), Kind: journal.KindCondition, Subject: "KubeletRunning", From: "True", To: "False", Reason: "CrashLoop",
			Message: "kubelet.service keeps failing (exit-code), restarted 12 times by systemd", Data: json.RawMessage(`{"type":"KubeletRunning"}`)},
		{At: at(19 * time.Minute), Kind: journal.KindDecision, Subject: "kubelet.service", From: "none", To: "restart", Reason: "UnitFailed",
			Message: "kubelet.service failed (exit-code) (for 1m, 4 looks)"},
		{At: at(19 * time.Minute), Kind: journal.KindRemedy, Subject: "restart kubelet.service", To: "begun", Data: json.RawMessage(`{"id": 12}`)},
		{At: at(18 * time.Minute), Kind: journal.KindRemedy, Subject: "restart kubelet.service", From: "begun", To: "succeeded", Message: "kubelet.service is active"},
		{At: at(17 * time.Minute), Kind: journal.KindCondition, Subject: "KubeletRunning", From: "False", To: "True", Reason: "Active", Message: "kubelet.service is active"},
	}
	for i := range all {
		all[i].Version, all[i].Sequence = 1, uint64(i+1)
	}
	return all
}

func TestTheHistoryAsPeopleReadIt(t *testing.T) {
	entries := someHistory()
	golden.Check(t, "testdata/history.txt", plain(t, historyTable(entries, now, 0)))
	golden.Check(t, "testdata/history-60.txt", plain(t, historyTable(entries, now, 60)))
	golden.Check(t, "testdata/history-120.txt", plain(t, historyTable(entries, now, 120)))
	golden.Check(t, "testdata/history-wide.txt", plain(t, historyWide(entries, now, 0)))
}

func TestWhichEntriesAreShown(t *testing.T) {
	entries := someHistory()
	for name, c := range map[string]struct {
		args []string
		want []uint64
	}{
		"all, by default":           {nil, []uint64{1, 2, 3, 4, 5, 6, 7, 8}},
		"the last":                  {[]string{"--limit", "2"}, []uint64{7, 8}},
		"all, as asked":             {[]string{"--limit", "0"}, []uint64{1, 2, 3, 4, 5, 6, 7, 8}},
		"of one kind":               {[]string{"--kind", "remedy"}, []uint64{6, 7}},
		"the last of two kinds":     {[]string{"--kind", "pause,remedy", "--limit", "3"}, []uint64{3, 6, 7}},
		"kinds one by one":          {[]string{"--kind", "pause", "--kind", "journal"}, []uint64{1, 2, 3}},
		"from a time":               {[]string{"--since", "2026-01-15T17:29:00Z"}, []uint64{7, 8}},
		"between times, local":      {[]string{"--since", "2026-01-15 17:45", "--until", "2026-01-15 18:28"}, []uint64{2, 3, 4}},
		"from so long ago, nothing": {[]string{"--since", "2h"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand(t, newFake(nil, entries...))
			code := cmd.run(t.Context(), append([]string{"history", "-o", "json"}, c.args...))
			var got []journal.Entry
			if err := json.Unmarshal(cmd.out.Bytes(), &got); err != nil || got == nil || code != 0 {
				t.Fatalf("got exit %d, %v, %q and %q", code, err, cmd.out.String(), cmd.err.String())
			}
			var numbers []uint64
			for _, e := range got {
				numbers = append(numbers, e.Sequence)
			}
			if !slices.Equal(numbers, c.want) {
				t.Errorf("got %v, want %v", numbers, c.want)
			}
		})
	}
}

func TestWrongWishesAreWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"history", "--kind", "weather"}, "want one or more of condition, decision"},
		{[]string{"history", "--since", "soon"}, "want a time, such as 17:30"},
		{[]string{"history", "--limit", "many"}, "invalid argument"},
		{[]string{"history", "--limit", "-1"}, "must not be negative"},
		{[]string{"history", "--since", "2026-01-02", "--until", "2026-01-01"}, "--until 2026-01-01 00:00:00"},
		{[]string{"pause", "--reason", strings.Repeat("x", localapi.MaxReason+1)}, "use 1024 at most"},
		{[]string{"pause", "--for", "-2h"}, "want a length of time"},
		{[]string{"pause", "--until", "2h"}, "want a time"},
		{[]string{"pause", "--until", "2020-01-01"}, "is over"},
		{[]string{"pause", "--for", "2h", "--until", "2999-01-01"}, "not both"},
		{[]string{"status", "--watch", "-o", "json"}, "leave out --output"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			cmd := newCommand(t, newFake(nil))
			if code := cmd.run(t.Context(), c.args); code != ExitUsage || !strings.Contains(cmd.err.String(), c.want) {
				t.Errorf("got exit %d and %q, want %d and %q", code, cmd.err.String(), ExitUsage, c.want)
			}
		})
	}
}

func TestTheHistoryWithoutAnAgentIsThatOfTheJournal(t *testing.T) {
	c := newCommand(t, absent())
	writeJournal(t, c.journalPath, someHistory()...)
	if code := c.run(t.Context(), []string{"history"}); code != 0 || !strings.Contains(c.out.String(), "False → True") {
		t.Errorf("got exit %d, %q and %q", code, c.out.String(), c.err.String())
	}
}

// writeJournal makes a journal that an agent has left.
func writeJournal(t *testing.T, path string, entries ...journal.Entry) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	j, _, err := journal.Open(path, agent.Moment(), journal.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Record(agent.Moment(), entries...), j.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestWhyThereIsNoHistory(t *testing.T) {
	for name, c := range map[string]struct {
		agent  error
		before func(t *testing.T, path string)
		want   string
	}{
		"no agent has ever run": {localapi.ErrNotRunning, func(*testing.T, string) {}, "no agent has run here: there is no journal at"},
		"another process has the journal": {localapi.ErrNotRunning, func(t *testing.T, path string) {
			t.Helper()
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			j, _, err := journal.Open(path, agent.Moment(), journal.Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = j.Close() })
		}, "but no agent answers: systemctl status aks-flex-node-agent"},
		"this user may not ask": {fs.ErrPermission, func(*testing.T, string) {}, "this user may not ask the agent for its history: run as root"},
		"the agent says no":     {&localapi.Error{Message: "the journal is not open", Hint: "ask again"}, func(*testing.T, string) {}, "ask the agent for its history: the journal is not open: ask again"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(nil)
			f.err = c.agent
			cmd := newCommand(t, f)
			c.before(t, cmd.journalPath)
			if code := cmd.run(t.Context(), []string{"history"}); code != ExitError || !strings.Contains(cmd.err.String(), c.want) {
				t.Errorf("got exit %d and %q, want %q", code, cmd.err.String(), c.want)
			}
		})
	}
}

func TestAnEmptyHistory(t *testing.T) {
	c := newCommand(t, newFake(nil))
	if code := c.run(t.Context(), []string{"history"}); code != 0 || c.out.String() != "Nothing was recorded.\n" {
		t.Errorf("got exit %d and %q", code, c.out.String())
	}
}
