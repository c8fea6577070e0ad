package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
)

const (
	kubeletUnit = "kubelet.service"
	// pluginWait is how long a credential plugin may take: over a dead link the Azure SDK tries for some ten seconds.
	pluginWait    = 40 * time.Second
	maxKubeconfig = 1 << 20
)

// plugin is the way in which the kubelet gets its credentials by running a program.
type plugin struct {
	kubeconfig string // path of the kubeconfig that says so
	exec       *clientcmdapi.ExecConfig
	env        []string // with which the kubelet runs it
}

// usesUs says whether the program that g runs is the one at our place, by its name or through a link.
func (i *Installer) usesUs(g *plugin) bool {
	if g == nil {
		return false
	}
	command := g.exec.Command
	switch {
	case command == path.Base(ProgramPath):
		return true // wherever else one of that name may lie
	case !strings.Contains(command, "/"):
		command = host.FindProgram(command, host.DefaultPath)
	case !path.IsAbs(command): // relative to the kubeconfig
		command = path.Join(path.Dir(g.kubeconfig), command)
	}
	if path.Clean(command) == ProgramPath {
		return true
	}
	one, err1 := os.Stat(i.at(command))
	two, err2 := os.Stat(i.at(ProgramPath))
	return err1 == nil && err2 == nil && os.SameFile(one, two)
}

// findPlugin reads the kubelet's kubeconfig. The plugin is nil when it has none; an error says why that can't be told.
func (i *Installer) findPlugin(kubelet observe.Unit) (*plugin, error) {
	var args, env []string
	if kubelet.MainPID > 0 {
		// Without them, a kubelet that just ended is as one that does not run.
		args, _ = host.CommandLine(kubelet.MainPID)
		env, _ = host.Environ(kubelet.MainPID)
	}
	runs := len(args) > 0
	if !runs {
		args = kubelet.ExecStart
	}
	g, err := i.readPlugin(i.kubeconfig(args), env)
	if hides := hidesKubeconfig(kubelet, args, runs); hides != nil && err == nil && !i.usesUs(g) {
		return nil, hides // what lies in the usual places may not be what the kubelet reads
	}
	return g, err
}

// hidesKubeconfig says why the kubelet's arguments don't tell which kubeconfig it reads; nil when they do. They are those of its process
// when it runs, else those of its unit, in which systemd leaves variables as they are written.
func hidesKubeconfig(kubelet observe.Unit, args []string, runs bool) error {
	given := host.FlagValue(args, "kubeconfig")
	variable := func(s string) bool { return !runs && strings.Contains(s, "$") }
	switch {
	case path.IsAbs(given) && !variable(given):
		return nil
	case len(args) == 0 && kubelet.Exists():
		return fmt.Errorf("%s does not run, and systemd knows no command of it (it is %s)", kubeletUnit, kubelet.LoadState)
	case len(args) == 0:
		return nil
	case slices.ContainsFunc(args, variable):
		return errors.New("the kubelet does not run, and its unit has the arguments in variables: start it, so that they can be seen")
	case given != "":
		return fmt.Errorf("the kubelet's --kubeconfig %q is not a whole path", given)
	case path.Base(args[0]) != "kubelet":
		return fmt.Errorf("%s runs %s, which does not show what kubeconfig the kubelet gets", kubeletUnit, args[0])
	}
	return nil
}

// readPlugin reads the plugin of a kubeconfig, for which a missing file is as one without a plugin.
func (i *Installer) readPlugin(found string, env []string) (*plugin, error) {
	raw, err := host.ReadFile(found, maxKubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // as findPlugin says
	}
	if err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", found, err)
	}
	current := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if current == nil {
		return nil, fmt.Errorf("kubeconfig %s has no current context", found)
	}
	user := kubeconfig.AuthInfos[current.AuthInfo]
	if user == nil || user.Exec == nil {
		return nil, nil //nolint:nilnil // as findPlugin says
	}
	g := &plugin{kubeconfig: strings.TrimPrefix(found, strings.TrimSuffix(i.Root, "/")), exec: user.Exec, env: kubeletEnvironment(env)}
	for _, e := range user.Exec.Env {
		g.env = append(g.env, e.Name+"="+e.Value)
	}
	return g, nil
}

// kubeconfig returns the kubelet's: what its command line says, else what the configuration says, else the usual places.
func (i *Installer) kubeconfig(args []string) string {
	var cfg *config.Config
	if result, _ := config.Load(i.at(i.Config)); result != nil { // its mistakes are told elsewhere
		cfg = result.Config
	}
	var places []string
	for _, p := range append([]string{host.FlagValue(args, "kubeconfig")}, cluster.UsualKubeconfigs(cfg)...) {
		if path.IsAbs(p) {
			places = append(places, i.at(p))
		}
	}
	return cluster.FindKubeconfig(places)
}

// kubeletEnvironment is what a plugin gets of the kubelet's environment, and nothing of ours: a proxy that only the person who installs
// has would show a way that the kubelet can't go. A nil environment is one that nobody could read.
func kubeletEnvironment(env []string) []string {
	if env == nil {
		return nil
	}
	var out []string
	for _, key := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"} {
		out = append(out, key+"=") // what the kubelet sets comes later and counts
	}
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !slices.Contains([]string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}, name) {
			out = append(out, e)
		}
	}
	return out
}

// keepsCredentials refuses to put another program in the place of the one from which the kubelet gets its credentials, unless the new one
// gets them too.
func (i *Installer) keepsCredentials(ctx context.Context, p *Plan, kubelet observe.Unit, program target) error {
	g, err := i.findPlugin(kubelet)
	switch {
	case err == nil:
	case !program.now.exists:
		return nil // nobody gets anything from it now
	case !i.Force:
		return fmt.Errorf("it can't be told whether the kubelet gets its credentials from %s, which is to be replaced: %w. Mend that, or say --force if no kubeconfig of the kubelet runs this program", ProgramPath, err)
	default:
		p.note("It can't be told whether the kubelet gets its credentials from %s: %v", ProgramPath, err)
		return nil
	}
	if !i.usesUs(g) {
		return nil
	}
	failed := i.tryPlugin(ctx, g, i.Program)
	switch {
	case failed == nil:
		p.note("The kubelet gets its credentials from %s (%s). The new program gets them too: this was tried.", ProgramPath, g.kubeconfig)
		return nil
	case !program.now.exists:
		p.note("The kubelet is to get its credentials from %s (%s), which is not there now. The new program can't get them yet: %v", ProgramPath, g.kubeconfig, failed)
		return nil
	}
	old := i.tryPlugin(ctx, g, i.at(ProgramPath))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case old == nil:
		return fmt.Errorf("this would cut the kubelet's credentials (%s): the program that is there gets them, the new one does not: %w", g.kubeconfig, failed)
	case !i.Force:
		return fmt.Errorf("the kubelet gets its credentials from %s (%s), and it can't be shown that the new program will get them: neither does now. The new one says: %w; the one that is there: %w. Mend what stops both, or say --force",
			ProgramPath, g.kubeconfig, failed, old)
	}
	p.note("Neither program gets the kubelet's credentials now; it is replaced all the same (--force). The new one says: %v", failed)
	return nil
}

// tryPlugin runs a program as the kubelet runs its plugin. Errors never quote its answer, which is a secret, nor its arguments, which may
// hold one.
func (i *Installer) tryPlugin(ctx context.Context, g *plugin, program string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pluginWait, fmt.Errorf("no answer within %s", pluginWait))
	defer cancel()
	if program != i.Program {
		id, err := host.Identify(program)
		if err == nil {
			err = host.CheckProgram(program, id)
		}
		if err != nil {
			return err
		}
	}
	info := fmt.Sprintf(`{"kind":"ExecCredential","apiVersion":%q,"spec":{"interactive":false}}`, g.exec.APIVersion)
	out, err := i.run(ctx, host.Command{Path: program, Args: g.exec.Args, Env: append(slices.Clone(g.env), "KUBERNETES_EXEC_INFO="+info)})
	if exit, ok := errors.AsType[*host.ExitError](err); ok {
		said := exit.Stderr
		if said == "" {
			said = "it says nothing"
		}
		return fmt.Errorf("exit status %d: %s", exit.Code, said)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return isCredential(out.Stdout, g.exec.APIVersion)
}

// isCredential says what is wrong with a plugin's answer.
func isCredential(answer []byte, apiVersion string) error {
	var c struct {
		Kind, APIVersion string
		Status           *struct {
			Token                 string
			ClientCertificateData string
			ExpirationTimestamp   *time.Time
		}
	}
	switch err := json.Unmarshal(answer, &c); {
	case err != nil:
		return errors.New("its answer is not an ExecCredential in JSON")
	case c.Kind != "ExecCredential" || c.APIVersion != apiVersion:
		return fmt.Errorf("its answer is a %.40q of %.60q, not an ExecCredential of %q", c.Kind, c.APIVersion, apiVersion)
	case c.Status == nil || c.Status.Token+c.Status.ClientCertificateData == "":
		return errors.New("its answer holds no credentials")
	case c.Status.ExpirationTimestamp != nil && c.Status.ExpirationTimestamp.Before(time.Now()):
		return errors.New("its answer holds credentials that have expired already")
	}
	return nil
}
