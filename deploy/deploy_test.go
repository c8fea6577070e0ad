package deploy

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// mostExposed is what `systemd-analyze security` may give the unit, times ten. A new setting may need less; more needs a reason in
// docs/install.md.
const mostExposed = "30"

func TestTheUnitIsNoMoreOpenThanItSays(t *testing.T) {
	out := analyze(t, "security", "--offline=true", "--no-pager", "--threshold="+mostExposed, "--json=short", UnitName)
	var findings []struct {
		Set      *bool   `json:"set"`
		Name     string  `json:"name"`
		JSONName string  `json:"json_field"`
		Exposure *string `json:"exposure"`
	}
	if err := json.Unmarshal(out, &findings); err != nil || len(findings) < 50 {
		t.Fatalf("read what systemd-analyze says: %d findings, %v in %.300s", len(findings), err, out)
	}
	doc, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Exposure == nil || *f.Exposure == "" {
			continue
		}
		if name := "`" + strings.ReplaceAll(f.Name, "|", `\|`) + "`"; !bytes.Contains(doc, []byte(name)) {
			t.Errorf("docs/install.md gives no reason why %s is left open (exposure %s)", name, *f.Exposure)
		}
	}
}

func TestTheUnitHoldsNothingThatSystemdDoesNotKnow(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), tool(t), "verify", UnitName)
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "is not executable") { // the program is not installed where this test runs
			continue
		}
		t.Errorf("systemd-analyze verify: %s(%v)", line, err)
	}
}

func TestTheUnitWaitsForNobody(t *testing.T) {
	for line := range strings.Lines(string(Unit)) {
		key, _, _ := strings.Cut(line, "=")
		switch key {
		case "After", "Before", "Requires", "Requisite", "BindsTo", "PartOf", "Wants":
			t.Errorf("got %q, want no tie to other units: it must start whatever they do", line)
		}
	}
}

func analyze(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t), args...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("systemd-analyze %s: %v: is the unit more exposed than before?\n%.2000s", strings.Join(args, " "), err, out)
	}
	return out
}

func tool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze: apt-get install systemd")
	}
	return path
}
