//go:build linux

package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tool is a program that the nested module test/tools/k8s builds, and those of other versions beside it.
type tool struct {
	name    string
	pkg     string
	version []string // arguments that print the version
	stamped bool     // the version printed is that of Kubernetes
}

func kubernetesTools() []tool {
	const cmd = "k8s.io/kubernetes/cmd/"
	return []tool{
		{"etcd", "go.etcd.io/etcd/server/v3", []string{"--version"}, false},
		{"kube-apiserver", cmd + "kube-apiserver", []string{"--version"}, true},
		{"kube-controller-manager", cmd + "kube-controller-manager", []string{"--version"}, true},
		{"kube-scheduler", cmd + "kube-scheduler", []string{"--version"}, true},
		{"kubectl", cmd + "kubectl", []string{"version", "--client"}, true},
		{"kubelet", cmd + "kubelet", []string{"--version"}, true},
	}
}

// KubernetesTools builds real Kubernetes programs, or finds them built before, and returns their folder. names are of
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kubelet; without names it is all of them. The first build of all takes about six minutes on two cores and needs the Go module proxy, that of a kubelet alone
// about three. The folder is in the user's cache, outside the repository, and is keyed by all that goes into the programs.
// Several processes may call this at once: one builds, the others wait for it.
func KubernetesTools(ctx context.Context, names ...string) (string, error) {
	dir, err := buildTools(ctx, "k8s", names)
	if err != nil {
		return "", fmt.Errorf("kubernetes tools: %w", err)
	}
	return dir, nil
}

// KubeletVersion is KubernetesTools for the kubelet of another minor version and returns the program's path. There must be
// a nested module for it: for "1.36" it is test/tools/k8s-1.36.
func KubeletVersion(ctx context.Context, minor string) (string, error) {
	dir, err := buildTools(ctx, "k8s-"+minor, []string{"kubelet"})
	if err != nil {
		return "", fmt.Errorf("kubelet %s: %w", minor, err)
	}
	return filepath.Join(dir, "kubelet"), nil
}

// buildTools makes programs from a nested module and returns their folder.
func buildTools(ctx context.Context, module string, names []string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	b := toolBuild{module: filepath.Join(root, "test", "tools", module), base: filepath.Join(cache, "aks-flex-node", "kubernetes")}
	return b.ensure(ctx, names)
}

// toolBuild is one Kubernetes version to be built.
type toolBuild struct {
	module string // folder of its go.mod
	base   string // folder of the folders of programs

	version string // with v
	ldflags string
	dir     string // folder of these programs
}

// ensure makes the wanted programs be in b.dir.
func (b *toolBuild) ensure(ctx context.Context, names []string) (string, error) {
	wanted, err := wantedTools(names)
	if err != nil {
		return "", err
	}
	if err := b.identify(ctx); err != nil {
		return "", err
	}
	if len(b.lacking(wanted)) == 0 {
		return b.dir, nil
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return "", err
	}
	lock, err := waitLock(ctx, filepath.Join(b.dir, ".lock"), time.Hour)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	return b.dir, b.build(ctx, b.lacking(wanted))
}

// wantedTools finds tools by name.
func wantedTools(names []string) ([]tool, error) {
	all := kubernetesTools()
	if len(names) == 0 {
		return all, nil
	}
	var wanted []tool
	for _, n := range names {
		i := slices.IndexFunc(all, func(t tool) bool { return t.name == n })
		if i < 0 {
			return nil, fmt.Errorf("there is no program %q", n)
		}
		wanted = append(wanted, all[i])
	}
	return wanted, nil
}

// identify finds out version, flags and folder. The key covers all that the programs depend on.
func (b *toolBuild) identify(ctx context.Context) error {
	version, err := goOutput(ctx, b.module, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	goVersion, err := goOutput(ctx, b.module, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return err
	}
	b.version, b.ldflags = version, stampFlags(version)
	key := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(b.module, name))
		if err != nil {
			return err
		}
		_, _ = key.Write(text) // a hash never fails
	}
	_, _ = fmt.Fprintf(key, "%s\nCGO_ENABLED=0 %s\n", goVersion, b.ldflags)
	b.dir = filepath.Join(b.base, fmt.Sprintf("%s-%.16x", version, key.Sum(nil)[:8]))
	return nil
}

// stampFlags makes the programs tell their version, as a release of Kubernetes does.
func stampFlags(version string) string {
	minor, _, _ := strings.Cut(strings.TrimPrefix(version, "v1."), ".")
	flags := []string{"-s -w"}
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range []string{"gitVersion=" + version, "gitMajor=1", "gitMinor=" + minor, "gitTreeState=clean"} {
			flags = append(flags, "-X "+p+"."+v)
		}
	}
	return strings.Join(flags, " ")
}

// lacking returns the tools that are not there yet, or not whole.
func (b *toolBuild) lacking(wanted []tool) []tool {
	return slices.DeleteFunc(slices.Clone(wanted), func(t tool) bool {
		_, err := os.Stat(b.marker(t))
		return err == nil
	})
}

// marker is the path of the file that says that a tool is whole.
func (b *toolBuild) marker(t tool) string { return filepath.Join(b.dir, "."+t.name+".complete") }

// build builds tools beside the folder and moves each in when it is seen to run.
func (b *toolBuild) build(ctx context.Context, tools []tool) error {
	if len(tools) == 0 {
		return nil // another process has built them meanwhile
	}
	tmp, err := os.MkdirTemp(b.dir, ".tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	args := []string{"build", "-ldflags", b.ldflags, "-o", tmp + "/"}
	for _, t := range tools {
		args = append(args, t.pkg)
	}
	if _, err := goOutput(ctx, b.module, args...); err != nil {
		return err
	}
	for _, t := range tools {
		if err := b.adopt(ctx, t, tmp); err != nil {
			return err
		}
	}
	return nil
}

func (b *toolBuild) adopt(ctx context.Context, t tool, tmp string) error {
	built := filepath.Join(tmp, t.name)
	if t.name == "etcd" {
		built = filepath.Join(tmp, "server") // what go calls it, by the last part of the path that is not a version
	}
	out, err := exec.CommandContext(ctx, built, t.version...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("try %s: %w: %s", t.name, err, bytes.TrimSpace(out))
	}
	if t.stamped && !strings.Contains(string(out), b.version) {
		return fmt.Errorf("try %s: want version %s, got %q", t.name, b.version, out)
	}
	if err := os.Rename(built, filepath.Join(b.dir, t.name)); err != nil {
		return err
	}
	return os.WriteFile(b.marker(t), nil, 0o644)
}

// moduleRoot finds the checkout that the test belongs to: tests run in the folder of their package.
func moduleRoot(ctx context.Context) (string, error) {
	gomod, err := goOutput(ctx, "", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	root := filepath.Dir(gomod)
	if _, err := os.Stat(filepath.Join(root, "test", "tools", "k8s", "go.mod")); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no checkout found from here (go.mod is %q): run it in a folder of the repository", gomod)
	}
	return root, nil
}

// goOutput runs the go command in a folder, the present one if empty, and returns what it printed.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "CGO_ENABLED=0"), &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
