package config

import (
	"strings"
	"testing"
)

// managed returns a config that manages a node, without a way to authenticate.
func managed() *Config {
	return &Config{Azure: AzureConfig{SubscriptionID: "sub", TenantID: "tenant",
		TargetCluster: &TargetClusterConfig{ResourceID: clusterResourceID, Location: "westeurope"}}}
}

func TestExactlyOneWayToAuthenticate(t *testing.T) {
	arc := &ArcConfig{Enabled: true}
	full := &ServicePrincipalConfig{TenantID: "t", ClientID: "i", ClientSecret: "not-a-real-secret"}
	partial := &ServicePrincipalConfig{TenantID: "t"}
	identity := &ManagedIdentityConfig{}
	token := &BootstrapTokenConfig{Token: "abcdef.0123456789abcdef"}
	join := func(c *Config) { c.Node.Kubelet.ServerURL, c.Node.Kubelet.CACertData = "https://h", "ZmFrZQ==" }
	none := "azure: want exactly one way to authenticate, got none: set azure.arc.enabled, azure.servicePrincipal, " +
		"azure.managedIdentity or azure.bootstrapToken"
	several := func(modes string) []string {
		return []string{"azure: want exactly one way to authenticate, got " + modes + "; remove all but one"}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"none":                   {func(*Config) {}, []string{none}},
		"arc that is not on":     {func(c *Config) { c.Azure.Arc = &ArcConfig{MachineName: "m"} }, []string{none}},
		"arc":                    {func(c *Config) { c.Azure.Arc = arc }, nil},
		"a service principal":    {func(c *Config) { c.Azure.ServicePrincipal = full }, nil},
		"a managed identity":     {func(c *Config) { c.Azure.ManagedIdentity = identity }, nil},
		"a token":                {func(c *Config) { c.Azure.BootstrapToken = token; join(c) }, nil},
		"arc off, identity on":   {func(c *Config) { c.Azure.Arc, c.Azure.ManagedIdentity = &ArcConfig{}, identity }, nil},
		"arc and a partial one":  {func(c *Config) { c.Azure.Arc, c.Azure.ServicePrincipal = arc, partial }, nil},
		"arc and an empty token": {func(c *Config) { c.Azure.Arc, c.Azure.BootstrapToken = arc, &BootstrapTokenConfig{} }, nil},
		"arc and identity": {func(c *Config) { c.Azure.Arc, c.Azure.ManagedIdentity = arc, identity },
			several("azure.arc and azure.managedIdentity")},
		"all": {func(c *Config) {
			c.Azure.Arc, c.Azure.ServicePrincipal, c.Azure.ManagedIdentity, c.Azure.BootstrapToken = arc, full, identity, token
			join(c)
		}, several("azure.arc and azure.servicePrincipal and azure.managedIdentity and azure.bootstrapToken")},
		"a partial service principal": {func(c *Config) { c.Azure.ServicePrincipal = partial }, []string{
			"azure.servicePrincipal.clientId: required, but not set", "azure.servicePrincipal.clientSecret: required, but not set"}},
		"an empty token": {func(c *Config) { c.Azure.BootstrapToken = &BootstrapTokenConfig{} },
			[]string{"azure.bootstrapToken.token: required, but not set"}},
		"a token without a server": {func(c *Config) { c.Azure.BootstrapToken = token }, []string{
			"node.kubelet.serverURL: required with azure.bootstrapToken, but not set",
			"node.kubelet.caCertData: required with azure.bootstrapToken, but not set"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := managed()
			c.change(cfg)
			wantLines(t, lines(t, cfg.Validate()), c.want)
		})
	}
}

func TestBootstrapToken(t *testing.T) {
	for token, ok := range map[string]bool{
		"abcdef.0123456789abcdef": true, "000000.zzzzzzzzzzzzzzzz": true,
		"abcdef": false, "abcdef.": false, "abcde.0123456789abcdef": false, "abcdef.0123456789abcde": false,
		"ABCDEF.0123456789abcdef": false, "abcdef.0123456789abcdef\n": false, "abcdef.0123456789abc.ef": false, "abcdéf.0123456789abcde": false,
		redacted: false,
	} {
		data := completeWith(t, "azure.managedIdentity", "", "azure.bootstrapToken.token", `"`+strings.ReplaceAll(token, "\n", `\n`)+`"`,
			"node.kubelet.serverURL", `"https://h"`, "node.kubelet.caCertData", `"ZmFrZQ=="`)
		result, err := load("config.json", data, 0o600, nil)
		if (err == nil) != ok {
			t.Errorf("%q: got %v, want accepted to be %v", token, err, ok)
		}
		if result.Config.Azure.BootstrapToken.Token != token {
			t.Errorf("got the token %q, want %q", result.Config.Azure.BootstrapToken.Token, token)
		}
		if err != nil && token != redacted && strings.Contains(err.Error(), token) {
			t.Errorf("%q: got %v, want the token kept out of the message", token, err)
		}
	}
	for _, bad := range noText {
		data := completeWith(t, "azure.bootstrapToken.token", bad)
		wantPrefix := "azure.bootstrapToken.token: want text in quotes, got "
		if got := mistakes(t, data); len(got) != 1 || !strings.HasPrefix(got[0], wantPrefix) || strings.Contains(got[0], "5") {
			t.Errorf("%s: got %q, want one error without the value", bad, got)
		}
	}
}

func TestClusterResourceID(t *testing.T) {
	for id, ok := range map[string]bool{
		clusterResourceID:                                                    true,
		strings.ToLower(clusterResourceID):                                   true,
		strings.ToUpper(clusterResourceID):                                   true,
		clusterResourceID + "/":                                              true,
		clusterResourceID + "//":                                             false,
		clusterResourceID + "/agentPools/np1":                                false,
		clusterResourceID[1:]:                                                false,
		"https://management.azure.com" + clusterResourceID:                   false,
		strings.Replace(clusterResourceID, "rg-C", "", 1):                    false,
		strings.Replace(clusterResourceID, "rg-C", "rg C", 1):                false,
		strings.Replace(clusterResourceID, "managedClusters", "clusters", 1): false,
		strings.Replace(clusterResourceID, "Microsoft.ContainerService", "Microsoft.Kubernetes", 1): false,
	} {
		if _, got := parseClusterID(id); got != ok {
			t.Errorf("%q: got %v, want %v", id, got, ok)
		}
	}
}

// Nodes may run with these today, so a check must not get in their way.
func TestLenience(t *testing.T) {
	for path, value := range map[string]string{
		"azure.subscriptionId":        `"no guid"`,
		"azure.cloud":                 `"AzureEdgeCloud"`,
		"agent.logDir":                `"logs"`,
		"kubernetes.version":          `"latest"`,
		"runc.url":                    `"file:///opt/runc"`,
		"node.maxPods":                `1000`,
		"node.labels":                 `{"": "not a label!"}`,
		"node.kubelet.kubeReserved":   `{"cpu": "a lot"}`,
		"node.kubelet.dnsServiceIP":   `"10.0.0.10, fd00::10"`,
		"node.kubelet.serverURL":      `"10.0.0.1:6443"`,
		"node.kubelet.caCertData":     `"bm90IGEg\nY2VydA=="`,
		"containerd.metricsAddress":   `":10257"`,
		"azure.arc":                   `{"enabled": false}`,
		"azure.servicePrincipal":      `{}`,
		"paths.kubernetes.kubeletDir": `"/var/lib/../lib/kubelet/"`,
	} {
		wantLines(t, mistakes(t, completeWith(t, path, value)), nil)
	}
}

func TestValidateChangesNothing(t *testing.T) {
	cfg := managed()
	cfg.Azure.ManagedIdentity = &ManagedIdentityConfig{}
	cfg.Node.Labels = map[string]string{"a": "b"}
	before := cfg.String()
	if err := cfg.Validate(); err != nil {
		t.Errorf("a config without its defaults: got %v, want no error", err)
	}
	if got := cfg.String(); got != before {
		t.Errorf("got %s, want it as before: %s", got, before)
	}
	var none *Config
	wantLines(t, lines(t, none.Validate()), []string{"there is no configuration"})
}

func TestThresholdsAgainstTheDefault(t *testing.T) {
	wantLines(t, mistakes(t, completeWith(t, "node.kubelet.imageGCHighThreshold", `70`)),
		[]string{"node.kubelet.imageGCLowThreshold: want less than imageGCHighThreshold, which is 70, got 80"})
}
