package config

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func TestDurationIsWrittenShortAndReadBack(t *testing.T) {
	for text, span := range map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "1m30s": 90 * time.Second, "2m": 2 * time.Minute, "10m": 10 * time.Minute, "1h": time.Hour,
		"20h": 20 * time.Hour, "1h0m30s": time.Hour + 30*time.Second, "1h30m": 90 * time.Minute, "-2m": -2 * time.Minute, "100ms": 100 * time.Millisecond,
		"2562047h47m16.854775807s": math.MaxInt64, "-2562047h47m16.854775808s": math.MinInt64,
	} {
		if text != "90s" && Duration(span).String() != text {
			t.Errorf("%v: got %q, want %q", span, Duration(span), text)
		}
		for _, form := range []string{text, span.String(), Duration(span).String()} {
			var got struct{ D Duration }
			if err := json.Unmarshal([]byte(`{"d": "`+form+`"}`), &got); err != nil || time.Duration(got.D) != span {
				t.Errorf("JSON %q: got %v and %v, want %v", form, got.D, err, span)
			}
			if err := yaml.Unmarshal([]byte("d: "+form), &got); err != nil || time.Duration(got.D) != span {
				t.Errorf("YAML %q: got %v and %v, want %v", form, got.D, err, span)
			}
		}
	}
}

func TestDurationWithoutAUnitIsRefusedWithAdvice(t *testing.T) {
	for written, want := range map[string]string{
		`90`:      `agent.statusInterval: want a duration with its unit (write "90s" for seconds), got 90`,
		`"90"`:    `agent.statusInterval: want a duration with its unit (write "90s" for seconds), got "90"`,
		`1.5`:     `agent.statusInterval: want a duration with its unit (write "90s" or "2m"), got 1.5`,
		`"1 min"`: `agent.statusInterval: want a duration with its unit (write "90s" or "2m"), got "1 min"`,
		`60000000000`: `agent.statusInterval: want a duration with its unit (write "90s" or "2m"), ` +
			`got 60000000000`,
		`{"seconds": 5}`: `agent.statusInterval: want a duration with its unit (write "90s" or "2m"), got an object`,
	} {
		wantLines(t, mistakes(t, completeWith(t, "agent.statusInterval", written)), []string{want})
	}
	wantLines(t, mistakes(t, completeYAML("agent: {statusInterval: 90}")),
		[]string{`agent.statusInterval: want a duration with its unit (write "90s" for seconds), got 90`})
	const env = "AKS_NODE_CONTROLLER_AGENT_STATUSINTERVAL"
	wantLines(t, mistakes(t, []byte(complete), env+"=90"),
		[]string{`agent.statusInterval: want a duration with its unit (write "90s" for seconds), got "90" (from ` + env + `)`})
	d := Duration(time.Second)
	if err := d.UnmarshalText([]byte("x")); err == nil || !strings.Contains(err.Error(), `got "x"`) || d != Duration(time.Second) {
		t.Errorf("got %v and %v, want an error that names it and the value as it was", d, err)
	}
}

// FuzzDuration: what is read is written so that it reads the same.
func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"", "0", "90s", "1h0m0s", "-1.5h", "1e3s", "9223372036854775807ns", "1µs", "90", "999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d, again Duration
		if err := d.UnmarshalText([]byte(text)); err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 1000 {
				t.Errorf("got the message %q, want one short line", err)
			}
			return
		}
		if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d {
			t.Errorf("%q: written %q and read again: got %v and %v", text, d, again, err)
		}
	})
}
