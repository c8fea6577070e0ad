package token

import (
	"strings"
	"testing"
)

// clean takes every variable away that a login reads.
func clean(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AAD_LOGIN_METHOD", "AAD_SERVICE_PRINCIPAL_CLIENT_ID", "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET", "AAD_SERVICE_PRINCIPAL_CLIENT_CERTIFICATE",
		"AAD_SERVICE_PRINCIPAL_CLIENT_CERTIFICATE_PASSWORD", "AZURE_AUTHORITY_HOST", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_TENANT_ID",
	} {
		t.Setenv(name, "")
	}
}

func TestTheEnvironmentWinsOverTheCommandLine(t *testing.T) {
	clean(t)
	flags := Options{LoginMethod: "msi", TenantID: "flag", ClientID: "flag", ClientSecret: "flag", AuthorityHost: "https://flag/", FederatedTokenFile: "/flag",
		ServerID: "server", Environment: "AzureChinaCloud"}
	if got := withEnvironment(flags); got != flags {
		t.Errorf("without variables: got %+v, want %+v", got, flags)
	}
	for name, value := range map[string]string{
		"AAD_LOGIN_METHOD": "spn", "AZURE_TENANT_ID": "env", "AAD_SERVICE_PRINCIPAL_CLIENT_ID": "env-aad", "AZURE_CLIENT_ID": "env",
		"AAD_SERVICE_PRINCIPAL_CLIENT_SECRET": "env-aad", "AZURE_AUTHORITY_HOST": "https://env", "AZURE_FEDERATED_TOKEN_FILE": "/env",
	} {
		t.Setenv(name, value)
	}
	want := Options{LoginMethod: "spn", TenantID: "env", ClientID: "env", ClientSecret: "env-aad", AuthorityHost: "https://env/", FederatedTokenFile: "/env",
		ServerID: "server", Environment: "AzureChinaCloud"}
	if got := withEnvironment(flags); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWhatWouldFailForSureIsToldBeforeAnythingIsAsked(t *testing.T) {
	full := Options{LoginMethod: "spn", ServerID: "s", TenantID: "t", ClientID: "c", ClientSecret: "x"}
	for name, c := range map[string]struct {
		change func(*Options)
		want   string // empty: fine
	}{
		"all there":          {func(*Options) {}, ""},
		"certificate":        {func(o *Options) { o.ClientSecret, o.ClientCert = "", "/c" }, ""},
		"no server":          {func(o *Options) { o.ServerID = "" }, "--server-id"},
		"no method":          {func(o *Options) { o.LoginMethod = "" }, "AAD_LOGIN_METHOD"},
		"method for people":  {func(o *Options) { o.LoginMethod = "interactive" }, "can't be used on a node"},
		"long method":        {func(o *Options) { o.LoginMethod = strings.Repeat("x", 1000) }, "can't be used on a node"},
		"no tenant":          {func(o *Options) { o.TenantID = "" }, "needs AZURE_TENANT_ID,"},
		"no secret":          {func(o *Options) { o.ClientSecret = "" }, "needs AZURE_CLIENT_SECRET,"},
		"no token file":      {func(o *Options) { o.LoginMethod = "workloadidentity" }, "needs AZURE_FEDERATED_TOKEN_FILE,"},
		"identity by itself": {func(o *Options) { *o = Options{LoginMethod: "msi", ServerID: "s"} }, ""},
		"azure cli":          {func(o *Options) { *o = Options{LoginMethod: "azurecli", ServerID: "s"} }, ""},
		"authority":          {func(o *Options) { o.AuthorityHost = "https://login.microsoftonline.us/" }, ""},
		"authority's scheme": {func(o *Options) { o.AuthorityHost = "http://login.microsoftonline.us/" }, "https"},
		"authority's host":   {func(o *Options) { o.AuthorityHost = "https:///" }, "https"},
		"authority's secret": {func(o *Options) { o.AuthorityHost = "https://u:pass word@%zz/" }, "https"},
		"claims alone":       {func(o *Options) { o.PoPTokenClaims = "u=x" }, "--pop-enabled"},
		"claims missing":     {func(o *Options) { o.IsPoPTokenEnabled = true }, "--pop-claims"},
		"claims":             {func(o *Options) { o.IsPoPTokenEnabled, o.PoPTokenClaims = true, "u=x" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := full
			c.change(&o)
			err := check(&o)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && (len(err.Error()) > 400 || strings.Contains(err.Error(), "pass word")) {
				t.Errorf("got %q, want less", err)
			}
		})
	}
}
