package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestBrokenSyntaxSaysWhere(t *testing.T) {
	for name, c := range map[string]struct{ file, data, want string }{
		"a missing comma in JSON": {"config.json", "{\n  \"azure\": {}\n  \"agent\": {}\n}",
			`line 3, column 3: invalid character '"' after object key:value pair`},
		"JSON that ends too early":   {"config.json", "{\n  \"azure\": {", "line 2, column 12: unexpected end of JSON input"},
		"garbage behind JSON":        {"config.json", complete + "\n}", "line 3, column 1: invalid character '}' after top-level value"},
		"a second JSON object":       {"config.json", "{}{}", "line 1, column 3: invalid character '{' after top-level value"},
		"JSON with a trailing comma": {"config", "{\"azure\": {},}", "line 1, column 14: invalid character '}' looking for beginning of object key string"},
		"broken YAML":                {"config.yaml", "azure:\n  cloud: x\n bad: y\n", "near line 2: did not find expected key"},
		"two YAML documents":         {"config.yaml", "azure: {}\n---\nagent: {}\n", "holds more than one YAML document"},
		"garbage behind YAML":        {"config.yaml", "{}\n}", "near line 1: did not find expected <document start>"},
		"a YAML key twice":           {"config.yaml", "agent:\n  logDir: /a\n  logDir: /b\n", `near line 3: key "logDir" already set in map`},
		"a list":                     {"config.json", `[1, 2]`, "want an object with keys, got a list"},
		"a word":                     {"config.yaml", `hello`, "want an object with keys, got text"},
		"a YAML key that is a list":  {"config.yaml", "? [a]\n: b\n", "near line 1: cannot unmarshal !!seq into string"},
		"an alias to itself":         {"config.yaml", "a: &a {b: *a}", "anchor '…' value contains itself"},
		"a password taken for alias": {"config.yaml", "azure: {servicePrincipal: {clientSecret: *fakesecret}}", "unknown anchor '…' referenced"},
		"a password taken for a tag": {"config.yaml", "azure: {servicePrincipal: {clientSecret: !!int fake`secret}}", "cannot decode !!str `…` as a !!int"},
		"no UTF-8 in YAML":           {"config.yaml", "a: \xff\xfe", "invalid leading UTF-8 octet"},
		"a NUL in YAML":              {"config.yaml", "a: \x00", "control characters are not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(c.file, []byte(c.data), 0o600, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want no word of the secret", err)
			}
		})
	}
}

func TestFilesThatAreFine(t *testing.T) {
	for name, c := range map[string]struct {
		file, data string
		warnings   []string
	}{
		"with a byte order mark":      {"config.json", "\xef\xbb\xbf" + complete, nil},
		"JSON named as YAML":          {"config.yaml", complete, nil},
		"flow YAML named as YAML":     {"config.yaml", "{azure: " + strings.TrimPrefix(complete, `{"azure":`) + " # comment", nil},
		"YAML named as JSON":          {"config.json", string(completeYAML("agent: {logLevel: debug}")), nil},
		"YAML with document markers":  {"config.yml", "---\n" + string(completeYAML("")) + "...\n", nil},
		"YAML with anchors and merge": {"config.yaml", string(completeYAML("cni: &v {version: v1}\nnpd: *v\nrunc: {<<: *v, url: u}\n")), nil},
		"tabs and Windows newlines":   {"config.json", strings.ReplaceAll(complete, "\n", "\r\n\t"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := load(c.file, []byte(c.data), 0o600, nil)
			if err != nil {
				t.Fatalf("got %v, want no error", err)
			}
			wantLines(t, warningTexts(result), c.warnings)
		})
	}
}

func TestEmptyFile(t *testing.T) {
	for _, data := range []string{"", " \n\t", "# only a comment\n", "null", "---\n", "\xef\xbb\xbf"} {
		result, err := load("config.json", []byte(data), 0o600, nil)
		if result == nil {
			t.Fatalf("%q: got no result and %v, want a result", data, err)
		}
		wantLines(t, warningTexts(result), []string{"the file is empty"})
		wantLines(t, lines(t, err)[:2], []string{"azure.subscriptionId: required, but not set", "azure.tenantId: required, but not set"})
	}
	environ := []string{"SUBSCRIPTIONID=s", "TENANTID=t", "ARC_ENABLED=1", "TARGETCLUSTER_RESOURCEID=" + clusterResourceID, "TARGETCLUSTER_LOCATION=l"}
	for i, entry := range environ {
		environ[i] = envPrefix + "AZURE_" + entry
	}
	if _, err := load("config.json", nil, 0o600, environ); err != nil {
		t.Errorf("all of it in the environment: got %v, want no error", err)
	}
}

// Each of these asks for far more than a config file should get; none may panic or take much memory.
func TestHostileFiles(t *testing.T) {
	var laughs, sharing strings.Builder
	laughs.WriteString("a0: &a0 {x: y}\n")
	for i := range 20 {
		previous := fmt.Sprintf("*a%d", i)
		fmt.Fprintf(&laughs, "a%d: &a%d {%s}\n", i+1, i+1, "a: "+strings.Join([]string{previous, previous, previous}, ", b: "))
	}
	sharing.WriteString("big: &b " + strings.Repeat("x", maxFileSize/2) + "\nnode:\n  labels:\n")
	for i := range maxAliases {
		fmt.Fprintf(&sharing, "    l%d: *b\n", i)
	}
	unknown := strings.Repeat(`"logLevl": 1,`, 20000)
	wrong := strings.Repeat(`"a": 1,`, 20000)
	for name, c := range map[string]struct{ file, data, want string }{
		"deep JSON":             {"config.json", strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000), "nested more than 32 levels deep"},
		"very deep JSON":        {"config.json", strings.Repeat(`{"a":`, 100000), "exceeded max depth"},
		"deep JSON lists":       {"config.json", `{"a":` + strings.Repeat(`[`, 100000), "exceeded max depth"},
		"deep YAML":             {"config.yaml", strings.Repeat(`{a: `, 5000) + "1" + strings.Repeat("}", 5000), "nested more than 32 levels deep"},
		"very deep YAML":        {"config.yaml", strings.Repeat(`{a: `, 100000), "exceeded max depth"},
		"a billion laughs":      {"config.yaml", laughs.String(), "uses more than 20 YAML aliases"},
		"one text many times":   {"config.yaml", sharing.String(), "expands to more than 4 MiB of text"},
		"unknown keys galore":   {"config.json", "{" + unknown + `"agent": {` + unknown + `"a": 1}}`, "mistakes"},
		"wrong values galore":   {"config.json", `{"node": {"labels": {` + wrong + `"b": "c"}}}`, "mistakes"},
		"a key of a megabyte":   {"config.json", `{"` + strings.Repeat("k", maxFileSize-20) + `": 1}`, "mistakes"},
		"a value of a megabyte": {"config.json", `{"agent": {"logLevel": "` + strings.Repeat("v", maxFileSize-40) + `"}}`, "mistakes"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := load(c.file, []byte(c.data), 0o600, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.300v, want %q", err, c.want)
			}
			if err != nil && len(err.Error()) > 50000 {
				t.Errorf("got an error of %d bytes, want a short one", len(err.Error()))
			}
			if result != nil && len(result.Warnings) > maxReported+1 {
				t.Errorf("got %d warnings, want at most %d", len(result.Warnings), maxReported+1)
			}
		})
	}
}

func TestAtMostAHundredMistakes(t *testing.T) {
	var labels strings.Builder
	for i := range 150 {
		fmt.Fprintf(&labels, `"l%d": 1, "l%d": 2,`, i, i)
	}
	got := mistakes(t, []byte(`{"node": {"labels": {`+labels.String()+`"x": ""}}}`))
	if len(got) != maxReported+1 || got[maxReported] != "there are more than 100 mistakes" {
		t.Errorf("got %d mistakes, the last %q, want 100 and one that says there are more", len(got), got[len(got)-1])
	}
}
