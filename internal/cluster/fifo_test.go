package cluster

import (
	"path/filepath"
	"syscall"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A FIFO stands for whatever makes an open or a read hang; each file that a kubeconfig can name must be read in a way that does not.
func TestAFileThatWouldHangIsRefused(t *testing.T) {
	for name, change := range map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, string){
		"authority": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo, f string) {
			c.CertificateAuthorityData, c.CertificateAuthority = nil, f
		},
		"certificate": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo, f string) {
			u.ClientCertificateData, u.ClientCertificate = nil, f
		},
		"key": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo, f string) {
			u.ClientKeyData, u.ClientKey = nil, f
		},
		"token": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo, f string) { u.TokenFile = f },
	} {
		t.Run(name, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			s := newAPIServer(t, nil, nil)
			kubeconfig := s.kubeconfig(t, func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { change(c, u, fifo) })
			wantReason(t, kubeconfig, ReasonKubeconfigInvalid, false)
		})
	}
}
