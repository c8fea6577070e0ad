package status

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/test/golden"
)

// The exported API is a contract: programs elsewhere are built against it, and
// testdata/api.txt is what they rely on. It is the published contract and two
// additions of ours, Update and FromObservations. Changing a line of it breaks
// those programs; so does removing one.
func TestAPILock(t *testing.T) {
	got := exportedAPI(t)
	if golden.Updating() {
		must(t, os.WriteFile(filepath.Join("testdata", "api.txt"), []byte(got), 0o600))
	}
	want := readFile(t, "testdata/api.txt")
	if got == want {
		return
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range wantLines {
		if !slices.Contains(gotLines, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range gotLines {
		if !slices.Contains(wantLines, line) {
			t.Errorf("not in the contract: %s", line)
		}
	}
	if !t.Failed() {
		t.Errorf("the order differs; got\n%s", got)
	}
}

// exportedAPI lists what other packages can use, one declaration after another;
// the fields of a struct follow it, indented and in order.
func exportedAPI(t *testing.T) string {
	t.Helper()
	fset := token.NewFileSet()
	files := sourceFiles(t, fset)
	consts := constants(fset, files)
	var all []string
	for _, file := range files {
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if exportedFunc(decl) {
					all = append(all, render(t, fset, &ast.FuncDecl{Recv: decl.Recv, Name: decl.Name, Type: decl.Type}))
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					all = append(all, specLines(t, fset, spec, consts)...)
				}
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n") + "\n"
}

func sourceFiles(t *testing.T, fset *token.FileSet) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	must(t, err)
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, 0)
		must(t, err)
		files = append(files, file)
	}
	return files
}

type noImporter struct{}

func (noImporter) Import(string) (*types.Package, error) { return nil, errors.New("not needed") }

// constants evaluates the package's constants. They need no import, so that the
// errors about those can be ignored.
func constants(fset *token.FileSet, files []*ast.File) map[string]*types.Const {
	conf := types.Config{Importer: noImporter{}, Error: func(error) {}}
	pkg, _ := conf.Check("status", fset, files, nil)
	found := map[string]*types.Const{}
	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok {
			found[name] = c
		}
	}
	return found
}

func exportedFunc(decl *ast.FuncDecl) bool {
	if decl.Recv == nil {
		return decl.Name.IsExported()
	}
	receiver := decl.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	name, ok := receiver.(*ast.Ident)
	return decl.Name.IsExported() && (!ok || name.IsExported())
}

func specLines(t *testing.T, fset *token.FileSet, spec ast.Spec, consts map[string]*types.Const) []string {
	t.Helper()
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		return valueLines(spec, consts)
	case *ast.TypeSpec:
		if spec.Name.IsExported() {
			return []string{typeLines(t, fset, spec)}
		}
	}
	return nil
}

func valueLines(spec *ast.ValueSpec, consts map[string]*types.Const) []string {
	var all []string
	for _, name := range spec.Names {
		if !name.IsExported() {
			continue
		}
		line := "var " + name.Name
		if c := consts[name.Name]; c != nil {
			local := types.TypeString(c.Type(), func(*types.Package) string { return "" })
			line = fmt.Sprintf("const %s %s = %s", name.Name, local, c.Val().ExactString())
		}
		all = append(all, line)
	}
	return all
}

func typeLines(t *testing.T, fset *token.FileSet, spec *ast.TypeSpec) string {
	t.Helper()
	structType, ok := spec.Type.(*ast.StructType)
	if !ok {
		return "type " + render(t, fset, &ast.TypeSpec{Name: spec.Name, TypeParams: spec.TypeParams, Assign: spec.Assign, Type: spec.Type})
	}
	lines := []string{"type " + spec.Name.Name + " struct"}
	for _, field := range structType.Fields.List {
		suffix := render(t, fset, field.Type)
		if field.Tag != nil {
			suffix += " " + field.Tag.Value
		}
		if len(field.Names) == 0 { // embedded: its methods are exported with it
			lines = append(lines, "\t"+suffix)
		}
		for _, name := range field.Names {
			if name.IsExported() {
				lines = append(lines, "\t"+name.Name+" "+suffix)
			}
		}
	}
	return strings.Join(lines, "\n")
}

func render(t *testing.T, fset *token.FileSet, node any) string {
	t.Helper()
	var out bytes.Buffer
	must(t, printer.Fprint(&out, fset, node))
	return strings.Join(strings.Fields(out.String()), " ")
}
