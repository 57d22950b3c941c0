package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// directed are packages in which no file refers back to a file that refers to it, by any way.
var directed = []string{"internal/migrate", "internal/migrate/warm"}

func TestFilesOfAPackageHaveADirection(t *testing.T) {
	for _, folder := range directed {
		refs := fileReferences(t, folder)
		if len(refs) < 5 {
			t.Fatalf("%s: %d files refer to others: is it read right?", folder, len(refs))
		}
		for _, c := range cycles(refs) {
			t.Errorf("%s: these files refer to each other: %s", folder, strings.Join(c, " -> "))
		}
	}
}

func TestCyclesAreFound(t *testing.T) {
	refs := map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {}}
	if found := cycles(refs); len(found) != 1 || strings.Join(found[0], " ") != "b c b" {
		t.Errorf("found %q", found)
	}
}

// fileReferences returns for each file of a package the files whose declarations it uses.
func fileReferences(t *testing.T, folder string) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=Dir,GoFiles,ImportPath,Export", "./"+folder)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	type listed struct {
		Dir, ImportPath, Export string
		GoFiles                 []string
	}
	exports := map[string]string{}
	var last listed // the package itself: what it depends on comes before it
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath], last = p.Export, p
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range last.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(last.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: importer.ForCompiler(fset, "gc", open)}).Check(last.ImportPath, fset, files, &info)
	if err != nil {
		t.Fatal(err)
	}
	refs := map[string][]string{}
	for id, o := range info.Uses {
		if o.Pkg() != pkg || o.Parent() != pkg.Scope() && o.Parent() != nil { // nil: fields and methods
			continue
		}
		from, to := filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(o.Pos()).Filename)
		if from != to && !slices.Contains(refs[from], to) {
			refs[from] = append(refs[from], to)
		}
	}
	return refs
}

// cycles returns a way back to each file from which a search meets itself.
func cycles(refs map[string][]string) (found [][]string) {
	done := map[string]bool{}
	var visit func(way []string)
	visit = func(way []string) {
		at := way[len(way)-1]
		for _, to := range refs[at] {
			if i := slices.Index(way, to); i >= 0 {
				found = append(found, append(slices.Clone(way[i:]), to))
			} else if !done[to] {
				visit(append(way, to))
			}
		}
		done[at] = true
	}
	var names []string
	for f := range refs {
		names = append(names, f)
	}
	slices.Sort(names)
	for _, f := range names {
		if !done[f] {
			visit([]string{f})
		}
	}
	return found
}
