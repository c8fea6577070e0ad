package cli

import (
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/internal/install"
)

func TestPlanText(t *testing.T) {
	for _, tc := range []struct {
		name string
		plan install.Plan
		want string
	}{
		{
			"steps are numbered, and notes come first",
			install.Plan{Notes: []string{"a former agent\x1b[2J"}, Steps: []install.Step{{Text: "install it"}, {Text: "start it"}}},
			"Note: a former agent\\x1b[2J\n1. install it\n2. start it\n",
		},
		{"nothing to do", install.Plan{}, "Nothing to do: all is well (aks-flex-node-agent.service).\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := planText(&tc.plan, "all is well"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestInstallTakesNoConfigurationThatTheServiceWouldNotRead(t *testing.T) {
	for _, command := range []string{"install", "uninstall"} {
		var stdout, stderr strings.Builder
		code := Run(t.Context(), []string{command, "--dry-run", "--config", "/root/mine.json"}, &stdout, &stderr)
		if want := "the service reads " + DefaultConfigPath + ": put the configuration there"; code != ExitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: got status %d, %q, want status %d and %q", command, code, &stderr, ExitUsage, want)
		}
	}
}

func TestInstallTakesNoArguments(t *testing.T) {
	for _, args := range [][]string{{"install", "here"}, {"uninstall", "--force"}, {"install", "--start", "no"}} {
		var stdout, stderr strings.Builder
		if code := Run(t.Context(), args, &stdout, &stderr); code != ExitUsage || stdout.String() != "" {
			t.Errorf("%q: got status %d, output %q, %q, want status %d", args, code, &stdout, &stderr, ExitUsage)
		}
	}
}
