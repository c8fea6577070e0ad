package journal

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func messages(t *testing.T, j *Journal, from, to time.Time, limit int) []string {
	t.Helper()
	entries, err := j.History(from, to, limit)
	must(t, err)
	all := []string{}
	for _, e := range entries {
		all = append(all, e.Message)
	}
	return all
}

func TestTheHistoryIsReadByTime(t *testing.T) {
	h := newHost()
	start := h.Wall
	at := start.Add
	j := openSound(t, newPath(t), h.Moment)
	for i := range 5 {
		must(t, j.Record(h.Moment, Entry{Kind: KindCondition, Message: fmt.Sprint(i)}))
		h.run(time.Hour)
	}
	h.setClock(-3 * time.Hour) // it is two hours after the start again
	must(t, j.Record(h.Moment, Entry{Kind: KindCondition, Message: "back"}, Entry{Kind: KindCondition, Message: "earlier", At: at(-time.Hour)}))

	tests := map[string]struct {
		from, to time.Time
		limit    int
		want     string
	}{
		"all":                        {want: "0 1 2 3 4 back earlier"},
		"the last three":             {limit: 3, want: "4 back earlier"},
		"from a time":                {from: at(2 * time.Hour), want: "2 3 4 back"},
		"to a time":                  {to: at(time.Hour), want: "0 1 earlier"},
		"between two":                {from: at(time.Hour), to: at(2 * time.Hour), want: "1 2 back"},
		"the last between two":       {from: at(time.Hour), to: at(2 * time.Hour), limit: 1, want: "back"},
		"none":                       {from: at(100 * time.Hour)},
		"before what is before that": {from: at(time.Hour), to: at(0)},
	}
	for name, tt := range tests {
		if got := strings.Join(messages(t, j, tt.from, tt.to, tt.limit), " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestAnEntryComesBackAsItWas(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	e := Entry{Kind: KindDecision, Subject: "kubelet", From: "wait", To: "restart", Reason: "Confirmed", Message: "kubelet is down <since 60 s> & \"now\"", Data: json.RawMessage(`{"guards":[]}`)}
	must(t, j.Record(h.Moment, e))
	j = reopen(t, j, h.Moment)
	got, err := j.History(time.Time{}, time.Time{}, 0)
	must(t, err)
	e.Version, e.Sequence, e.At = 1, 1, h.Wall
	if want := []Entry{e}; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestWhatIsTooLongIsCut(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	must(t, j.Record(h.Moment, Entry{Kind: KindDecision, Message: strings.Repeat("x", 2*maxText), Subject: strings.Repeat("s", 2*maxText), Data: json.RawMessage(`"` + strings.Repeat("d", maxData) + `"`)},
		Entry{Kind: KindDecision, Data: json.RawMessage(`{`)}))
	got, err := j.History(time.Time{}, time.Time{}, 0)
	must(t, err)
	if len(got[0].Message) != maxText || len(got[0].Subject) != maxWord || string(got[0].Data) != `"left out: 4098 bytes are too many"` || string(got[1].Data) != `"left out: it was no JSON"` {
		t.Errorf("got %+v", got)
	}
}

func TestTheHistoryIsBounded(t *testing.T) {
	h := newHost()
	j, _, err := Open(newPath(t), h.Moment, Options{NoSync: true})
	must(t, err)
	defer func() { _ = j.Close() }()
	for batch := range 21 {
		var entries []Entry
		for i := range 500 {
			entries = append(entries, Entry{Kind: KindCondition, Message: fmt.Sprint(batch*500 + i)})
		}
		must(t, j.Record(h.run(time.Minute), entries...))
	}
	for range 3 { // what one write leaves, the next ones prune
		must(t, j.Record(h.Moment, Entry{Kind: KindCondition, Message: "last"}))
	}
	got := messages(t, j, time.Time{}, time.Time{}, 0)
	if len(got) != maxHistory || got[len(got)-1] != "last" || got[0] != "503" {
		t.Errorf("got %d entries from %q to %q, want the last %d", len(got), got[0], got[len(got)-1], maxHistory)
	}

	must(t, j.Record(h.run(31*day), Entry{Kind: KindCondition, Message: "a month later"}))
	if got := len(messages(t, j, time.Time{}, time.Time{}, 0)); got != maxHistory-maxPruned+1 {
		t.Errorf("the first write a month later: got %d entries, want %d fewer", got, maxPruned)
	}
	for range maxHistory / maxPruned {
		must(t, j.Record(h.Moment, Entry{Kind: KindCondition, Message: "a month later"}))
	}
	if got := messages(t, j, time.Time{}, time.Time{}, 0); slices.ContainsFunc(got, func(m string) bool { return m != "a month later" }) {
		t.Errorf("a month later: got %d entries from %q on, want only new ones", len(got), got[0])
	}
}

func TestAClockThatJumpsDoesNotWipeTheHistory(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	must(t, j.Record(h.Moment, Entry{Kind: KindCondition, Message: "before"}))
	h.setClock(3650 * day)
	must(t, j.Record(h.Moment, Entry{Kind: KindCondition, Message: "ten years ahead"}))
	h.setClock(-3650 * day)
	must(t, j.Record(h.run(time.Minute), Entry{Kind: KindCondition, Message: "after"}))
	if got, want := messages(t, j, time.Time{}, time.Time{}, 0), []string{"before", "ten years ahead", "after"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := messages(t, j, h.Wall.Add(-day), h.Wall, 0), []string{"before", "after"}; !slices.Equal(got, want) {
		t.Errorf("of the last day: got %q, want %q", got, want)
	}
}

func TestRemediesAndPausesAreInTheHistory(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	attempt(t, j, h.Moment, "bootstrap")
	must(t, j.Pause(h.Moment, Pause{By: "root"}))
	must(t, j.Resume(h.Moment, "root"))
	must(t, j.Resume(h.Moment, "root")) // changes nothing
	entries, err := j.History(time.Time{}, time.Time{}, 0)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Kind+" "+e.Subject+" "+e.To)
	}
	if want := []string{"remedy bootstrap begun", "remedy bootstrap failed", "pause root paused", "pause root resumed"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A newer agent may add fields, buckets and kinds of entries.
func TestOlderAndNewerAgentsReadEachOthersJournals(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	must(t, j.update(h.Moment, "what a newer agent writes", func(tx *txn) error {
		for _, err := range []error{
			tx.put(historyBucket, numberKey(1), map[string]any{"v": 2, "at": h.Wall, "kind": "upgrade", "mood": "good"}),
			tx.put(remedyBucket, numberKey(7), map[string]any{"v": 2, "id": 7, "name": "upgrade", "steps": []map[string]any{{"name": "drain", "state": "waiting", "pods": 3}}}),
			tx.put("moods", []byte("today"), map[string]any{"v": 2, "mood": "good"}),
			tx.put(stateBucket, []byte(formatKey), format{Version: 2, ReadableBy: 1}),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	}))
	j = reopen(t, j, h.Moment)
	entries, err := j.History(time.Time{}, time.Time{}, 0)
	must(t, err)
	if len(entries) != 1 || entries[0].Kind != "upgrade" || entries[0].Version != 2 {
		t.Errorf("got entries %+v", entries)
	}
	u, err := j.Unfinished()
	must(t, err)
	if u == nil || u.Name != "upgrade" || u.Steps[0].State != "waiting" {
		t.Errorf("got unfinished %+v", u)
	}
	must(t, j.update(h.Moment, "what a much newer agent writes", func(tx *txn) error {
		return tx.put(stateBucket, []byte(formatKey), format{Version: 3, ReadableBy: 3})
	}))
	must(t, j.Close())
	_, opened := open(t, j.path, h.Moment)
	if opened.SetAside == nil || !strings.Contains(opened.SetAside.Error(), "newer agent") {
		t.Errorf("got %+v, want it set aside because a newer agent wrote it", opened)
	}
}
