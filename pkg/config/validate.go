package config

import (
	"encoding/base64"
	"net"
	"net/netip"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Validate says whether the agent can manage a node with this config. It judges what SetDefaults would make of it, but
// changes nothing, and returns all mistakes at once as [KeyErrors].
//
// It refuses only what can't have worked. Left alone on purpose, because nodes may run well with it today: the shape of
// ids (not every tool writes GUIDs), names of clouds, versions, image names, download addresses, label and resource
// syntax (the kubelet judges those), a relative log folder, an upper bound of maxPods, whether the certificate authority
// is PEM, and an incomplete section beside a complete way of authentication, which was always passed over.
func (c *Config) Validate() error {
	r := &report{}
	if c == nil {
		r.fail("", "there is no configuration")
		return r.err()
	}
	effective := c.clone()
	effective.SetDefaults()
	r.validate(effective)
	return r.err()
}

// validate adds the mistakes of a config that has its defaults.
func (r *report) validate(c *Config) {
	c.eachSecret(func(path string, secret reflect.Value) {
		if secret.String() == redacted {
			r.fail(path, "is the placeholder %s, not the secret itself; put the secret in", redacted)
		}
	})
	r.validateAzure(c)
	r.validateAuth(c)
	r.validateAgent(c)
	r.validateLoop(c.Agent)
	r.validateNode(c)
	r.validatePaths(c)
}

// require fails a key without a value; when says under which circumstances it is needed, if not always.
func (r *report) require(path, value, when string) {
	if value == "" {
		r.fail(path, "required%s, but not set", when)
	}
}

func (r *report) validateAzure(c *Config) {
	r.require("azure.subscriptionId", c.Azure.SubscriptionID, "")
	r.require("azure.tenantId", c.Azure.TenantID, "")
	r.require("azure.targetCluster.resourceId", c.GetTargetClusterID(), "")
	r.require("azure.targetCluster.location", c.GetTargetClusterLocation(), "")
	if _, ok := parseClusterID(c.GetTargetClusterID()); !ok {
		r.fail("azure.targetCluster.resourceId", "want the id of an AKS cluster, /subscriptions/ID/resourceGroups/GROUP"+
			"/providers/Microsoft.ContainerService/managedClusters/NAME, got %s", quote(c.GetTargetClusterID()))
	}
}

// authModes returns the paths of the sections that each are a complete way to authenticate.
func (c *Config) authModes() []string {
	var modes []string
	for _, mode := range []struct {
		path string
		on   bool
	}{
		{"azure.arc", c.IsARCEnabled()},
		{"azure.servicePrincipal", c.IsSPConfigured()},
		{"azure.managedIdentity", c.IsMIConfigured()},
		{"azure.bootstrapToken", c.IsBootstrapTokenConfigured()},
	} {
		if mode.on {
			modes = append(modes, mode.path)
		}
	}
	return modes
}

func (r *report) validateAuth(c *Config) {
	switch modes := c.authModes(); {
	case len(modes) > 1:
		r.fail("azure", "want exactly one way to authenticate, got %s; remove all but one", strings.Join(modes, " and "))
	case len(modes) == 0:
		r.explainNoAuth(c)
	}
	if !c.IsBootstrapTokenConfigured() {
		return
	}
	if !isBootstrapToken(c.Azure.BootstrapToken.Token) {
		r.fail("azure.bootstrapToken.token", "want six and sixteen of a-z and 0-9 with a dot between")
	}
	r.require("node.kubelet.serverURL", c.Node.Kubelet.ServerURL, " with azure.bootstrapToken")
	r.require("node.kubelet.caCertData", c.Node.Kubelet.CACertData, " with azure.bootstrapToken")
}

// explainNoAuth says what is missing: in the sections that were begun, else altogether.
func (r *report) explainNoAuth(c *Config) {
	begun := false
	for _, section := range []string{"azure.arc", "azure.servicePrincipal", "azure.managedIdentity", "azure.bootstrapToken"} {
		begun = begun || r.failedWithin(section)
	}
	if sp := c.Azure.ServicePrincipal; sp != nil {
		begun = true
		r.require("azure.servicePrincipal.tenantId", sp.TenantID, "")
		r.require("azure.servicePrincipal.clientId", sp.ClientID, "")
		r.require("azure.servicePrincipal.clientSecret", sp.ClientSecret, "")
	}
	if c.Azure.BootstrapToken != nil {
		begun = true
		r.require("azure.bootstrapToken.token", c.Azure.BootstrapToken.Token, "")
	}
	if !begun {
		r.fail("azure", "want exactly one way to authenticate, got none: set azure.arc.enabled, azure.servicePrincipal, "+
			"azure.managedIdentity or azure.bootstrapToken")
	}
}

// isBootstrapToken reports whether token looks as Kubernetes wants it.
func isBootstrapToken(token string) bool {
	id, secret, ok := strings.Cut(token, ".")
	strange := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return ok && len(id) == 6 && len(secret) == 16 && !strings.ContainsFunc(id+secret, strange)
}

func (r *report) validateAgent(c *Config) {
	levels := []string{"debug", "info", "warning", "error"}
	if !slices.Contains(levels, c.Agent.LogLevel) {
		r.fail("agent.logLevel", "want one of %s, got %s", strings.Join(levels, ", "), quote(c.Agent.LogLevel))
	}
	if template := c.Kubernetes.URLTemplate; template != "" && strings.Count(template, "%s") != 2 {
		// The address itself is not shown: download links can carry keys.
		r.fail("kubernetes.urlTemplate", "want %%s twice, for version and architecture, got it %d times", strings.Count(template, "%s"))
	}
	if !isHostPort(c.Containerd.MetricsAddress) {
		r.fail("containerd.metricsAddress", "want host:port, got %s", quote(c.Containerd.MetricsAddress))
	}
}

func (r *report) validateNode(c *Config) {
	if c.Node.MaxPods < 1 {
		r.fail("node.maxPods", "want 1 or more, got %d", c.Node.MaxPods)
	}
	kubelet := c.Node.Kubelet
	if kubelet.Verbosity < 0 {
		r.fail("node.kubelet.verbosity", "want 0 or more, got %d", kubelet.Verbosity)
	}
	high, low := kubelet.ImageGCHighThreshold, kubelet.ImageGCLowThreshold
	highOK := r.percent("node.kubelet.imageGCHighThreshold", high)
	lowOK := r.percent("node.kubelet.imageGCLowThreshold", low)
	if highOK && lowOK && low >= high && !r.failed("node.kubelet.imageGCHighThreshold") {
		r.fail("node.kubelet.imageGCLowThreshold", "want less than imageGCHighThreshold, which is %d, got %d", high, low)
	}
	// The kubelet takes several addresses with commas between.
	for ip := range strings.SplitSeq(kubelet.DNSServiceIP, ",") {
		if _, err := netip.ParseAddr(strings.TrimSpace(ip)); err != nil {
			r.fail("node.kubelet.dnsServiceIP", "want an IP address, got %s", quote(kubelet.DNSServiceIP))
		}
	}
	if kubelet.ServerURL != "" && !isServerURL(kubelet.ServerURL) {
		r.fail("node.kubelet.serverURL", "want the API server's address, such as https://host:443")
	}
	if _, err := base64.StdEncoding.DecodeString(kubelet.CACertData); err != nil {
		r.fail("node.kubelet.caCertData", "want base64: %v", err)
	}
}

func (r *report) percent(path string, value int) bool {
	if value < 0 || value > 100 {
		r.fail(path, "want a percentage from 0 to 100, got %d", value)
		return false
	}
	return true
}

// isHostPort reports whether address is host:port; an empty host means all addresses.
func isHostPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// isServerURL reports whether address names an API server. Kubernetes clients also take it without the scheme.
func isServerURL(address string) bool {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	parsed, err := url.Parse(address)
	return err == nil && (parsed.Scheme == "https" || parsed.Scheme == "http") && parsed.Hostname() != ""
}

func (r *report) validatePaths(c *Config) {
	dirs := c.Paths.Kubernetes
	for _, file := range []struct{ key, path string }{
		{"paths.kubernetes.configDir", dirs.ConfigDir},
		{"paths.kubernetes.certsDir", dirs.CertsDir},
		{"paths.kubernetes.manifestsDir", dirs.ManifestsDir},
		{"paths.kubernetes.volumePluginDir", dirs.VolumePluginDir},
		{"paths.kubernetes.kubeletDir", dirs.KubeletDir},
		{"node.kubelet.path", c.Node.Kubelet.Path},
		{"node.kubelet.kubeconfig", c.Node.Kubelet.Kubeconfig},
	} {
		follows := file.path == path.Join(dirs.ConfigDir, path.Base(file.path)) && r.failed("paths.kubernetes.configDir")
		if file.path != "" && !path.IsAbs(file.path) && !follows {
			r.fail(file.key, "want an absolute path, got %s", quote(file.path))
		}
	}
}
