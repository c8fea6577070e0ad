package config

import (
	"strings"
	"time"
)

// StartTime returns when the window begins as hour and minute of the day; not ok when Start is not HH:MM.
func (w MaintenanceWindowConfig) StartTime() (hour, minute int, ok bool) {
	at, err := time.Parse("15:04", w.Start)
	if err != nil || len(w.Start) != len("HH:MM") { // package time takes one digit, too
		return 0, 0, false
	}
	return at.Hour(), at.Minute(), true
}

// Weekdays returns the days on which the window begins, all seven when none are given; not ok when one of them is no day's name. Names are
// English, short or long, in any letter case.
func (w MaintenanceWindowConfig) Weekdays() (days map[time.Weekday]bool, ok bool) {
	days = map[time.Weekday]bool{}
	for _, name := range w.Days {
		day, ok := parseWeekday(name)
		if !ok {
			return nil, false
		}
		days[day] = true
	}
	for day := time.Sunday; len(w.Days) == 0 && day <= time.Saturday; day++ {
		days[day] = true
	}
	return days, true
}

func parseWeekday(name string) (time.Weekday, bool) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if long := day.String(); strings.EqualFold(name, long) || strings.EqualFold(name, long[:3]) {
			return day, true
		}
	}
	return 0, false
}
