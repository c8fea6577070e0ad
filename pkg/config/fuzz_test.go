package config

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad: no file makes loading panic, and what was read and redacted reads the same again. Long seeds take long to
// minimise, so run it with -fuzzminimizetime=10x.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) < 5 {
		f.Fatalf("got the seeds %v and %v, want all of testdata", files, err)
	}
	for _, file := range files {
		f.Add(filepath.Ext(file) == ".yaml", testdata(f, filepath.Base(file)))
	}
	for _, seed := range []string{
		"", complete, "\xef\xbb\xbf{}", "{}}", "[", `{"a":`, `{"agent": {"logLevl": 1, "loglevel": null}}`, `{"node": {"maxPods": "many"}}`,
		"a: &a {b: *a}", "a: &a [*a, *a]", "<<: [{agent: {logLevel: x}}]", "node: {labels: {? 1 : 2, on: off, x: !!binary gICA}}", "? [a]\n: b",
		"---\n...\n---\n", "node: {maxPods: 0x7fffffffffffffff}", "node: {maxPods: 1_0}", "azure: !!map", "azure: !x {}", "%YAML 1.1\n---\na: b",
		`{"agent": {"statusInterval": "1m30s", "metricsPort": 65536, "logFormat": "xml", "dryRun": 1, "bootstrap": {"command": ["/b", "", null, 5], "timeout": 90}}}`,
		`{"agent": {"maintenanceWindow": {"start": "24:00", "duration": "-1h", "days": ["Mon", "moonday"]}, "thresholds": {"restartGaps": [], "coolDown": "9e99h"}}}`,
		"agent: {maintenanceWindow: {start: 22:30, duration: 4h, days: [Mon, ~, [Tue], {a: b}, &d Wed, *d]}, bootstrap: {command: [/b, -1, yes, !!binary gICA]}}",
		"agent: {statusInterval: -9223372036854775808ns, thresholds: {restartGaps: [30s, 1, 2m], confirmFor: 2562047h47m16.854775807s}}",
		"azure:\n  bootstrapToken: {token: abcdef.0123456789abcdef}\n  servicePrincipal: {clientSecret: not-a-real-secret}",
	} {
		f.Add(false, []byte(seed))
		f.Add(true, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, asYAML bool, data []byte) {
		name := "config.json"
		if asYAML {
			name = "config.yaml"
		}
		result, err := load(name, data, 0o644, nil)
		if result == nil {
			if err == nil {
				t.Fatal("got neither result nor error")
			}
			return
		}
		var known KeyErrors
		if err != nil && !errors.As(err, &known) {
			t.Fatalf("got a result and %v (%T), want KeyErrors", err, err)
		}
		safe := result.Config.Redacted().String()
		again, err := load("config.json", []byte(safe), 0o600, nil)
		if again == nil {
			t.Fatalf("redacted and read again: got %v, want a result, for %s", err, safe)
		}
		if got := again.Config.Redacted().String(); got != safe {
			t.Errorf("redacted and read again: got %s, want %s", got, safe)
		}
		for _, e := range known {
			if strings.ContainsAny(e.Error(), "\n\x00") {
				t.Errorf("got the message %q, want one line", e.Error())
			}
		}
	})
}

// FuzzEnvironment: no value of any variable makes loading panic, and what it sets can be read again.
func FuzzEnvironment(f *testing.F) {
	keys := allKeys()
	for i, k := range keys {
		if k.Env != "" {
			f.Add(i, "a=b,c=d")
			f.Add(i, "5")
			f.Add(i, "true")
			f.Add(i, "1m,-2h,")
		}
	}
	f.Fuzz(func(t *testing.T, index int, value string) {
		if index < 0 || index >= len(keys) {
			return
		}
		result, _ := load("config.json", []byte(complete), 0o600, []string{envName(keys[index].Path) + "=" + value})
		text, err := json.Marshal(result.Config)
		if err != nil {
			t.Fatal(err)
		}
		again, err := load("config.json", text, 0o600, nil)
		if again == nil {
			t.Fatalf("written and read again: got %v, want a result", err)
		}
		if got, want := again.Config.String(), result.Config.String(); got != want {
			t.Errorf("written and read again: got %s, want %s", got, want)
		}
	})
}
