package cli

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aks-flex-node/agent/internal/token"
)

func newToken(c *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Get credentials for the cluster",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenKubelogin(c))
	return cmd
}

func newTokenKubelogin(c *common) *cobra.Command {
	r := token.Request{}
	cmd := &cobra.Command{
		Use:   "kubelogin",
		Short: "Get an Entra token, as a credential plugin of a kubeconfig",
		Long: `kubelogin prints an ExecCredential with an Entra token for the cluster, and nothing else. The kubelet's kubeconfig
runs it. Its settings are those of github.com/Azure/kubelogin: environment variables win over flags.

  AAD_LOGIN_METHOD            ` + strings.Join(token.Methods(), ", ") + `
  AZURE_TENANT_ID             tenant of the service principal
  AZURE_CLIENT_ID             service principal, or managed identity if there are several
  AZURE_CLIENT_SECRET         or AZURE_CLIENT_CERTIFICATE_PATH and AZURE_CLIENT_CERTIFICATE_PASSWORD
  AZURE_FEDERATED_TOKEN_FILE  token of login method workloadidentity
  AZURE_AUTHORITY_HOST        login endpoint, if it isn't that of the public cloud
  KUBERNETES_EXEC_INFO        set by the client that runs this: v1 or v1beta1

Tokens are not kept: clients keep them until they end.

Exit status: 0 here is a token, 1 there is none; standard error says why.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.ExecInfo = os.Getenv("KUBERNETES_EXEC_INFO")
			if r.Timeout <= 0 {
				return errors.New("--timeout must be greater than 0")
			}
			answer, notes, err := token.ExecCredential(cmd.Context(), r)
			for _, n := range notes {
				c.note("aks-flex-node: %s", n)
			}
			if err != nil {
				return err
			}
			return c.print(string(answer))
		},
	}
	o, flags := &r.Options, cmd.Flags()
	flags.StringVar(&o.ServerID, "server-id", "", "application `ID` of the cluster's API server (required)")
	flags.BoolVar(&o.IsPoPTokenEnabled, "pop-enabled", false, "get a proof-of-possession token (login method spn)")
	flags.StringVar(&o.PoPTokenClaims, "pop-claims", "", "`claims` of that token: u=RESOURCE-ID-OF-THE-CLUSTER")
	flags.StringVarP(&o.LoginMethod, "login", "l", "", "login `method`, if AAD_LOGIN_METHOD is not set")
	flags.StringVarP(&o.TenantID, "tenant-id", "t", "", "`ID` of the tenant, if AZURE_TENANT_ID is not set")
	flags.StringVar(&o.ClientID, "client-id", "", "`ID` of the service principal or managed identity, if AZURE_CLIENT_ID is not set")
	flags.StringVar(&o.IdentityResourceID, "identity-resource-id", "", "resource `ID` of the managed identity")
	flags.StringVarP(&o.Environment, "environment", "e", "AzurePublicCloud", "`cloud`: AzurePublicCloud, AzureUSGovernmentCloud, AzureChinaCloud")
	flags.StringVar(&o.AuthorityHost, "authority-host", "", "`URL` of the login endpoint, if AZURE_AUTHORITY_HOST is not set")
	flags.StringVar(&o.FederatedTokenFile, "federated-token-file", "", "`file`, if AZURE_FEDERATED_TOKEN_FILE is not set")
	flags.StringVar(&o.ClientCert, "client-certificate", "", "`file` in PEM or PFX, if AZURE_CLIENT_CERTIFICATE_PATH is not set")
	flags.DurationVar(&r.Timeout, "timeout", token.DefaultTimeout, "longest `time` that getting a token may take")
	// Everyone on this machine can read a command line. Kubeconfigs made for kubelogin may have it, so it works; it is not told.
	flags.StringVar(&o.ClientSecret, "client-secret", "", "secret of the service principal")
	flags.StringVar(&o.ClientCertPassword, "client-certificate-password", "", "password of the certificate")
	// These fail for flags that don't exist.
	_ = flags.MarkHidden("client-secret")
	_ = flags.MarkHidden("client-certificate-password")
	return cmd
}
