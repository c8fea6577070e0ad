package parse

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"unicode"
	"unicode/utf8"
)

// seed adds the outputs of some tools from the samples, and outputs that are hard in other ways.
func seed(f *testing.F, tools ...string) {
	f.Helper()
	for _, s := range loadSamples(f) {
		if slices.Contains(tools, s.Tool) {
			f.Add([]byte(s.Stdout))
		}
	}
	for _, out := range []string{
		"", "\x00", "\ufeff", "\xff\xfe", "\x1b[31", "\x1b]0;x", "a\r\r\nb\rc", "{\n{\n", htmlPage,
		"Kubernetes \x1b[1mv1.2.3\x1b[0m\r\n", "runc version v1.1\r\ncommit: \x1b[0mx\n", "containerd version 0.2.0 commit: \n",
		arcTable1, arcObject, "{\"status\":\"\\u001b[1mConnected\\u0000\\ud800\",\"vmId\":1}",
	} {
		f.Add([]byte(out))
	}
}

// mustBePrintable holds what the package promises for every returned string.
func mustBePrintable(t *testing.T, what, s string, limit int) {
	t.Helper()
	if len(s) > limit {
		t.Errorf("%s has %d bytes, want at most %d", what, len(s), limit)
	}
	if !utf8.ValidString(s) {
		t.Errorf("%s is not UTF-8: %q", what, s)
	}
	for _, r := range s {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			t.Errorf("%s holds %U: %q", what, r, s)
		}
	}
}

// Lines that no parser takes for anything, and such as every parser would take had it not found its answer before.
const (
	noise = "W1130 14:16:06.736818   22076 x.go:72] not an answer: {x}\n"
	other = "\nKubernetes v9.9.9\ncontainerd containerd.io 9.9.9 x\nazcmagent version 9.9.9\nrunc version 9.9.9\n" +
		"{\"status\":\"Connected\",\"resourceName\":\"other\"}\n"
)

// fuzzVersion holds for the parsers that return one version: first line wins, whatever stands before and after it.
func fuzzVersion(f *testing.F, parse func([]byte) (string, bool)) {
	f.Fuzz(func(t *testing.T, out []byte) {
		got, ok := parse(out)
		mustBePrintable(t, "version", got, maxName)
		if ok != (got != "") {
			t.Fatalf("parsed %v with version %q", ok, got)
		}
		if ok && got != unknownVersion && VersionText(got) != got {
			t.Errorf("version %q is not as VersionText would show it: %q", got, VersionText(got))
		}
		if len(out) > maxInput-len(noise) {
			return
		}
		if before, okBefore := parse(append([]byte(noise), out...)); before != got || okBefore != ok {
			t.Errorf("with noise before: got %q, %v, want %q, %v", before, okBefore, got, ok)
		}
		if after, okAfter := parse(append(slices.Clone(out), other...)); ok && (after != got || !okAfter) {
			t.Errorf("with other lines after: got %q, %v, want %q", after, okAfter, got)
		}
	})
}

func FuzzKubeletVersion(f *testing.F) {
	seed(f, "kubelet")
	fuzzVersion(f, KubeletVersion)
}

func FuzzContainerdVersion(f *testing.F) {
	seed(f, "containerd")
	fuzzVersion(f, ContainerdVersion)
}

func FuzzAzcmagentVersion(f *testing.F) {
	seed(f, "azcmagent-version")
	fuzzVersion(f, AzcmagentVersion)
}

func FuzzRuntimeVersion(f *testing.F) {
	seed(f, "runc", "crun", "youki", "nvidia-container-runtime")
	f.Fuzz(func(t *testing.T, out []byte) {
		got, ok := RuntimeVersion(out)
		mustBePrintable(t, "name", got.Name, maxName)
		mustBePrintable(t, "version", got.Version, maxName)
		mustBePrintable(t, "commit", got.Commit, maxName)
		if ok != (got.Name != "") || ok != (got.Version != "") || !ok && got != (RuntimeInfo{}) {
			t.Fatalf("parsed %v with %+v", ok, got)
		}
		if len(out) > maxInput-len(noise) {
			return
		}
		if before, okBefore := RuntimeVersion(append([]byte(noise), out...)); before != got || okBefore != ok {
			t.Errorf("with noise before: got %+v, %v, want %+v, %v", before, okBefore, got, ok)
		}
		if after, _ := RuntimeVersion(append(slices.Clone(out), other...)); ok && after != got {
			t.Errorf("with other lines after: got %+v, want %+v", after, got)
		}
	})
}

func FuzzArcText(f *testing.F) {
	seed(f, "azcmagent-show")
	f.Fuzz(func(t *testing.T, out []byte) {
		got := mustHoldForArc(t, out, ArcText)
		after, ok := ArcText(append(slices.Clone(out), other...))
		after.ErrorDetails = got.ErrorDetails // the error's details may go on in further lines
		if got.Status != "" && (!ok || !reflect.DeepEqual(after, got)) {
			t.Errorf("with other lines after: got %+v, want %+v", after, got)
		}
	})
}

func FuzzArcJSON(f *testing.F) {
	seed(f, "azcmagent-show-json")
	f.Fuzz(func(t *testing.T, out []byte) {
		got := mustHoldForArc(t, out, ArcJSON)
		after, ok := ArcJSON(append(slices.Clone(out), other...))
		if got.Status != "" && (!ok || !reflect.DeepEqual(after, got)) {
			t.Errorf("with other lines after: got %+v, want %+v", after, got)
		}
	})
}

// mustHoldForArc checks what both forms of the Arc agent's answer promise, and returns it.
func mustHoldForArc(t *testing.T, out []byte, parse func([]byte) (Arc, bool)) Arc {
	t.Helper()
	got, ok := parse(out)
	for _, s := range []string{got.Status, got.MachineName, got.Location, got.ResourceGroup, got.AgentVersion, got.ErrorCode} {
		mustBePrintable(t, "a name", s, maxName)
	}
	mustBePrintable(t, "the resource id", got.ResourceID, maxDetail)
	mustBePrintable(t, "the details", got.ErrorDetails, maxDetail)
	for _, s := range got.Services {
		mustBePrintable(t, "a service's name", s.Name, maxName)
		mustBePrintable(t, "a service's display name", s.DisplayName, maxName)
		mustBePrintable(t, "a service's status", s.Status, maxName)
	}
	if len(got.Services) > maxServices {
		t.Errorf("got %d services, want at most %d", len(got.Services), maxServices)
	}
	if ok != (got.Status != "") || !ok && !reflect.ValueOf(got).IsZero() {
		t.Fatalf("parsed %v with %+v", ok, got)
	}
	if got.Connected != (got.Status == "Connected") || got.Registered != (got.ResourceID != "" || got.MachineName != "") {
		t.Errorf("connected or registered do not follow from the rest: %+v", got)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Errorf("cannot be written as JSON: %v", err)
	}
	if len(out) <= maxInput-len(noise) {
		if before, okBefore := parse(append([]byte(noise), out...)); okBefore != ok || !reflect.DeepEqual(before, got) {
			t.Errorf("with noise before: got %+v, %v, want %+v, %v", before, okBefore, got, ok)
		}
	}
	return got
}

func FuzzVersionText(f *testing.F) {
	for _, s := range []string{"v1.7.27", " v1.2 ", "vv1", "\x1b[1mv1\x1b[0m", "\xff", "v"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := VersionText(s)
		mustBePrintable(t, "version", got, maxName)
		if again := VersionText(got); again != got {
			t.Errorf("a second time: got %q, want %q", again, got)
		}
	})
}

func FuzzHeartbeat(f *testing.F) {
	for _, s := range []string{
		"2025-02-13T11:09:09.1234567-08:00", "05 Dec 19 01:36 UTC", "2024-08-05 05:00:17 +0000 UTC", "Thu, 05 Dec 2019 01:36:02 GMT",
		"2024-08-05T05:00:17+24:00", "05 Dec 19 01:36 GMT-99", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := heartbeat(s)
		raw, err := json.Marshal(got)
		if err != nil {
			t.Fatalf("%v cannot be written as JSON: %v", got, err)
		}
		if back := heartbeat(string(raw[1 : len(raw)-1])); !back.Equal(got) {
			t.Errorf("got %v back from JSON, want %v", back, got)
		}
	})
}
