package cluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func mustSee(t *testing.T, c *Client, s *apiServer, source Source, want ...string) {
	t.Helper()
	if _, err := c.Node(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if got := s.visitors(); !slices.Equal(got, want) {
		t.Fatalf("the server saw %q, want %q", got, want)
	}
}

func TestTheNodesNameComesFromConfigThenCertificateThenHost(t *testing.T) {
	s := newAPIServer(t, nil, nil)
	ofNode, key := s.authority.issue(t, "system:node:of-certificate", nil)
	withCertificate := s.kubeconfig(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		*u = clientcmdapi.AuthInfo{ClientCertificateData: ofNode, ClientKeyData: key}
	})
	withToken := s.kubeconfig(t, nil)
	for _, test := range []struct {
		name       string
		kubeconfig string
		nodeName   string
		hostName   string
		want       string
	}{
		{"the config wins", withCertificate, "of-config", "of-host", "of-config"},
		{"the certificate comes next", withCertificate, "", "of-host", "of-certificate"},
		{"a token names nobody", withToken, "", "of-host", "of-host"},
	} {
		got, err := newClient(t).Node(t.Context(), Source{Kubeconfig: test.kubeconfig, NodeName: test.nodeName, HostName: test.hostName})
		if err != nil || got.Node.Name != test.want {
			t.Errorf("%s: got %q and error %v, want %q", test.name, got.NodeName, err, test.want)
		}
	}
	if _, err := newClient(t).Node(t.Context(), Source{Kubeconfig: withToken}); ReasonOf(err) != ReasonNodeNotFound {
		t.Errorf("without any name: got %v, want reason %s", err, ReasonNodeNotFound)
	}
}

func TestOneConnectionIsKept(t *testing.T) {
	s, c := newAPIServer(t, nil, nil), newClient(t)
	source := Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1"}
	for range 5 {
		mustSee(t, c, s, source, "/api/v1/nodes/n1 Bearer a-token")
	}
	if got := s.connections(); got != 1 {
		t.Errorf("got %d connections after 5 looks, want 1", got)
	}
}

func TestAReplacedKubeconfigIsUsedAtOnce(t *testing.T) {
	first, second, c := newAPIServer(t, nil, nil), newAPIServer(t, nil, nil), newClient(t)
	source := Source{Kubeconfig: first.kubeconfig(t, nil), NodeName: "n1"}
	mustSee(t, c, first, source, "/api/v1/nodes/n1 Bearer a-token")

	if err := os.Rename(second.kubeconfig(t, nil), source.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	mustSee(t, c, second, source, "/api/v1/nodes/n1 Bearer a-token")
	if got := first.visitors(); len(got) > 0 {
		t.Errorf("the first server saw %q, want nobody any more", got)
	}
	eventually(t, "the connection to the first server ends", func() bool { return first.connections() == 0 })

	if err := os.Remove(source.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Node(t.Context(), source); ReasonOf(err) != ReasonKubeconfigMissing {
		t.Errorf("when it was removed: got %v, want reason %s", err, ReasonKubeconfigMissing)
	}
}

func TestAReplacedTokenFileIsUsedAtOnce(t *testing.T) {
	s, c := newAPIServer(t, nil, nil), newClient(t)
	source := Source{NodeName: "n1", Kubeconfig: s.kubeconfig(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		*u = clientcmdapi.AuthInfo{TokenFile: "token"}
	})}
	token := filepath.Join(filepath.Dir(source.Kubeconfig), "token")
	for _, word := range []string{"one", "two"} {
		writeFile(t, token, []byte(word+"\n"))
		mustSee(t, c, s, source, "/api/v1/nodes/n1 Bearer "+word)
	}
}

// A kubelet keeps its certificate behind a link that it moves on: kubelet-client-current.pem.
func TestARotatedCertificateIsUsedOnANewConnection(t *testing.T) {
	s, c := newAPIServer(t, nil, nil), newClient(t)
	source := Source{Kubeconfig: s.kubeconfig(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		*u = clientcmdapi.AuthInfo{ClientCertificate: "current.pem", ClientKey: "current.pem"}
	})}
	dir := filepath.Dir(source.Kubeconfig)
	rotate := func(name string) {
		certificate, key := s.authority.issue(t, "system:node:"+name, nil)
		writeFile(t, filepath.Join(dir, name+".pem"), append(certificate, key...))
		if err := os.Symlink(name+".pem", filepath.Join(dir, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current.pem")); err != nil {
			t.Fatal(err)
		}
	}
	rotate("n1")
	mustSee(t, c, s, source, "/api/v1/nodes/n1 system:node:n1")
	mustSee(t, c, s, source, "/api/v1/nodes/n1 system:node:n1")
	rotate("n2")
	mustSee(t, c, s, source, "/api/v1/nodes/n2 system:node:n2")
	eventually(t, "the connection with the first certificate ends", func() bool { return s.connections() == 1 })
}

func TestEveryPartOfTheSourceMatters(t *testing.T) {
	whole := Source{Kubeconfig: "k", NodeName: "n", HostName: "h", PluginEnv: []string{"A=b"}, UserAgent: "u"}
	same := whole
	same.PluginEnv = slices.Clone(whole.PluginEnv)
	if !whole.equal(same) {
		t.Error("a copy: got another source, want the same")
	}
	for i, change := range []func(*Source){
		func(s *Source) { s.Kubeconfig = "" }, func(s *Source) { s.NodeName = "" }, func(s *Source) { s.HostName = "" },
		func(s *Source) { s.PluginEnv = nil }, func(s *Source) { s.UserAgent = "" },
	} {
		other := whole
		change(&other)
		if whole.equal(other) {
			t.Errorf("change %d: got the same source, want another", i)
		}
	}
}

func TestNoConnectionIsLeftAfterClose(t *testing.T) {
	refuse := answerStatus(403, metav1.StatusReasonForbidden)
	for name, handler := range map[string]http.HandlerFunc{"after an answer": nil, "after a refusal": refuse} {
		t.Run(name, func(t *testing.T) {
			s, c := newAPIServer(t, nil, handler), newClient(t)
			source := Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1"}
			for range 3 { // a closed Client can be used again
				_, _ = c.Node(t.Context(), source)
				if s.connections() != 1 {
					t.Errorf("got %d connections, want 1", s.connections())
				}
				c.Close()
				c.Close()
				eventually(t, "the connection ends", func() bool { return s.connections() == 0 })
			}
		})
	}
}

func TestNoConnectionIsLeftWhenARequestIsGivenUpAfterClose(t *testing.T) {
	asked := make(chan struct{})
	s := newAPIServer(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	c := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Node(ctx, Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1"})
		done <- err
	}()
	<-asked
	c.Close()
	cancel()
	if err := <-done; err == nil {
		t.Error("got no error from a request that was given up")
	}
	eventually(t, "the connection ends", func() bool { return s.connections() == 0 })
}

// http.Transport goes on dialing for a request that was given up.
func TestAConnectionThatWasMadeTooLateIsClosed(t *testing.T) {
	s := newAPIServer(t, nil, nil)
	var d dialer
	address := strings.TrimPrefix(s.URL, "https://")
	early, err := d.dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	d.end()
	if _, err := early.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("an early connection: got error %v, want %v", err, net.ErrClosed)
	}
	late, err := d.dial(t.Context(), "tcp", address)
	if err == nil {
		late.Close()
	}
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("a late connection: got error %v, want %v", err, net.ErrClosed)
	}
	eventually(t, "the server sees both end", func() bool { return s.connections() == 0 })
}
