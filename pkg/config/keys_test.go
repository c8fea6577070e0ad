package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// keyCase says about one key how it is read, what it is by default and what is refused.
type keyCase struct {
	path string
	get  func(*Config) any
	def  any      // after loading the complete config
	json string   // a value for it
	env  string   // the same value as an environment variable
	want any      // that value
	bad  []string // values that are refused, as JSON
	with []string // paths and values of other keys that it needs
}

// noText is refused for every key that takes text.
var noText = []string{`5`, `true`, `{}`, `["a"]`}

func text(path, def, value string, get func(*Config) string, bad ...string) keyCase {
	return keyCase{path: path, def: def, json: `"` + value + `"`, env: value, want: value,
		get: func(c *Config) any { return get(c) }, bad: append(bad, noText...)}
}

func number(path string, def int, value string, want int, get func(*Config) int, bad ...string) keyCase {
	return keyCase{path: path, def: def, json: value, env: value, want: want,
		get: func(c *Config) any { return get(c) }, bad: append(bad, `"many"`, `"5"`, `1.5`, `true`, `[]`, `{}`, `99999999999999999999`)}
}

func textMap(path string, def, want map[string]string, get func(*Config) map[string]string) keyCase {
	return keyCase{path: path, def: def, json: `{"a.b/c": "1=2", "D": ""}`, env: "a.b/c=1=2,D=", want: want,
		get: func(c *Config) any { return get(c) }, bad: []string{`"a=b"`, `5`, `["a"]`, `{"a": 5}`, `{"a": {"b": "c"}}`}}
}

// span is a case of a duration; "-1s" is refused for every key of that type.
func span(path string, def Duration, get func(*Config) Duration, bad ...string) keyCase {
	return keyCase{path: path, def: def, json: `"90s"`, env: "90s", want: Duration(90 * time.Second),
		get: func(c *Config) any { return get(c) }, bad: append(bad, `"-1s"`, `90`, `"90"`, `"soon"`, `""`, `true`, `[]`, `["1s"]`, `{}`)}
}

var noList = []string{`"/a"`, `5`, `{}`, `[null]`, `[["/a"]]`, `[{}]`, `[true]`, `[5]`, `[` + strings.Repeat(`"/a",`, 100) + `"/a"]`}

func windowOf(c *Config) MaintenanceWindowConfig {
	if c.Agent.MaintenanceWindow == nil {
		return MaintenanceWindowConfig{}
	}
	return *c.Agent.MaintenanceWindow
}

func thresholdsOf(c *Config) ThresholdsConfig { return c.Agent.Thresholds }

var readMap = map[string]string{"a.b/c": "1=2", "D": ""}

func arcOf(c *Config) ArcConfig {
	if c.Azure.Arc == nil {
		return ArcConfig{}
	}
	return *c.Azure.Arc
}

func spOf(c *Config) ServicePrincipalConfig {
	if c.Azure.ServicePrincipal == nil {
		return ServicePrincipalConfig{}
	}
	return *c.Azure.ServicePrincipal
}

// keyCases are all keys: those of the contract and the additions.
var keyCases = []keyCase{
	text("azure.subscriptionId", "sub", "s-1", func(c *Config) string { return c.Azure.SubscriptionID }, `""`),
	text("azure.tenantId", "tenant", "t-1", func(c *Config) string { return c.Azure.TenantID }, `""`),
	text("azure.cloud", "AzurePublicCloud", "AzureChinaCloud", func(c *Config) string { return c.Azure.Cloud }),
	text("azure.servicePrincipal.tenantId", "", "t", func(c *Config) string { return spOf(c).TenantID }),
	text("azure.servicePrincipal.clientId", "", "i", func(c *Config) string { return spOf(c).ClientID }),
	text("azure.servicePrincipal.clientSecret", "", "not-a-real-secret", func(c *Config) string { return spOf(c).ClientSecret },
		`"[redacted]"`),
	text("azure.managedIdentity.clientId", "", "i", func(c *Config) string { return c.Azure.ManagedIdentity.ClientID }),
	{path: "azure.bootstrapToken.token"}, // another way to authenticate than the complete config's: see TestBootstrapToken
	text("azure.targetCluster.resourceId", clusterResourceID, strings.ToUpper(clusterResourceID),
		func(c *Config) string { return c.Azure.TargetCluster.ResourceID }, `""`, `"cluster-1"`, `"/subscriptions/s/resourceGroups/g"`),
	text("azure.targetCluster.location", "westeurope", "eastus", func(c *Config) string { return c.Azure.TargetCluster.Location }, `""`),
	{path: "azure.arc.enabled", def: false, json: "false", env: "false", want: false,
		get: func(c *Config) any { return arcOf(c).Enabled }, bad: []string{`"yes"`, `1`, `{}`, `"true"`}},
	text("azure.arc.machineName", "", "m", func(c *Config) string { return arcOf(c).MachineName }),
	textMap("azure.arc.tags", nil, readMap, func(c *Config) map[string]string { return arcOf(c).Tags }),
	text("azure.arc.resourceGroup", "", "g", func(c *Config) string { return arcOf(c).ResourceGroup }),
	text("azure.arc.location", "", "l", func(c *Config) string { return arcOf(c).Location }),

	text("agent.logLevel", "info", "warning", func(c *Config) string { return c.Agent.LogLevel }, `"warn"`, `"Info"`, `"trace"`),
	text("agent.logDir", "/var/log/aks-flex-node", "/l", func(c *Config) string { return c.Agent.LogDir }),
	{path: "agent.enableDriftDetectionAndRemediation", def: true, json: "false", env: "false", want: false,
		get: func(c *Config) any { return *c.Agent.EnableDriftDetectionAndRemediation }, bad: []string{`"no"`, `0`, `[]`}},
	text("agent.logFormat", "text", "json", func(c *Config) string { return c.Agent.LogFormat }, `"JSON"`, `"xml"`),
	{path: "agent.dryRun", def: false, json: "true", env: "true", want: true,
		get: func(c *Config) any { return c.Agent.DryRun }, bad: []string{`"yes"`, `1`, `{}`}},
	span("agent.statusInterval", Duration(time.Minute), func(c *Config) Duration { return c.Agent.StatusInterval }, `"999ms"`, `"91s"`, `"151s"`),
	span("agent.bootstrapCheckInterval", Duration(2*time.Minute), func(c *Config) Duration { return c.Agent.BootstrapCheckInterval }, `"999ms"`),
	number("agent.metricsPort", 0, "65535", 65535, func(c *Config) int { return c.Agent.MetricsPort }, `-1`, `65536`),
	{path: "agent.bootstrap.command", def: []string(nil), json: `["/b", "a b", "-c"]`, env: "/b, a b,-c", want: []string{"/b", "a b", "-c"},
		get: func(c *Config) any { return c.Agent.Bootstrap.Command }, bad: append([]string{`["b"]`, `["/b", ""]`, `[""]`}, noList...)},
	span("agent.bootstrap.timeout", Duration(30*time.Minute), func(c *Config) Duration { return c.Agent.Bootstrap.Timeout }),
	{path: "agent.maintenanceWindow.start", def: "", json: `"00:00"`, env: "00:00", want: "00:00",
		get: func(c *Config) any { return windowOf(c).Start }, with: []string{"agent.maintenanceWindow.duration", `"1h"`},
		bad: append([]string{`""`, `"7:00"`, `"24:00"`, `"12:60"`, `"noon"`, `"07:00 "`, `"07:00:00"`}, noText...)},
	{path: "agent.maintenanceWindow.duration", def: Duration(0), json: `"24h"`, env: "24h", want: Duration(24 * time.Hour),
		get: func(c *Config) any { return windowOf(c).Duration }, with: []string{"agent.maintenanceWindow.start", `"22:00"`},
		bad: []string{`"0s"`, `"-1h"`, `"24h1s"`, `4`, `"4"`, `[]`}},
	{path: "agent.maintenanceWindow.days", def: []string(nil), json: `["MON", "thursday"]`, env: "MON,thursday", want: []string{"MON", "thursday"},
		get:  func(c *Config) any { return windowOf(c).Days },
		with: []string{"agent.maintenanceWindow.start", `"22:00"`, "agent.maintenanceWindow.duration", `"1h"`},
		bad:  append([]string{`["Caturday"]`, `["Mon", ""]`, `["M"]`, `["Mond"]`, `["Mon-Fri"]`}, noList...)},
	span("agent.thresholds.confirmFor", 0, func(c *Config) Duration { return thresholdsOf(c).ConfirmFor }),
	number("agent.thresholds.confirmLooks", 0, "5", 5, func(c *Config) int { return thresholdsOf(c).ConfirmLooks }, `-1`),
	span("agent.thresholds.evidenceGap", 0, func(c *Config) Duration { return thresholdsOf(c).EvidenceGap }),
	span("agent.thresholds.recovered", 0, func(c *Config) Duration { return thresholdsOf(c).Recovered }),
	{path: "agent.thresholds.restartGaps", def: []Duration(nil), json: `["0s", "90s"]`, env: "0s, 90s", want: []Duration{0, Duration(90 * time.Second)},
		get: func(c *Config) any { return thresholdsOf(c).RestartGaps }, bad: append([]string{`["-1s"]`, `["1s", "soon"]`, `["90"]`}, noList...)},
	span("agent.thresholds.bootstrapAfter", 0, func(c *Config) Duration { return thresholdsOf(c).BootstrapAfter }),
	span("agent.thresholds.frozenFor", 0, func(c *Config) Duration { return thresholdsOf(c).FrozenFor }),
	span("agent.thresholds.stopHold", 0, func(c *Config) Duration { return thresholdsOf(c).StopHold }),
	span("agent.thresholds.loopPatience", 0, func(c *Config) Duration { return thresholdsOf(c).LoopPatience }),
	span("agent.thresholds.steady", 0, func(c *Config) Duration { return thresholdsOf(c).Steady }),
	span("agent.thresholds.minUptime", 0, func(c *Config) Duration { return thresholdsOf(c).MinUptime }),
	number("agent.thresholds.maxBootstraps", 0, "1", 1, func(c *Config) int { return thresholdsOf(c).MaxBootstraps }, `-1`),
	span("agent.thresholds.budgetWindow", 0, func(c *Config) Duration { return thresholdsOf(c).BudgetWindow }),
	span("agent.thresholds.coolDown", 0, func(c *Config) Duration { return thresholdsOf(c).CoolDown }),
	span("agent.thresholds.maxCoolDown", 0, func(c *Config) Duration { return thresholdsOf(c).MaxCoolDown }),

	text("containerd.version", "", "1.7.20", func(c *Config) string { return c.Containerd.Version }),
	text("containerd.pauseImage", "", "p", func(c *Config) string { return c.Containerd.PauseImage }),
	text("containerd.metricsAddress", "0.0.0.0:10257", "[::1]:9", func(c *Config) string { return c.Containerd.MetricsAddress },
		`"localhost"`, `"localhost:http"`, `"localhost:70000"`),
	text("kubernetes.version", "", "1.30", func(c *Config) string { return c.Kubernetes.Version }),
	text("kubernetes.urlTemplate", "", "https://x/%s/%s", func(c *Config) string { return c.Kubernetes.URLTemplate },
		`"https://x/%s"`, `"https://x/%s/%s/%s"`, `"https://x"`),
	text("cni.version", "", "1.6.2", func(c *Config) string { return c.CNI.Version }),
	text("runc.version", "1.1.12", "1.2.6", func(c *Config) string { return c.Runc.Version }),
	text("runc.url", "", "https://x/runc", func(c *Config) string { return c.Runc.URL }),
	text("npd.version", "v1.35.1", "v1", func(c *Config) string { return c.Npd.Version }),

	text("node.name", "", "n", func(c *Config) string { return c.Node.Name }),
	number("node.maxPods", 110, "250", 250, func(c *Config) int { return c.Node.MaxPods }, `-1`),
	textMap("node.labels", map[string]string{managedLabel: "false"}, map[string]string{"a.b/c": "1=2", "D": "", managedLabel: "false"},
		func(c *Config) map[string]string { return c.Node.Labels }),
	textMap("node.kubelet.kubeReserved", nil, readMap, func(c *Config) map[string]string { return c.Node.Kubelet.KubeReserved }),
	textMap("node.kubelet.evictionHard", nil, readMap, func(c *Config) map[string]string { return c.Node.Kubelet.EvictionHard }),
	number("node.kubelet.verbosity", 2, "9", 9, func(c *Config) int { return c.Node.Kubelet.Verbosity }, `-1`),
	number("node.kubelet.imageGCHighThreshold", 85, "90", 90, func(c *Config) int { return c.Node.Kubelet.ImageGCHighThreshold }, `101`, `-1`),
	number("node.kubelet.imageGCLowThreshold", 80, "70", 70, func(c *Config) int { return c.Node.Kubelet.ImageGCLowThreshold }, `101`, `-1`, `85`),
	text("node.kubelet.dnsServiceIP", "10.0.0.10", "fd00::10", func(c *Config) string { return c.Node.Kubelet.DNSServiceIP },
		`"dns"`, `"10.0.0.256"`, `"10.0.0.10,"`),
	text("node.kubelet.serverURL", "", "https://h:443", func(c *Config) string { return c.Node.Kubelet.ServerURL }, `"ftp://h"`, `"https://"`),
	text("node.kubelet.caCertData", "", "ZmFrZQ==", func(c *Config) string { return c.Node.Kubelet.CACertData }, `"no base64"`),
	text("node.kubelet.path", "", "/k", func(c *Config) string { return c.Node.Kubelet.Path }, `"kubelet"`),
	text("node.kubelet.kubeconfig", "", "/k", func(c *Config) string { return c.Node.Kubelet.Kubeconfig }, `"./kubeconfig"`),

	text("paths.kubernetes.configDir", "/etc/kubernetes", "/c", func(c *Config) string { return c.Paths.Kubernetes.ConfigDir }, `"c"`),
	text("paths.kubernetes.certsDir", "/etc/kubernetes/certs", "/c", func(c *Config) string { return c.Paths.Kubernetes.CertsDir }, `"c"`),
	text("paths.kubernetes.manifestsDir", "/etc/kubernetes/manifests", "/c", func(c *Config) string { return c.Paths.Kubernetes.ManifestsDir }, `"c"`),
	text("paths.kubernetes.volumePluginDir", "/etc/kubernetes/volumeplugins", "/c",
		func(c *Config) string { return c.Paths.Kubernetes.VolumePluginDir }, `"c"`),
	text("paths.kubernetes.kubeletDir", "/var/lib/kubelet", "/c", func(c *Config) string { return c.Paths.Kubernetes.KubeletDir }, `"c"`),
}

func TestEveryKeyHasACase(t *testing.T) {
	var got, want []string
	for _, k := range Keys() {
		if k.Type != "section" {
			got = append(got, k.Path)
		}
	}
	for _, c := range keyCases {
		want = append(want, c.path)
	}
	wantLines(t, sorted(got), sorted(want))
}

func TestEveryKey(t *testing.T) {
	for _, c := range keyCases {
		if c.get == nil {
			continue
		}
		t.Run(c.path, func(t *testing.T) {
			check := func(when string, got, want any) {
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got %#v, want %#v", when, got, want)
				}
			}
			withKey := completeWith(t, append(slices.Clone(c.with), c.path, c.json)...)
			check("not set", c.get(mustLoad(t, []byte(complete)).Config), c.def)
			check("in the file", c.get(mustLoad(t, withKey).Config), c.want)
			env := envName(c.path) + "=" + c.env
			check(env, c.get(mustLoad(t, completeWith(t, c.with...), env).Config), c.want)
			for _, bad := range c.bad {
				data := completeWith(t, append(slices.Clone(c.with), c.path, bad)...)
				if got := mistakes(t, data); len(got) != 1 || !strings.HasPrefix(got[0], c.path) {
					t.Errorf("%s: got errors %q, want one about %s", bad, got, c.path)
				}
			}
		})
	}
}

func TestKeysAreDescribed(t *testing.T) {
	for _, k := range Keys() {
		if k.Doc == "" || k.Type == "" {
			t.Errorf("%s: got doc %q and type %q, want both", k.Path, k.Doc, k.Type)
		}
	}
	byPath := map[string]Key{}
	for _, k := range Keys() {
		k.Doc = ""
		byPath[k.Path] = k
	}
	for _, want := range []Key{
		{Path: "azure", Type: "section"},
		{Path: "azure.managedIdentity", Type: "section"},
		{Path: "azure.arc.enabled", Type: "true or false", Default: "false", Env: "AKS_NODE_CONTROLLER_AZURE_ARC_ENABLED"},
		{Path: "azure.bootstrapToken.token", Type: "text", Env: "AKS_NODE_CONTROLLER_AZURE_BOOTSTRAPTOKEN_TOKEN", Secret: true},
		{Path: "agent.logLevel", Type: "text", Default: "info", Env: "AKS_NODE_CONTROLLER_AGENT_LOGLEVEL"},
		{Path: "agent.maintenanceWindow", Type: "section"},
		{Path: "agent.maintenanceWindow.days", Type: "list of text", Env: "AKS_NODE_CONTROLLER_AGENT_MAINTENANCEWINDOW_DAYS"},
		{Path: "agent.statusInterval", Type: "duration", Default: "1m", Env: "AKS_NODE_CONTROLLER_AGENT_STATUSINTERVAL"},
		{Path: "agent.metricsPort", Type: "whole number", Default: "0", Env: "AKS_NODE_CONTROLLER_AGENT_METRICSPORT"},
		{Path: "agent.thresholds.restartGaps", Type: "list of durations", Default: "30s,1m,2m", Env: "AKS_NODE_CONTROLLER_AGENT_THRESHOLDS_RESTARTGAPS"},
		{Path: "agent.thresholds.confirmLooks", Type: "whole number", Default: "3", Env: "AKS_NODE_CONTROLLER_AGENT_THRESHOLDS_CONFIRMLOOKS"},
		{Path: "node.maxPods", Type: "whole number", Default: "110", Env: "AKS_NODE_CONTROLLER_NODE_MAXPODS"},
		{Path: "node.labels", Type: "map of text", Default: managedLabel + "=false", Env: "AKS_NODE_CONTROLLER_NODE_LABELS"},
	} {
		if got := byPath[want.Path]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestEnvironmentNamesDoNotCollide(t *testing.T) {
	owner := map[string]string{}
	for _, k := range Keys() {
		name := envName(k.Path) // also of sections: a key must not look like one
		if other, taken := owner[name]; taken {
			t.Errorf("%s is the variable of both %s and %s", name, other, k.Path)
		}
		owner[name] = k.Path
	}
}

// The keys of a section must differ in more than letter case, and all fields must be of kinds that are handled.
func TestTypesFitTheReader(t *testing.T) {
	folded := map[string]string{}
	for _, k := range allKeys() {
		lower := strings.ToLower(k.Path)
		if other, taken := folded[lower]; taken {
			t.Errorf("%s and %s differ only in letter case", other, k.Path)
		}
		folded[lower] = k.Path
		f := fieldOf(&Config{}, k)
		switch f.Kind() {
		case reflect.String, reflect.Int, reflect.Bool, reflect.Struct:
		case reflect.Int64:
			if f.Type() != reflect.TypeFor[Duration]() {
				t.Errorf("%s: %s is not handled", k.Path, f.Type())
			}
		case reflect.Slice:
			if f.Type() != reflect.TypeFor[[]string]() && f.Type() != reflect.TypeFor[[]Duration]() {
				t.Errorf("%s: lists of %s are not handled", k.Path, f.Type().Elem())
			}
		case reflect.Map:
			if f.Type() != reflect.TypeFor[map[string]string]() {
				t.Errorf("%s: maps of %s are not handled", k.Path, f.Type())
			}
		default:
			t.Errorf("%s: kind %s is not handled", k.Path, f.Kind())
		}
		if k.Secret && f.Kind() != reflect.String {
			t.Errorf("%s: only text can be a secret", k.Path)
		}
	}
}
