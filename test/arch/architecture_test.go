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

// treeName matches the name of a package in the tree: a path with a slash behind it, between spaces.
var treeName = regexp.MustCompile(`(?:^|\s)((?:[a-z0-9-]+/)+)`)

// The tree names each package of the programs, and no package that does not exist.
func TestArchitectureListsAllPackages(t *testing.T) {
	var packages []string
	for _, p := range list(t) {
		if name := strings.TrimPrefix(p.ImportPath, module); strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "internal/") {
			packages = append(packages, name)
		}
	}
	for _, problem := range compareTree(section(t, "The tree"), packages) {
		t.Errorf("%s: %s", architecture, problem)
	}
}

func TestTreeIsCompared(t *testing.T) {
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
		t.Errorf("an exact tree: %q", found)
	}
	for _, p := range packages {
		if slices.ContainsFunc(packages, func(other string) bool { return strings.HasPrefix(other, p+"/") }) {
			continue // it is a folder still
		}
		less := slices.DeleteFunc(slices.Clone(packages), func(other string) bool { return other == p })
		if found := compareTree(tree, less); len(found) == 0 {
			t.Errorf("the tree has %s, which does not exist: not found", p)
		}
	}
	for _, p := range []string{"cmd/b", "internal/nfc", "internal/guest/https", "internal/disk/ext"} {
		if found := compareTree(tree, append(slices.Clone(packages), p)); len(found) != 1 || !strings.Contains(found[0], p) {
			t.Errorf("the tree has no %s: %q", p, found)
		}
	}
}

// compareTree returns what differs between a tree and the packages below cmd and internal. In a tree, a name belongs to the
// name above it that begins further left, or to the one before it in its line. A path of several elements, such as
// disk/rawfile/, may also belong to any folder above.
func compareTree(tree string, packages []string) (problems []string) {
	type entry struct {
		column int
		path   string
	}
	exists := map[string]bool{} // packages, and the folders they are in
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
		var before []entry // in this line
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
				problems = append(problems, "the tree has "+name+"/, which is no package there: "+strings.TrimSpace(line))
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

// section returns the text of architecture.md below a heading of the second level.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, architecture), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", architecture, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

var (
	code = regexp.MustCompile("(?s)```.*?```|`[^`]*`")

	// qualified matches an identifier of Go with its package, such as blockcopy.Copy or transport/nfc.Transport.Transfer.
	qualified = regexp.MustCompile(`\b(?:[a-z][a-z0-9]*/)*[a-z][a-z0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)+`)

	fileName = regexp.MustCompile(`\.(go|json|xml|yaml|md)$`)
)

// The paths of a byte, a VM and a plan name identifiers of the code, and so does the advice on what to add.
func TestArchitectureNamesIdentifiersThatExist(t *testing.T) {
	declared := declarations(t)
	for heading, atLeast := range map[string]int{"The path of a byte": 10, "The path of a VM": 10, "The path of a plan": 10, "How to add": 10} {
		names := 0
		for _, span := range code.FindAllString(section(t, heading), -1) {
			for _, name := range qualified.FindAllString(span, -1) {
				if fileName.MatchString(name) {
					continue
				}
				names++
				if n := declaredIn(declared, name); n != 1 {
					t.Errorf("%s, %s: %d packages have %s. It must be one", architecture, heading, n, name)
				}
			}
		}
		if names < atLeast {
			t.Errorf("%s, %s: %d identifiers, want at least %d", architecture, heading, names, atLeast)
		}
	}
}

func TestIdentifiersAreLookedUp(t *testing.T) {
	declared := map[string]map[string]bool{
		"internal/nfc":           {"Session": true, "Session.Open": true},
		"internal/transport/nfc": {"Transport": true, "Session": true},
	}
	for name, want := range map[string]int{
		"nfc.Session": 2, "transport/nfc.Session": 1, "nfc.Session.Open": 1, "nfc.Session.Close": 0, "fc.Session": 0, "nfc.Transport": 1,
	} {
		if got := declaredIn(declared, name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// declaredIn counts the packages with an identifier, whose package may be given by the end of its path.
func declaredIn(declared map[string]map[string]bool, name string) (n int) {
	end, id, _ := strings.Cut(name, ".")
	for folder, names := range declared {
		if strings.HasSuffix("/"+folder, "/"+end) && names[id] {
			n++
		}
	}
	return n
}

// declarations returns what the packages of the programs declare, by folder: Name, and Type.Member for methods and fields.
func declarations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, file := range tracked(t, "*.go") {
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

// typeName returns the name of a receiver's type without its star and parameters.
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
