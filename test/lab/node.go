//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Where a node has what it needs to know of its cluster.
const (
	NodeCA         = "/etc/kubernetes/pki/ca.crt"             // certificate of the cluster's CA
	NodeBootstrap  = "/etc/kubernetes/bootstrap-kubelet.conf" // kubeconfig with the bootstrap token
	NodeKubeconfig = "/etc/kubernetes/kubelet.conf"           // the kubelet's kubeconfig, unless JoinOptions says otherwise
	nodeCredential = "/etc/kubernetes/exec-plugin-credential.json"
)

// nodeConfig is what a kubelet in a cluster has besides kubeletConfig.
const nodeConfig = `authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: ` + NodeCA + `}}
authorization: {mode: Webhook}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
`

// JoinOptions says how a host becomes a node. The zero value is good for most tests.
type JoinOptions struct {
	// Kubelet is the path of a kubelet program of the machine, such as KubeletVersion returns; empty means the one of the
	// control plane's version.
	Kubelet string
	// Hostname is what the host calls itself, capitals and dots allowed; empty means the node's name.
	Hostname string
	// NoHostnameOverride leaves --hostname-override away: the kubelet then takes the hostname in small letters for the
	// node's name, so that name must be just that.
	NoHostnameOverride bool
	// KubeconfigPath is where the kubelet has its kubeconfig; empty means NodeKubeconfig.
	KubeconfigPath string
	// ExtraFlags are added to the kubelet's command line.
	ExtraFlags []string
	// ExtraConfig are lines of YAML added to the kubelet's configuration file; they must not repeat a key of it.
	ExtraConfig string
	// ExecPlugin gives the node an identity by a program instead of a certificate by TLS bootstrap; nil means the latter.
	ExecPlugin *ExecPlugin
}

// ExecPlugin is an identity like that of nodes with managed identities: a program tells who the node is, and RBAC gives it
// the rights of the ClusterRole system:node. To the Node authorizer it is a stranger.
type ExecPlugin struct {
	// User is whom the API server takes the holder of the program's credentials for.
	User string
	// Argv is the program, by its path in the host, and its arguments; it prints an ExecCredential of
	// client.authentication.k8s.io/v1. Nil means /bin/cat of a file that the lab makes, with a certificate of User.
	Argv []string
	// Env is added to the environment of the program.
	Env map[string]string
}

// node is a host of a cluster and how it is to join.
type node struct {
	host *Host
	name string
	opts JoinOptions
}

// Join makes a new node: a host with an address of its own on the switch whose kubelet and containerd are units and that
// joins by TLS bootstrap, or with its ExecPlugin. It returns when the node is Ready, in about two seconds. Several may join
// at once. The host is stopped with the cluster, or before by its Stop; the Node object stays, and another host of that
// name may join then.
func (c *Cluster) Join(ctx context.Context, name string, opts JoinOptions) (*Host, error) {
	h, err := c.AddHost(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	if err := c.Bootstrap(ctx, h); err != nil {
		return nil, err
	}
	return h, nil
}

// MustJoin is Join that fails the test at once when it does not succeed. The host is stopped when the test ends; the end of
// its log is printed if the test has failed.
func (c *Cluster) MustJoin(t testing.TB, name string, opts JoinOptions) *Host {
	t.Helper()
	h, err := c.Join(t.Context(), name, opts)
	if err != nil {
		t.Fatal(err)
	}
	h.stopAfter(t)
	return h
}

// AddHost makes a host on the switch that runs containerd but is no node yet: Bootstrap makes it one, or whatever the test
// is about. name is that of the node to be.
func (c *Cluster) AddHost(ctx context.Context, name string, opts JoinOptions) (*Host, error) {
	if opts.Kubelet == "" {
		opts.Kubelet = filepath.Join(c.tools, "kubelet")
	}
	if opts.Hostname == "" {
		opts.Hostname = name
	}
	if opts.KubeconfigPath == "" {
		opts.KubeconfigPath = NodeKubeconfig
	}
	if opts.NoHostnameOverride && strings.ToLower(opts.Hostname) != name {
		return nil, fmt.Errorf("add host %s: without --hostname-override the node's name would be that of the hostname %s", name, opts.Hostname)
	}
	n := &node{name: name, opts: opts}
	number, err := c.number(n)
	if err != nil {
		return nil, fmt.Errorf("add host %s: %w", name, err)
	}
	address := c.Switch.Address().As4()
	address[3] = byte(100 + number)
	h, err := startHost(ctx, HostOptions{
		Name: name, Hostname: opts.Hostname,
		Link: &Link{c.Switch, netip.PrefixFrom(netip.AddrFrom4(address), c.Switch.address.Bits()), c.Switch.Address()},
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	n.host = h
	c.mu.Unlock()
	pods := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(number), 0}), 24)
	err = errors.Join(h.InstallContainerd(ctx), h.WriteCNIConfig(ctx, pods), h.ImportImage(ctx, c.pause))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("add host %s: %w", name, err), h.Stop())
	}
	return h, nil
}

// number enters a node in the cluster's list and gives its number there, from 1.
func (c *Cluster) number(n *node) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.nodes) >= 150 {
		return 0, errors.New("the cluster has used up its addresses")
	}
	c.nodes = append(c.nodes, n)
	return len(c.nodes), nil
}

// Bootstrap makes a host of AddHost a node and returns when the node is Ready. Doing it again, also after the test has
// removed parts, makes it so anew.
func (c *Cluster) Bootstrap(ctx context.Context, h *Host) error {
	n := c.nodeOf(h)
	if n == nil {
		return fmt.Errorf("bootstrap host %s: it is not of this cluster", h.name)
	}
	if err := c.bootstrap(ctx, n); err != nil {
		return fmt.Errorf("bootstrap node %s: %w", n.name, err)
	}
	if err := c.WaitReady(ctx, n.name, corev1.ConditionTrue, 2*time.Minute); err != nil {
		return fmt.Errorf("%w\n%s", err, h.logTail(context.WithoutCancel(ctx), 20, "--unit", "kubelet.service"))
	}
	return nil
}

func (c *Cluster) nodeOf(h *Host) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.host == h {
			return n
		}
	}
	return nil
}

func (c *Cluster) bootstrap(ctx context.Context, n *node) error {
	if err := n.host.WriteFile(ctx, NodeCA, c.CA.PEM(), 0o644); err != nil {
		return err
	}
	flags := []string{"--kubeconfig=" + n.opts.KubeconfigPath}
	if !n.opts.NoHostnameOverride {
		flags = append(flags, "--hostname-override="+n.name)
	}
	config := kubeletConfig + nodeConfig
	if n.opts.ExecPlugin != nil {
		if err := c.writePlugin(ctx, n); err != nil {
			return err
		}
	} else {
		text, err := c.BootstrapKubeconfig()
		if err != nil {
			return err
		}
		if err := n.host.WriteFile(ctx, NodeBootstrap, text, 0o600); err != nil {
			return err
		}
		flags = append(flags, "--bootstrap-kubeconfig="+NodeBootstrap)
		config += "rotateCertificates: true\n"
	}
	return n.host.installKubelet(ctx, n.opts.Kubelet, config+n.opts.ExtraConfig, append(flags, n.opts.ExtraFlags...)...)
}

// writePlugin gives the node a kubeconfig that names its plugin, and the plugin's user the rights of nodes.
func (c *Cluster) writePlugin(ctx context.Context, n *node) error {
	plugin := *n.opts.ExecPlugin
	if len(plugin.Argv) == 0 {
		plugin.Argv = []string{"/bin/cat", nodeCredential}
		credential, err := c.pluginCredential(plugin.User)
		if err != nil {
			return err
		}
		if err := n.host.WriteFile(ctx, nodeCredential, credential, 0o600); err != nil {
			return err
		}
	}
	text, err := c.pluginKubeconfig(&plugin)
	if err != nil {
		return err
	}
	if err := n.host.WriteFile(ctx, n.opts.KubeconfigPath, text, 0o600); err != nil {
		return err
	}
	return c.Grant(ctx, "system:node", plugin.User)
}
