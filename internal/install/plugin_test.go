package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

const answer = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","status":{"token":"secret-token"}}`

func kubeconfig(command string) string {
	return `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443"}}]
users:
- name: u
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: ` + command + `
      args: [token, kubelogin, --server-id, "6dae42f8-4368-4678-94ff-3960e28e3630"]
      env: [{name: AAD_LOGIN_METHOD, value: msi}, {name: AZURE_CLIENT_ID, value: "id 1"}]
`
}

// script is a program that answers as told, if it is asked as the kubelet asks.
func script(then string) string {
	return `#!/bin/sh
[ "$*" = "token kubelogin --server-id 6dae42f8-4368-4678-94ff-3960e28e3630" ] || { echo "asked for $*" >&2; exit 9; }
[ "$AAD_LOGIN_METHOD/$AZURE_CLIENT_ID" = "msi/id 1" ] || { echo "environment: $(env)" >&2; exit 8; }
case $KUBERNETES_EXEC_INFO in *'"apiVersion":"client.authentication.k8s.io/v1beta1"'*) ;; *) echo "exec info" >&2; exit 7;; esac
` + then + "\n"
}

func TestInstallKeepsTheKubeletsCredentials(t *testing.T) {
	works, down := script("echo '"+answer+"'"), script("echo 'link is down' >&2; exit 1")
	for _, tc := range []struct {
		name     string
		command  string // of the kubelet's plugin
		old, new string // "" for no old program
		force    bool
		refused  string // part of the error; empty for none
		noted    string
	}{
		{"both get them", ProgramPath, works, works + "# new", false, "", "The new program gets them too"},
		{"it is looked up in PATH", "aks-flex-node", works, down, false, "this would cut", ""},
		{"the new one does not", ProgramPath, works, down, false, "this would cut the kubelet's credentials (/var/lib/kubelet/kubelet/kubeconfig): the program that is there gets them, the new one does not: exit status 1: link is down", ""},
		{"the new one does not, by force", ProgramPath, works, down, true, "this would cut", ""},
		{"neither does", ProgramPath, down + "# old", down, false, "neither does now", ""},
		{"neither does, by force", ProgramPath, down + "# old", down, true, "", "Neither program gets"},
		{"the new one answers nonsense", ProgramPath, works, script("echo hello"), false, "not an ExecCredential in JSON", ""},
		{"the new one answers in another version", ProgramPath, works, script("echo '" + strings.Replace(answer, "v1beta1", "v1", 1) + "'"), false, "not an ExecCredential of", ""},
		{"the new one answers without a token", ProgramPath, works, script("echo '" + strings.Replace(answer, "secret-token", "", 1) + "'"), false, "holds no credentials", ""},
		{"the new one's token has expired", ProgramPath, works, script("echo '" + strings.Replace(answer, `"token"`, `"expirationTimestamp":"2020-01-01T00:00:00Z","token"`, 1) + "'"), false, "expired", ""},
		{"there is no program yet, and the new one does not", ProgramPath, "", down, false, "", "can't get them yet"},
		{"the kubelet runs another plugin", "/usr/bin/kubelogin", works, down, false, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			m.program(t, tc.new)
			if tc.old != "" {
				m.write(t, ProgramPath, tc.old, 0o755)
			}
			m.write(t, "/var/lib/kubelet/kubelet/kubeconfig", kubeconfig(tc.command), 0o600)
			m.Force = tc.force
			before := m.tree(t)
			err := m.install(t)
			if tc.refused == "" {
				must(t, err)
				wantText(t, "notes", m.notes(), tc.noted)
				m.wantFile(t, ProgramPath, tc.new, 0o755)
				return
			}
			if err == nil {
				t.Fatalf("got no error, want one with %q", tc.refused)
			}
			wantText(t, "error", err.Error(), tc.refused)
			if strings.Contains(err.Error(), "secret-token") {
				t.Errorf("error: got %q, want no secret", err)
			}
			if m.tree(t) != before {
				t.Error("got changes, want none")
			}
		})
	}
}

func TestTheKubeletsOwnCommandLineSaysWhereItsKubeconfigIs(t *testing.T) {
	m := newMachine(t)
	m.write(t, "/var/lib/kubelet/kubelet/kubeconfig", kubeconfig("/usr/bin/kubelogin"), 0o600)
	m.write(t, "/srv/kubeconfig", kubeconfig(ProgramPath), 0o600)
	m.write(t, ProgramPath, script("echo '"+answer+"'"), 0o755)
	m.systemd.kubelet = observe.Unit{LoadState: "loaded", ExecStart: []string{"/usr/local/bin/kubelet", "--kubeconfig", "/srv/kubeconfig"}}
	err := m.install(t)
	if err == nil {
		t.Fatal("got no error, want that the kubelet's credentials would be cut")
	}
	wantText(t, "error", err.Error(), "/srv/kubeconfig")
}

func TestThePluginIsRunWithTheKubeletsEnvironment(t *testing.T) {
	m := newMachine(t)
	works := script(`[ "$FROM_KUBELET$https_proxy" = yes ] || { echo "environment: $(env)" >&2; exit 6; }` + "\necho '" + answer + "'")
	t.Setenv("https_proxy", "http://127.0.0.1:1") // ours, not the kubelet's
	m.program(t, works+"# new")
	m.write(t, ProgramPath, works, 0o755)
	m.write(t, "/srv/kubeconfig", kubeconfig(ProgramPath), 0o600)
	kubelet := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read x", "kubelet", "--kubeconfig=/srv/kubeconfig")
	kubelet.Env = []string{"FROM_KUBELET=yes", "AZURE_CLIENT_ID=the kubeconfig's counts"}
	stdin, err := kubelet.StdinPipe()
	must(t, err)
	must(t, kubelet.Start())
	defer func() {
		stdin.Close()
		_ = kubelet.Wait() // its end is all that matters
	}()
	m.systemd.kubelet = observe.Unit{LoadState: "loaded", ActiveState: "active", MainPID: kubelet.Process.Pid}
	m.mustInstall(t)
	wantText(t, "notes", m.notes(), "(/srv/kubeconfig). The new program gets them too")
}

func TestAPluginThatIsALinkToOurProgramIsOurs(t *testing.T) {
	m := newMachine(t)
	m.program(t, script("exit 1"))
	m.write(t, ProgramPath, script("echo '"+answer+"'"), 0o755)
	m.write(t, "/opt/kubelogin/.keep", "", 0o644)
	must(t, os.Symlink("../../usr/local/bin/aks-flex-node", filepath.Join(m.Root, "/opt/kubelogin/plugin")))
	m.write(t, "/opt/kubelogin/kubeconfig", kubeconfig("./plugin"), 0o600)
	m.systemd.kubelet = observe.Unit{ExecStart: []string{"kubelet", "--kubeconfig=/opt/kubelogin/kubeconfig"}}
	err := m.install(t)
	if err == nil {
		t.Fatal("got no error, want that the kubelet's credentials would be cut")
	}
	wantText(t, "error", err.Error(), "this would cut")
}

func TestFlagValue(t *testing.T) {
	for want, args := range map[string][]string{
		"/a":       {"kubelet", "--kubeconfig=/a"},
		"/b":       {"kubelet", "-kubeconfig", "/b"},
		"/c":       {"kubelet", "--kubeconfig=/a", "--kubeconfig=/c"},
		"":         {"kubelet", "kubeconfig=/a", "--kubeconfig"},
		"/e=/f --": {"kubelet", "--kubeconfig", "/e=/f --"},
	} {
		if got := host.FlagValue(args, "kubeconfig"); got != want {
			t.Errorf("host.FlagValue(%q): got %q, want %q", args, got, want)
		}
	}
}

func TestThePluginGetsTheKubeletsProxyAndNotOurs(t *testing.T) {
	got := strings.Join(kubeletEnvironment([]string{"HTTPS_PROXY=http://proxy", "NOTIFY_SOCKET=/run/x", "AZURE_TENANT_ID=t"}), " ")
	for _, want := range []string{"http_proxy= ", " HTTPS_PROXY=http://proxy AZURE_TENANT_ID=t"} {
		wantText(t, "environment", got, want)
	}
	if strings.Contains(got, "NOTIFY_SOCKET") {
		t.Errorf("environment: got %q, want no NOTIFY_SOCKET", got)
	}
}
