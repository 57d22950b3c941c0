package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reference is a use of a package-level name, a method or a field in one file that another file declares.
type reference struct{ from, to, name string }

// parsePackage parses the files of a folder without their tests.
func parsePackage(t *testing.T, folder string) (*token.FileSet, []*ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return fset, files
}

// emptyImporter returns empty packages, so that only references within the checked package are found.
type emptyImporter struct{}

func (emptyImporter) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// referencesOf returns the references between the files of a package.
func referencesOf(fset *token.FileSet, files []*ast.File) map[reference]bool {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: emptyImporter{}, Error: func(error) {}} // ignores errors about names of imported packages
	pkg, _ := config.Check("package", fset, files, info)
	base := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	refs := map[reference]bool{}
	for id, used := range info.Uses {
		if used.Pkg() != pkg || !used.Pos().IsValid() {
			continue
		}
		if from, to := base(id.Pos()), base(used.Pos()); from != to {
			refs[reference{from, to, id.Name}] = true
		}
	}
	return refs
}

// cyclesOf returns the files that refer to each other, directly or through other files.
func cyclesOf(refs map[reference]bool) []string {
	next := map[string]map[string]bool{}
	for r := range refs {
		if next[r.from] == nil {
			next[r.from] = map[string]bool{}
		}
		next[r.from][r.to] = true
	}
	reaches := func(from string) map[string]bool {
		seen, left := map[string]bool{}, []string{from}
		for len(left) > 0 {
			file := left[0]
			left = left[1:]
			for to := range next[file] {
				if !seen[to] {
					seen[to], left = true, append(left, to)
				}
			}
		}
		return seen
	}
	var in []string
	for _, file := range slices.Sorted(maps.Keys(next)) {
		if reaches(file)[file] {
			in = append(in, file)
		}
	}
	return in
}

// commandFiles returns the files that declare the constructor of a command, a function with a *program parameter.
func commandFiles(fset *token.FileSet, files []*ast.File) map[string]bool {
	commands := map[string]bool{}
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && isConstructor(fn.Name.Name) && fn.Recv == nil && len(fn.Type.Params.List) > 0 {
				if p, ok := fn.Type.Params.List[0].Type.(*ast.StarExpr); ok {
					if name, ok := p.X.(*ast.Ident); ok && name.Name == "program" {
						commands[filepath.Base(fset.Position(f.Pos()).Filename)] = true
					}
				}
			}
		}
	}
	return commands
}

func isConstructor(name string) bool { return strings.HasPrefix(name, "new") }

// The files of cmd/decamp have no reference cycles. Other files use only the constructor of a file with a command.
func TestCommandFilesHaveNoCycles(t *testing.T) {
	fset, files := parsePackage(t, "../../cmd/decamp")
	refs := referencesOf(fset, files)
	if len(refs) < 300 {
		t.Fatalf("found only %d references", len(refs))
	}
	if in := cyclesOf(refs); len(in) > 0 {
		t.Errorf("these files refer to each other: %v", in)
	}
	commands := commandFiles(fset, files)
	delete(commands, "root.go") // has the root command, which contains all commands
	if len(commands) < 25 {
		t.Errorf("found only %d files of commands", len(commands))
	}
	for r := range refs {
		if commands[r.to] && !isConstructor(r.name) {
			t.Errorf("%s uses %s of %s, which has a command: move it to a file that both use", r.from, r.name, r.to)
		}
	}
}

// acyclicPackages are packages whose files have no reference cycles.
var acyclicPackages = []string{"internal/migrate", "internal/migrate/warm"}

func TestPackageFilesHaveNoCycles(t *testing.T) {
	for _, folder := range acyclicPackages {
		refs := referencesOf(parsePackage(t, filepath.Join(root, folder)))
		if len(refs) < 30 {
			t.Fatalf("%s: only %d references were found", folder, len(refs))
		}
		if in := cyclesOf(refs); len(in) > 0 {
			t.Errorf("%s: these files refer to each other: %v", folder, in)
		}
	}
}

// No type has more than 40 methods.
func TestTypesHaveFewMethods(t *testing.T) {
	const most = 40
	folders := map[string]bool{}
	for _, file := range trackedFiles(t, "*.go") {
		folders[filepath.Dir(file)] = true
	}
	found := 0
	for folder := range folders {
		_, files := parsePackage(t, filepath.Join(root, folder))
		methods := map[string]int{}
		for _, f := range files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
					methods[receiverName(fn.Recv.List[0].Type)]++
				}
			}
		}
		found += len(methods)
		for name, n := range methods {
			if n > most {
				t.Errorf("%s: %s has %d methods, the limit is %d", folder, name, n, most)
			}
		}
	}
	if found < 500 {
		t.Fatalf("found only %d types with methods", found)
	}
}

// receiverName returns the name of a receiver's type, without its pointer and type parameters.
func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	}
	return types.ExprString(e)
}

func TestCyclesOf(t *testing.T) {
	parse := func(sources map[string]string) []string {
		fset := token.NewFileSet()
		var files []*ast.File
		for name, source := range sources {
			f, err := parser.ParseFile(fset, name, "package main\n"+source, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		return cyclesOf(referencesOf(fset, files))
	}
	down := map[string]string{
		"top.go":    `import "fmt"; func top() { size := 1; fmt.Println(size, middle{}) }`,
		"middle.go": `type middle struct{}; func (middle) show() { size() }`,
		"low.go":    `func size() {}`,
	}
	if in := parse(down); len(in) > 0 {
		t.Errorf("cycles of files without a cycle: %v", in)
	}
	down["low.go"] = `func size() { var m interface{ show() }; m.show(); x := top; x() }`
	if in := parse(down); !slices.Equal(in, []string{"low.go", "middle.go", "top.go"}) {
		t.Errorf("cycles: %v", in)
	}
}
