package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/test/golden"
)

// TestTheDocumentIsTheTags holds docs/config.md to the struct tags it is made from.
func TestTheDocumentIsTheTags(t *testing.T) {
	golden.Check(t, filepath.Join("..", "..", "docs", "config.md"), document(Keys()))
}

// The example in the document must be one.
func TestTheDocumentsExampleIsValid(t *testing.T) {
	_, example, _ := strings.Cut(documentHead, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	result, err := load("config.yaml", []byte(example), 0o600, nil)
	if err != nil {
		t.Fatalf("got %v, want a valid config", err)
	}
	wantLines(t, warningTexts(result), nil)
	if got := result.Config.Agent.Bootstrap.Command; len(got) != 2 {
		t.Errorf("got the command %q, want that of the example", got)
	}
}

const documentHead = `# Configuration

<!-- Made from the struct tags of pkg/config: go test ./pkg/config -run Document -update -->

A node's configuration lies in /etc/aks-flex-node/config.json. It may be JSON or YAML. Without one the agent only observes; with one that
has mistakes, too. ` + "`aks-flex-node config check`" + ` lists all mistakes at once, and ` + "`aks-flex-node config keys [PREFIX]`" + ` prints the table below.

` + "```yaml" + `
azure:
  subscriptionId: 00000000-0000-0000-0000-000000000001
  tenantId: 00000000-0000-0000-0000-000000000002
  managedIdentity: {}
  targetCluster:
    resourceId: /subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/edge/providers/Microsoft.ContainerService/managedClusters/edge
    location: westeurope
agent:
  bootstrap:
    command: [/usr/local/sbin/set-up-node, --quiet]
  maintenanceWindow: {start: "22:00", duration: 4h, days: [Sat, Sun]}
` + "```" + `

- **Keys** match in any letter case. An unknown key draws a warning that names the nearest known one.
- **Durations** are text with units: "90s", "2m", "1h30m". A number without a unit is a mistake.
- **Zero, null and an empty list** count as not set, and so does empty text where any text would do: then the default applies.
- **Environment variables** win over the file: AKS_NODE_CONTROLLER_ and the key in capitals with _ for each dot, such as
  AKS_NODE_CONTROLLER_AGENT_LOGLEVEL. A list is written a,b, a map k=v,k2=v2; elements with a comma can only be written in the file.
- **Required** are the two ids of azure, azure.targetCluster, and exactly one way to authenticate: azure.arc with enabled, azure.servicePrincipal,
  azure.managedIdentity or azure.bootstrapToken.

Of the agent's own keys:

- **To try the agent out**, set agent.dryRun: it decides as always, tells what it would do, and does nothing.
- **agent.enableDriftDetectionAndRemediation** is about drift from the desired state alone. An agent for which it is false still restarts
  units and bootstraps the node. What stops that is agent.dryRun, ` + "`aks-flex-node pause`" + `, or --observe-only.
- **agent.statusInterval** is far below the five minutes from which on a snapshot counts as stale, so that one look that fails, or takes long,
  does not make it so. It must stay below agent.thresholds.evidenceGap too, since looks further apart confirm nothing.
- **agent.bootstrap.command** is run as it stands, as root and without a shell. It is logged and shown, so it is no place for secrets: have
  the program read those from a file of its own. Its environment has HOME and the agent's proxy settings.
- **agent.maintenanceWindow** is in the host's local time, and days are those on which it begins. It lasts for its duration also in the nights
  when clocks are changed; a start that such a night skips or repeats comes once, within an hour of that time. Restart the agent when the
  host's time zone was changed.
- **agent.thresholds** are for tests that can't wait. Nodes are best left with the defaults.

`

func document(keys []Key) string {
	var b strings.Builder
	b.WriteString(documentHead)
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ")
	code := func(text string) string {
		if text == "" {
			return ""
		}
		return "`" + text + "`"
	}
	for _, k := range keys {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(k.Path), k.Type, code(cell.Replace(k.Default)), cell.Replace(k.Meaning()))
	}
	return b.String()
}
