package config

// Config is everything the agent can be told. Its zero value is valid Go but not a complete configuration: see
// [Config.SetDefaults] and [Config.Validate].
//
// Tags: json names the key, doc explains it, secret marks what must never be shown, default tells what a zero value means
// where SetDefaults leaves it zero.
type Config struct {
	Azure      AzureConfig      `json:"azure" doc:"Azure identity of the node and the cluster it belongs to"`
	Agent      AgentConfig      `json:"agent" doc:"the agent itself"`
	Containerd ContainerdConfig `json:"containerd" doc:"the container runtime"`
	Kubernetes KubernetesConfig `json:"kubernetes" doc:"the Kubernetes release of the node"`
	CNI        CNIConfig        `json:"cni" doc:"the network plug-ins"`
	Runc       RuncConfig       `json:"runc" doc:"the low-level runtime"`
	Node       NodeConfig       `json:"node" doc:"the node as the cluster sees it"`
	Paths      PathsConfig      `json:"paths" doc:"where things lie on this host"`
	Npd        NPDConfig        `json:"npd" doc:"the node problem detector"`
}

// AzureConfig says who the node is in Azure. Exactly one of Arc (enabled), ServicePrincipal, ManagedIdentity and
// BootstrapToken is the way it authenticates.
type AzureConfig struct {
	SubscriptionID   string                  `json:"subscriptionId,omitempty" doc:"subscription of the node; required"`
	TenantID         string                  `json:"tenantId,omitempty" doc:"Entra tenant of the node; required"`
	Cloud            string                  `json:"cloud,omitempty" doc:"name of the Azure cloud"`
	ServicePrincipal *ServicePrincipalConfig `json:"servicePrincipal,omitempty" doc:"authenticate as a service principal"`
	ManagedIdentity  *ManagedIdentityConfig  `json:"managedIdentity,omitempty" doc:"authenticate as a managed identity; {} selects this mode"`
	BootstrapToken   *BootstrapTokenConfig   `json:"bootstrapToken,omitempty" doc:"join with a bootstrap token"`
	Arc              *ArcConfig              `json:"arc,omitempty" doc:"authenticate through Azure Arc"`
	TargetCluster    *TargetClusterConfig    `json:"targetCluster,omitempty" doc:"the AKS cluster to work for"`
}

// ServicePrincipalConfig selects authentication as a service principal; all three fields are needed. Printing it with
// package fmt does not show the secret.
type ServicePrincipalConfig struct {
	TenantID     string `json:"tenantId,omitempty" doc:"tenant of the service principal"`
	ClientID     string `json:"clientId,omitempty" doc:"application id of the service principal"`
	ClientSecret string `json:"clientSecret,omitempty" secret:"true" doc:"secret of the service principal"`
}

// ManagedIdentityConfig selects authentication as a managed identity by being there, even when empty.
type ManagedIdentityConfig struct {
	ClientID string `json:"clientId,omitempty" doc:"client id of a user-assigned identity; without it the system-assigned one"`
}

// BootstrapTokenConfig selects joining by a Kubernetes bootstrap token; it needs KubeletConfig.ServerURL and
// KubeletConfig.CACertData too. Printing it with package fmt does not show the token.
type BootstrapTokenConfig struct {
	Token string `json:"token,omitempty" secret:"true" doc:"six and sixteen of [a-z0-9] around a dot; needs node.kubelet.serverURL and node.kubelet.caCertData"`
}

// TargetClusterConfig names the AKS cluster. The fields without a key are derived from ResourceID by
// [Config.SetDefaults], in the letter case the id has, unless they are set already.
type TargetClusterConfig struct {
	ResourceID string `json:"resourceId,omitempty" doc:"ARM id of the managed cluster; required"`
	Location   string `json:"location,omitempty" doc:"Azure region of the cluster; required"`

	Name              string `json:"-"`
	ResourceGroup     string `json:"-"`
	SubscriptionID    string `json:"-"`
	NodeResourceGroup string `json:"-"` // MC_GROUP_NAME_LOCATION, as AKS names it by default
}

// ArcConfig is the registration of the machine with Azure Arc. It is an authentication mode only when Enabled.
type ArcConfig struct {
	Enabled       bool              `json:"enabled" doc:"whether the node authenticates through Azure Arc"`
	MachineName   string            `json:"machineName,omitempty" doc:"name of the Arc machine; without it the hostname"`
	Tags          map[string]string `json:"tags,omitempty" doc:"tags of the Arc machine"`
	ResourceGroup string            `json:"resourceGroup,omitempty" doc:"resource group of the Arc machine; without it the cluster's"`
	Location      string            `json:"location,omitempty" doc:"region of the Arc machine; without it the cluster's"`
}

// KubernetesConfig is the Kubernetes release a node is made of.
type KubernetesConfig struct {
	Version     string `json:"version,omitempty" doc:"Kubernetes version to install"`
	URLTemplate string `json:"urlTemplate,omitempty" doc:"where to load the node binaries from: a URL with %s for the version and %s for the architecture"`
}

// ContainerdConfig is about the container runtime.
type ContainerdConfig struct {
	Version        string `json:"version,omitempty" doc:"containerd version to install"`
	PauseImage     string `json:"pauseImage,omitempty" doc:"image of the pause container"`
	MetricsAddress string `json:"metricsAddress,omitempty" doc:"host:port of containerd's metrics"`
}

// RuncConfig is about the low-level runtime.
type RuncConfig struct {
	Version string `json:"version,omitempty" doc:"runc version to install"`
	URL     string `json:"url,omitempty" doc:"where to load runc from"`
}

// CNIConfig is about the network plug-ins.
type CNIConfig struct {
	Version string `json:"version,omitempty" doc:"version of the CNI plug-ins to install"`
}

// NPDConfig is about the node problem detector.
type NPDConfig struct {
	Version string `json:"version,omitempty" doc:"version of the node problem detector to install"`
}

// NodeConfig is the node as the cluster sees it.
type NodeConfig struct {
	// Name is an addition to the keys nodes have had so far: optional, and found out from the host when empty.
	Name    string            `json:"name,omitempty" doc:"name of the Kubernetes node; found out when empty"`
	MaxPods int               `json:"maxPods,omitempty" doc:"how many pods the node may run"`
	Labels  map[string]string `json:"labels,omitempty" doc:"labels of the node; kubernetes.azure.com/managed is always false"`
	Kubelet KubeletConfig     `json:"kubelet" doc:"the kubelet"`
}

// KubeletConfig is about the kubelet. Zero numbers mean the default, here as in all of Config.
type KubeletConfig struct {
	KubeReserved         map[string]string `json:"kubeReserved,omitempty" doc:"resources kept for Kubernetes, such as cpu=100m"`
	EvictionHard         map[string]string `json:"evictionHard,omitempty" doc:"hard eviction thresholds, such as memory.available=100Mi"`
	Verbosity            int               `json:"verbosity,omitempty" doc:"the kubelet's log verbosity"`
	ImageGCHighThreshold int               `json:"imageGCHighThreshold,omitempty" doc:"percent of disk use that starts image removal"`
	ImageGCLowThreshold  int               `json:"imageGCLowThreshold,omitempty" doc:"percent of disk use that ends image removal"`
	DNSServiceIP         string            `json:"dnsServiceIP,omitempty" doc:"IP address of the cluster's DNS service, or several with commas between"`
	ServerURL            string            `json:"serverURL,omitempty" doc:"URL of the API server"`
	CACertData           string            `json:"caCertData,omitempty" doc:"certificate authority of the API server, base64"`
	// Path and Kubeconfig are additions to the keys nodes have had so far: optional, and found out when empty.
	Path       string `json:"path,omitempty" doc:"path of the kubelet binary; found out when empty"`
	Kubeconfig string `json:"kubeconfig,omitempty" doc:"path of the kubelet's kubeconfig; found out when empty"`
}

// PathsConfig says where things lie on this host.
type PathsConfig struct {
	Kubernetes KubernetesPathsConfig `json:"kubernetes" doc:"folders of Kubernetes"`
}

// KubernetesPathsConfig holds the folders of Kubernetes; all are absolute paths. The middle three follow ConfigDir when
// they are not set themselves.
type KubernetesPathsConfig struct {
	ConfigDir       string `json:"configDir,omitempty" doc:"folder of the Kubernetes configuration"`
	CertsDir        string `json:"certsDir,omitempty" doc:"folder of certificates; certs in configDir by default"`
	ManifestsDir    string `json:"manifestsDir,omitempty" doc:"folder of static pods; manifests in configDir by default"`
	VolumePluginDir string `json:"volumePluginDir,omitempty" doc:"folder of volume plug-ins; volumeplugins in configDir by default"`
	KubeletDir      string `json:"kubeletDir,omitempty" doc:"folder of the kubelet's state"`
}
