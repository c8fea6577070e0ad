package rooms

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const dependenciesDoc = "docs/dependencies.md"

// TestDependenciesAreExplained holds that every module which the agent requires directly has a row in the document, and
// that the document has no row for one that is gone. `go mod tidy` says which are required directly.
func TestDependenciesAreExplained(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", dependenciesDoc))
	if err != nil {
		t.Fatalf("read the document: %v", err)
	}
	explained := rows(string(text), "## What the agent is built from")
	required := requiredDirectly(t)
	for _, m := range slices.Sorted(maps.Keys(required)) {
		if !explained[m] {
			t.Errorf("go.mod requires %s directly: %s has no row that says why", m, dependenciesDoc)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(explained)) {
		if !required[m] {
			t.Errorf("%s has a row for %s, which go.mod does not require directly (is go.mod tidy?)", dependenciesDoc, m)
		}
	}
}

func requiredDirectly(t *testing.T) map[string]bool {
	t.Helper()
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(goCommand(t, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatalf("read what go mod edit printed: %v", err)
	}
	direct := map[string]bool{}
	for _, r := range mod.Require {
		if !r.Indirect {
			direct[r.Path] = true
		}
	}
	return direct
}

// rowStart is the first cell of a table's row: a module's path in backquotes.
var rowStart = regexp.MustCompile("(?m)^\\| *`([^`]+)` *\\|")

// rows returns the modules in the table of one section of a Markdown text.
func rows(text, heading string) map[string]bool {
	_, section, _ := strings.Cut(text, heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	modules := map[string]bool{}
	for _, m := range rowStart.FindAllStringSubmatch(section, -1) {
		modules[m[1]] = true
	}
	return modules
}

func TestRowsAreReadFromOneSection(t *testing.T) {
	text := "## A\n\n| module | why |\n|---|---|\n| `example.com/a` | x |\n| `example.com/b`| `z` |\n\n## B\n| `example.com/c` | y |\n"
	got := slices.Sorted(maps.Keys(rows(text, "## A")))
	if want := []string{"example.com/a", "example.com/b"}; !slices.Equal(got, want) {
		t.Errorf("rows: got %v, want %v", got, want)
	}
	if got := rows(text, "## C"); len(got) != 0 {
		t.Errorf("rows of a section that is not there: got %v, want none", got)
	}
}
