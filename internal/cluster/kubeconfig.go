// Package cluster is the agent's hands on the Kubernetes API server, with the credentials that this node's kubelet has.
//
// It reads the kubelet's kubeconfig, knows both kinds of identity that kubelets use (a client certificate, or a plugin that is run to get
// a token), and names each way in which the API server can fail to answer. It judges nothing: a lost link is an error with a reason here,
// and never a statement about the node.
package cluster

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
)

// maxKubeconfig bounds a kubeconfig and each file it names, in bytes.
const maxKubeconfig = 1 << 20

// credentials are a kubeconfig's current context, read whole: everything is in memory, and files tells when to read it again.
type credentials struct {
	config *rest.Config
	plugin *clientcmdapi.ExecConfig // nil for an identity that needs none
	files  map[string]host.Identity // every file that was read, and which one it was
	// nodeName is that of a client certificate for system:node:NAME, or "".
	nodeName string
	// certificate is the client certificate, nil for an identity without one; certificateFile is where it lies.
	certificate     *x509.Certificate
	certificateFile string
}

// stillCurrent reports whether every file is the one that was read.
func (c *credentials) stillCurrent() bool {
	for path, id := range c.files {
		if now, err := host.Identify(path); err != nil || now != id {
			return false
		}
	}
	return true
}

// loadCredentials reads a kubeconfig and the files it names.
func loadCredentials(path string) (*credentials, error) {
	c := &credentials{files: map[string]host.Identity{}}
	raw, err := c.read(path)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Load(raw)
	if err != nil {
		return nil, reasoned(ReasonKubeconfigInvalid, fmt.Errorf("kubeconfig %s: %w", path, err))
	}
	if missing := missingPart(kubeconfig); missing != "" {
		return nil, reasoned(ReasonKubeconfigInvalid, fmt.Errorf("kubeconfig %s names no %s: it is empty or was not written whole", path, missing))
	}
	for _, cl := range kubeconfig.Clusters {
		cl.LocationOfOrigin = path
	}
	for _, user := range kubeconfig.AuthInfos {
		user.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(kubeconfig); err != nil {
		return nil, reasoned(ReasonKubeconfigInvalid, fmt.Errorf("kubeconfig %s: %w", path, err))
	}
	if err := c.inline(path, kubeconfig); err != nil {
		return nil, err
	}
	c.config, err = clientcmd.NewDefaultClientConfig(*kubeconfig, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, reasoned(ReasonKubeconfigInvalid, fmt.Errorf("kubeconfig %s: %w", path, err))
	}
	if c.config.AuthProvider != nil {
		return nil, reasoned(ReasonKubeconfigInvalid, fmt.Errorf("kubeconfig %s uses the auth-provider %q, which Kubernetes removed in 1.26",
			path, c.config.AuthProvider.Name))
	}
	c.plugin, c.config.ExecProvider = c.config.ExecProvider, nil
	if err := c.identify(path); err != nil {
		return nil, err
	}
	return c, nil
}

// ClientCertificate reads the client certificate of a kubeconfig's user. Its path is that of the kubeconfig where it is written in there.
// Where a plugin or a token speaks for the user, there is none: then only Plugin is set. ReasonOf tells what an error is.
func ClientCertificate(kubeconfig string) (observe.Certificate, error) {
	c, err := loadCredentials(kubeconfig)
	switch {
	case err != nil:
		return observe.Certificate{}, err
	case c.certificate == nil:
		return observe.Certificate{Plugin: true}, nil
	}
	return observe.Certificate{
		Path: c.certificateFile, Subject: c.certificate.Subject.CommonName,
		NotBefore: c.certificate.NotBefore, NotAfter: c.certificate.NotAfter,
	}, nil
}

// missingPart says what a kubeconfig lacks of the chain from its current context to a server and a user. clientcmd would fill the gaps in
// an empty or half-written one with a server on this machine, or with nobody.
func missingPart(c *clientcmdapi.Config) string {
	current, ok := c.Contexts[c.CurrentContext]
	switch {
	case !ok && len(c.Clusters) == 0:
		return "cluster"
	case !ok || c.CurrentContext == "":
		return fmt.Sprintf("current context (%q)", c.CurrentContext)
	case c.Clusters[current.Cluster] == nil:
		return fmt.Sprintf("cluster %q", current.Cluster)
	case c.AuthInfos[current.AuthInfo] == nil:
		return fmt.Sprintf("user %q", current.AuthInfo)
	}
	return ""
}

// read reads one file and remembers which one it was. The identity is taken first: a replacement in between shows at the next look.
func (c *credentials) read(path string) ([]byte, error) {
	id, err := host.Identify(path)
	if err != nil {
		return nil, fileError(err)
	}
	if os.Geteuid() == 0 && (id.UID != 0 || id.Mode&unix.S_IWOTH != 0 || (id.Mode&unix.S_IWGRP != 0 && id.GID != 0)) {
		return nil, reasoned(ReasonKubeconfigUnsafe, fmt.Errorf("%s belongs to user %d and group %d with mode %04o: root believes only files of root that others can't write",
			path, id.UID, id.GID, id.Mode&0o7777))
	}
	b, err := host.ReadFile(path, maxKubeconfig)
	if err != nil {
		return nil, fileError(err)
	}
	c.files[path] = id
	return b, nil
}

func fileError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return reasoned(ReasonKubeconfigMissing, fmt.Errorf("the kubelet's credentials are not there: %w", err))
	case errors.Is(err, fs.ErrPermission):
		return reasoned(ReasonKubeconfigUnreadable, fmt.Errorf("this user may not read the kubelet's credentials: %w", err))
	}
	return reasoned(ReasonKubeconfigInvalid, err)
}

// inline reads what the current context has in files of its own. client-go would open them itself, later and again, and hang with what
// lies there.
func (c *credentials) inline(path string, k *clientcmdapi.Config) error {
	current := k.Contexts[k.CurrentContext]
	cluster, user := k.Clusters[current.Cluster], k.AuthInfos[current.AuthInfo]
	c.certificateFile = path
	if len(user.ClientCertificateData) == 0 && user.ClientCertificate != "" {
		c.certificateFile = user.ClientCertificate
	}
	for _, f := range []struct {
		path *string
		data *[]byte
	}{
		{&cluster.CertificateAuthority, &cluster.CertificateAuthorityData},
		{&user.ClientCertificate, &user.ClientCertificateData}, {&user.ClientKey, &user.ClientKeyData},
	} {
		if *f.path == "" {
			continue
		}
		b, err := c.readNamed(*f.path)
		if err != nil {
			return err
		}
		if len(*f.data) == 0 {
			*f.data = b
		}
		*f.path = ""
	}
	if user.TokenFile != "" {
		b, err := c.readNamed(user.TokenFile)
		if err != nil {
			return err
		}
		user.Token, user.TokenFile = strings.TrimSpace(string(b)), ""
	}
	return nil
}

// readNamed reads a file that the kubeconfig names. One that is missing makes the kubeconfig invalid, not missing.
func (c *credentials) readNamed(path string) ([]byte, error) {
	b, err := c.read(path)
	if err != nil && ReasonOf(err) == ReasonKubeconfigMissing {
		err = reasoned(ReasonKubeconfigInvalid, fmt.Errorf("a file that the kubeconfig names is missing: %w", err))
	}
	return b, err
}

// identify reads the client certificate, and takes the node's name from it.
func (c *credentials) identify(kubeconfig string) error {
	if len(c.config.CertData) == 0 {
		return nil
	}
	pair, err := tls.X509KeyPair(c.config.CertData, c.config.KeyData)
	if err != nil {
		return reasoned(ReasonKubeconfigInvalid, fmt.Errorf("client certificate of kubeconfig %s: %w", kubeconfig, err))
	}
	c.certificate = pair.Leaf
	c.nodeName = nodeNameOf(c.config.CertData)
	return nil
}

// nodeNameOf returns NAME of a certificate for the user system:node:NAME, which is how a kubelet's certificate names its node.
func nodeNameOf(certificate []byte) string {
	for block, rest := pem.Decode(certificate); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return ""
		}
		name, _ := strings.CutPrefix(cert.Subject.CommonName, "system:node:")
		if name == cert.Subject.CommonName {
			return ""
		}
		return name
	}
	return ""
}

// UsualKubeconfigs are where the kubelet's kubeconfig is looked for behind what its own command line says, in this order: what the
// configuration names, if it does, and the usual places. A nil Config is an empty one. Some may be empty.
func UsualKubeconfigs(cfg *config.Config) []string {
	if cfg == nil {
		cfg = &config.Config{}
	}
	configDir, kubeletDir := cmp.Or(cfg.Paths.Kubernetes.ConfigDir, "/etc/kubernetes"), cmp.Or(cfg.Paths.Kubernetes.KubeletDir, "/var/lib/kubelet")
	return []string{cfg.Node.Kubelet.Kubeconfig, kubeletDir + "/kubelet/kubeconfig", kubeletDir + "/kubeconfig", configDir + "/kubelet.conf"}
}

// FindKubeconfig returns the first of the paths at which there is a file, or the first path when there is none, so that the error that
// follows names a place where one is expected.
func FindKubeconfig(paths []string) string {
	first := ""
	for _, p := range paths {
		if p == "" || !filepath.IsAbs(p) {
			continue
		}
		if first == "" {
			first = p
		}
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			return p
		}
	}
	return first
}
