package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/aks-flex-node/agent/test/golden"
)

// TestEveryReasonIsExplained holds the sentences that people read to a file: a change of one is to be seen and meant.
func TestEveryReasonIsExplained(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	missing := &fs.PathError{Op: "stat", Path: "/var/lib/kubelet/kubeconfig", Err: fs.ErrNotExist}
	var got strings.Builder
	seen := map[string]bool{}
	for _, err := range []error{
		fileError(missing),
		fileError(&fs.PathError{Op: "open", Path: "/var/lib/kubelet/kubeconfig", Err: fs.ErrPermission}),
		fileError(errors.New("read /var/lib/kubelet/kubeconfig: not a regular file")),
		reasoned(ReasonKubeconfigUnsafe, errors.New("/var/lib/kubelet/kubeconfig belongs to user 1000")),
		reasoned(ReasonPluginFailed, errors.New("credential plugin: /usr/local/bin/kubelogin: exit status 1")),
		apierrors.NewUnauthorized("Unauthorized"),
		apierrors.NewForbidden(nodes, "n1", errors.New("node 'n2' cannot read 'n1'")),
		apierrors.NewNotFound(nodes, "n1"),
		&net.DNSError{Err: "no such host", Name: "api.example"},
		dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		context.DeadlineExceeded,
		x509.UnknownAuthorityError{},
		apierrors.NewInternalError(errors.New("etcdserver: no leader")),
	} {
		err = fmt.Errorf("get node n1: %w", err)
		seen[ReasonOf(err)] = true
		fmt.Fprintf(&got, "%s\n    %s\n", ReasonOf(err), Explain(err, "https://api.example:6443"))
	}
	for _, reason := range []string{
		ReasonKubeconfigMissing, ReasonKubeconfigUnreadable, ReasonKubeconfigInvalid, ReasonKubeconfigUnsafe, ReasonPluginFailed, ReasonUnauthorized,
		ReasonForbidden, ReasonNodeNotFound, ReasonDNS, ReasonRefused, ReasonTimeout, ReasonTLS, ReasonUnavailable,
	} {
		if !seen[reason] {
			t.Errorf("no error of this test has the reason %s", reason)
		}
	}
	golden.Check(t, filepath.Join("testdata", "explain.golden"), got.String())
}
