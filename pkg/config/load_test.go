package config

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func sorted(texts []string) []string {
	slices.Sort(texts)
	return texts
}

func TestFullConfigOfEachMode(t *testing.T) {
	for name, mode := range map[string]string{
		"arc.json": "azure.arc", "service-principal.json": "azure.servicePrincipal", "managed-identity.json": "azure.managedIdentity",
		"managed-identity.yaml": "azure.managedIdentity", "bootstrap-token.json": "azure.bootstrapToken",
	} {
		t.Run(name, func(t *testing.T) {
			path := writeFile(t, name, testdata(t, name), 0o600)
			result, err := Load(path)
			if err != nil {
				t.Fatalf("got %v, want no error", err)
			}
			wantLines(t, warningTexts(result), nil)
			wantLines(t, result.Config.authModes(), []string{mode})
			for _, k := range allKeys() {
				other := strings.HasPrefix(k.Path, "azure.") && !strings.HasPrefix(k.Path, mode) &&
					slices.Contains([]string{"arc", "servicePrincipal", "managedIdentity", "bootstrapToken"}, strings.Split(k.Path, ".")[1])
				if !other && k.Type != "section" && fieldOf(result.Config, k).IsZero() &&
					k.Path != "agent.enableDriftDetectionAndRemediation" {
					t.Errorf("%s: got nothing, want a value from the file", k.Path)
				}
			}
			if result.Config.IsDriftDetectionAndRemediationEnabled() {
				t.Error("drift detection: got true, want false as in the file")
			}
		})
	}
}

func TestYAMLAndJSONSayTheSame(t *testing.T) {
	fromJSON, err := LoadConfig("testdata/managed-identity.json")
	if err != nil {
		t.Fatal(err)
	}
	fromYAML, err := LoadConfig("testdata/managed-identity.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(fromJSON, fromYAML) {
		t.Errorf("from YAML got\n%v\nwant as from JSON\n%v", fromYAML, fromJSON)
	}
	written, err := yaml.Marshal(fromJSON)
	if err != nil {
		t.Fatal(err)
	}
	if again := mustLoad(t, written).Config; !reflect.DeepEqual(fromJSON, again) {
		t.Errorf("written as YAML and read again got\n%v\nwant\n%v", again, fromJSON)
	}
}

func TestYAMLScalarsStayAsWritten(t *testing.T) {
	data := completeYAML(`
kubernetes: {version: 1.30}
cni: {version: 2026-01-15}
runc: {version: 0x10}
node:
  maxPods: 0x20
  labels: {on: yes, 1.0: 010, empty: , "null": ~}
`)
	cfg := mustLoad(t, data).Config
	got := []string{cfg.Kubernetes.Version, cfg.CNI.Version, cfg.Runc.Version}
	wantLines(t, got, []string{"1.30", "2026-01-15", "0x10"})
	wantLabels := map[string]string{"on": "yes", "1.0": "010", "empty": "", "null": "", managedLabel: "false"}
	if !reflect.DeepEqual(cfg.Node.Labels, wantLabels) {
		t.Errorf("labels: got %v, want %v", cfg.Node.Labels, wantLabels)
	}
	if cfg.Node.MaxPods != 32 {
		t.Errorf("maxPods: got %d, want 32", cfg.Node.MaxPods)
	}
}

func completeYAML(more string) []byte {
	return []byte("azure:\n  subscriptionId: sub\n  tenantId: tenant\n  managedIdentity: {}\n  targetCluster:\n" +
		"    resourceId: " + clusterResourceID + "\n    location: westeurope\n" + strings.TrimPrefix(more, "\n"))
}

func TestKeysMatchInAnyLetterCase(t *testing.T) {
	upper := `{"AZURE": {"SUBSCRIPTIONID": "sub", "tenantid": "tenant", "managedidentity": {}, "TargetCluster":
		{"RESOURCEID": "` + clusterResourceID + `", "Location": "westeurope"}}, "Agent": {"LOGLEVEL": "debug"}, "npd": {"VERSION": "v2"}}`
	asYAML := "NODE: {MAXPODS: 7}\naGent: {loglevel: debug}\nNPD: {Version: v2}\n"
	for name, data := range map[string][]byte{"JSON": []byte(upper), "YAML": completeYAML(asYAML)} {
		t.Run(name, func(t *testing.T) {
			result := mustLoad(t, data)
			wantLines(t, []string{result.Config.Agent.LogLevel, result.Config.Npd.Version}, []string{"debug", "v2"})
			wantLines(t, warningTexts(result), nil)
		})
	}
}

func TestFiveMistakesAreFiveErrors(t *testing.T) {
	data := []byte(`{
		"azure": {"subscriptionId": 5, "tenantId": "tenant", "managedIdentity": {},
			"targetCluster": {"resourceId": "cluster-1", "location": "westeurope"}},
		"agent": {"logLevel": "loud"},
		"node": {"maxPods": "many", "kubelet": {"imageGCHighThreshold": 101}}
	}`)
	want := []string{
		"azure.subscriptionId: want text in quotes, got 5",
		`node.maxPods: want a whole number, got "many"`,
		`azure.targetCluster.resourceId: want the id of an AKS cluster, /subscriptions/ID/resourceGroups/GROUP` +
			`/providers/Microsoft.ContainerService/managedClusters/NAME, got "cluster-1"`,
		`agent.logLevel: want one of debug, info, warning, error, got "loud"`,
		"node.kubelet.imageGCHighThreshold: want a percentage from 0 to 100, got 101",
	}
	wantLines(t, mistakes(t, data), want)

	path := writeFile(t, "config.json", data, 0o600)
	cfg, err := LoadConfig(path)
	if cfg != nil || err == nil {
		t.Fatalf("LoadConfig: got %v and %v, want no config and an error", cfg, err)
	}
	if got, want := err.Error(), "config "+path+": 5 mistakes\n  "+strings.Join(want, "\n  "); got != want {
		t.Errorf("got the text\n%s\nwant\n%s", got, want)
	}
	var first *KeyError
	if !errors.As(err, &first) || first.Path != "azure.subscriptionId" {
		t.Errorf("errors.As: got %v, want the first KeyError", first)
	}
}

func TestAMistakeIsReportedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want []string
	}{
		"a section that is none hides what it lacks": {completeWith(t, "azure", `"nothing"`), []string{"azure: want an object with keys, got text"}},
		"a mode that can't be read is no missing mode": {completeWith(t, "azure.managedIdentity", `true`),
			[]string{"azure.managedIdentity: want an object with keys, got true or false"}},
		"arc that can't be read is no missing mode": {completeWith(t, "azure.managedIdentity", "", "azure.arc.enabled", `"yes"`),
			[]string{`azure.arc.enabled: want true or false, got "yes"`}},
		"folders that follow a relative one": {completeWith(t, "paths.kubernetes.configDir", `"etc"`),
			[]string{`paths.kubernetes.configDir: want an absolute path, got "etc"`}},
		"a threshold beside one that can't be read": {completeWith(t, "node.kubelet.imageGCHighThreshold", `"x"`, "node.kubelet.imageGCLowThreshold", `90`),
			[]string{`node.kubelet.imageGCHighThreshold: want a whole number, got "x"`}},
		"several modes do not hide a bad token": {completeWith(t, "azure.bootstrapToken.token", `"x"`,
			"node.kubelet.serverURL", `"https://h"`, "node.kubelet.caCertData", `"ZmFrZQ=="`), []string{
			"azure: want exactly one way to authenticate, got azure.managedIdentity and azure.bootstrapToken; remove all but one",
			"azure.bootstrapToken.token: want six and sixteen of a-z and 0-9 with a dot between"}},
	} {
		t.Run(name, func(t *testing.T) { wantLines(t, mistakes(t, c.data), c.want) })
	}
}

func TestEnvironmentWinsOverTheFile(t *testing.T) {
	data := completeWith(t, "agent.logLevel", `"error"`, "node.labels", `{"a": "1"}`, "azure.managedIdentity", "")
	path := writeFile(t, "config.json", data, 0o600)
	t.Setenv("AKS_NODE_CONTROLLER_AGENT_LOGLEVEL", "debug")
	t.Setenv("AKS_NODE_CONTROLLER_NODE_MAXPODS", "")
	t.Setenv("AKS_NODE_CONTROLLER_AGENT_ENABLEDRIFTDETECTIONANDREMEDIATION", "false")
	t.Setenv("AKS_NODE_CONTROLLER_NODE_LABELS", "b=2, c = 3=4")
	t.Setenv("AKS_NODE_CONTROLLER_AZURE_ARC_ENABLED", "true")
	cfg, err := LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Agent.LogLevel != "debug" || cfg.IsDriftDetectionAndRemediationEnabled() || !cfg.IsARCEnabled() {
		t.Errorf("got %v, want what the environment says", cfg)
	}
	if cfg.Node.MaxPods != 110 {
		t.Errorf("an empty variable: got %d, want the default 110", cfg.Node.MaxPods)
	}
	want := map[string]string{"b": "2", "c": "3=4", managedLabel: "false"}
	if !reflect.DeepEqual(cfg.Node.Labels, want) {
		t.Errorf("labels: got %v, want %v", cfg.Node.Labels, want)
	}
}

func TestMistakesInTheEnvironment(t *testing.T) {
	got := mistakes(t, []byte(complete), "PATH=/bin", "AKS_NODE_CONTROLLER_NODE_MAXPODS=many",
		"AKS_NODE_CONTROLLER_AZURE_ARC_ENABLED=perhaps", "AKS_NODE_CONTROLLER_NODE_LABELS=a=1,b", "AKS_NODE_CONTROLLER_AGENT_LOGLEVEL=loud")
	wantLines(t, got, []string{
		`azure.arc.enabled: want true or false, got "perhaps" (from AKS_NODE_CONTROLLER_AZURE_ARC_ENABLED)`,
		`node.maxPods: want a whole number, got "many" (from AKS_NODE_CONTROLLER_NODE_MAXPODS)`,
		`node.labels: want name=text pairs with commas between, such as a=1,b=2; got "b" (from AKS_NODE_CONTROLLER_NODE_LABELS)`,
		`agent.logLevel: want one of debug, info, warning, error, got "loud"`,
	})
}

func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		data    []byte
		environ []string
		want    []string
	}{
		"a misspelt key": {data: completeWith(t, "agent.logLevl", `"debug"`),
			want: []string{"agent.logLevl: unknown key; did you mean agent.logLevel?"}},
		"a key at the wrong place": {data: completeWith(t, "logLevel", `"debug"`),
			want: []string{"logLevel: unknown key; did you mean agent.logLevel?"}},
		"a misspelt section": {data: completeWith(t, "conteinerd.version", `"1"`),
			want: []string{"conteinerd: unknown key; did you mean containerd?"}},
		"a key like no other": {data: completeWith(t, "agent.colour of\nthings", `"red"`),
			want: []string{`agent."colour of\nthings": unknown key; it has no effect`}},
		"a derived field is no key": {data: completeWith(t, "azure.targetCluster.nodeResourceGroup", `"x"`),
			want: []string{"azure.targetCluster.nodeResourceGroup: unknown key; it has no effect"}},
		"letter case twice": {data: completeWith(t, "agent.loglevel", `"debug"`, "agent.logLevel", `"error"`, "agent.LOGLEVEL", `"info"`),
			want: []string{"agent.logLevel: is given 3 times; where they disagree, the one written logLevel counts, else the last"}},
		"a label twice": {data: []byte(strings.Replace(complete, `{"azure"`, `{"node": {"labels": {"a": "1", "a": "2"}}, "azure"`, 1)),
			want: []string{"node.labels.a: is given more than once; the last one counts"}},
		"a zero": {data: completeWith(t, "node.kubelet.verbosity", `0`),
			want: []string{"node.kubelet.verbosity: 0 counts as not set; the default 2 applies"}},
		"a managed identity of nothing": {data: completeWith(t, "azure.managedIdentity", `null`, "azure.arc.enabled", `true`),
			want: []string{"azure.managedIdentity: null counts as absent; write {} to select this way of authentication"}},
		"a label that is ours": {data: completeWith(t, "node.labels", `{"kubernetes.azure.com/managed": "true"}`),
			want: []string{"node.labels.kubernetes.azure.com/managed: is always false; the value given here is not used"}},
		"incomplete sections beside a complete one": {data: completeWith(t, "azure.servicePrincipal.clientId", `"x"`, "azure.bootstrapToken", `{}`),
			want: []string{"azure.servicePrincipal: is incomplete and therefore not used", "azure.bootstrapToken: is incomplete and therefore not used"}},
		"a misspelt variable": {data: []byte(complete), environ: []string{"AKS_NODE_CONTROLLER_AGENT_LOG_LEVEL=debug", "AKS_NODE_CONTROLLER_X=1"},
			want: []string{"AKS_NODE_CONTROLLER_AGENT_LOG_LEVEL: unknown environment variable; did you mean AKS_NODE_CONTROLLER_AGENT_LOGLEVEL?",
				"AKS_NODE_CONTROLLER_X: unknown environment variable; it has no effect"}},
	} {
		t.Run(name, func(t *testing.T) { wantLines(t, warningTexts(mustLoad(t, c.data, c.environ...)), c.want) })
	}
}

func TestExactSpellingCountsAndSectionsMerge(t *testing.T) {
	data := strings.Replace(complete, `{"azure"`,
		`{"agent": {"logLevel": "error", "loglevel": "debug"}, "Agent": {"logDir": "/x"}, "azure"`, 1)
	cfg := mustLoad(t, []byte(data)).Config
	wantLines(t, []string{cfg.Agent.LogLevel, cfg.Agent.LogDir}, []string{"error", "/x"})
}

func TestSecretsInAFileThatOthersCanRead(t *testing.T) {
	secret := testdata(t, "service-principal.json")
	warning := []string{"the file holds secrets and others can read it (mode 0644); take that right away with chmod o-r"}
	for name, c := range map[string]struct {
		data []byte
		mode os.FileMode
		want []string
	}{
		"secrets, readable":           {secret, 0o644, warning},
		"secrets, only for the group": {secret, 0o640, nil},
		"secrets, private":            {secret, 0o600, nil},
		"no secrets":                  {[]byte(complete), 0o644, nil},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := Load(writeFile(t, "config.json", c.data, c.mode))
			if err != nil {
				t.Fatal(err)
			}
			wantLines(t, warningTexts(result), c.want)
		})
	}
	environ := []string{"AKS_NODE_CONTROLLER_AZURE_SERVICEPRINCIPAL_CLIENTSECRET=not-a-real-secret"}
	result, err := load("config.json", []byte(complete), 0o644, environ)
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, warningTexts(result), []string{"azure.servicePrincipal: is incomplete and therefore not used"})
}

func TestFilesThatCanNotBeRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadConfig(dir + "/none.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v, want fs.ErrNotExist", err)
	}
	if _, err := LoadConfig(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: got %v, want an error that says so", err)
	}
	large := writeFile(t, "config.json", append([]byte(complete), bytes.Repeat([]byte(" "), maxFileSize)...), 0o600)
	if _, err := LoadConfig(large); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("a huge file: got %v, want an error that says so", err)
	}
	full := append([]byte(complete), bytes.Repeat([]byte(" "), maxFileSize-len(complete))...)
	if _, err := LoadConfig(writeFile(t, "config.json", full, 0o600)); err != nil {
		t.Errorf("a file of just 1 MiB: got %v, want no error", err)
	}
}
