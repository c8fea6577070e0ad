package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	pingAfter   = 10 * time.Second // of silence on a connection
	pingTimeout = 5 * time.Second
)

// Source says whom to ask, and about which node.
type Source struct {
	Kubeconfig string // path of the kubelet's kubeconfig
	// NodeName is used when it is set; else the name in the client certificate, else HostName.
	NodeName string
	HostName string
	// PluginEnv is added to the environment of a credential plugin, as KEY=VALUE.
	PluginEnv []string
	UserAgent string
}

func (s Source) equal(o Source) bool {
	return s.Kubeconfig == o.Kubeconfig && s.NodeName == o.NodeName && s.HostName == o.HostName &&
		s.UserAgent == o.UserAgent && slices.Equal(s.PluginEnv, o.PluginEnv)
}

// Client asks the API server about this node. The zero value is ready for use, also by several goroutines. It keeps one connection and
// makes it anew when the kubeconfig, or a certificate, key or token file that it names, was replaced.
type Client struct {
	mu      sync.Mutex
	current *connection
}

// connection is a way to one API server, with one set of credentials.
type connection struct {
	source      Source
	credentials *credentials
	nodeName    string
	dialer      dialer
	scheme      *runtime.Scheme
	rest        *rest.RESTClient
}

// Close ends the connection. The Client can be used again.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

func (c *Client) drop() {
	if c.current != nil {
		c.current.dialer.end()
		c.current = nil
	}
}

// quiet keeps client-go from logging: what it has to say is in its errors.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// Answer is what the API server said, and who said it about whom; the latter two also beside an error, as far as they are known.
type Answer struct {
	Node     *corev1.Node
	NodeName string
	Server   string
	// LeaseRenewed is when the kubelet last renewed its Lease; zero when that is not known.
	LeaseRenewed time.Time
}

// Node gets this node from the API server. ReasonOf tells what an error is; it is never a statement about the node, except that
// ReasonNodeNotFound comes from an API server that was reached and has no such Node.
func (c *Client) Node(ctx context.Context, source Source) (Answer, error) {
	ctx = quiet(ctx)
	conn, err := c.connect(source)
	if err != nil {
		return Answer{NodeName: source.NodeName}, err
	}
	answer := Answer{NodeName: conn.nodeName, Server: conn.credentials.config.Host}
	node := &corev1.Node{}
	// No retries: client-go's take longer than a look may, and would turn every reason into a time-out. The next look asks again.
	err = conn.rest.Get().MaxRetries(0).Resource("nodes").Name(conn.nodeName).Do(ctx).Into(node)
	if err != nil {
		return answer, timedOut(ctx, fmt.Errorf("get node %s: %w", conn.nodeName, err))
	}
	answer.Node = node
	answer.LeaseRenewed, _ = conn.leaseRenewed(ctx) // less than the Node matters: without the right to read it, its age isn't shown
	return answer, nil
}

// leaseRenewed gets the time at which the kubelet last renewed its Lease.
func (c *connection) leaseRenewed(ctx context.Context) (time.Time, error) {
	lease := &coordinationv1.Lease{}
	err := c.rest.Get().MaxRetries(0).AbsPath("/apis/coordination.k8s.io/v1/namespaces", corev1.NamespaceNodeLease, "leases", c.nodeName).
		Do(ctx).Into(lease)
	if err != nil {
		return time.Time{}, fmt.Errorf("get lease %s: %w", c.nodeName, err)
	}
	if lease.Spec.RenewTime == nil {
		return time.Time{}, nil
	}
	return lease.Spec.RenewTime.Time, nil
}

// connect returns the connection for a source, a new one if anything has changed. Nothing is locked while files are read: what hangs there
// must not keep Close waiting.
func (c *Client) connect(source Source) (*connection, error) {
	c.mu.Lock()
	known := c.current
	c.mu.Unlock()
	if known != nil && known.source.equal(source) && known.credentials.stillCurrent() {
		return known, nil
	}
	conn, err := newConnection(source)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != known && c.current != nil && err == nil && c.current.source.equal(source) {
		return c.current, nil // somebody else was faster
	}
	c.drop()
	c.current = conn
	return conn, err
}

func newConnection(source Source) (*connection, error) {
	creds, err := loadCredentials(source.Kubeconfig)
	if err != nil {
		return nil, err
	}
	conn := &connection{source: source, credentials: creds, scheme: runtime.NewScheme(), nodeName: firstNonEmpty(source.NodeName, creds.nodeName, source.HostName)}
	if conn.nodeName == "" {
		return nil, reasoned(ReasonNodeNotFound, fmt.Errorf("this node's name is not known: set node.name in the config"))
	}
	cfg := rest.CopyConfig(creds.config)
	cfg.UserAgent = source.UserAgent
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, reasoned(ReasonKubeconfigInvalid, fmt.Errorf("kubeconfig %s: %w", source.Kubeconfig, err))
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	var plugin *pluginToken
	if creds.plugin != nil {
		plugin = newPluginToken(creds, source.PluginEnv)
		plugin.remember(creds)
		tlsConfig.GetClientCertificate = plugin.clientCertificate
	}
	if conn.rest, err = newREST(cfg, conn.scheme, newTransport(tlsConfig, cfg, &conn.dialer), plugin); err != nil {
		return nil, reasoned(ReasonKubeconfigInvalid, fmt.Errorf("kubeconfig %s: %w", source.Kubeconfig, err))
	}
	return conn, nil
}

func firstNonEmpty(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

func (p *pluginToken) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.certificate == nil {
		return &tls.Certificate{}, nil // the TLS package's word for "none"
	}
	return p.certificate, nil
}

// newTransport is made here and not taken from client-go, which keeps every transport it ever made.
func newTransport(tlsConfig *tls.Config, cfg *rest.Config, d *dialer) *http.Transport {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           d.dial,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   1,
		ForceAttemptHTTP2:     true,
		// A link that died says nothing: a ping finds out. docs/benchmarks.md says how soon.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	if cfg.Proxy != nil {
		t.Proxy = cfg.Proxy
	}
	return t
}

// newREST builds a client that knows only what this package reads: a scheme with everything in Kubernetes costs megabytes.
func newREST(cfg *rest.Config, scheme *runtime.Scheme, own *http.Transport, plugin *pluginToken) (*rest.RESTClient, error) {
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	var transport http.RoundTripper = own
	if plugin != nil {
		transport = &pluginTransport{plugin: plugin, next: own}
	}
	wrapped, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // no throttle: there are two requests a look, and one that waited would be too late
	gv := corev1.SchemeGroupVersion
	cfg.GroupVersion, cfg.APIPath = &gv, "/api"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return rest.RESTClientForConfigAndClient(cfg, &http.Client{Transport: wrapped})
}
