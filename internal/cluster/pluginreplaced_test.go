package cluster

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Whoever puts another plugin in the place of the one that a kubeconfig names wants that one's tokens, not those of the former.
func TestAnotherPluginInItsPlaceIsAskedAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	put := func() {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", content, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	put()
	s, c := newAPIServer(t, nil, nil), newClient(t)
	p := withPlugin(t, s, "print", func(e *clientcmdapi.ExecConfig) { e.Command = path })
	p.answers(t, v1, token("of the former"), time.Time{})
	for range 2 {
		mustSee(t, c, s, p.source, "/api/v1/nodes/n1 Bearer of the former")
	}
	p.answers(t, v1, token("of the other"), time.Time{})
	put()
	mustSee(t, c, s, p.source, "/api/v1/nodes/n1 Bearer of the other")
	if got := len(p.ran(t)); got != 2 {
		t.Errorf("the plugins ran %d times, want each once", got)
	}
}
