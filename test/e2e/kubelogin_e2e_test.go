//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/fakeentra"
	"github.com/aks-flex-node/agent/test/lab"
)

// serverID is the application that stands for the API server of every AKS cluster.
const serverID = "6dae42f8-4368-4678-94ff-3960e28e3630"

// TestANodeGoesOnWhenOurProgramTakesThePlaceOfTheFormer joins a node in the way of those in the field, whose kubeconfig runs
// "/usr/local/bin/aks-flex-node token kubelogin", with something else in that place; then puts our program there.
func TestANodeGoesOnWhenOurProgramTakesThePlaceOfTheFormer(t *testing.T) {
	t.Parallel()
	lab.Require(t, lab.ClusterPrograms()...)
	sw := lab.NewSwitch(t, netip.MustParsePrefix("10.88.0.1/24"))
	entra := startEntra(t, sw)
	c := cluster(t, lab.ClusterOptions{Switch: sw, OIDC: &lab.OIDC{IssuerURL: entra.Issuer(), CA: entra.CA(), Audience: serverID, UsernameClaim: "oid"}})
	h, err := c.AddHost(t.Context(), "n1", lab.JoinOptions{ExecPlugin: &lab.ExecPlugin{
		User: fakeentra.DefaultObjectID,
		Argv: []string{agentPath, "token", "kubelogin", "--server-id", serverID},
		Env: map[string]string{
			"AAD_LOGIN_METHOD": "spn", "AZURE_TENANT_ID": entra.Tenant(), "AZURE_CLIENT_ID": "node", "AZURE_CLIENT_SECRET": "of-the-node",
			"AZURE_AUTHORITY_HOST": entra.Authority(), "SSL_CERT_FILE": "/etc/entra.pem",
			"NO_PROXY":    "10.88.0.1",
			"HTTPS_PROXY": entra.PlainURL(), // leads the public authority, which is asked whether it knows ours, to ours
		},
	}})
	lab.Must(t, err)
	lab.Must(t, h.WriteFile(t.Context(), "/etc/entra.pem", entra.CA(), 0o644))
	t.Cleanup(func() {
		if t.Failed() {
			out, err := h.Exec(context.WithoutCancel(t.Context()), "sh", "-c", "journalctl -u kubelet --no-pager | grep -v mirror | tail -n 60")
			t.Logf("log of the kubelet: %v\n%s", err, out.Stdout)
		}
	})
	formerAgent(t, h, entra)
	lab.Must(t, c.Bootstrap(t.Context(), h))
	if seen := entra.Seen(); len(seen) != 0 {
		t.Errorf("before our program came: got the requests %v, want none", seen)
	}

	lab.Must(t, h.CopyIn(t.Context(), lab.Program(t, "github.com/aks-flex-node/agent/cmd/aks-flex-node"), agentPath, 0o755))
	renewed := time.Now()
	h.MustExec(t, "systemctl", "restart", "kubelet") // as a reboot would: now the kubelet has to ask our program
	lab.Must(t, lab.WaitFor(t.Context(), soon, "the kubelet reports with a token of ours", func(ctx context.Context) (bool, string) {
		node, err := c.Node(ctx, "n1")
		if err != nil {
			return false, err.Error()
		}
		ready := readyCondition(node)
		return ready.Status == corev1.ConditionTrue && ready.LastHeartbeatTime.After(renewed) && len(entra.Seen()) > 0, fmt.Sprintf("%+v, %v", ready, entra.Seen())
	}))
	snapshot, table := oneShot(t, h)
	if snapshot.KubeletReady != observe.Ready {
		t.Errorf("got %s, want Ready\n%s", snapshot.KubeletReady, table)
	}
	// And when Entra refuses, the kubelet keeps its token, and status says what is wrong instead of blaming the node.
	entra.Configure(func(a *fakeentra.Answers) { a.Secrets = map[string]string{"node": "another"} })
	snapshot, table = oneShot(t, h)
	if snapshot.KubeletReady != observe.ReadyUnknown || !strings.Contains(table, "CredentialPluginFailed") || strings.Contains(table, "of-the-node") {
		t.Errorf("with a wrong secret: got %s, want Unknown, CredentialPluginFailed and no secret\n%s", snapshot.KubeletReady, table)
	}
}

func startEntra(t *testing.T, sw *lab.Switch) *fakeentra.Server {
	t.Helper()
	tls, err := sw.Listen(t.Context(), "tcp", "10.88.0.1:8443")
	lab.Must(t, err)
	plain, err := sw.Listen(t.Context(), "tcp", "10.88.0.1:8080")
	lab.Must(t, err)
	entra, err := fakeentra.Start(fakeentra.Options{Dir: t.TempDir(), Listener: tls, PlainListener: plain, Hosts: []string{"10.88.0.1"}})
	lab.Must(t, err)
	t.Cleanup(entra.Close)
	entra.Configure(func(a *fakeentra.Answers) { a.Secrets = map[string]string{"node": "of-the-node"} })
	return entra
}

// formerAgent puts something in our program's place that answers as the former agent did: with a token of the same issuer.
func formerAgent(t *testing.T, h *lab.Host, entra *fakeentra.Server) {
	t.Helper()
	token, err := entra.Token(map[string]any{"aud": serverID})
	lab.Must(t, err)
	answer, err := json.Marshal(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
		"status": map[string]any{"token": token, "expirationTimestamp": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
	})
	lab.Must(t, err)
	lab.Must(t, h.WriteFile(t.Context(), "/root/former.json", answer, 0o600))
	lab.Must(t, h.WriteFile(t.Context(), agentPath, []byte("#!/bin/sh\n[ \"$1 $2\" = \"token kubelogin\" ] && exec cat /root/former.json\n"), 0o755))
}
