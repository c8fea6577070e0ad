package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const nobody = 65534

func TestKubeconfigsThatCanNotBeUsed(t *testing.T) {
	whole := kubeconfigFor("https://127.0.0.1:1", nil, nil)
	text := func(change func(c *clientcmdapi.Config)) []byte {
		c := whole.DeepCopy()
		change(c)
		raw, err := clientcmd.Write(*c)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	key, other := newAuthority(t), newAuthority(t)
	certificate, _ := key.issue(t, "system:node:n1", nil)
	_, otherKey := other.issue(t, "system:node:n1", nil)
	for _, test := range []struct {
		name    string
		content []byte
		want    string
		says    string
	}{
		{"empty", nil, ReasonKubeconfigInvalid, "names no cluster"},
		{"blanks", []byte("\n\n"), ReasonKubeconfigInvalid, "names no cluster"},
		{"only a comment", []byte("# to be written\n"), ReasonKubeconfigInvalid, "names no cluster"},
		{"zeros, as after a power cut", make([]byte, 512), ReasonKubeconfigInvalid, ""},
		{"not YAML", []byte("{{"), ReasonKubeconfigInvalid, ""},
		{"another kind", []byte("apiVersion: v1\nkind: Secret\n"), ReasonKubeconfigInvalid, ""},
		{"a list", []byte("- a\n- b\n"), ReasonKubeconfigInvalid, ""},
		{"without a current context", text(func(c *clientcmdapi.Config) { c.CurrentContext = "" }), ReasonKubeconfigInvalid, ""},
		{"whose only context has no name", text(func(c *clientcmdapi.Config) {
			c.Contexts, c.CurrentContext = map[string]*clientcmdapi.Context{"": c.Contexts["x"]}, ""
		}), ReasonKubeconfigInvalid, "current context"},
		{"whose current context is not in it", text(func(c *clientcmdapi.Config) { c.CurrentContext = "y" }), ReasonKubeconfigInvalid, ""},
		{"whose user is not in it", text(func(c *clientcmdapi.Config) { c.AuthInfos = nil }), ReasonKubeconfigInvalid, ""},
		{"whose cluster is not in it", text(func(c *clientcmdapi.Config) { c.Clusters = nil }), ReasonKubeconfigInvalid, ""},
		{"without a server", text(func(c *clientcmdapi.Config) { c.Clusters["c"].Server = "" }), ReasonKubeconfigInvalid, ""},
		{"with a server that is no URL", text(func(c *clientcmdapi.Config) { c.Clusters["c"].Server = "https://[::1" }), ReasonKubeconfigInvalid, ""},
		{"with an authority that is no certificate", text(func(c *clientcmdapi.Config) { c.Clusters["c"].CertificateAuthorityData = []byte("x") }), ReasonKubeconfigInvalid, ""},
		{"with an auth-provider", text(func(c *clientcmdapi.Config) {
			c.AuthInfos["u"] = &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "azure"}}
		}), ReasonKubeconfigInvalid, `auth-provider "azure"`},
		{"with a certificate of another key", text(func(c *clientcmdapi.Config) {
			c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: otherKey}
		}), ReasonKubeconfigInvalid, "client certificate"},
		{"with a certificate that is not there", text(func(c *clientcmdapi.Config) {
			c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificate: "current.pem", ClientKey: "current.pem"}
		}), ReasonKubeconfigInvalid, "current.pem"},
		{"with an authority that is not there", text(func(c *clientcmdapi.Config) { c.Clusters["c"].CertificateAuthority = "ca.crt" }), ReasonKubeconfigInvalid, "ca.crt"},
		{"with a token that is not there", text(func(c *clientcmdapi.Config) { c.AuthInfos["u"].TokenFile = "token" }), ReasonKubeconfigInvalid, "token"},
		{"with a plugin of no version", text(func(c *clientcmdapi.Config) {
			c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: "x"}}
		}), ReasonKubeconfigInvalid, ""},
		{"too large to be one", bytes.Repeat([]byte("# \n"), maxKubeconfig/3+1), ReasonKubeconfigInvalid, "larger"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := writeFile(t, filepath.Join(t.TempDir(), "kubeconfig"), test.content)
			told := wantReason(t, path, test.want, false)
			if !strings.Contains(told, test.says) || !strings.Contains(told, filepath.Dir(path)) {
				t.Errorf("people are told %q, want it to say %q and to name the file", told, test.says)
			}
		})
	}
}

func TestAKubeconfigThatIsNotThere(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "kubeconfig"), ""} {
		wantReason(t, path, ReasonKubeconfigMissing, false)
	}
}

func TestAKubeconfigThatIsNoFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{t.TempDir(), fifo} {
		wantReason(t, path, ReasonKubeconfigInvalid, false)
	}
}

// A file may be read at any moment of its being written. Whatever was there of it, it must never lead to another server.
func TestAKubeconfigThatIsHalfWritten(t *testing.T) {
	raw, err := clientcmd.Write(kubeconfigFor("https://127.0.0.1:6443", newAuthority(t).pem, nil))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for n := range raw {
		c, err := loadCredentials(writeFile(t, path, raw[:n]))
		switch {
		case err != nil && ReasonOf(err) != ReasonKubeconfigInvalid:
			t.Fatalf("the first %d bytes: got reason %s (%v), want %s", n, ReasonOf(err), err, ReasonKubeconfigInvalid)
		case err == nil && c.config.Host != "https://127.0.0.1:6443":
			t.Fatalf("the first %d bytes: got server %q", n, c.config.Host)
		}
	}
}

// dropped is set in a process that runs one test without root's rights.
const dropped = "CLUSTER_TEST_DROPPED"

func TestFilesThatMayNotBeRead(t *testing.T) {
	if path := os.Getenv(dropped); path != "" {
		wantReason(t, path, ReasonKubeconfigUnreadable, false)
		return
	}
	for _, which := range []string{"kubeconfig", "ca.crt", "current.pem", "token"} {
		path := kubeconfigWithFiles(t)
		dir := filepath.Dir(path)
		for _, readable := range []string{filepath.Dir(dir), dir, path, dir + "/ca.crt", dir + "/current.pem", dir + "/token"} {
			if err := os.Chmod(readable, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, which), 0); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() != 0 {
			wantReason(t, path, ReasonKubeconfigUnreadable, false)
			continue
		}
		asNobody(t, t.Name(), path)
	}
}

// asNobody runs one test of this program as a user without rights, which finds a value in the variable dropped. By way of /proc, since
// that user may not enter the folder in which the program lies.
func asNobody(t *testing.T, test, value string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), dropped+"="+value, "GORACE=atexit_sleep_ms=0")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+test)) {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
}

// Who can write a kubeconfig can send the agent, and what it tells, to a server of their own.
func TestRootBelievesOnlyFilesOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: other users believe whatever they may read")
	}
	unsafe := map[string]func(path string) error{
		"owned by another user": func(path string) error { return os.Chown(path, nobody, 0) },
		"writable by everybody": func(path string) error { return os.Chmod(path, 0o666) },
		"writable by a group that is not root's": func(path string) error {
			if err := os.Chown(path, 0, nobody); err != nil {
				return err
			}
			return os.Chmod(path, 0o660)
		},
	}
	for how, spoil := range unsafe {
		for _, which := range []string{"kubeconfig", "ca.crt", "current.pem", "token"} {
			t.Run(fmt.Sprintf("%s is %s", which, how), func(t *testing.T) {
				path := kubeconfigWithFiles(t)
				if err := spoil(filepath.Join(filepath.Dir(path), which)); err != nil {
					t.Fatal(err)
				}
				wantReason(t, path, ReasonKubeconfigUnsafe, false)
			})
		}
	}
	t.Run("writable by root's group", func(t *testing.T) {
		path := kubeconfigWithFiles(t)
		if err := os.Chmod(path, 0o660); err != nil {
			t.Fatal(err)
		}
		if _, err := loadCredentials(path); err != nil {
			t.Errorf("got error %v, want none", err)
		}
	})
}

// kubeconfigWithFiles writes a kubeconfig that names an authority, a certificate with its key, and a token by relative paths.
func kubeconfigWithFiles(t *testing.T) string {
	t.Helper()
	a := newAuthority(t)
	certificate, key := a.issue(t, "system:node:n1", nil)
	path := writeKubeconfig(t, kubeconfigFor("https://127.0.0.1:1", nil, func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		c.CertificateAuthority = "ca.crt"
		*u = clientcmdapi.AuthInfo{ClientCertificate: "current.pem", ClientKey: "current.pem", TokenFile: "token"}
	}))
	dir := filepath.Dir(path)
	writeFile(t, filepath.Join(dir, "ca.crt"), a.pem)
	writeFile(t, filepath.Join(dir, "current.pem"), append(certificate, key...))
	writeFile(t, filepath.Join(dir, "token"), []byte("of-a-file\n"))
	return path
}

func TestRelativePathsStartAtTheKubeconfig(t *testing.T) {
	c, err := loadCredentials(kubeconfigWithFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	if c.config.BearerToken != "of-a-file" || c.nodeName != "n1" || len(c.config.CAData) == 0 || len(c.files) != 4 {
		t.Errorf("got token %q, node %q and files %v, want those of the files beside the kubeconfig", c.config.BearerToken, c.nodeName, c.files)
	}
	if c.config.CAFile+c.config.CertFile+c.config.KeyFile+c.config.BearerTokenFile != "" {
		t.Errorf("got %+v, want every file read and none left for client-go to watch", c.config)
	}
}

func TestTheNodesNameInACertificate(t *testing.T) {
	a := newAuthority(t)
	for commonName, want := range map[string]string{
		"system:node:edge-1": "edge-1", "system:node:edge-1.example": "edge-1.example", "system:node:": "", "edge-1": "", "system:nodes": "",
		"system:bootstrap:abcdef": "", "": "",
	} {
		certificate, key := a.issue(t, commonName, nil)
		if got := nodeNameOf(append(key, certificate...)); got != want {
			t.Errorf("certificate of %q: got node %q, want %q", commonName, got, want)
		}
	}
	for _, none := range []string{"", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if got := nodeNameOf([]byte(none)); got != "" {
			t.Errorf("%q: got node %q, want none", none, got)
		}
	}
}

func TestTheFirstKubeconfigThatIsThere(t *testing.T) {
	dir := t.TempDir()
	there := writeFile(t, filepath.Join(dir, "there"), nil)
	also := writeFile(t, filepath.Join(dir, "also"), nil)
	for _, test := range []struct {
		name  string
		paths []string
		want  string
	}{
		{"the first that is there counts", []string{dir + "/no", there, also}, there},
		{"empty and relative paths are passed over", []string{"", "there", also}, also},
		{"without any, the first place is named", []string{"", dir + "/no", dir + "/neither"}, dir + "/no"},
		{"without a path there is none", []string{"", "x"}, ""},
		{"one that can't be looked at is taken, so that the error shows", []string{there + "/below", also}, there + "/below"},
	} {
		if got := FindKubeconfig(test.paths); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func FuzzKubeconfig(f *testing.F) {
	a := newAuthority(f)
	certificate, key := a.issue(f, "system:node:n1", nil)
	for _, change := range []func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		nil,
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
		},
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: "./kubelogin", APIVersion: v1, InteractiveMode: "Never"}}
		},
		func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			c.CertificateAuthority, c.ProxyURL, u.TokenFile = "kubeconfig", "http://127.0.0.1:1", "token"
		},
	} {
		raw, err := clientcmd.Write(kubeconfigFor("https://127.0.0.1:6443", a.pem, change))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte("{}"))
	f.Add([]byte("a: &a [*a]"))
	path := filepath.Join(f.TempDir(), "kubeconfig")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		conn, err := newConnection(Source{Kubeconfig: path, HostName: "n1"})
		switch {
		case err != nil && (ReasonOf(err) == ReasonUnavailable || Explain(err, "") == ""):
			t.Errorf("got error %v without a reason of its own", err)
		case err == nil && (conn.credentials.config.Host == "" || conn.nodeName == "" || !conn.credentials.stillCurrent()):
			t.Errorf("got %+v, want a server, a node and files that are the ones that were read", conn)
		}
	})
}
