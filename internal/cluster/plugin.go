package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/aks-flex-node/agent/internal/host"
)

const (
	// pluginDeadline is how long a credential plugin may take, whatever the request that waits for it may. Over a dead link the Azure
	// SDK tries for some ten seconds before it says why it failed.
	pluginDeadline = 30 * time.Second
	// expiryMargin is how long before its end a token is no longer used: the request must still arrive with it.
	expiryMargin = 30 * time.Second
)

// pluginToken gets credentials from an exec plugin and keeps them until they expire or the API server refuses them.
// client-go's own way runs plugins without a deadline and with our whole environment, and would do so inside any request.
type pluginToken struct {
	config    *clientcmdapi.ExecConfig
	clusterCA []byte
	server    string
	env       []string // added to the plugin's environment, before the kubeconfig's own

	turn        chan struct{} // holds one element: whoever has it runs the plugin
	mu          sync.Mutex    // guards the fields below
	token       string
	expires     time.Time // zero: until refused
	certificate *tls.Certificate
}

func newPluginToken(c *credentials, env []string) *pluginToken {
	p := &pluginToken{config: c.plugin, clusterCA: c.config.CAData, server: c.config.Host, env: env, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

func (p *pluginToken) current(now time.Time) (token string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.token != "" || p.certificate != nil
	return p.token, known && (p.expires.IsZero() || now.Before(p.expires.Add(-expiryMargin)))
}

// forget drops a token that was refused, unless it was renewed since.
func (p *pluginToken) forget(refused string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token == refused {
		p.token, p.certificate = "", nil
	}
}

// get returns a token that is good now, running the plugin if there is none. Only one run at a time; the others wait for its outcome.
func (p *pluginToken) get(ctx context.Context) (string, error) {
	if token, ok := p.current(time.Now()); ok {
		return token, nil
	}
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if token, ok := p.current(time.Now()); ok {
		return token, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pluginDeadline, fmt.Errorf("no answer within %s", pluginDeadline))
	defer cancel()
	credential, err := p.run(ctx)
	if err != nil {
		return "", reasoned(ReasonPluginFailed, fmt.Errorf("credential plugin: %w", err))
	}
	return p.keep(credential)
}

func (p *pluginToken) keep(c *clientauthentication.ExecCredentialStatus) (string, error) {
	var certificate *tls.Certificate
	if c.ClientCertificateData != "" {
		pair, err := tls.X509KeyPair([]byte(c.ClientCertificateData), []byte(c.ClientKeyData))
		if err != nil {
			return "", reasoned(ReasonPluginFailed, fmt.Errorf("credential plugin's certificate: %w", err))
		}
		certificate = &pair
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token, p.expires, p.certificate = c.Token, time.Time{}, certificate
	if c.ExpirationTimestamp != nil {
		p.expires = c.ExpirationTimestamp.Time
	}
	return p.token, nil
}

func (p *pluginToken) run(ctx context.Context) (*clientauthentication.ExecCredentialStatus, error) {
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	info, err := p.execInfo()
	if err != nil {
		return nil, err
	}
	env := append([]string{}, p.env...)
	for _, e := range p.config.Env {
		env = append(env, e.Name+"="+e.Value)
	}
	env = append(env, "KUBERNETES_EXEC_INFO="+info)
	out, err := host.Run(ctx, host.Command{Path: path, Args: p.config.Args, Env: env})
	if err != nil {
		return nil, err
	}
	return parseExecCredential(out.Stdout, p.config.APIVersion)
}

// path resolves the plugin's command as kubectl and the kubelet do: a name is looked up in PATH, a relative path was made absolute
// against the kubeconfig's folder when that was loaded.
func (p *pluginToken) path() (string, error) {
	path := p.config.Command
	if !strings.Contains(path, "/") {
		if path = host.FindProgram(p.config.Command, host.DefaultPath); path == "" {
			return "", fmt.Errorf("%s is not installed (looked in %s)", p.config.Command, host.DefaultPath)
		}
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s is not an absolute path", path)
	}
	id, err := host.Identify(path)
	if err != nil {
		return "", err
	}
	return path, host.CheckProgram(path, id)
}

// remember notes which program the plugin is, so that another in its place is asked for a token of its own. One that is missing is looked
// for at each run.
func (p *pluginToken) remember(c *credentials) {
	path, err := p.path()
	if err != nil {
		return
	}
	if id, err := host.Identify(path); err == nil {
		c.files[path] = id
	}
}

// execInfo is the KUBERNETES_EXEC_INFO that plugins read, in the version that the kubeconfig asks for. v1 and v1beta1 have the same form.
func (p *pluginToken) execInfo() (string, error) {
	in := clientauthentication.ExecCredential{}
	in.Kind, in.APIVersion = "ExecCredential", p.config.APIVersion
	if p.config.ProvideClusterInfo {
		in.Spec.Cluster = &clientauthentication.Cluster{Server: p.server, CertificateAuthorityData: p.clusterCA}
	}
	b, err := json.Marshal(in)
	return string(b), err
}

// parseExecCredential reads a plugin's answer. It never quotes it: it holds a secret.
func parseExecCredential(out []byte, apiVersion string) (*clientauthentication.ExecCredentialStatus, error) {
	var c clientauthentication.ExecCredential
	if err := json.Unmarshal(bytes.TrimSpace(out), &c); err != nil {
		return nil, errors.New("its answer is not an ExecCredential in JSON")
	}
	switch {
	case c.Kind != "ExecCredential":
		return nil, fmt.Errorf("its answer is of kind %.40q, not ExecCredential", c.Kind)
	case c.APIVersion != apiVersion:
		return nil, fmt.Errorf("its answer has apiVersion %.60q, the kubeconfig asks for %q", c.APIVersion, apiVersion)
	case c.Status == nil || (c.Status.Token == "" && c.Status.ClientCertificateData == ""):
		return nil, errors.New("its answer holds no credentials")
	case (c.Status.ClientCertificateData == "") != (c.Status.ClientKeyData == ""):
		return nil, errors.New("its answer holds a certificate without a key, or a key without a certificate")
	}
	return c.Status, nil
}

// pluginTransport adds the plugin's token to requests, and gets a new one once when it is refused.
type pluginTransport struct {
	plugin *pluginToken

	mu    sync.Mutex // guards the fields below
	next  *http.Transport
	shown *tls.Certificate // on the connections of next; nil for none
}

// current returns a transport for the plugin's present certificate. A connection keeps the one that it was made with, so that another
// certificate needs other connections.
func (t *pluginTransport) current() *http.Transport {
	t.plugin.mu.Lock()
	certificate := t.plugin.certificate
	t.plugin.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if certificate != nil && certificate != t.shown {
		old := t.next
		t.next, t.shown = old.Clone(), certificate
		old.CloseIdleConnections()
	}
	return t.next
}

// RoundTrip implements http.RoundTripper.
func (t *pluginTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		token, err := t.plugin.get(req.Context())
		if err != nil {
			return nil, err
		}
		authorized := req.Clone(req.Context())
		if token != "" {
			authorized.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := t.current().RoundTrip(authorized)
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			return resp, err
		}
		t.plugin.forget(token)
		if attempt == 2 || req.Body != nil {
			return resp, nil
		}
		resp.Body.Close() // the answer was read as far as it matters
	}
}
