package localapi

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var deploy = filepath.Join("..", "..", "deploy")

// promtool runs Prometheus's own check in the folder of the alerts.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("needs promtool (hack/install-packages): %v", err)
		}
		t.Skip("needs promtool: apt-get install prometheus (hack/install-packages does it without starting it)")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = deploy
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestTheAlertsAreRulesThatPrometheusTakes(t *testing.T) {
	if out, err := promtool(t, "check", "rules", "alerts.yaml"); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}

func TestTheAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	if out, err := promtool(t, "test", "rules", "alerts_test.yaml"); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	readYAML(t, "alerts.yaml", &file)
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(deploy, name))
	must(t, err)
	must(t, yaml.Unmarshal(data, into))
}

func TestEachAlertTellsPeopleWhatToDo(t *testing.T) {
	for _, a := range alerts(t) {
		for _, name := range []string{"summary", "description", "runbook"} {
			if a.Annotations[name] == "" {
				t.Errorf("%s has no %s", a.Alert, name)
			}
		}
		if !strings.HasPrefix(a.Annotations["summary"], "{{ $labels.instance }}: ") {
			t.Errorf("%s: the summary %q does not begin with the node", a.Alert, a.Annotations["summary"])
		}
		if s := a.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: got severity %q", a.Alert, s)
		}
	}
}

// promtool does not know which metrics there are: an alert on a metric that was renamed would be silent for ever.
func TestAlertsUseMetricsThatThereAre(t *testing.T) {
	got := page(t, illView())
	for _, a := range alerts(t) {
		names := regexp.MustCompile(`\b(aks_flex_node|process)_\w+`).FindAllString(a.Expr, -1)
		if len(names) == 0 && a.Alert != "AksFlexNodeAgentDown" {
			t.Errorf("%s is about no metric of ours", a.Alert)
		}
		for _, name := range names {
			if !strings.Contains(got, "\n# TYPE "+name+" ") {
				t.Errorf("%s uses %s, which does not exist", a.Alert, name)
			}
		}
	}
}

func TestEachAlertIsSeenToFireAndToBeSilentOnANodeThatWorks(t *testing.T) {
	var file struct {
		Tests []struct {
			Name   string
			Checks []struct {
				Alert string `json:"alertname"`
				Fires []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	readYAML(t, "alerts_test.yaml", &file)
	var fire, silent []string
	for i, tt := range file.Tests {
		for _, c := range tt.Checks {
			switch {
			case len(c.Fires) > 0:
				fire = append(fire, c.Alert)
			case i == 0:
				silent = append(silent, c.Alert)
			}
		}
	}
	for _, a := range alerts(t) {
		if !slices.Contains(fire, a.Alert) {
			t.Errorf("no test shows that %s fires", a.Alert)
		}
		if !slices.Contains(silent, a.Alert) {
			t.Errorf("the first test, a node that works, does not show that %s is silent", a.Alert)
		}
	}
}
