package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aks-flex-node/agent/test/azcmagent/standin"
)

func TestScenariosAreWhole(t *testing.T) {
	doc, err := loadDocument()
	if err != nil {
		t.Fatal(err)
	}
	if len(doc.Scenarios) < 20 {
		t.Errorf("scenarios: got %d, want the whole file", len(doc.Scenarios))
	}
	for name, s := range doc.Scenarios {
		if s.About == "" || s.Version == (reply{}) {
			t.Errorf("%s: got about %q and version %+v, want both", name, s.About, s.Version)
		}
	}
}

func TestAScenarioWithAMistakeIsRefused(t *testing.T) {
	doc, err := loadDocument()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"", "nobody knows this one", `{"json":{"stdout":"nowhere"}}`, `{"json":{"sdtout":"version"}}`, `{`} {
		if s, err := doc.find(word); err == nil {
			t.Errorf("scenario %q: got %+v, want an error", word, s)
		}
	}
}

func TestTheProgramReplaysTheScenarioBesideIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "azcmagent")
	if err := standin.Build(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	doc, err := loadDocument()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, file, env string // the scenario as a file beside the program, and in the environment
		args            []string
		wantOut         string
		wantExit        int
	}{
		{"without a word it is connected", "", "", []string{"show", "-j"}, string(doc.Outputs["json connected"]), 0},
		{"the environment chooses", "", "expired", []string{"show", "-j"}, string(doc.Outputs["json expired"]), 0},
		{"the file wins over it", "old", "expired", []string{"show"}, string(doc.Outputs["table of 2019"]), 0},
		{"an old agent does not know -j", "old", "", []string{"show", "-j"}, string(doc.Outputs["usage"]), 1},
		{"it says its version", "old", "", []string{"version"}, "azcmagent version 0.4.19305.023\n", 0},
		{"an AZCM number is the exit status", "service down", "", []string{"show"}, string(doc.Outputs["service down"]), 61},
		{"an answer can be cut", "half a JSON", "", []string{"show", "-j"}, string(doc.Outputs["json connected"])[:180], 0},
		{"a scenario can be written out", `{"table":{"stdout":"html","exit":3}}`, "", []string{"show"}, string(doc.Outputs["html"]), 3},
		{"it refuses what it does not know", "connected", "", []string{"connect"}, "", 125},
	} {
		t.Run(test.name, func(t *testing.T) {
			os.Remove(path + ".scenario")
			if test.file != "" {
				if err := standin.Play(path, test.file); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), path, test.args...)
			cmd.Env = append(os.Environ(), "AZCMAGENT_SCENARIO="+test.env)
			out, _ := cmd.Output()
			if got := cmd.ProcessState.ExitCode(); string(out) != test.wantOut || got != test.wantExit {
				t.Errorf("got exit status %d and:\n%s\nwant %d and:\n%s", got, out, test.wantExit, test.wantOut)
			}
		})
	}
}

func TestItFloods(t *testing.T) {
	path := filepath.Join(t.TempDir(), "azcmagent")
	if err := standin.Build(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if err := standin.Play(path, "floods"); err != nil {
		t.Fatal(err)
	}
	var got counter
	cmd := exec.CommandContext(t.Context(), path, "show")
	cmd.Stdout = &got
	if err := cmd.Run(); err != nil || got < 100<<20 {
		t.Errorf("got %d bytes and error %v, want 100 MiB", got, err)
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
