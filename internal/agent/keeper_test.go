package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
)

func newTestKeeper(t *testing.T) *keeper {
	t.Helper()
	return newKeeper(filepath.Join(t.TempDir(), JournalName), func() journal.Moment { return journal.Moment{Wall: time.Now()} }, true, silent())
}

func TestWhatWaitsForADiskIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTestKeeper(t)
		for i := range maxPending + 500 {
			k.record(journal.Entry{Kind: "test", Message: fmt.Sprint(i)})
		}
		j := k.begin(t.Context())
		k.flush(j)
		all, err := j.History(time.Time{}, time.Time{}, 0)
		must(t, err)
		var said []string
		for _, e := range all {
			said = append(said, e.Message)
		}
		if len(said) > maxPending+1 || slices.Contains(said, "499") || !slices.Contains(said, fmt.Sprint(maxPending+499)) || said[len(said)-1] != "500 entries were lost while the disk did not answer" {
			t.Errorf("got %d entries, the last %q; want the last %d, and that 500 were lost", len(said), said[len(said)-1], maxPending)
		}
		k.end(j)
	})
}

func TestWhatIsRecordedAtTheEndIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTestKeeper(t)
		j := k.begin(t.Context())
		k.record(journal.Entry{Kind: "test", Message: "the last"})
		k.end(j)
		if k.open() != nil {
			t.Error("after its end: got a journal, want none: it is closed")
		}
		j = k.begin(t.Context())
		all, err := j.History(time.Time{}, time.Time{}, 0)
		must(t, err)
		if len(all) != 1 || all[0].Message != "the last" {
			t.Errorf("got %+v, want what was recorded at the end", all)
		}
		k.end(j)
	})
}

// The time that has passed since the facts were read makes attempts older too.
func TestHistoryIsAsOfNow(t *testing.T) {
	now := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	f := facts{at: now.Add(-time.Minute), restarts: []attempt{{unit: kubelet, age: time.Hour, ended: 50 * time.Minute, moved: 55 * time.Minute, ok: true}}}
	h := f.history(now)
	if want := (decision.Attempt{Unit: kubelet, Began: now.Add(-61 * time.Minute), Ended: now.Add(-51 * time.Minute), Moved: now.Add(-56 * time.Minute), OK: true}); len(h.Restarts) != 1 || h.Restarts[0] != want || h.Broken != "" {
		t.Errorf("got %+v, want %+v", h, want)
	}
	for _, c := range []struct {
		name string
		f    facts
		want string
	}{
		{"nothing was read", facts{}, "not open yet"},
		{"the journal does not answer", facts{at: now.Add(-3*tickEvery - 1)}, "has not answered for 3m0s"},
		{"it is broken, and does not answer", facts{at: now.Add(-time.Hour), broken: "disk full"}, "disk full"},
	} {
		if got := c.f.history(now).Broken; !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	lost := facts{at: now.Add(-time.Minute), budgetUnknown: time.Hour}
	if h := lost.history(now); h.Unknown != 59*time.Minute || h.Broken != "" {
		t.Errorf("the one before was lost: got %s and %q, want 59 minutes more, and that nothing is broken", h.Unknown, h.Broken)
	}
}

func TestHowLongARemedyTook(t *testing.T) {
	wall := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	at := func(boot string, uptime time.Duration, after time.Duration) journal.Moment {
		return journal.Moment{Wall: wall.Add(after), Boot: boot, Uptime: uptime}
	}
	for _, c := range []struct {
		name         string
		begun, ended journal.Moment
		want         time.Duration
	}{
		{"within one boot, the uptime counts, whatever was done to the clock", at("a", time.Hour, 0), at("a", time.Hour+time.Minute, -time.Hour), time.Minute},
		{"over a start of the host, the clock does", at("a", time.Hour, 0), at("b", time.Minute, 10*time.Minute), 10 * time.Minute},
		{"without boot ids, the clock does", at("", time.Hour, 0), at("", 9*time.Hour, 10*time.Minute), 10 * time.Minute},
		{"a clock that was set back makes it no shorter than nothing", at("a", time.Hour, 0), at("b", time.Minute, -time.Hour), 0},
	} {
		if got := passed(c.begun, c.ended); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAJournalThatAnotherProcessHasIsSaidOnce(t *testing.T) {
	at(t, func(t *testing.T, b *bed) {
		must(t, os.Mkdir(b.stateDir(), 0o700))
		j, _, err := journal.Open(filepath.Join(b.stateDir(), JournalName), b.moment(), journal.Options{NoSync: true})
		must(t, err)
		b.runs()
		after(10 * time.Minute)
		if got := strings.Count(b.log.take(), "The journal can't be opened"); got != 1 || !strings.Contains(b.view().JournalProblem, "in use") {
			t.Errorf("got %d lines in the log and the problem %q, want one and that it is in use", got, b.view().JournalProblem)
		}
		must(t, j.Close())
		b.stop()
	})
	// A person who only reads it for a moment is not worth a word.
	at(t, func(t *testing.T, b *bed) {
		must(t, os.Mkdir(b.stateDir(), 0o700))
		j, _, err := journal.Open(filepath.Join(b.stateDir(), JournalName), b.moment(), journal.Options{NoSync: true})
		must(t, err)
		b.start()
		after(1500 * time.Millisecond)
		must(t, j.Close())
		after(time.Minute)
		if log := b.log.take(); strings.Contains(log, "The journal can't be opened") || b.view().JournalProblem != "" {
			t.Errorf("got the problem %q and logged\n%s\nwant nothing of the journal", b.view().JournalProblem, log)
		}
		b.stop()
	})
}
