package config

import (
	"fmt"
	"strings"
	"time"
)

// Duration is a time span that is written as text with its units: "90s", "2m", "1h30m". Zero counts as not set.
type Duration time.Duration

// String returns the span in the shortest form that package time reads: "2m", not "2m0s".
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText implements encoding.TextMarshaler, and so the form in JSON and YAML.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It reads what time.ParseDuration does and leaves d as it is on an error.
func (d *Duration) UnmarshalText(text []byte) error {
	span, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%s, got %s", wantDuration(string(text)), quote(string(text)))
	}
	*d = Duration(span)
	return nil
}

// wantDuration says how a duration is written. What has digits alone most likely lacks its unit.
func wantDuration(got string) string {
	strange := func(r rune) bool { return r < '0' || r > '9' }
	if got != "" && len(got) < 10 && !strings.ContainsFunc(got, strange) {
		return fmt.Sprintf("want a duration with its unit (write %q for seconds)", got+"s")
	}
	return `want a duration with its unit (write "90s" or "2m")`
}
