package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestTheEnvironmentOfAPlugin(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	t.Setenv("AGENT_SECRET", "x")
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	t.Setenv("NO_PROXY", "127.0.0.1")
	for _, test := range []struct {
		name, variable, want string
		ofAgent, ofConfig    []string // KEY=VALUE
	}{
		{name: "the kubelet's own settings are passed on", variable: "AZURE_CLIENT_ID", want: "k", ofAgent: []string{"AZURE_CLIENT_ID=k"}},
		{name: "the kubeconfig's are", variable: "AAD_LOGIN_METHOD", want: "msi", ofConfig: []string{"AAD_LOGIN_METHOD=msi"}},
		{name: "the kubeconfig's win", variable: "AZURE_CLIENT_ID", want: "c", ofAgent: []string{"AZURE_CLIENT_ID=k"}, ofConfig: []string{"AZURE_CLIENT_ID=c"}},
		{name: "a proxy is passed on", variable: "HTTPS_PROXY", want: "http://proxy.example:3128"},
		{name: "systemd's socket is not", variable: "NOTIFY_SOCKET", want: ""},
		{name: "other variables of the agent are not", variable: "AGENT_SECRET", want: ""},
		{name: "the language is fixed", variable: "LC_ALL", want: "C"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newAPIServer(t, nil, nil)
			p := withPlugin(t, s, "print", func(e *clientcmdapi.ExecConfig) {
				e.Env = append(e.Env, clientcmdapi.ExecEnvVar{Name: pluginSees, Value: test.variable})
				for _, pair := range test.ofConfig {
					name, value, _ := strings.Cut(pair, "=")
					e.Env = append(e.Env, clientcmdapi.ExecEnvVar{Name: name, Value: value})
				}
			})
			p.source.PluginEnv = test.ofAgent
			p.answers(t, v1, token("saw $SEEN"), time.Time{})
			mustSee(t, newClient(t), s, p.source, "/api/v1/nodes/n1 Bearer saw "+test.want)
		})
	}
}

func TestWhereAPluginIsFound(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := newAPIServer(t, nil, nil)
	t.Run("a relative path starts at the kubeconfig", func(t *testing.T) {
		p := withPlugin(t, s, "print", func(e *clientcmdapi.ExecConfig) { e.Command = "./plugin" })
		if err := os.Symlink(self, filepath.Join(filepath.Dir(p.source.Kubeconfig), "plugin")); err != nil {
			t.Fatal(err)
		}
		p.answers(t, v1, token("x"), time.Time{})
		mustSee(t, newClient(t), s, p.source, "/api/v1/nodes/n1 Bearer x")
	})
	t.Run("a name is looked up in the usual folders", func(t *testing.T) {
		var answer string
		p := withPlugin(t, s, "print", func(e *clientcmdapi.ExecConfig) {
			answer = e.Env[1].Value
			e.Command, e.Args = "cat", []string{answer}
		})
		p.answers(t, v1, token("of-cat"), time.Time{})
		mustSee(t, newClient(t), s, p.source, "/api/v1/nodes/n1 Bearer of-cat")
	})
	for name, command := range map[string]string{
		"a name that is in none of them is not installed": "kubelogin-of-nowhere",
		"a path that leads nowhere":                       "/nowhere/kubelogin",
		"a folder":                                        "/usr/bin/",
	} {
		t.Run(name, func(t *testing.T) {
			p := withPlugin(t, s, "print", func(e *clientcmdapi.ExecConfig) { e.Command = command })
			told := wantReason(t, p.source.Kubeconfig, ReasonPluginFailed, true)
			if !strings.Contains(told, strings.TrimSuffix(command, "/")) {
				t.Errorf("people are told %q, want it to name %s", told, command)
			}
		})
	}
}

func TestRootRunsOnlyAPluginOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: other users run what they may run")
	}
	s := newAPIServer(t, nil, nil)
	marker := filepath.Join(t.TempDir(), "it-ran")
	for name, spoil := range map[string]func(path string) error{
		"of another user":       func(path string) error { return os.Chown(path, nobody, 0) },
		"writable by everybody": func(path string) error { return os.Chmod(path, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "plugin")
			if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+marker+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := spoil(program); err != nil {
				t.Fatal(err)
			}
			p := withPlugin(t, s, "print", func(e *clientcmdapi.ExecConfig) { e.Command = program })
			wantReason(t, p.source.Kubeconfig, ReasonPluginFailed, true)
			if _, err := os.Stat(marker); !os.IsNotExist(err) {
				t.Errorf("the program was run (%v)", err)
			}
		})
	}
}

// A connection keeps the certificate that it was made with, so that another certificate needs another connection.
func TestAPluginsCertificateIsShownAndRenewed(t *testing.T) {
	var p pluginSetup
	answerCertificate := func(s *apiServer, commonName string, until time.Time) {
		certificate, key := s.authority.issue(t, commonName, nil)
		p.answers(t, v1, clientauthentication.ExecCredentialStatus{ClientCertificateData: string(certificate), ClientKeyData: string(key)}, until)
	}
	t.Run("when it is refused", func(t *testing.T) {
		var s *apiServer
		s = newAPIServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
			if r.TLS.PeerCertificates[0].Subject.CommonName == "revoked" {
				answerCertificate(s, "renewed", time.Time{})
				answerStatus(401, metav1.StatusReasonUnauthorized)(w, r)
				return
			}
			answerNode(w, r)
		})
		p = withPlugin(t, s, "print", nil)
		answerCertificate(s, "revoked", time.Time{})
		c := newClient(t)
		mustSee(t, c, s, p.source, "/api/v1/nodes/n1 revoked", "/api/v1/nodes/n1 renewed")
		mustSee(t, c, s, p.source, "/api/v1/nodes/n1 renewed")
		c.Close()
		eventually(t, "all connections end", func() bool { return s.connections() == 0 })
	})
	t.Run("before it expires", func(t *testing.T) {
		s, c := newAPIServer(t, nil, nil), newClient(t)
		p = withPlugin(t, s, "print", nil)
		answerCertificate(s, "first", time.Now().Add(expiryMargin-time.Second))
		mustSee(t, c, s, p.source, "/api/v1/nodes/n1 first")
		answerCertificate(s, "second", time.Now().Add(time.Hour))
		mustSee(t, c, s, p.source, "/api/v1/nodes/n1 second")
		mustSee(t, c, s, p.source, "/api/v1/nodes/n1 second")
		c.Close()
		eventually(t, "all connections end", func() bool { return s.connections() == 0 })
	})
}

func FuzzExecCredential(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", "[]", `{"kind":"ExecCredential","apiVersion":"` + v1 + `","status":{"token":"s3cret"}}`,
		`{"kind":"ExecCredential","apiVersion":"` + v1 + `","status":{"clientCertificateData":"a","clientKeyData":"b","expirationTimestamp":"2026-01-15T17:47:26Z"}}`,
		`{"kind":"ExecCredential","apiVersion":"` + v1beta1 + `","status":{"token":"s3cret","expirationTimestamp":null}}`,
		`{"kind":"ExecCredential","apiVersion":"` + v1 + `","status":{"token":1}}`,
	} {
		f.Add([]byte(seed), v1)
		f.Add([]byte(seed), v1beta1)
	}
	f.Fuzz(func(t *testing.T, out []byte, apiVersion string) {
		got, err := parseExecCredential(out, apiVersion)
		switch {
		case err != nil && got != nil:
			t.Errorf("got both %+v and error %v", got, err)
		case err == nil && got.Token == "" && (got.ClientCertificateData == "" || got.ClientKeyData == ""):
			t.Errorf("got %+v, which holds no credentials", got)
		}
	})
}
