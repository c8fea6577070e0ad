package parse

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"
)

// sample is one entry of testdata/tool-output.json.
type sample struct {
	Tool     string         `json:"tool"`
	Variant  string         `json:"variant"`
	Stdout   string         `json:"stdout"`
	Expected map[string]any `json:"expected"`
}

func loadSamples(t testing.TB) []sample {
	t.Helper()
	raw, err := os.ReadFile("testdata/tool-output.json")
	if err != nil {
		t.Fatalf("read the samples: %v", err)
	}
	var samples []sample
	if err := json.Unmarshal(raw, &samples); err != nil {
		t.Fatalf("decode the samples: %v", err)
	}
	if len(samples) < 100 {
		t.Fatalf("got %d samples, want the whole file", len(samples))
	}
	return samples
}

// parseSample runs the parser of a tool and returns what it took under the keys that the samples use, and the result itself.
func parseSample(tool string, out []byte) (got map[string]any, value any, parsed, known bool) {
	switch tool {
	case "kubelet":
		v, ok := KubeletVersion(out)
		return map[string]any{"version": v}, v, ok, true
	case "containerd":
		v, ok := ContainerdVersion(out)
		return map[string]any{"version": v}, v, ok, true
	case "azcmagent-version":
		v, ok := AzcmagentVersion(out)
		return map[string]any{"version": v}, v, ok, true
	case "runc", "crun", "youki", "nvidia-container-runtime":
		v, ok := RuntimeVersion(out)
		return map[string]any{"version": v.Version, "runtime": v.Name, "commit": v.Commit}, v, ok, true
	case "azcmagent-show":
		v, ok := ArcText(out)
		return arcKeys(v), v, ok, true
	case "azcmagent-show-json":
		v, ok := ArcJSON(out)
		return arcKeys(v), v, ok, true
	default:
		return nil, nil, false, false
	}
}

func arcKeys(a Arc) map[string]any {
	return map[string]any{
		"connected": a.Connected, "registered": a.Registered, "machineName": a.MachineName, "resourceID": a.ResourceID, "location": a.Location,
		"resourceGroup": a.ResourceGroup, "agentVersion": a.AgentVersion, "lastHeartbeat": a.LastHeartbeat.Format(time.RFC3339Nano),
	}
}

func TestEverySampleGivesWhatACarefulReaderTakesFromIt(t *testing.T) {
	for _, s := range loadSamples(t) {
		t.Run(s.Tool+"/"+s.Variant, func(t *testing.T) {
			got, value, parsed, known := parseSample(s.Tool, []byte(s.Stdout))
			if !known {
				t.Fatalf("the samples name the tool %q, and this test has no parser for it", s.Tool)
			}
			if len(s.Expected) == 0 {
				t.Fatal("the sample expects nothing")
			}
			if want, says := s.Expected["parsed"]; says && want != false {
				t.Fatalf("expected.parsed is %v, want it only as false", want)
			}
			wantParsed := s.Expected["parsed"] == nil
			if parsed != wantParsed {
				t.Fatalf("parsed: got %v (%+v), want %v", parsed, value, wantParsed)
			}
			if !parsed && !reflect.ValueOf(value).IsZero() {
				t.Errorf("not parsed, but got %+v, want the zero value", value)
			}
			for key, want := range s.Expected {
				if key == "parsed" {
					continue
				}
				if g, has := got[key]; !has || g != want {
					t.Errorf("%s: got %v, want %v", key, g, want)
				}
			}
		})
	}
}
