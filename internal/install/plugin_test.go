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

// process runs a shell that waits for its end, with these arguments behind it, as the process of a kubelet.
func process(t *testing.T, env []string, args ...string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", "read x"}, args...)...)
	cmd.Env = env
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // its end is all that matters
	})
	return cmd.Process.Pid
}

func TestWhereTheKubeletsKubeconfigCanNotBeSeen(t *testing.T) {
	stopped := func(args ...string) func(*testing.T) observe.Unit {
		return func(*testing.T) observe.Unit { return observe.Unit{LoadState: "loaded", ExecStart: args} }
	}
	variables := []string{"/usr/bin/kubelet", "--v=2", "$KUBELET_ARGS"}
	for _, tc := range []struct {
		name    string
		kubelet func(*testing.T) observe.Unit
		hidden  string // part of the reason; empty where it can be told that the kubelet does not need the program
	}{
		{"given no kubelet", func(*testing.T) observe.Unit { return observe.Unit{LoadState: "not-found"} }, ""},
		{"given a stopped one without a kubeconfig", stopped("/usr/bin/kubelet", "--config=/etc/kubelet.yaml"), ""},
		{"given a stopped one with a kubeconfig and variables", stopped("/usr/bin/kubelet", "--kubeconfig=/srv/certificate", "$KUBELET_ARGS"), ""},
		{"given a stopped one with variables", stopped(variables...), "variables: start it"},
		{"given one between the restarts of a crash loop", func(*testing.T) observe.Unit {
			return observe.Unit{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", ExecStart: variables}
		}, "variables: start it"},
		{"given one that ended this moment", func(*testing.T) observe.Unit {
			return observe.Unit{LoadState: "loaded", ActiveState: "active", MainPID: 1 << 30, ExecStart: variables}
		}, "variables: start it"},
		{"given a stopped one with a part of the path in a variable", stopped("/usr/bin/kubelet", "--kubeconfig", "/srv/${NAME}/kubeconfig"), "variables: start it"},
		{"given a stopped one with a path that is not whole", stopped("/usr/bin/kubelet", "--kubeconfig=kubeconfig"), `"kubeconfig" is not a whole path`},
		{"given a stopped wrapper", stopped("/opt/start-kubelet"), "runs /opt/start-kubelet"},
		{"given a stopped wrapper that gets the kubeconfig", stopped("/opt/start-kubelet", "--kubeconfig=/srv/certificate"), ""},
		{"given a masked one", func(*testing.T) observe.Unit { return observe.Unit{LoadState: "masked"} }, "no command of it (it is masked)"},
		{"given a running one with variables", func(t *testing.T) observe.Unit {
			pid := process(t, nil, "kubelet", "--kubeconfig=/srv/certificate", "a $ sign")
			return observe.Unit{LoadState: "loaded", ActiveState: "active", MainPID: pid, ExecStart: variables}
		}, ""},
		{"given a running wrapper", func(t *testing.T) observe.Unit {
			return observe.Unit{LoadState: "loaded", ActiveState: "active", MainPID: process(t, nil), ExecStart: []string{"/opt/start-kubelet"}}
		}, "runs /bin/sh"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			m.mustInstall(t)
			m.write(t, "/srv/certificate", kubeconfig("/usr/bin/other"), 0o600)
			m.write(t, "/var/lib/kubelet/kubeconfig", kubeconfig("/usr/bin/other"), 0o600) // which it may not read
			m.systemd.kubelet = tc.kubelet(t)
			m.program(t, "version 2")
			before := m.tree(t)
			err := m.Install(t.Context(), true, m.show)
			must(t, m.Uninstall(t.Context(), true, false, m.show))
			if tc.hidden == "" {
				must(t, err)
				wantText(t, "uninstall", m.verbs(), "stop disable remove have remove remove")
				m.mustInstall(t)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.hidden) || !strings.Contains(err.Error(), "or say --force if no kubeconfig of the kubelet runs this program") {
				t.Errorf("install: got %v, want a refusal with %q", err, tc.hidden)
			}
			wantText(t, "uninstall", m.notes(), ProgramPath+" is left alone: it can't be told whether the kubelet gets its credentials from it")
			wantText(t, "uninstall", m.notes(), tc.hidden)
			m.uninstall(t, false)
			m.wantFile(t, ProgramPath, "the new program", 0o755)
			m.wantNone(t, UnitPath)
			if m.tree(t) == before {
				t.Error("uninstall: got nothing done, want the service gone")
			}
			m.Force = true
			m.mustInstall(t)
			m.wantFile(t, ProgramPath, "version 2", 0o755)
		})
	}
}

func TestAPluginInAUsualPlaceCountsWhereTheKubeconfigCanNotBeSeen(t *testing.T) {
	m := newMachine(t)
	m.program(t, script("exit 1"))
	m.write(t, ProgramPath, script("echo '"+answer+"'"), 0o755)
	m.write(t, "/var/lib/kubelet/kubelet/kubeconfig", kubeconfig(ProgramPath), 0o600)
	m.systemd.kubelet = observe.Unit{LoadState: "loaded", ExecStart: []string{"/usr/bin/kubelet", "$KUBELET_ARGS"}}
	m.Force = true // which must not open that gate
	err := m.install(t)
	if err == nil {
		t.Fatal("got no error, want that the kubelet's credentials would be cut")
	}
	wantText(t, "error", err.Error(), "this would cut")
}

func TestAFreshMachineNeedsNoKubelet(t *testing.T) {
	m := newMachine(t)
	m.systemd.kubelet = observe.Unit{LoadState: "loaded", ExecStart: []string{"/usr/bin/kubelet", "$KUBELET_ARGS"}}
	m.mustInstall(t)
	if strings.Contains(m.notes(), "can't be told") {
		t.Errorf("notes: got %q, want none of the kubelet: there is no program to lose", m.notes())
	}
}

func TestThePluginIsRunWithTheKubeletsEnvironment(t *testing.T) {
	m := newMachine(t)
	works := script(`[ "$FROM_KUBELET$https_proxy" = yes ] || { echo "environment: $(env)" >&2; exit 6; }` + "\necho '" + answer + "'")
	t.Setenv("https_proxy", "http://127.0.0.1:1") // ours, not the kubelet's
	m.program(t, works+"# new")
	m.write(t, ProgramPath, works, 0o755)
	m.write(t, "/srv/kubeconfig", kubeconfig(ProgramPath), 0o600)
	pid := process(t, []string{"FROM_KUBELET=yes", "AZURE_CLIENT_ID=the kubeconfig's counts"}, "kubelet", "--kubeconfig=/srv/kubeconfig")
	m.systemd.kubelet = observe.Unit{LoadState: "loaded", ActiveState: "active", MainPID: pid}
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
