package token

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	kubelogin "github.com/Azure/kubelogin/pkg/token"
)

// azureCLILogin is a login method that the library has and does not list for its users. Kubeconfigs made by hand for a test use it.
const azureCLILogin = "azurecli"

// Methods returns the login methods, in the order in which to tell them.
func Methods() []string {
	return []string{kubelogin.ServicePrincipalLogin, kubelogin.MSILogin, kubelogin.WorkloadIdentityLogin, azureCLILogin}
}

// withEnvironment returns the options with what the environment sets, which wins as in kubelogin.
func withEnvironment(o Options) Options {
	env := kubelogin.OptionsWithEnv()
	for _, v := range []struct {
		to   *string
		from string
	}{
		{&o.LoginMethod, env.LoginMethod},
		{&o.TenantID, env.TenantID},
		{&o.ClientID, env.ClientID},
		{&o.ClientSecret, env.ClientSecret},
		{&o.ClientCert, env.ClientCert},
		{&o.ClientCertPassword, env.ClientCertPassword},
		{&o.AuthorityHost, env.AuthorityHost},
		{&o.FederatedTokenFile, env.FederatedTokenFile},
	} {
		if v.from != "" {
			*v.to = v.from
		}
	}
	if o.AuthorityHost != "" && !strings.HasSuffix(o.AuthorityHost, "/") {
		o.AuthorityHost += "/" // some logins of the library just append the tenant
	}
	return o
}

// check finds what would fail for sure, before anything is asked over the network, and says which settings mend it.
func check(o *Options) error {
	switch {
	case o.ServerID == "":
		return errors.New("--server-id is empty: it is the application ID of the cluster's API server, for AKS 6dae42f8-4368-4678-94ff-3960e28e3630")
	case o.LoginMethod == "":
		return fmt.Errorf("no login method: set AAD_LOGIN_METHOD to one of %s, in the env list of the kubeconfig's exec section", strings.Join(Methods(), ", "))
	case !slices.Contains(Methods(), o.LoginMethod):
		return fmt.Errorf("login method %.40q can't be used on a node: set AAD_LOGIN_METHOD to one of %s", o.LoginMethod, strings.Join(Methods(), ", "))
	case o.IsPoPTokenEnabled && o.PoPTokenClaims == "":
		return errors.New("--pop-enabled needs --pop-claims, such as u=RESOURCE-ID-OF-THE-CLUSTER")
	case o.PoPTokenClaims != "" && !o.IsPoPTokenEnabled:
		return errors.New("--pop-claims needs --pop-enabled")
	}
	if o.AuthorityHost != "" {
		if u, err := url.Parse(o.AuthorityHost); err != nil || u.Scheme != "https" || u.Host == "" {
			return errors.New("AZURE_AUTHORITY_HOST is no https URL of a host, such as https://login.microsoftonline.com/")
		}
	}
	if names := missing(o); len(names) > 0 {
		return fmt.Errorf("login method %s needs %s, in the env list of the kubeconfig's exec section", o.LoginMethod, strings.Join(names, ", "))
	}
	return nil
}

// missing names the environment variables without which a login method can't work, of those that are not set.
func missing(o *Options) []string {
	var names []string
	need := func(value, name string) {
		if value == "" {
			names = append(names, name)
		}
	}
	switch o.LoginMethod {
	case kubelogin.ServicePrincipalLogin:
		need(o.TenantID, "AZURE_TENANT_ID")
		need(o.ClientID, "AZURE_CLIENT_ID")
		need(o.ClientSecret+o.ClientCert, "AZURE_CLIENT_SECRET")
	case kubelogin.WorkloadIdentityLogin:
		need(o.TenantID, "AZURE_TENANT_ID")
		need(o.ClientID, "AZURE_CLIENT_ID")
		need(o.FederatedTokenFile, "AZURE_FEDERATED_TOKEN_FILE")
	}
	return names
}
