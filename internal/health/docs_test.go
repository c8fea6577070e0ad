package health

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/test/golden"
)

// TestTheDocumentIsTheTable holds docs/conditions.md to the table it is made from.
func TestTheDocumentIsTheTable(t *testing.T) {
	golden.Check(t, filepath.Join("..", "..", "docs", "conditions.md"), document(Table()))
}

const documentHead = `# Conditions

<!-- Made from the table in internal/health/table.go: go test ./internal/health -run Document -update -->

What the agent saw, over time, in Kubernetes form: type, status (True, False or Unknown), reason, message, and since when the status is
what it is. A condition that does not apply to a node is left out: no Azure Arc, a kubelet without health endpoint, an identity without
certificate.

- **Unknown** means that it could not be told, because of the reason. It shows at once, with what was known last and how long ago. It is
  never taken as evidence against the node.
- **A bad status shows once it has lasted** for the time in the table. Until then the condition says what is pending. Recovery shows at
  once; only what turns bad again within the settling time stays bad until a recovery has lasted that long.
- **One fault shows as one fault.** While a condition is bad, those that depend on it are Unknown with the reason DependencyUnhealthy.
- **The message may change while the status stays**; the time of the last transition moves only with the status.
- Severity: *Critical*, the node can't do its work or is about to lose it; *Warning*, it will hurt if nobody acts, or something can't be
  seen any more; *Info*, nothing has to be done. A condition whose status is good can warn too.

`

func document(rows []Row) string {
	var b strings.Builder
	b.WriteString(documentHead)
	b.WriteString("| condition | bad when | severity | shown after | settles in | depends on |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s | %s |\n", r.Type, strings.ToLower(r.Type), r.bad(), r.Severity,
			inWords(r.TimeToVisible), inWords(r.TimeToSettle), strings.Join(r.DependsOn, ", "))
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n**What to do:** %s\n", r.Type, r.Means, r.Do)
	}
	return b.String()
}

func inWords(d time.Duration) string {
	switch {
	case d == 0:
		return "at once"
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
