package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const fakeSecret, fakeToken = "not-a-real-secret", "abcdef.0123456789abcdef"

func withSecrets() *Config {
	return &Config{
		Azure: AzureConfig{
			ServicePrincipal: &ServicePrincipalConfig{TenantID: "t", ClientID: "the-client", ClientSecret: fakeSecret},
			BootstrapToken:   &BootstrapTokenConfig{Token: fakeToken},
			Arc:              &ArcConfig{Tags: map[string]string{"a": "b"}},
			TargetCluster:    &TargetClusterConfig{Name: "derived"},
		},
		Agent: AgentConfig{EnableDriftDetectionAndRemediation: new(true), Bootstrap: AgentBootstrapConfig{Command: []string{"/b"}},
			MaintenanceWindow: &MaintenanceWindowConfig{Start: "22:00", Days: []string{"Mon"}}},
		Node: NodeConfig{Labels: map[string]string{"a": "b"}},
	}
}

func TestRedactedIsADeepCopyWithoutSecrets(t *testing.T) {
	cfg := withSecrets()
	safe := cfg.Redacted()
	if got := []string{safe.Azure.ServicePrincipal.ClientSecret, safe.Azure.BootstrapToken.Token}; !slices.Equal(got, []string{redacted, redacted}) {
		t.Errorf("got %q, want both redacted", got)
	}
	safe.Azure.ServicePrincipal.ClientSecret, safe.Azure.BootstrapToken.Token = fakeSecret, fakeToken
	if !reflect.DeepEqual(safe, cfg) {
		t.Errorf("apart from secrets: got %v, want %v", safe, cfg)
	}
	safe.Azure.Arc.Tags["a"], safe.Node.Labels["a"] = "x", "x"
	safe.Azure.TargetCluster.Name, *safe.Agent.EnableDriftDetectionAndRemediation = "x", false
	safe.Agent.Bootstrap.Command[0], safe.Agent.MaintenanceWindow.Start, safe.Agent.MaintenanceWindow.Days[0] = "x", "x", "x"
	if !reflect.DeepEqual(cfg, withSecrets()) {
		t.Errorf("after changes to the copy: got %v, want the original as it was", cfg)
	}
	if got := (&Config{Azure: AzureConfig{BootstrapToken: &BootstrapTokenConfig{}}}).Redacted().Azure.BootstrapToken.Token; got != "" {
		t.Errorf("a secret that is not set: got %q, want nothing", got)
	}
	var none *Config
	if none.Redacted() != nil || none.Secrets() != nil {
		t.Error("nil: want nil")
	}
}

func TestSecrets(t *testing.T) {
	wantLines(t, withSecrets().Secrets(), []string{fakeSecret, fakeToken})
	wantLines(t, (&Config{}).Secrets(), nil)
}

func TestPrintingShowsNoSecret(t *testing.T) {
	cfg := withSecrets()
	values := map[string]any{
		"config": *cfg, "pointer to config": cfg, "azure": cfg.Azure, "pointer to azure": &cfg.Azure,
		"service principal": *cfg.Azure.ServicePrincipal, "pointer to service principal": cfg.Azure.ServicePrincipal,
		"token": *cfg.Azure.BootstrapToken, "slice": []*Config{cfg}, "map": map[string]Config{"a": *cfg},
	}
	for name, value := range values {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T %[1]v"} {
			got := fmt.Sprintf(format, value)
			for _, secret := range []string{fakeSecret, fakeToken, fmt.Sprintf("%x", fakeSecret), fmt.Sprintf("%x", fakeToken)} {
				if strings.Contains(got, secret) {
					t.Errorf("%s of the %s: got %s, want no secret", format, name, got)
				}
			}
		}
	}
	if got := fmt.Sprint(cfg); !strings.Contains(got, "the-client") || !strings.Contains(got, redacted) || !json.Valid([]byte(got)) {
		t.Errorf("got %s, want JSON with what is no secret and the placeholder", got)
	}
	var none *Config
	if got := fmt.Sprintf("%v %v %v", none, none.String(), (*ServicePrincipalConfig)(nil)); !strings.HasSuffix(got, "null <nil>") {
		t.Errorf("nil: got %q, want null", got)
	}
}

// A struct that gets a secret later must not print it either.
func TestEveryStructWithASecretHidesIt(t *testing.T) {
	found := 0
	for _, k := range allKeys() {
		if !k.Secret {
			continue
		}
		found++
		parent := k
		parent.fields = k.fields[:len(k.fields)-1]
		section := fieldOf(&Config{}, parent)
		if _, ok := reflect.TypeAssert[fmt.Formatter](section); !ok {
			t.Errorf("%s: %s has no Format method, so that printing it shows the secret", k.Path, section.Type())
		}
	}
	if found != 2 {
		t.Errorf("got %d secrets, want clientSecret and token", found)
	}
}

func TestThePlaceholderIsNoSecret(t *testing.T) {
	data := completeWith(t, "azure.managedIdentity", "", "azure.servicePrincipal",
		`{"tenantId": "t", "clientId": "i", "clientSecret": "[redacted]"}`)
	wantLines(t, mistakes(t, data),
		[]string{"azure.servicePrincipal.clientSecret: is the placeholder [redacted], not the secret itself; put the secret in"})
}

func TestMistakesKeepSecretsToThemselves(t *testing.T) {
	for _, value := range []string{`5150`, `["` + fakeSecret + `"]`, `{"x": "` + fakeSecret + `"}`} {
		for _, path := range []string{"azure.servicePrincipal.clientSecret", "azure.servicePrincipal", "azure.bootstrapToken"} {
			_, err := load("config.json", completeWith(t, path, value), 0o600, nil)
			if err != nil && (strings.Contains(err.Error(), fakeSecret) || strings.Contains(err.Error(), "5150")) {
				t.Errorf("%s of %s: got %v, want no value", value, path, err)
			}
		}
	}
}
