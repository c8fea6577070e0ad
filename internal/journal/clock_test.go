package journal

import (
	"testing"
	"time"
)

func TestTheJournalsOwnTime(t *testing.T) {
	const week = 7 * 24 * time.Hour
	tests := map[string]struct {
		live func(h *host, see func())
		want time.Duration
	}{
		"given a host that runs":                 {func(h *host, _ func()) { h.run(3 * time.Hour) }, 3 * time.Hour},
		"given a clock that jumps an hour ahead": {func(h *host, _ func()) { h.run(time.Minute); h.setClock(time.Hour) }, time.Minute},
		"given a clock that jumps an hour ahead and back": {func(h *host, see func()) {
			h.setClock(time.Hour)
			see()
			h.run(time.Minute)
			h.setClock(-time.Hour)
			see()
			h.run(time.Minute)
		}, 2 * time.Minute},
		"given a clock that jumps ten years back": {func(h *host, _ func()) { h.run(time.Minute); h.setClock(-520 * week) }, time.Minute},
		"given a restart":                         {func(h *host, see func()) { h.run(time.Hour); see(); h.reboot(time.Minute); h.run(time.Hour) }, 2*time.Hour + time.Second},
		"given a restart with a clock far ahead":  {func(h *host, see func()) { h.reboot(time.Minute); h.setClock(520 * week); see(); h.run(time.Hour) }, time.Hour + time.Second},
		"given a restart with a clock far back":   {func(h *host, see func()) { h.reboot(time.Minute); h.setClock(-520 * week); see(); h.run(time.Hour) }, time.Hour + time.Second},
		"given a week off without a time server":  {func(h *host, see func()) { h.reboot(week); see(); h.run(time.Hour) }, time.Hour + time.Second},
		"given a week off between two synchronized times": {func(h *host, see func()) {
			h.Synced = true
			see()
			h.reboot(week)
			see()
			h.run(time.Hour)
		}, week + time.Hour + time.Second},
		"given a week off and a clock that is synchronized an hour after": {func(h *host, see func()) {
			h.Synced = true
			see()
			h.reboot(week)
			h.Synced = false
			h.setClock(-week)
			see()
			h.run(time.Hour)
			see()
			h.setClock(week)
			h.Synced = true
			see()
			h.run(time.Hour)
		}, week + 2*time.Hour + time.Second},
		"given a time off that is counted once": {func(h *host, see func()) {
			h.Synced = true
			see()
			h.reboot(week)
			see()
			see()
			h.run(time.Minute)
			see()
		}, week + time.Minute + time.Second},
		"given a boot in between that was never synchronized": {func(h *host, see func()) {
			h.Synced = true
			see()
			h.reboot(week)
			h.Synced = false
			see()
			h.reboot(week)
			h.Synced = true
			see()
		}, 2 * time.Second},
		"given a synchronized clock that runs back over a restart": {func(h *host, see func()) {
			h.Synced = true
			see()
			h.reboot(-time.Hour)
		}, time.Second},
		"given a moment that is told late": {func(h *host, see func()) {
			h.run(time.Hour)
			see()
			h.run(-time.Minute)
			see()
			h.run(2 * time.Minute)
		}, time.Hour + time.Minute},
		"given no boot id, a short time":            {func(h *host, _ func()) { h.Boot = ""; h.run(time.Minute) }, time.Minute},
		"given no boot id, a jump of the clock":     {func(h *host, _ func()) { h.Boot = ""; h.setClock(week) }, time.Hour},
		"given no boot id, a clock set back":        {func(h *host, see func()) { h.Boot = ""; h.setClock(-week); see(); h.run(time.Minute) }, time.Minute},
		"given no boot id any more, then one":       {func(h *host, see func()) { h.Boot = ""; h.run(time.Minute); see(); h.Boot = "new"; h.run(time.Minute) }, 2 * time.Minute},
		"given no boot id and a synchronized clock": {func(h *host, see func()) { h.Boot, h.Synced = "", true; see(); h.setClock(week) }, time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			clock := tally{}.advance(h.Moment)
			if clock.Total != 0 {
				t.Fatalf("at the first look: got %v, want 0", clock.Total)
			}
			see := func() {
				before := clock.Total
				if clock = clock.advance(h.Moment); clock.Total < before {
					t.Errorf("got %v after %v: it runs backwards", clock.Total, before)
				}
			}
			tt.live(h, see)
			if see(); clock.Total != tt.want {
				t.Errorf("got %v, want %v", clock.Total, tt.want)
			}
		})
	}
}
