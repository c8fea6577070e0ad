package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/test/golden"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		runAsProgram()
	}
	time.Local = time.FixedZone("CET", 3600) // golden files hold local times
	goleak.VerifyTestMain(m)
}

// run carries out a command line and returns what a shell would see.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = Run(t.Context(), args, &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestWrongUsageExitsWithTwoAndSaysWhatWouldBeRight(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":     {[]string{"statsu"}, `unknown command "statsu"`},
		"suggestion":          {[]string{"statsu"}, "status"},
		"unknown flag":        {[]string{"status", "--lvie"}, "unknown flag: --lvie"},
		"wrong form":          {[]string{"status", "-o", "xml"}, "want one of table, wide, json, yaml"},
		"argument too many":   {[]string{"version", "now"}, "unknown command"},
		"config, two files":   {[]string{"config", "check", "a", "b"}, "accepts at most 1 arg"},
		"help of the command": {[]string{"status", "--lvie"}, "See 'aks-flex-node status --help'."},
		"help of the program": {[]string{"statsu"}, "See 'aks-flex-node --help'."},
		"control characters":  {[]string{"status", "--\x1b[2J"}, `\x1b[2J`},
		"unknown sub-command": {[]string{"config", "chekc"}, `unknown command "chekc"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, c.args...)
			if code != ExitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("got exit %d, stdout %q, stderr %q; want exit %d, nothing, and %q", code, stdout, stderr, ExitUsage, c.want)
			}
		})
	}
}

func TestVersionIsForPeopleAndPrograms(t *testing.T) {
	code, stdout, _ := run(t, "version")
	if code != 0 || !strings.HasPrefix(stdout, "aks-flex-node ") {
		t.Errorf("got exit %d and %q", code, stdout)
	}
	code, stdout, _ = run(t, "version", "-o", "json")
	var v struct{ Version, GoVersion string }
	if err := json.Unmarshal([]byte(stdout), &v); code != 0 || err != nil || v.Version == "" || v.GoVersion == "" {
		t.Errorf("got exit %d, %v and %q", code, err, stdout)
	}
}

func TestConfigCheckListsEveryMistakeWithItsKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	content := `{"agent": {"logLevel": "loud", "logLevl": "info"}, "node": {"maxPods": "many"}, "azure": {"subscriptionId": "s", "tenantId": "t",
		"managedIdentity": {}, "targetCluster": {"resourceId": "not-an-id", "location": "westeurope"}}}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "config", "check", path)
	if code != ExitError || stderr != "" {
		t.Errorf("got exit %d and %q on stderr, want %d and nothing", code, stderr, ExitError)
	}
	if code, shown, findings := run(t, "config", "check", "--show", path); code != ExitError || shown != "" || findings != stdout {
		t.Errorf("with --show: got exit %d, stdout %q and stderr %q; want the findings on stderr alone", code, shown, findings)
	}
	for _, want := range []string{
		"warning: agent.logLevl", "agent.logLevel", "error: agent.logLevel", "error: node.maxPods", "error: azure.targetCluster.resourceId",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("got %q, want it to hold %q", stdout, want)
		}
	}
	if !strings.HasSuffix(stdout, "3 mistakes\n") {
		t.Errorf("got %q, want the number of mistakes at its end", stdout)
	}
}

func TestConfigCheckShowsNoSecret(t *testing.T) {
	t.Setenv("AKS_NODE_CONTROLLER_AGENT_LOGLEVEL", "debug")
	secret := "hunter" + "2hunter2"
	path := filepath.Join(t.TempDir(), "config.json")
	content := `{"azure": {"subscriptionId": "s", "tenantId": "t", "servicePrincipal": {"tenantId": "t", "clientId": "c", "clientSecret": "` + secret + `"},
		"targetCluster": {"resourceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c", "location": "westeurope"}}}`
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "config", "check", "--show", path)
	if code != 0 || !strings.Contains(stderr, "authentication: service principal") {
		t.Errorf("got exit %d and %q", code, stderr)
	}
	if strings.Contains(stdout+stderr, secret) || !strings.Contains(stdout, `"logLevel": "debug"`) || !strings.Contains(stderr, "warning: ") || !json.Valid([]byte(stdout)) {
		t.Errorf("want no secret, JSON with the environment's log level, and a warning that others can read the file; got %q and %q", stdout, stderr)
	}
	code, stdout, stderr = run(t, "config", "check", path)
	if code != 0 || stderr != "" || !strings.Contains(stdout, "warning: ") || !strings.Contains(stdout, "is valid (authentication: service principal)") {
		t.Errorf("without --show: got exit %d, %q and %q; want all on stdout", code, stdout, stderr)
	}
}

func TestConfigCheckOfAFileThatIsNotThere(t *testing.T) {
	code, _, stderr := run(t, "config", "check", filepath.Join(t.TempDir(), "none.json"))
	if code != ExitError || !strings.Contains(stderr, "none.json") {
		t.Errorf("got exit %d and %q", code, stderr)
	}
}

func TestConfigKeysExplainsEachKey(t *testing.T) {
	code, stdout, stderr := run(t, "config", "keys", "Agent.Maint")
	if code != 0 || stderr != "" {
		t.Errorf("got exit %d and %q on stderr, want 0 and nothing", code, stderr)
	}
	golden.Check(t, filepath.Join("testdata", "config-keys.txt"), stdout)
	_, all, _ := run(t, "config", "keys")
	for _, k := range config.Keys() {
		if !strings.Contains(all, "\n"+k.Path+" ") || !strings.Contains(all, k.Meaning()+"\n") {
			t.Errorf("%s: got no line with its meaning", k.Path)
		}
	}
	code, stdout, stderr = run(t, "config", "keys", "agnet")
	if want := `no key begins with "agnet"`; code != ExitError || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("got exit %d, %q and %q, want %d, nothing and %q", code, stdout, stderr, ExitError, want)
	}
	if _, stdout, _ := run(t, "__complete", "config", "keys", "agent.log"); !strings.HasPrefix(stdout, "agent.logLevel\nagent.logDir\nagent.logFormat\n:") {
		t.Errorf("completion: got %q, want the keys that begin so", stdout)
	}
}

func TestANamedConfigMustExistTheDefaultOneNeedNot(t *testing.T) {
	code, _, stderr := run(t, "status", "--live", "--config", filepath.Join(t.TempDir(), "none.json"))
	if code != ExitError || !strings.Contains(stderr, "none.json") {
		t.Errorf("got exit %d and %q", code, stderr)
	}
}

// TestDocumentedHelp holds docs/cli.md to what --help says.
func TestDocumentedHelp(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Command line\n\nGenerated from `--help`; refresh it with `go test ./internal/cli -run TestDocumentedHelp -update`.\n")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		code, stdout, stderr := run(t, append(slices.Clone(strings.Fields(cmd.CommandPath())[1:]), "--help")...)
		if code != 0 || stderr != "" {
			t.Errorf("%s --help: exit %d, stderr %q", cmd.CommandPath(), code, stderr)
		}
		b.WriteString("\n## " + cmd.CommandPath() + "\n\n```text\n" + stdout + "```\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
				walk(sub)
			}
		}
	}
	walk(newRoot(&bytes.Buffer{}, &bytes.Buffer{}))
	golden.Check(t, "../../docs/cli.md", b.String())
}

func TestCompletionOfWordsAndCommands(t *testing.T) {
	if code, stdout, _ := run(t, "completion", "bash"); code != 0 || !strings.Contains(stdout, "bash completion") {
		t.Errorf("got exit %d and %.80q", code, stdout)
	}
	if _, stdout, _ := run(t, "__complete", "status", "-o", ""); !strings.HasPrefix(stdout, "table\nwide\njson\nyaml\n") {
		t.Errorf("got %q", stdout)
	}
}
