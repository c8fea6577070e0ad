package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxSpan is more than anybody means by a length of time, and little enough to reckon with.
const maxSpan = 100 * 365 * 24 * time.Hour

// parseSpan reads a length of time: as Go writes it, or in days.
func parseSpan(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok && err != nil {
		var n float64
		if n, err = strconv.ParseFloat(days, 64); err == nil && (n <= 0 || n > maxSpan.Hours()/24) {
			err = strconv.ErrRange
		}
		d = time.Duration(n * float64(24*time.Hour))
	}
	if err != nil || d <= 0 || d > maxSpan {
		return 0, errors.New("want a length of time, such as 90s, 30m, 2h or 3d")
	}
	return d, nil
}

// parseTime reads a point in time: with its zone, or in local time; a time of day is that of today.
func parseTime(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location()), nil
		}
	}
	return time.Time{}, errors.New("want a time, such as 17:30, 2026-01-15 17:30 (local), or 2026-01-15T16:30:00Z")
}

// spanFlag is a flag that takes a length of time; zero while it is not given.
type spanFlag time.Duration

func (f *spanFlag) String() string {
	if *f == 0 {
		return ""
	}
	return time.Duration(*f).String()
}

// Type names the flag's argument in the help.
func (f *spanFlag) Type() string { return "span" }

// Set takes a length of time.
func (f *spanFlag) Set(text string) error {
	d, err := parseSpan(text)
	*f = spanFlag(d)
	return err
}

// timeFlag is a flag that takes a point in time, and with past also how long ago that was; zero while it is not given.
type timeFlag struct {
	time.Time
	past bool
}

func (f *timeFlag) String() string {
	if f.IsZero() {
		return ""
	}
	return f.Format(time.RFC3339)
}

// Type names the flag's argument in the help.
func (f *timeFlag) Type() string { return "time" }

// Set takes a time.
func (f *timeFlag) Set(text string) (err error) {
	now := time.Now()
	if d, err := parseSpan(text); err == nil && f.past {
		f.Time = now.Add(-d)
		return nil
	}
	if f.Time, err = parseTime(text, now); err != nil && f.past {
		err = fmt.Errorf("%w, or how long ago, such as 2h", err)
	}
	return err
}

// clock words a time as people on this host read it, with the zone.
func clock(t time.Time) string {
	return t.Local().Format("2006-01-02 15:04:05 MST")
}
