package probe

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

// told is the part of a kubelet's configuration that tests compare; port -1 stands for one that is not set.
type told struct {
	address  string
	port     int
	endpoint string
}

func toldBy(c kubeletConfig) told {
	t := told{address: c.HealthzBindAddress, port: -1, endpoint: c.ContainerRuntimeEndpoint}
	if c.HealthzPort != nil {
		t.port = *c.HealthzPort
	}
	return t
}

func TestTheKubeletsEffectiveSettings(t *testing.T) {
	const yamlFile = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nhealthzPort: 11\nhealthzBindAddress: 127.0.0.2\n" +
		"containerRuntimeEndpoint: unix:///run/a.sock\n"
	const jsonFile = `{"kind":"KubeletConfiguration","healthzPort":11,"healthzBindAddress":"127.0.0.2","containerRuntimeEndpoint":"unix:///run/a.sock"}`
	whole := told{"127.0.0.2", 11, "unix:///run/a.sock"}
	for _, test := range []struct {
		name  string
		files map[string]string // below the folder
		args  []string          // $D stands for it; nil: not known
		want  told
	}{
		{"nothing is known and nothing there", nil, nil, told{port: -1}},
		{"nothing is known: the usual file counts", map[string]string{"config.yaml": yamlFile}, nil, whole},
		{"no --config: the usual file is not read", map[string]string{"config.yaml": yamlFile}, []string{"--v=2"}, told{port: -1}},
		{"YAML", map[string]string{"k": yamlFile}, []string{"--config=$D/k"}, whole},
		{"JSON", map[string]string{"k": jsonFile}, []string{"--config", "$D/k"}, whole},
		{"CRLF", map[string]string{"k": "healthzPort: 11\r\nhealthzBindAddress: 127.0.0.2\r\n"}, []string{"--config", "$D/k"}, told{"127.0.0.2", 11, ""}},
		{"an empty file", map[string]string{"k": ""}, []string{"--config=$D/k"}, told{port: -1}},
		{"0 is off and not unset", map[string]string{"k": "healthzPort: 0\n"}, []string{"--config=$D/k"}, told{port: 0}},
		{"drop-ins win, in the order of their names", map[string]string{
			"k": yamlFile, "d/20-b.conf": "healthzPort: 20\n", "d/10-a.conf": "healthzPort: 10\nhealthzBindAddress: '::1'\n",
		}, []string{"--config=$D/k", "--config-dir=$D/d"}, told{"::1", 20, "unix:///run/a.sock"}},
		{"drop-ins below count, other files don't", map[string]string{
			"k": yamlFile, "d/50-deep/x.conf": "healthzPort: 50\n", "d/60-b.yaml": "healthzPort: 60\n", "d/70-c.conf.bak": "healthzPort: 70\n",
		}, []string{"--config=$D/k", "--config-dir=$D/d"}, told{"127.0.0.2", 50, "unix:///run/a.sock"}},
		{"a folder with marks in its name", map[string]string{"k[1]*/a.conf": "healthzPort: 5\n"}, []string{"--config-dir=$D/k[1]*"}, told{port: 5}},
		{"a drop-in that is broken is passed over", map[string]string{"d/1.conf": "{", "d/2.conf": "healthzPort: 2\n"}, []string{"--config-dir=$D/d"}, told{port: 2}},
		{"no folder of drop-ins", map[string]string{"k": yamlFile}, []string{"--config=$D/k", "--config-dir=$D/none"}, whole},
		{"flags win", map[string]string{"k": yamlFile, "d/1.conf": "healthzPort: 20\n"}, []string{
			"--config=$D/k", "--config-dir", "$D/d", "--healthz-port=30", "--healthz-bind-address", "127.0.0.3", "--container-runtime-endpoint=unix:///run/f.sock",
		}, told{"127.0.0.3", 30, "unix:///run/f.sock"}},
		{"a flag of 0 wins too", map[string]string{"k": yamlFile}, []string{"--config=$D/k", "--healthz-port", "0"}, told{"127.0.0.2", 0, "unix:///run/a.sock"}},
		{"a flag that is no number is none", map[string]string{"k": yamlFile}, []string{"--config=$D/k", "--healthz-port=x"}, whole},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, dir := newSuite(t)
			for name, content := range test.files {
				putFile(t, filepath.Join(dir, name), []byte(content), 0o644)
			}
			got, err := s.kubeletConfigOf(withFolder(test.args, dir), test.args != nil)
			if err != nil || toldBy(got) != test.want {
				t.Errorf("got %+v and error %v, want %+v", toldBy(got), err, test.want)
			}
		})
	}
}

func withFolder(args []string, dir string) []string {
	var whole []string
	for _, a := range args {
		whole = append(whole, string(bytes.ReplaceAll([]byte(a), []byte("$D"), []byte(dir))))
	}
	return whole
}

func TestAKubeletConfigThatCanNotBeRead(t *testing.T) {
	huge := append(bytes.Repeat([]byte("# \n"), maxKubeletConfig/3+1), "healthzPort: 1\n"...)
	for _, test := range []struct {
		name string
		put  func(path string) error
		is   error
	}{
		{"it is not there", func(string) error { return nil }, fs.ErrNotExist},
		{"it is broken", func(path string) error { return os.WriteFile(path, []byte("healthzPort: [1\n"), 0o644) }, nil},
		{"its port is a word", func(path string) error { return os.WriteFile(path, []byte("healthzPort: none\n"), 0o644) }, nil},
		{"it is zeros", func(path string) error { return os.WriteFile(path, make([]byte, 100), 0o644) }, nil},
		{"it is huge", func(path string) error { return os.WriteFile(path, huge, 0o644) }, nil},
		{"it is a FIFO", func(path string) error { return syscall.Mkfifo(path, 0o644) }, nil},
		{"it is a folder", func(path string) error { return os.Mkdir(path, 0o755) }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, dir := newSuite(t)
			path := filepath.Join(dir, "k")
			if err := test.put(path); err != nil {
				t.Fatal(err)
			}
			args := []string{"--config=" + path, "--container-runtime-endpoint=unix:///run/f.sock"}
			got, err := s.kubeletConfigOf(args, true)
			if err == nil || (test.is != nil && !errors.Is(err, test.is)) {
				t.Errorf("got error %v, want one (%v)", err, test.is)
			}
			if want := (told{port: -1, endpoint: "unix:///run/f.sock"}); toldBy(got) != want {
				t.Errorf("got %+v, want the flags over the defaults: %+v", toldBy(got), want)
			}
			u := units{kubelet: running("kubelet.service", 0, append([]string{"/usr/bin/kubelet"}, args...)...)}
			hasUnits(s, u)
			wantSeen(t, s.lookAtKubeletHealth(t.Context(), time.Now()), observe.Unknown, "KubeletConfigUnreadable", "health endpoint")
			if got := s.runtimeSocket(units{kubelet: running("kubelet.service", 0, append([]string{"/usr/bin/kubelet"}, args...)...)}); got != "/run/f.sock" {
				t.Errorf("got socket %q, want that of the flag", got)
			}
		})
	}
}

func TestAKubeletConfigThatMayNotBeRead(t *testing.T) {
	if path := os.Getenv(ofNobody); path != "" {
		s, _ := newSuite(t)
		s.settings.kubeletConfig = path
		if _, err := s.kubeletConfigOf(nil, false); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("got error %v, want %v: the file may say another port", err, fs.ErrPermission)
		}
		return
	}
	needsRoot(t, "it makes a file that another user may not read")
	asNobody(t, putFile(t, filepath.Join(t.TempDir(), "config.yaml"), []byte("healthzPort: 1\n"), 0o600))
}

func TestAKubeletConfigIsReadAgainWhenItWasReplaced(t *testing.T) {
	s, dir := newSuite(t)
	for _, port := range []string{"1", "2"} {
		putFile(t, filepath.Join(dir, "config.yaml"), []byte("healthzPort: "+port+"\n"), 0o644)
		for range 2 {
			got, err := s.kubeletConfigOf(nil, false)
			if err != nil || toldBy(got).port != int(port[0]-'0') {
				t.Errorf("got %+v and error %v, want port %s", toldBy(got), err, port)
			}
		}
	}
	for i := range 2 * maxVersions {
		path := putFile(t, filepath.Join(dir, "many", string(rune('A'+i))), nil, 0o644)
		if _, err := s.parsed.get(path, loadKubeletConfig); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(s.parsed.known); got > maxVersions {
		t.Errorf("got %d files kept, want at most %d", got, maxVersions)
	}
}

func TestTheSocketOfTheRuntime(t *testing.T) {
	for _, test := range []struct{ name, endpoint, want string }{
		{"the kubelet names one", "unix:///run/k3s/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"},
		{"as a path", "/run/other.sock", "/run/other.sock"},
		{"none", "", "usual"},
		{"one of another kind", "tcp://127.0.0.1:1", "usual"},
		{"a relative one", "unix://run/x.sock", "usual"},
		{"something else", "npipe:////./pipe/containerd", "usual"},
	} {
		s, dir := newSuite(t)
		s.settings.criSocket = "usual"
		putFile(t, filepath.Join(dir, "config.yaml"), []byte("containerRuntimeEndpoint: '"+test.endpoint+"'\n"), 0o644)
		if got := s.runtimeSocket(units{}); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func FuzzKubeletConfig(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[]", "healthzPort: 10248\n", "healthzPort: 0", `{"healthzPort":65536}`, "healthzPort: 1e3", "healthzPort: -1",
		"healthzBindAddress: '::'\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n", "healthzBindAddress: \"a\\nb c/%zz\"",
		"a: &a [*a]", "a: &a {x: 1}\n<<: *a\n", "---\nhealthzPort: 1\n---\nhealthzPort: 2\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parseKubeletConfig(raw)
		if err != nil {
			return
		}
		url := healthzURL(c)
		if off := c.HealthzPort != nil && *c.HealthzPort == 0; off != (url == "") {
			t.Errorf("got URL %q of %+v, want none only when it is off", url, toldBy(c))
		}
		if got := toldBy(c.overriddenBy(kubeletConfig{})); got != toldBy(c) {
			t.Errorf("got %+v, want an empty drop-in to change nothing: %+v", got, toldBy(c))
		}
	})
}
