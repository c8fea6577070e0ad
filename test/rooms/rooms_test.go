// Package rooms holds the project to its plan: which package may import which, and that every module it depends on
// stands in docs/dependencies.md. It looks at the source of the whole module through the go command and has no code of
// its own. depguard in .golangci.yml says the first part too, sooner and beside the line; these tests also see what is
// reached through others.
package rooms

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const module = "github.com/aks-flex-node/agent"

// order is the plan: data flows from the first room to the last, and a room imports only rooms above it. A room is a
// folder with everything in it, whose packages may import each other. A new package belongs to a room or is a new one.
var order = []string{
	"internal/version", // a fact about the binary, for every room
	"deploy",           // files for machines and clusters, as they are
	"pkg/config",
	"internal/token", // for internal/cli; brings the Azure SDK with it
	"internal/observe",
	"internal/host",
	"internal/cluster",
	"internal/probe",
	"pkg/status",
	"internal/health",
	"internal/drift",
	"internal/journal",
	"internal/decision",
	"internal/remedy",
	"internal/install",
	"internal/agent",
	"internal/localapi",
	"internal/cli",
	"cmd/aks-flex-node",
}

// workshop is what serves the making of the agent: it may import every room, and no room may import it.
var workshop = []string{"hack", "test"}

// never lists what a room must not reach, also not through others. What stands for a folder stands for all in it.
var never = map[string][]string{
	"internal/observe":     {module},
	"internal/probe/parse": {module},
	"internal/decision":    {module + "/internal/host", module + "/internal/cluster", module + "/internal/journal"},
	"pkg/status":           {"go.etcd.io/bbolt", "github.com/prometheus", "github.com/Azure"},
}

// pkg is the part of `go list -json` that the tests look at.
type pkg struct {
	ImportPath string
	Imports    []string // directly, by code that is no test
	Deps       []string // also through others
}

func TestRoomsImportOnlyRoomsAbove(t *testing.T) {
	for _, v := range outOfOrder(list(t)) {
		t.Error(v)
	}
}

func TestRoomsReachNothingTheyMustNot(t *testing.T) {
	for _, v := range reached(list(t)) {
		t.Error(v)
	}
}

// TestTheRulesCanBeBroken shows that the two checks see what they are there for.
func TestTheRulesCanBeBroken(t *testing.T) {
	in := func(path string) string { return module + "/" + path }
	for _, tc := range []struct {
		name string
		pkg  pkg
		want string // part of the complaint; empty for none
	}{
		{"a room may import a room above", pkg{ImportPath: in("internal/host"), Imports: []string{in("pkg/config"), "os/exec"}}, ""},
		{"a room may import packages of its own", pkg{ImportPath: in("internal/probe"), Imports: []string{in("internal/probe/parse")}}, ""},
		{"a room may not import a room below", pkg{ImportPath: in("internal/host/dbus"), Imports: []string{in("internal/probe")}}, "internal/probe is below"},
		{"a folder with a longer name is another room", pkg{ImportPath: in("internal/hostile")}, "belongs to no room"},
		{"a package outside the plan is told", pkg{ImportPath: in("internal/misc")}, "belongs to no room"},
		{"a room may not import the workshop", pkg{ImportPath: in("internal/cli"), Imports: []string{in("test/lab")}}, "only tests and tools"},
		{"the workshop may import rooms", pkg{ImportPath: in("test/lab"), Imports: []string{in("internal/cli"), in("hack/x")}}, ""},
		{"observe imports nothing of ours", pkg{ImportPath: in("internal/observe"), Deps: []string{in("internal/version")}}, "must not reach"},
		{"a decision reaches no journal", pkg{ImportPath: in("internal/decision"), Deps: []string{in("internal/journal/x")}}, "must not reach"},
		{"the snapshot reaches no SDK", pkg{ImportPath: in("pkg/status"), Deps: []string{"github.com/Azure/azure-sdk-for-go/sdk/azcore"}}, "must not reach"},
		{"the snapshot may reach others", pkg{ImportPath: in("pkg/status"), Deps: []string{"github.com/Azurelike/x", in("internal/probe")}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(append(outOfOrder([]pkg{tc.pkg}), reached([]pkg{tc.pkg})...), "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("complaint: got %q, want one with %q", got, tc.want)
			}
		})
	}
}

// TestTheLinterKnowsTheSameOrder holds depguard's rules in .golangci.yml, which name the rooms again, to the same plan.
func TestTheLinterKnowsTheSameOrder(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", ".golangci.yml"))
	if err != nil {
		t.Fatalf("read the linter's configuration: %v", err)
	}
	type rule struct{ Files, Allow []string }
	var linter struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]rule }
			}
		}
	}
	if err := yaml.Unmarshal(text, &linter); err != nil {
		t.Fatalf("read the linter's configuration: %v", err)
	}
	allowed := map[string][]string{} // by files
	for _, r := range linter.Linters.Settings.Depguard.Rules {
		allowed[r.Files[0]] = r.Allow
	}
	// The first room and the last can't break the order; observe may import nothing of ours.
	for i, room := range order[1 : len(order)-1] {
		var want []string
		if room != "internal/observe" {
			for _, above := range order[:i+2] {
				want = append(want, module+"/"+above)
			}
		}
		got, found := allowed["${config-path}/"+room+"/**"]
		if !found || !slices.Equal(got, want) {
			t.Errorf("depguard's rule for %s allows %q, want %q", room, got, want)
		}
	}
}

// outOfOrder tells every direct import that goes up the plan's order, and every package that has no place in it.
func outOfOrder(pkgs []pkg) []string {
	var out []string
	for _, p := range pkgs {
		if index(workshop, p.ImportPath) >= 0 {
			continue
		}
		here := index(order, p.ImportPath)
		if here < 0 {
			out = append(out, fmt.Sprintf("%s belongs to no room: put it into one, or name the new room in test/rooms and .golangci.yml", p.ImportPath))
			continue
		}
		for _, imp := range p.Imports {
			if index(workshop, imp) >= 0 {
				out = append(out, fmt.Sprintf("%s imports %s, which is for only tests and tools", p.ImportPath, imp))
			}
			if there := index(order, imp); there > here {
				out = append(out, fmt.Sprintf("%s imports %s, but %s is below %s", p.ImportPath, imp, order[there], order[here]))
			}
		}
	}
	return out
}

// reached tells everything that a room depends on and must not.
func reached(pkgs []pkg) []string {
	var out []string
	for _, p := range pkgs {
		for room, banned := range never {
			if !within(p.ImportPath, module+"/"+room) {
				continue
			}
			for _, dep := range p.Deps {
				if slices.ContainsFunc(banned, func(b string) bool { return within(dep, b) }) && !within(dep, module+"/"+room) {
					out = append(out, fmt.Sprintf("%s must not reach %s, also not through others", p.ImportPath, dep))
				}
			}
		}
	}
	return out
}

// index returns the place of the room that path is in, or -1.
func index(rooms []string, path string) int {
	return slices.IndexFunc(rooms, func(room string) bool { return within(path, module+"/"+room) })
}

// within says whether a package is the folder's or lies below it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// list returns every package of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(goCommand(t, "list", "-json=ImportPath,Imports,Deps", "./...")))
	var pkgs []pkg
	for {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("read what go list printed: %v", err)
		}
		pkgs = append(pkgs, p)
	}
	if !slices.ContainsFunc(pkgs, func(p pkg) bool { return index(order, p.ImportPath) >= 0 }) {
		t.Fatalf("go list found no room of %s among %d packages", module, len(pkgs))
	}
	return pkgs
}

// goCommand runs the go command at the root of the module and returns what it printed.
func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	root := filepath.Join("..", "..")
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	// The checkout may be someone else's, whose history git then refuses to read.
	cmd.Env = append(cmd.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}
