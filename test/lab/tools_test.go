//go:build linux

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestToolsAreFoundByName(t *testing.T) {
	if got, err := wantedTools(nil); err != nil || len(got) != 6 {
		t.Errorf("no names: got %d tools and error %v, want all 6", len(got), err)
	}
	if got, err := wantedTools([]string{"kubelet"}); err != nil || len(got) != 1 || got[0].name != "kubelet" {
		t.Errorf("kubelet: got %+v and error %v", got, err)
	}
	if got, err := wantedTools([]string{"kubelet", "kubelett"}); err == nil || !strings.Contains(err.Error(), "kubelett") {
		t.Errorf("kubelett: got %+v and error %v, want an error that names it", got, err)
	}
}

func TestEveryToolIsInTheNestedModule(t *testing.T) {
	gomod, err := os.ReadFile("../tools/k8s/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range kubernetesTools() {
		if !strings.Contains(string(gomod), "\t"+tool.pkg+"\n") {
			t.Errorf("%s: got no tool line for %s in test/tools/k8s/go.mod", tool.name, tool.pkg)
		}
	}
}

func TestTheFolderOfToolsDependsOnWhatTheyAreBuiltFrom(t *testing.T) {
	gomod, err := os.ReadFile("../tools/k8s/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	identify := func(gosum string) toolBuild {
		b := toolBuild{module: t.TempDir(), base: "/cache"}
		for name, text := range map[string]string{"go.mod": string(gomod), "go.sum": gosum} {
			if err := os.WriteFile(filepath.Join(b.module, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.identify(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b
	}
	sum, err := os.ReadFile("../tools/k8s/go.sum")
	if err != nil {
		t.Fatal(err)
	}
	first, same, other := identify(string(sum)), identify(string(sum)), identify(string(sum)+"\n")
	if first.dir != same.dir || first.dir == other.dir {
		t.Errorf("got %s, %s for the same sums and %s for others", first.dir, same.dir, other.dir)
	}
	if !strings.HasPrefix(filepath.Base(first.dir), first.version+"-") || !strings.Contains(first.ldflags, "gitVersion="+first.version+" ") {
		t.Errorf("got folder %s and flags %q, want version %s in both", first.dir, first.ldflags, first.version)
	}
}

func TestOnlyToolsThatAreNotThereAreBuilt(t *testing.T) {
	b := toolBuild{dir: t.TempDir()}
	wanted, err := wantedTools([]string{"kubelet", "etcd"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.marker(wanted[0]), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.lacking(wanted); len(got) != 1 || got[0].name != "etcd" {
		t.Errorf("got %+v to build, want etcd alone", got)
	}
}
