//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/lab"
)

// certificate is where a kubelet's client certificate is, behind a link that its rotation moves.
const certificate = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// TestTheKubeletsCertificateIsRotatedAndExpires follows a node whose certificates last two minutes through a rotation, and, with its
// kubelet stopped, to their end.
func TestTheKubeletsCertificateIsRotatedAndExpires(t *testing.T) {
	t.Parallel()
	c := cluster(t, lab.ClusterOptions{NodeGrace: 10 * time.Minute, ClientCertDuration: 2 * time.Minute})
	h := join(t, c, lab.Program(t, "github.com/aks-flex-node/agent/cmd/aks-flex-node"), "n1", lab.JoinOptions{})
	w := startWatcher(t, h)
	lab.Must(t, recovered(t, w))
	first := h.MustExec(t, "readlink", "-f", certificate)
	sights := sample(t, w)
	lab.Must(t, lab.WaitFor(t.Context(), 4*time.Minute, "the kubelet renews its certificate", func(ctx context.Context) (bool, string) {
		out, err := h.Exec(ctx, "readlink", "-f", certificate)
		return err == nil && out.Stdout != first, out.Stdout
	}))
	wait(10 * time.Second) // the watcher's turn
	seen := sights.until(t, time.Minute, func(s sight) bool { return s.Node.Health == observe.Healthy })
	judgeSights(t, fault{}, seen)

	h.MustExec(t, "systemctl", "stop", "kubelet")
	end := strings.TrimSpace(h.MustExec(t, "openssl", "x509", "-noout", "-enddate", "-in", certificate))
	expires, err := time.Parse("notAfter=Jan _2 15:04:05 2006 MST", end)
	lab.Must(t, err)
	wait(time.Until(expires) + 2*time.Second)
	lab.Must(t, c.RestartAPI(t.Context())) // what stands would stand on
	lab.Must(t, lab.WaitFor(t.Context(), soon, "both ways say that the credentials are no good", func(context.Context) (bool, string) {
		snapshot, table := oneShot(t, h)
		s := w.look(t)
		return snapshot.KubeletReady == observe.ReadyUnknown && s.Node.Health == observe.Unknown && s.Node.Reason == "Unauthorized" &&
			strings.Contains(table, "Unauthorized"), fmt.Sprintf("watch: %+v\n%s", s.Node, table)
	}))
}

// plugin is a credential plugin that does what a file says. It is of root, as all that root runs must be.
const plugin = `#!/bin/sh
case "$(cat /root/plugin-mode)" in
  well) exec cat /root/credential.json ;;
  fail) echo "no token today" >&2; exit 3 ;;
  garbage) echo "<html>proxy</html>" ;;
  hang) exec sleep 600 ;;
esac
`

// TestAPluginThatMisbehavesIsNeverHeldAgainstTheNode looks with the credentials of a plugin in all its moods.
func TestAPluginThatMisbehavesIsNeverHeldAgainstTheNode(t *testing.T) {
	t.Parallel()
	c := cluster(t, lab.ClusterOptions{NodeGrace: 10 * time.Minute})
	h := join(t, c, lab.Program(t, "github.com/aks-flex-node/agent/cmd/aks-flex-node"), "n1", lab.JoinOptions{ExecPlugin: &lab.ExecPlugin{User: "node-by-plugin"}})
	// The kubelet keeps its own plugin, which prints a file; ours prints the same when it is well.
	h.MustExec(t, "sh", "-ec", `f=$(grep -o '/[^", ]*\.json' `+kubeconfig+` | head -n 1); cp "$f" /root/credential.json
		sed 's|/bin/cat|/usr/local/bin/plugin|' `+kubeconfig+` >/etc/kubernetes/agent.conf; chmod 600 /etc/kubernetes/agent.conf; grep -q /usr/local/bin/plugin /etc/kubernetes/agent.conf`)
	lab.Must(t, h.WriteFile(t.Context(), "/usr/local/bin/plugin", []byte(plugin), 0o755))
	lab.Must(t, h.WriteFile(t.Context(), "/etc/aks-flex-node/config.json", []byte(`{"node":{"kubelet":{"kubeconfig":"/etc/kubernetes/agent.conf"}}}`), 0o600))
	// The kubelet's command line names its own kubeconfig, which comes first: take it away from the agent's eyes.
	h.MustExec(t, "sh", "-ec", "systemctl stop kubelet; sed -i 's|--kubeconfig=[^ ]*||' /etc/systemd/system/kubelet.service; systemctl daemon-reload")
	for mode, want := range map[string]string{
		"well": "NodeReady", "fail": "CredentialPluginFailed", "garbage": "CredentialPluginFailed", "hang": "CredentialPluginFailed|Timeout",
	} {
		t.Run(mode, func(t *testing.T) {
			lab.Must(t, h.WriteFile(t.Context(), "/root/plugin-mode", []byte(mode), 0o644))
			snapshot, table := oneShot(t, h)
			found := false
			for w := range strings.SplitSeq(want, "|") {
				found = found || strings.Contains(table, w)
			}
			if !found || (snapshot.KubeletReady == observe.Ready) != (mode == "well") || snapshot.KubeletReady == observe.NotReady {
				t.Errorf("got %s, want %s\n%s", snapshot.KubeletReady, want, table)
			}
			if left := strings.TrimSpace(h.MustExec(t, "sh", "-c", "pgrep -fc 'sleep 600' || true")); left > "1" { // pgrep's own shell is one
				t.Errorf("the plugin was left running: %s", left)
			}
		})
	}
}

// TestWithoutRightsTheReasonIsTold looks as somebody who may not read the kubelet's credentials, and as a node without rights.
func TestWithoutRightsTheReasonIsTold(t *testing.T) {
	t.Parallel()
	c := cluster(t, lab.ClusterOptions{})
	h := join(t, c, lab.Program(t, "github.com/aks-flex-node/agent/cmd/aks-flex-node"), "n1", lab.JoinOptions{})
	out, err := h.Exec(t.Context(), "setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "aks-flex-node", "status", "-o", "wide")
	lab.Must(t, err)
	if !strings.Contains(out.Stdout, "KubeconfigUnreadable") || out.Code != 11 {
		t.Errorf("as another user: got exit %d\n%s\nwant KubeconfigUnreadable and exit 11", out.Code, out.Stdout)
	}
	lab.Must(t, lab.WaitFor(t.Context(), soon, "the kubelet has a Lease", func(context.Context) (bool, string) {
		_, table := oneShot(t, h)
		return strings.Contains(table, "its Lease was renewed"), table
	}))
	stranger, err := c.Kubeconfig("stranger")
	lab.Must(t, err)
	h.MustExec(t, "systemctl", "stop", "kubelet")
	lab.Must(t, h.WriteFile(t.Context(), kubeconfig, stranger, 0o600))
	if snapshot, table := oneShot(t, h); snapshot.KubeletReady != observe.ReadyUnknown || !strings.Contains(table, "Forbidden") {
		t.Errorf("without rights: got %s\n%s\nwant Forbidden", snapshot.KubeletReady, table)
	}

	// What deploy/ gives is enough, for a look and for a watch, and gives no more.
	manifest, err := os.ReadFile("../../deploy/rbac.yaml")
	lab.Must(t, err)
	lab.Must(t, c.Apply(t.Context(), strings.ReplaceAll(string(manifest), "REPLACE-WITH-THE-OBJECT-ID-OF-THE-NODES-IDENTITY", "stranger")))
	lab.Must(t, lab.WaitFor(t.Context(), soon, "the rights of deploy/ are enough", func(context.Context) (bool, string) {
		_, table := oneShot(t, h)
		return strings.Contains(table, "of node n1") && strings.Contains(table, "its Lease was renewed"), table
	}))
	w := startWatcher(t, h)
	lab.Must(t, lab.WaitFor(t.Context(), soon, "they are enough for a watch", func(context.Context) (bool, string) {
		s := w.look(t)
		return s.Node.Known() && s.Node.Value.Name == "n1", fmt.Sprintf("%+v", s.Node)
	}))
	for what, want := range map[string]string{
		"get nodes": "yes", "watch nodes": "yes", "get leases.coordination.k8s.io -n kube-node-lease": "yes", "patch nodes --subresource=status": "yes", "create events": "yes",
		"patch nodes": "no", "delete nodes": "no", "get secrets": "no", "list pods": "no", "create pods": "no", "update leases.coordination.k8s.io -n kube-node-lease": "no",
	} {
		got, err := c.Kubectl(t.Context(), append([]string{"auth", "can-i", "--as=stranger"}, strings.Fields(what)...)...)
		if strings.TrimSpace(got) != want && (err == nil || !strings.Contains(got+err.Error(), want)) {
			t.Errorf("may %s: got %q, %v, want %s", what, got, err, want)
		}
	}
}
