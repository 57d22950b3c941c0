package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const architecture = "docs/architecture.md"

// treeName matches the name of a package in the tree: a path that ends with a slash, between spaces.
var treeName = regexp.MustCompile(`(?:^|\s)((?:[a-z0-9-]+/)+)`)

// The tree in docs/architecture.md lists each package of cmd and internal, and no others.
func TestArchitectureListsAllPackages(t *testing.T) {
	var packages []string
	for _, p := range listPackages(t) {
		if name := strings.TrimPrefix(p.ImportPath, module); strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "internal/") {
			packages = append(packages, name)
		}
	}
	for _, problem := range compareTree(architectureSection(t, "The tree"), packages) {
		t.Errorf("%s: %s", architecture, problem)
	}
}

func TestCompareTree(t *testing.T) {
	const tree = "cmd/a/     a program\n" +
		"internal/\n" +
		"  disk/ fault/     words\n" +
		"    disk/rawfile/    images   disk/signature/   formats\n" +
		"  transport/ https/  reads; its cache/ is a folder\n" +
		"             nfc/    reads\n" +
		"  guest/           readers\n" +
		"    ext/             files\n" +
		"test/      is of no interest\n"
	packages := []string{
		"cmd/a", "internal/disk", "internal/fault", "internal/disk/rawfile", "internal/disk/signature",
		"internal/transport", "internal/transport/https", "internal/transport/https/cache", "internal/transport/nfc",
		"internal/guest", "internal/guest/ext",
	}
	if found := compareTree(tree, packages); len(found) > 0 {
		t.Errorf("problems with a complete tree: %q", found)
	}
	for _, p := range packages {
		if slices.ContainsFunc(packages, func(other string) bool { return strings.HasPrefix(other, p+"/") }) {
			continue // p still exists as a folder
		}
		less := slices.DeleteFunc(slices.Clone(packages), func(other string) bool { return other == p })
		if found := compareTree(tree, less); len(found) == 0 {
			t.Errorf("no problem found, although the tree has %s, which does not exist", p)
		}
	}
	for _, p := range []string{"cmd/b", "internal/nfc", "internal/guest/https", "internal/disk/ext"} {
		if found := compareTree(tree, append(slices.Clone(packages), p)); len(found) != 1 || !strings.Contains(found[0], p) {
			t.Errorf("want one problem about the missing %s, got %q", p, found)
		}
	}
}

// compareTree returns the differences between a tree and the packages below cmd and internal. The parent of a name in the
// tree is the nearest name above it that begins further left, or the name before it in the same line. A path of several
// elements, such as disk/rawfile/, may also have any folder above as its parent.
func compareTree(tree string, packages []string) (problems []string) {
	type entry struct {
		column int
		path   string
	}
	exists := map[string]bool{} // packages and their parent folders
	for _, p := range packages {
		for ; p != "."; p = filepath.Dir(p) {
			exists[p] = true
		}
	}
	named := map[string]bool{}
	var above []entry
	for line := range strings.Lines(tree) {
		at := treeName.FindAllStringSubmatchIndex(line, -1)
		if len(at) == 0 {
			continue
		}
		above = slices.DeleteFunc(above, func(e entry) bool { return e.column >= at[0][2] })
		var before []entry // entries of this line
		for _, m := range at {
			name := strings.TrimSuffix(line[m[2]:m[3]], "/")
			parents := slices.Clone(before)
			if len(above) > 0 {
				parents = append(parents, above[len(above)-1])
			}
			if len(above) == 0 || strings.Contains(name, "/") {
				parents = append(append(parents, above...), entry{path: "."})
			}
			i := slices.IndexFunc(parents, func(e entry) bool { return exists[filepath.Join(e.path, name)] })
			if i >= 0 {
				path := filepath.Join(parents[i].path, name)
				named[path] = true
				before = append(before, entry{m[2], path})
			} else if m[2] > 0 || strings.HasPrefix(name, "cmd/") {
				problems = append(problems, "the tree has "+name+"/, which is not a package: "+strings.TrimSpace(line))
			}
		}
		above = append(above, before...)
	}
	for _, p := range packages {
		if !named[p] {
			problems = append(problems, "the tree has no "+p)
		}
	}
	return problems
}

// architectureSection returns the section of architecture.md with a heading of the second level.
func architectureSection(t *testing.T, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(readFile(t, architecture), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", architecture, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

var (
	codeText = regexp.MustCompile("(?s)```.*?```|`[^`]*`")

	// qualifiedName matches a Go identifier with its package, such as blockcopy.Copy or transport/nfc.Transport.Transfer.
	qualifiedName = regexp.MustCompile(`\b(?:[a-z][a-z0-9]*/)*[a-z][a-z0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)+`)

	fileName = regexp.MustCompile(`\.(go|json|xml|yaml|md)$`)
)

// The Go identifiers in these sections of docs/architecture.md exist, each in one package.
func TestArchitectureIdentifiersExist(t *testing.T) {
	declared := declarations(t)
	for heading, atLeast := range map[string]int{"The path of a byte": 10, "The path of a VM": 10, "The path of a plan": 10, "How to add": 10} {
		names := 0
		for _, span := range codeText.FindAllString(architectureSection(t, heading), -1) {
			for _, name := range qualifiedName.FindAllString(span, -1) {
				if fileName.MatchString(name) {
					continue
				}
				names++
				if n := countDeclaring(declared, name); n != 1 {
					t.Errorf("%s, %s: %d packages declare %s, want 1", architecture, heading, n, name)
				}
			}
		}
		if names < atLeast {
			t.Errorf("%s, %s: found %d identifiers, want at least %d", architecture, heading, names, atLeast)
		}
	}
}

func TestCountDeclaring(t *testing.T) {
	declared := map[string]map[string]bool{
		"internal/nfc":           {"Session": true, "Session.Open": true},
		"internal/transport/nfc": {"Transport": true, "Session": true},
	}
	for name, want := range map[string]int{
		"nfc.Session": 2, "transport/nfc.Session": 1, "nfc.Session.Open": 1, "nfc.Session.Close": 0, "fc.Session": 0, "nfc.Transport": 1,
	} {
		if got := countDeclaring(declared, name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// countDeclaring counts the packages that declare an identifier. name has the end of a package path and the identifier.
func countDeclaring(declared map[string]map[string]bool, name string) (n int) {
	end, id, _ := strings.Cut(name, ".")
	for folder, names := range declared {
		if strings.HasSuffix("/"+folder, "/"+end) && names[id] {
			n++
		}
	}
	return n
}

// declarations returns the identifiers that the packages of cmd and internal declare, by folder. Methods and fields have
// the form Type.Member.
func declarations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, file := range trackedFiles(t, "*.go") {
		if strings.HasSuffix(file, "_test.go") || !strings.HasPrefix(file, "cmd/") && !strings.HasPrefix(file, "internal/") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Dir(file)
		if all[folder] == nil {
			all[folder] = map[string]bool{}
		}
		for _, d := range parsed.Decls {
			for _, name := range declaredBy(d) {
				all[folder][name] = true
			}
		}
	}
	return all
}

func declaredBy(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		return []string{typeName(d.Recv.List[0].Type) + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				for _, member := range membersOf(s.Type) {
					names = append(names, s.Name.Name+"."+member)
				}
			}
		}
	}
	return names
}

// typeName returns the name of a receiver's type, without its pointer and type parameters.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// membersOf returns the fields of a struct and the methods of an interface.
func membersOf(e ast.Expr) (names []string) {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}
