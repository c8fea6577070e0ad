package config

import (
	"maps"
	"path"
	"strings"
	"time"
)

const (
	defaultStatusInterval         = Duration(time.Minute)
	defaultBootstrapCheckInterval = Duration(2 * time.Minute)
	defaultBootstrapTimeout       = Duration(30 * time.Minute)
)

// The label every node of this agent carries, so that AKS leaves the node's life to the agent.
const (
	managedLabel = "kubernetes.azure.com/managed"
	managedValue = "false"
)

// SetDefaults fills what is not set: empty text, zero numbers and nil switches count as not set, and what is set stays
// as it is. There is one exception: the node label kubernetes.azure.com/managed is always "false". It also derives the
// keyless fields of TargetClusterConfig from the resource id. The agent's thresholds stay zero, which means their defaults.
// Calling it again changes nothing. A nil Config is fine.
func (c *Config) SetDefaults() {
	if c == nil {
		return
	}
	setDefault(&c.Azure.Cloud, "AzurePublicCloud")
	c.Azure.TargetCluster.derive()

	setDefault(&c.Agent.LogLevel, "info")
	setDefault(&c.Agent.LogDir, "/var/log/aks-flex-node")
	if c.Agent.EnableDriftDetectionAndRemediation == nil {
		c.Agent.EnableDriftDetectionAndRemediation = new(true)
	}

	setDefault(&c.Agent.LogFormat, "text")
	setDefault(&c.Agent.StatusInterval, defaultStatusInterval)
	setDefault(&c.Agent.BootstrapCheckInterval, defaultBootstrapCheckInterval)
	setDefault(&c.Agent.Bootstrap.Timeout, defaultBootstrapTimeout)

	setDefault(&c.Containerd.MetricsAddress, "0.0.0.0:10257")
	setDefault(&c.Runc.Version, "1.1.12")
	setDefault(&c.Npd.Version, "v1.35.1")

	setDefault(&c.Node.MaxPods, 110)
	labels := make(map[string]string, len(c.Node.Labels)+1) // a new map: the old one may be the caller's
	maps.Copy(labels, c.Node.Labels)
	labels[managedLabel] = managedValue
	c.Node.Labels = labels

	kubelet := &c.Node.Kubelet
	setDefault(&kubelet.Verbosity, 2)
	setDefault(&kubelet.ImageGCHighThreshold, 85)
	setDefault(&kubelet.ImageGCLowThreshold, 80)
	setDefault(&kubelet.DNSServiceIP, "10.0.0.10")

	dirs := &c.Paths.Kubernetes
	setDefault(&dirs.ConfigDir, "/etc/kubernetes")
	setDefault(&dirs.CertsDir, path.Join(dirs.ConfigDir, "certs"))
	setDefault(&dirs.ManifestsDir, path.Join(dirs.ConfigDir, "manifests"))
	setDefault(&dirs.VolumePluginDir, path.Join(dirs.ConfigDir, "volumeplugins"))
	setDefault(&dirs.KubeletDir, "/var/lib/kubelet")
}

func setDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}

// derive fills the keyless fields from the resource id, if that is one.
func (t *TargetClusterConfig) derive() {
	if t == nil {
		return
	}
	id, ok := parseClusterID(t.ResourceID)
	if !ok {
		return
	}
	setDefault(&t.Name, id.name)
	setDefault(&t.ResourceGroup, id.group)
	setDefault(&t.SubscriptionID, id.subscription)
	if t.Location != "" {
		setDefault(&t.NodeResourceGroup, "MC_"+id.group+"_"+id.name+"_"+t.Location)
	}
}

// clusterID holds the parts of a managed cluster's ARM id, in their own letter case.
type clusterID struct{ subscription, group, name string }

// parseClusterID takes a managed cluster's ARM id apart. ARM ids match in any letter case, and some tools end them with
// a slash.
func parseClusterID(id string) (clusterID, bool) {
	words := []string{"", "subscriptions", "", "resourceGroups", "", "providers", "Microsoft.ContainerService", "managedClusters", ""}
	parts := strings.Split(strings.TrimSuffix(id, "/"), "/")
	if len(parts) != len(words) || parts[0] != "" {
		return clusterID{}, false
	}
	for i, word := range words[1:] {
		part := parts[i+1]
		if part == "" || strings.ContainsAny(part, " \t\r\n") || word != "" && !strings.EqualFold(part, word) {
			return clusterID{}, false
		}
	}
	return clusterID{subscription: parts[2], group: parts[4], name: parts[8]}, true
}
