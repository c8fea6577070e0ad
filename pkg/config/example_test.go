package config_test

import (
	"errors"
	"fmt"

	"github.com/aks-flex-node/agent/pkg/config"
)

// A config can be written down in Go; it is judged as it will be once it has its defaults.
func ExampleConfig_Validate() {
	cfg := &config.Config{
		Azure: config.AzureConfig{
			SubscriptionID: "00000000-0000-0000-0000-000000000001",
			Arc:            &config.ArcConfig{Enabled: true},
			TargetCluster: &config.TargetClusterConfig{
				ResourceID: "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg" +
					"/providers/Microsoft.ContainerService/managedClusters/edge",
				Location: "westeurope",
			},
		},
		Agent: config.AgentConfig{LogLevel: "loud"},
	}
	if mistakes, ok := errors.AsType[config.KeyErrors](cfg.Validate()); ok {
		for _, mistake := range mistakes {
			fmt.Println(mistake.Path, "-", mistake.Message)
		}
	}
	// Output:
	// azure.tenantId - required, but not set
	// agent.logLevel - want one of debug, info, warning, error, got "loud"
}
