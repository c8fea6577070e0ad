package install

import (
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/deploy"
)

func TestIsFormers(t *testing.T) {
	for _, tc := range []struct {
		name, unit string
		want       bool
	}{
		{"as nodes in the field have it", formerUnit, true},
		{"ours, of another version", string(deploy.Unit), true},
		{"over several lines", "[Service]\nExecStart = -/usr/local/bin/aks-flex-node \\\n# a comment\n  agent\nRuntimeDirectory=x aks-flex-node\n", true},
		{"another program", strings.Replace(formerUnit, ProgramPath, "/opt/aks-flex-node", 1), false},
		{"another folder", strings.Replace(formerUnit, "=aks-flex-node", "=other", 1), false},
		{"commented out", "#ExecStart=/usr/local/bin/aks-flex-node agent\nRuntimeDirectory=aks-flex-node\n", false},
		{"empty", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := isFormers(tc.unit); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func FuzzSettings(f *testing.F) {
	f.Add(formerUnit)
	f.Add("[a\nb=\\\nc=d\\")
	f.Fuzz(func(t *testing.T, unit string) {
		for _, s := range settings(unit) {
			if strings.ContainsAny(s.key+s.value, "\n") {
				t.Errorf("got %q, want one line", s)
			}
		}
		environmentLines(unit)
		isFormers(unit)
	})
}
