//go:build linux

package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// requestWithin bounds one look at the API server, so that one that hangs shows as such.
const requestWithin = 5 * time.Second

// connect makes the client of the lab itself: with all rights, hindered neither by what is done to the links of hosts nor by
// a serving certificate of OtherCA. Nothing is sent yet.
func (c *Cluster) connect() error {
	pair, err := c.CA.ClientCert("lab", "system:masters")
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	trust := x509.NewCertPool()
	trust.AddCert(c.CA.cert)
	trust.AddCert(c.OtherCA.cert)
	c.http = &http.Client{
		Timeout: shortly,
		Transport: &http.Transport{
			DialContext:     c.Switch.Dial,
			TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: trust},
		},
	}
	return nil
}

// Do sends a request to the API server with all rights, by the user agent "lab". The path is like "/api/v1/nodes/n1";
// body, unless nil, is sent as JSON, to PATCH as a strategic merge patch; the answer is read into the struct or map that
// into points to, unless nil. A refusal is an error that apierrors.IsNotFound and the like know. It gives up after 20 s.
func (c *Cluster) Do(ctx context.Context, method, path string, body, into any) error {
	if err := c.do(ctx, method, path, body, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

func (c *Cluster) do(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Server()+path, content)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "lab")
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return refusal(resp.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// refusal makes an error of an answer that is none of success. It need not be of the API: /readyz answers with plain text.
func refusal(code int, text []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil || status.Kind != "Status" {
		return fmt.Errorf("status %d: %.500s", code, bytes.TrimSpace(text))
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// create makes an object by posting it to its collection. That it exists already is no error.
func (c *Cluster) create(ctx context.Context, collection string, object any) error {
	if err := c.Do(ctx, http.MethodPost, collection, object, nil); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// Kubectl runs kubectl with all rights in the switch's network and returns what it printed. An exit code other than 0 is
// an error that shows its complaint.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// Apply makes the objects of a manifest, YAML or JSON, exist as it says. Objects without a namespace go to "default".
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	_, err := c.kubectl(ctx, manifest, "apply", "--filename=-")
	return err
}

func (c *Cluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := c.command(ctx, append([]string{filepath.Join(c.tools, "kubectl"), "--kubeconfig=" + c.path(adminConf)}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Kubeconfig returns a kubeconfig with a fresh client certificate of this user, a member of these groups: for instance
// "system:node:n1" in "system:nodes". It trusts CA and works in the switch's network and on hosts. What the user may do
// is for the caller to grant; see Grant.
func (c *Cluster) Kubeconfig(user string, groups ...string) ([]byte, error) {
	return c.kubeconfig(c.CA.PEM(), user, groups...)
}

func (c *Cluster) kubeconfig(trust []byte, user string, groups ...string) ([]byte, error) {
	pair, err := c.CA.ClientCert(user, groups...)
	if err != nil {
		return nil, fmt.Errorf("make kubeconfig: %w", err)
	}
	return c.writeConfig(
		&clientcmdapi.Cluster{CertificateAuthorityData: trust},
		&clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key},
	)
}

// writeConfig puts a kubeconfig together.
func (c *Cluster) writeConfig(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) ([]byte, error) {
	const name = "lab"
	cluster.Server = c.Server()
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("make kubeconfig: %w", err)
	}
	return text, nil
}

// Grant gives a user the rights of a ClusterRole, such as "system:node", in the whole cluster. Granting again does nothing.
func (c *Cluster) Grant(ctx context.Context, role, user string) error {
	return c.grant(ctx, role, rbacv1.UserKind, user)
}

func (c *Cluster) grant(ctx context.Context, role, kind, name string) error {
	return c.create(ctx, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "lab:" + role + ":" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}},
	})
}

// Node reads a Node object.
func (c *Cluster) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, c.Do(ctx, http.MethodGet, "/api/v1/nodes/"+name, nil, node)
}

// WaitReady waits until a node's Ready condition has this status. It becomes Unknown within NodeGrace and a second or two
// from when the node fell silent, and True within 0.2 s from the start of its kubelet. After the mending of what lies
// between kubelet and API server allow two minutes: 1 to 10 s are usual, but a kubelet whose watches broke without a sign
// may send statuses for up to 47 s without touching Ready, since it goes by its own copy of the Node.
func (c *Cluster) WaitReady(ctx context.Context, name string, want corev1.ConditionStatus, within time.Duration) error {
	return WaitFor(ctx, within, fmt.Sprintf("node %s has Ready=%s", name, want), c.NodeReady(name, want))
}

// NodeReady looks whether a node's Ready condition has this status, for WaitFor.
func (c *Cluster) NodeReady(name string, want corev1.ConditionStatus) Look {
	return func(ctx context.Context) (bool, string) {
		ctx, cancel := context.WithTimeout(ctx, requestWithin)
		defer cancel()
		node, err := c.Node(ctx, name)
		if err != nil {
			return false, err.Error()
		}
		for _, cond := range node.Status.Conditions {
			if cond.Type == corev1.NodeReady {
				return cond.Status == want, fmt.Sprintf("Ready=%s, %s: %s", cond.Status, cond.Reason, cond.Message)
			}
		}
		return false, "no Ready condition"
	}
}

// The bootstrap token, by which nodes ask for their certificates. It is good in one cluster that no one else can reach.
const (
	tokenID     = "abcdef"
	tokenSecret = "0123456789abcdef"
	tokenGroup  = "system:bootstrappers:lab"
)

// allowBootstrap makes the token, and lets those who have it ask for a node's certificate, nodes renew theirs, and the API
// server use kubelets.
func (c *Cluster) allowBootstrap(ctx context.Context) error {
	err := c.create(ctx, "/api/v1/namespaces/kube-system/secrets", &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + tokenID},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": tokenID, "token-secret": tokenSecret, "usage-bootstrap-authentication": "true", "auth-extra-groups": tokenGroup,
		},
	})
	const approve = "system:certificates.k8s.io:certificatesigningrequests:"
	return errors.Join(
		err,
		c.grant(ctx, "system:node-bootstrapper", rbacv1.GroupKind, tokenGroup),
		c.grant(ctx, approve+"nodeclient", rbacv1.GroupKind, tokenGroup),
		c.grant(ctx, approve+"selfnodeclient", rbacv1.GroupKind, "system:nodes"),
		c.Grant(ctx, "system:kubelet-api-admin", kubeletClient),
	)
}

// BootstrapKubeconfig returns the kubeconfig with which a kubelet asks for its certificate. It names NodeCA, not its text.
func (c *Cluster) BootstrapKubeconfig() ([]byte, error) {
	return c.writeConfig(&clientcmdapi.Cluster{CertificateAuthority: NodeCA}, &clientcmdapi.AuthInfo{Token: tokenID + "." + tokenSecret})
}

// pluginKubeconfig is the kubeconfig of a kubelet that gets its identity from a program.
func (c *Cluster) pluginKubeconfig(p *ExecPlugin) ([]byte, error) {
	run := &clientcmdapi.ExecConfig{
		APIVersion:      "client.authentication.k8s.io/v1",
		Command:         p.Argv[0],
		Args:            p.Argv[1:],
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		run.Env = append(run.Env, clientcmdapi.ExecEnvVar{Name: name, Value: p.Env[name]})
	}
	return c.writeConfig(&clientcmdapi.Cluster{CertificateAuthority: NodeCA}, &clientcmdapi.AuthInfo{Exec: run})
}

// pluginCredential is what a plugin prints so that the API server takes its caller for this user.
func (c *Cluster) pluginCredential(user string) ([]byte, error) {
	pair, err := c.CA.ClientCert(user)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1",
		"kind":       "ExecCredential",
		"status":     map[string]string{"clientCertificateData": string(pair.Cert), "clientKeyData": string(pair.Key)},
	})
}
