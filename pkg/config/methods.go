package config

import (
	"maps"
	"os"
	"time"
)

// IsARCEnabled says whether the node authenticates through Azure Arc. False for a nil Config or absent section.
func (c *Config) IsARCEnabled() bool {
	return c != nil && c.Azure.Arc != nil && c.Azure.Arc.Enabled
}

// IsSPConfigured says whether a service principal is configured completely: all three fields. False for a nil Config.
func (c *Config) IsSPConfigured() bool {
	if c == nil || c.Azure.ServicePrincipal == nil {
		return false
	}
	sp := c.Azure.ServicePrincipal
	return sp.TenantID != "" && sp.ClientID != "" && sp.ClientSecret != ""
}

// IsMIConfigured says whether a managed identity is selected: the section is there, even if empty. False for a nil
// Config.
func (c *Config) IsMIConfigured() bool {
	return c != nil && c.Azure.ManagedIdentity != nil
}

// IsBootstrapTokenConfigured says whether a bootstrap token is set. False for a nil Config or absent section.
func (c *Config) IsBootstrapTokenConfigured() bool {
	return c != nil && c.Azure.BootstrapToken != nil && c.Azure.BootstrapToken.Token != ""
}

// IsDriftDetectionAndRemediationEnabled is false for a nil Config, and true where nothing is said.
func (c *Config) IsDriftDetectionAndRemediationEnabled() bool {
	if c == nil {
		return false
	}
	enabled := c.Agent.EnableDriftDetectionAndRemediation
	return enabled == nil || *enabled
}

// GetArcMachineName returns the name of the Arc machine: the configured one, else the hostname, else "" when even that
// can't be read.
func (c *Config) GetArcMachineName() string {
	if name := c.arc().MachineName; name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// GetArcLocation returns the region of the Arc machine: the configured one, else the cluster's.
func (c *Config) GetArcLocation() string {
	if location := c.arc().Location; location != "" {
		return location
	}
	return c.GetTargetClusterLocation()
}

// GetArcResourceGroup returns the resource group of the Arc machine: the configured one, else the cluster's.
func (c *Config) GetArcResourceGroup() string {
	if group := c.arc().ResourceGroup; group != "" {
		return group
	}
	return c.GetTargetClusterResourceGroup()
}

// GetArcTags returns a copy of the tags of the Arc machine, never nil.
func (c *Config) GetArcTags() map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, c.arc().Tags)
	return tags
}

// GetTargetClusterName returns the cluster's name, also before SetDefaults has derived it; "" when it can't be told.
func (c *Config) GetTargetClusterName() string { return c.targetCluster().Name }

// GetTargetClusterResourceGroup returns the cluster's resource group, also before SetDefaults has derived it; "" when it
// can't be told.
func (c *Config) GetTargetClusterResourceGroup() string { return c.targetCluster().ResourceGroup }

// GetTargetClusterSubscriptionID returns the cluster's subscription, which may differ from the node's; "" when it can't
// be told.
func (c *Config) GetTargetClusterSubscriptionID() string { return c.targetCluster().SubscriptionID }

// GetTargetClusterID returns the cluster's ARM id as configured.
func (c *Config) GetTargetClusterID() string { return c.targetCluster().ResourceID }

// GetTargetClusterLocation returns the cluster's region as configured.
func (c *Config) GetTargetClusterLocation() string { return c.targetCluster().Location }

// GetSubscriptionID returns the node's subscription; "" for a nil Config.
func (c *Config) GetSubscriptionID() string {
	if c == nil {
		return ""
	}
	return c.Azure.SubscriptionID
}

// GetTenantID returns the node's tenant; "" for a nil Config.
func (c *Config) GetTenantID() string {
	if c == nil {
		return ""
	}
	return c.Azure.TenantID
}

// GetKubernetesVersion returns the configured Kubernetes version as written; "" for a nil Config or when none is set.
func (c *Config) GetKubernetesVersion() string {
	if c == nil {
		return ""
	}
	return c.Kubernetes.Version
}

// GetStatusInterval returns the time between two looks at everything: a minute for a nil Config or when none is set.
func (c *Config) GetStatusInterval() time.Duration {
	if c == nil || c.Agent.StatusInterval == 0 {
		return time.Duration(defaultStatusInterval)
	}
	return time.Duration(c.Agent.StatusInterval)
}

// GetBootstrapCheckInterval returns the time between two answers to the question whether the node needs a bootstrap: two
// minutes for a nil Config or when none is set.
func (c *Config) GetBootstrapCheckInterval() time.Duration {
	if c == nil || c.Agent.BootstrapCheckInterval == 0 {
		return time.Duration(defaultBootstrapCheckInterval)
	}
	return time.Duration(c.Agent.BootstrapCheckInterval)
}

// arc returns the Arc section, empty when absent.
func (c *Config) arc() ArcConfig {
	if c == nil || c.Azure.Arc == nil {
		return ArcConfig{}
	}
	return *c.Azure.Arc
}

// targetCluster returns the cluster's section with what follows from its id, empty when absent.
func (c *Config) targetCluster() TargetClusterConfig {
	if c == nil || c.Azure.TargetCluster == nil {
		return TargetClusterConfig{}
	}
	cluster := *c.Azure.TargetCluster
	cluster.derive()
	return cluster
}
