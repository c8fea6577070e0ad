package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestMethodsOfAbsentSections(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var none *Config
	none.SetDefaults()
	for name, cfg := range map[string]*Config{"nil": none, "empty": {}} {
		t.Run(name, func(t *testing.T) {
			for method, got := range map[string]bool{
				"IsARCEnabled": cfg.IsARCEnabled(), "IsSPConfigured": cfg.IsSPConfigured(),
				"IsMIConfigured": cfg.IsMIConfigured(), "IsBootstrapTokenConfigured": cfg.IsBootstrapTokenConfigured(),
			} {
				if got {
					t.Errorf("%s: got true, want false", method)
				}
			}
			for method, got := range map[string]string{
				"GetArcLocation": cfg.GetArcLocation(), "GetArcResourceGroup": cfg.GetArcResourceGroup(),
				"GetTargetClusterName": cfg.GetTargetClusterName(), "GetTargetClusterResourceGroup": cfg.GetTargetClusterResourceGroup(),
				"GetTargetClusterSubscriptionID": cfg.GetTargetClusterSubscriptionID(), "GetTargetClusterID": cfg.GetTargetClusterID(),
				"GetTargetClusterLocation": cfg.GetTargetClusterLocation(), "GetSubscriptionID": cfg.GetSubscriptionID(),
				"GetTenantID": cfg.GetTenantID(), "GetKubernetesVersion": cfg.GetKubernetesVersion(),
			} {
				if got != "" {
					t.Errorf("%s: got %q, want nothing", method, got)
				}
			}
			if got := cfg.GetArcMachineName(); got != host {
				t.Errorf("GetArcMachineName: got %q, want the hostname %q", got, host)
			}
			if got := cfg.GetArcTags(); got == nil || len(got) != 0 {
				t.Errorf("GetArcTags: got %#v, want an empty map", got)
			}
			if got := cfg.IsDriftDetectionAndRemediationEnabled(); got != (cfg != nil) {
				t.Errorf("IsDriftDetectionAndRemediationEnabled: got %v, want %v", got, cfg != nil)
			}
		})
	}
}

func TestMethodsOfAConfig(t *testing.T) {
	cfg := &Config{
		Azure: AzureConfig{SubscriptionID: "sub", TenantID: "tenant", Arc: &ArcConfig{Enabled: true},
			TargetCluster: &TargetClusterConfig{ResourceID: clusterResourceID, Location: "westeurope"}},
		Kubernetes: KubernetesConfig{Version: "v1.32.7"},
		Agent:      AgentConfig{EnableDriftDetectionAndRemediation: new(false)},
	}
	for method, c := range map[string]struct{ got, want string }{
		"GetArcLocation":                 {cfg.GetArcLocation(), "westeurope"},
		"GetArcResourceGroup":            {cfg.GetArcResourceGroup(), "rg-C"},
		"GetTargetClusterName":           {cfg.GetTargetClusterName(), "Cluster-1"},
		"GetTargetClusterResourceGroup":  {cfg.GetTargetClusterResourceGroup(), "rg-C"},
		"GetTargetClusterSubscriptionID": {cfg.GetTargetClusterSubscriptionID(), "sub-C"},
		"GetTargetClusterID":             {cfg.GetTargetClusterID(), clusterResourceID},
		"GetTargetClusterLocation":       {cfg.GetTargetClusterLocation(), "westeurope"},
		"GetSubscriptionID":              {cfg.GetSubscriptionID(), "sub"},
		"GetTenantID":                    {cfg.GetTenantID(), "tenant"},
		"GetKubernetesVersion":           {cfg.GetKubernetesVersion(), "v1.32.7"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", method, c.got, c.want)
		}
	}
	if cfg.IsDriftDetectionAndRemediationEnabled() {
		t.Error("IsDriftDetectionAndRemediationEnabled: got true, want false as set")
	}
	if !cfg.IsARCEnabled() {
		t.Error("IsARCEnabled: got false, want true")
	}
	cfg.Azure.Arc = &ArcConfig{MachineName: "m", Location: "l", ResourceGroup: "g", Tags: map[string]string{"a": "b"}}
	wantLines(t, []string{cfg.GetArcMachineName(), cfg.GetArcLocation(), cfg.GetArcResourceGroup()}, []string{"m", "l", "g"})
	cfg.GetArcTags()["a"] = "changed"
	if got := cfg.Azure.Arc.Tags["a"]; got != "b" {
		t.Errorf("a change of GetArcTags' map: got %q in the config, want it untouched", got)
	}
}

func TestServicePrincipalNeedsAllThree(t *testing.T) {
	all := ServicePrincipalConfig{TenantID: "t", ClientID: "i", ClientSecret: "not-a-real-secret"}
	for i := range 4 {
		sp := all
		if i < 3 {
			reflect.ValueOf(&sp).Elem().Field(i).SetString("")
		}
		cfg := &Config{Azure: AzureConfig{ServicePrincipal: &sp}}
		if got, want := cfg.IsSPConfigured(), i == 3; got != want {
			t.Errorf("without field %d: got %v, want %v", i, got, want)
		}
	}
}

func TestDerivedFields(t *testing.T) {
	cluster := &TargetClusterConfig{ResourceID: strings.Replace(clusterResourceID, "resourceGroups", "RESOURCEGROUPS", 1), Location: "West Europe"}
	cfg := &Config{Azure: AzureConfig{TargetCluster: cluster}}
	cfg.SetDefaults()
	got := []string{cluster.SubscriptionID, cluster.ResourceGroup, cluster.Name, cluster.NodeResourceGroup}
	wantLines(t, got, []string{"sub-C", "rg-C", "Cluster-1", "MC_rg-C_Cluster-1_West Europe"})

	own := &TargetClusterConfig{ResourceID: clusterResourceID, Location: "l", NodeResourceGroup: "mine"}
	(&Config{Azure: AzureConfig{TargetCluster: own}}).SetDefaults()
	if own.NodeResourceGroup != "mine" {
		t.Errorf("a node resource group that was set: got %q, want it kept", own.NodeResourceGroup)
	}
}

func TestSetDefaultsKeepsWhatIsSet(t *testing.T) {
	labels := map[string]string{"a": "b", managedLabel: "true"}
	cfg := &Config{Node: NodeConfig{Labels: labels}, Paths: PathsConfig{Kubernetes: KubernetesPathsConfig{ConfigDir: "/k", CertsDir: "/certs"}}}
	cfg.SetDefaults()
	want := KubernetesPathsConfig{ConfigDir: "/k", CertsDir: "/certs", ManifestsDir: "/k/manifests",
		VolumePluginDir: "/k/volumeplugins", KubeletDir: "/var/lib/kubelet"}
	if cfg.Paths.Kubernetes != want {
		t.Errorf("paths: got %+v, want %+v", cfg.Paths.Kubernetes, want)
	}
	if want := map[string]string{"a": "b", managedLabel: "false"}; !reflect.DeepEqual(cfg.Node.Labels, want) {
		t.Errorf("labels: got %v, want %v", cfg.Node.Labels, want)
	}
	if labels[managedLabel] != "true" {
		t.Error("the caller's own map was changed")
	}
	once := cfg.clone()
	cfg.SetDefaults()
	if !reflect.DeepEqual(cfg, once) {
		t.Errorf("a second time: got %v, want no change from %v", cfg, once)
	}
}
