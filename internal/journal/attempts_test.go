package journal

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

// attempt makes one attempt from its beginning to its end.
func attempt(t *testing.T, j *Journal, now Moment, kind string) {
	t.Helper()
	id, err := j.Begin(now, Plan{Name: "bootstrap", Budget: kind, Steps: []string{"run"}})
	must(t, err)
	must(t, j.Finish(now, id, "failed", ""))
}

func ages(t *testing.T, j *Journal, now Moment, kind string, within time.Duration) []time.Duration {
	t.Helper()
	attempts, err := j.Attempts(now, kind, within)
	must(t, err)
	var all []time.Duration
	for _, a := range attempts {
		all = append(all, a.Age)
	}
	return all
}

func TestAttemptsAreCountedByKindAndAge(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	attempt(t, j, h.Moment, "bootstrap")
	attempt(t, j, h.run(time.Hour), "restart kubelet")
	attempt(t, j, h.run(time.Hour), "bootstrap")
	attempt(t, j, h.Moment, "bootstrap2")
	attempt(t, j, h.Moment, "") // counts as nothing
	h.run(30 * time.Minute)

	tests := []struct {
		kind   string
		within time.Duration
		want   []time.Duration
	}{
		{"bootstrap", day, []time.Duration{150 * time.Minute, 30 * time.Minute}},
		{"bootstrap", time.Hour, []time.Duration{30 * time.Minute}},
		{"bootstrap", time.Minute, nil},
		{"restart kubelet", day, []time.Duration{90 * time.Minute}},
		{"restart", day, nil},
		{"upgrade", day, nil},
	}
	for _, tt := range tests {
		if got := ages(t, j, h.Moment, tt.kind, tt.within); !slices.Equal(got, tt.want) {
			t.Errorf("attempts of %q within %v: got ages %v, want %v", tt.kind, tt.within, got, tt.want)
		}
	}
}

func TestABudgetSurvivesWhateverTheClockDoes(t *testing.T) {
	tests := map[string]struct {
		change func(h *host)
		// after how long the attempt is a day old and frees the budget
		want time.Duration
	}{
		"given nothing":                              {func(*host) {}, day},
		"given a restart of the agent":               {func(*host) {}, day},
		"given a clock an hour ahead, then right":    {func(h *host) { h.setClock(-time.Hour) }, day},
		"given a clock an hour ahead, host restarts": {func(h *host) { h.reboot(time.Minute); h.setClock(-time.Hour) }, day},
		"given a clock ten years ahead, then right":  {func(h *host) { h.reboot(time.Minute); h.setClock(-3650 * day) }, day},
		"given a clock that jumps ten years ahead":   {func(h *host) { h.reboot(time.Minute); h.setClock(3650 * day) }, day},
		"given a host that was off for two days":     {func(h *host) { h.reboot(2 * day) }, day},
		"given the same with a synchronized clock":   {func(h *host) { h.reboot(2 * day); h.Synced = true }, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			h.Synced = strings.Contains(name, "synchronized")
			j := openSound(t, newPath(t), h.Moment)
			attempt(t, j, h.Moment, "bootstrap")
			must(t, j.Close())
			tt.change(h)
			j = openSound(t, j.path, h.Moment)
			passed := time.Duration(0)
			for len(ages(t, j, h.Moment, "bootstrap", day)) > 0 {
				if passed > 10*day {
					t.Fatal("the budget is used up for ever")
				}
				passed += time.Minute
				if _, err := j.Tick(h.run(time.Minute)); err != nil {
					t.Fatal(err)
				}
			}
			if off := passed - tt.want; off < -time.Minute || off > time.Minute {
				t.Errorf("the attempt counted for %v, want %v", passed, tt.want)
			}
		})
	}
}

func TestABudgetIsFreedOnAHostThatIsRestartedAllTheTime(t *testing.T) {
	h := newHost()
	path := newPath(t)
	j := openSound(t, path, h.Moment)
	attempt(t, j, h.Moment, "bootstrap")
	begun := h.Wall
	for len(ages(t, j, h.Moment, "bootstrap", day)) > 0 {
		if h.Wall.Sub(begun) > 60*day {
			t.Fatal("the budget is used up for ever")
		}
		for range 45 { // minutes
			_, err := j.Tick(h.run(time.Minute))
			must(t, err)
		}
		must(t, j.Close())
		h.reboot(time.Minute)
		h.setClock(-30 * time.Minute) // it never agrees with the time before
		j = openSound(t, path, h.Moment)
	}
	if passed := h.Wall.Sub(begun); passed < 8*time.Hour {
		t.Errorf("freed after %v by a clock that loses most of the time", passed)
	}
}

func TestTickWritesOnlyWhileSomethingAges(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	writes := func(span time.Duration) (n int) {
		for range int(span / time.Minute) {
			before := j.tally
			_, err := j.Tick(h.run(time.Minute))
			must(t, err)
			if j.tally != before {
				n++
			}
		}
		return n
	}
	if got := writes(day); got != 0 {
		t.Errorf("a day with nothing to age: got %d writes, want none", got)
	}
	attempt(t, j, h.Moment, "bootstrap")
	if got := writes(day); got != 144 {
		t.Errorf("a day after an attempt: got %d writes, want one in ten minutes, 144", got)
	}
	writes(6 * day)
	if got := writes(day); got > 1 {
		t.Errorf("a week after an attempt: got %d writes, want none but for pruning it", got)
	}
	if key := firstKey(t, j, attemptBucket); key != nil {
		t.Error("a week after an attempt it is still there")
	}
}

func TestOldAttemptsArePruned(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	attempt(t, j, h.Moment, "bootstrap")
	for range maxAttempts + 20 {
		attempt(t, j, h.run(time.Minute), "restart kubelet")
	}
	if got := len(ages(t, j, h.Moment, "restart kubelet", MaxBudgetWindow)); got != maxAttempts {
		t.Errorf("got %d attempts, want the last %d", got, maxAttempts)
	}
	if got := len(ages(t, j, h.Moment, "bootstrap", MaxBudgetWindow)); got != 1 {
		t.Errorf("got %d attempts of another kind, want 1", got)
	}
	attempt(t, j, h.run(8*day), "upgrade")
	if got := ages(t, j, h.Moment, "restart kubelet", 30*day); got != nil {
		t.Errorf("a week later: got ages %v, want none", got)
	}
}

func TestAnUnknownBudgetCountsAsUsedForADay(t *testing.T) {
	h := newHost()
	path := newPath(t)
	writeFile(t, path, []byte("garbage"))
	j, opened := open(t, path, h.Moment)
	if !opened.BudgetUnknown {
		t.Fatalf("got %+v, want the budget unknown", opened)
	}
	if got := j.BudgetUnknown(h.Moment); got != day {
		t.Errorf("got %v, want a day", got)
	}
	must(t, j.Close())
	h.reboot(time.Minute)
	h.setClock(3650 * day)
	j, opened = open(t, path, h.Moment)
	if got := j.BudgetUnknown(h.Moment); got != day-time.Second || !opened.BudgetUnknown {
		t.Errorf("after a restart with a clock far ahead: got %v and %+v, want a day less a second", got, opened)
	}
	if got := j.BudgetUnknown(h.run(23 * time.Hour)); got != time.Hour-time.Second {
		t.Errorf("23 hours later: got %v, want an hour less a second", got)
	}
	_, err := j.Tick(h.Moment)
	must(t, err)
	if got := j.BudgetUnknown(h.run(time.Hour)); got != 0 {
		t.Errorf("a day later: got %v, want 0", got)
	}
	if _, err := j.Tick(h.Moment); err != nil {
		t.Fatal(err)
	}
	must(t, j.Close())
	openSound(t, path, h.Moment)
}

func TestWhatCannotNameABudget(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	for _, kind := range []string{"a\x00b", strings.Repeat("x", maxKind+1)} {
		if _, err := j.Begin(h.Moment, Plan{Name: "restart", Budget: kind, Steps: []string{"s"}}); err == nil {
			t.Errorf("%.20q: got no error", kind)
		}
	}
}

func firstKey(t *testing.T, j *Journal, bucket string) (key []byte) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	must(t, j.view(func(tx *txn) error { key = append(key, tx.firstKey(bucket)...); return nil }))
	return key
}
