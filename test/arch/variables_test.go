package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// libraryVariables are the variables that the standard library, the runtime and other libraries read.
var libraryVariables = []string{
	"PATH", "TMPDIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", // Go's standard library
	"GOGC", "GOMEMLIMIT", // the Go runtime
	"PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLROOTCERT", // pgx
}

var (
	readsVariable = regexp.MustCompile(`(?i)^(getenv|lookupenv|env)$`)
	variableName  = regexp.MustCompile(`^[A-Z][A-Z0-9_]*[A-Z0-9]$`) // a prefix of names ends with _
	openstackName = regexp.MustCompile(`^OS_[A-Z_]+$`)
	tableRow      = regexp.MustCompile("(?m)^\\| (`[A-Z][A-Z0-9_]+`(?:, `[A-Z][A-Z0-9_]+`)*) \\|")
)

// docs/configuration.md lists the environment variables that decamp reads, and no others.
func TestDocsListEnvironmentVariables(t *testing.T) {
	read := readVariables(t)
	if len(read) < 30 {
		t.Fatalf("found only %d variables: %q", len(read), read)
	}
	want := slices.Compact(slices.Sorted(slices.Values(slices.Concat(read, libraryVariables))))
	listed := documentedVariables(t)
	for _, name := range want {
		if !slices.Contains(listed, name) {
			t.Errorf("the table does not contain %s, which decamp reads", name)
		}
	}
	for _, name := range listed {
		if !slices.Contains(want, name) {
			t.Errorf("the table contains %s, which decamp does not read", name)
		}
	}
}

// documentedVariables returns the names in the table.
func documentedVariables(t *testing.T) (names []string) {
	t.Helper()
	_, page, found := strings.Cut(readFile(t, "docs/configuration.md"), "\n## Environment variables\n")
	if !found {
		t.Fatal("the page has no section about environment variables")
	}
	page, _, _ = strings.Cut(page, "\n## ")
	for _, row := range tableRow.FindAllStringSubmatch(page, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			names = append(names, strings.Trim(name, "`"))
		}
	}
	return names
}

// readVariables returns the names in calls that read the environment, in the files of the product. A name is a literal or
// a constant of any package.
func readVariables(t *testing.T) []string {
	t.Helper()
	fset, constants, calls := token.NewFileSet(), map[string]string{}, map[string]ast.Expr{}
	names := map[string]bool{}
	for _, file := range trackedFiles(t, "*.go") {
		product := strings.HasPrefix(file, "cmd/decamp/") || strings.HasPrefix(file, "internal/")
		if !product || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/lab/") || regexp.MustCompile(`/[a-z0-9]+test/`).MatchString(file) {
			continue
		}
		parsed, err := parser.ParseFile(fset, filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, value := range n.Values {
					if text, is := literalText(value); is && i < len(n.Names) {
						constants[n.Names[i].Name] = text
					}
				}
			case *ast.CallExpr:
				if len(n.Args) == 1 && readsVariable.MatchString(lastName(n.Fun)) {
					calls[fset.Position(n.Pos()).String()] = n.Args[0]
				}
			case *ast.BasicLit: // names in tables, which a call reads in a loop
				if text, is := literalText(n); is && (openstackName.MatchString(text) || strings.HasPrefix(text, "DECAMP_") && variableName.MatchString(text)) {
					names[text] = true
				}
			}
			return true
		})
	}
	for _, arg := range calls {
		text, is := literalText(arg)
		if !is {
			text = constants[lastName(arg)]
		}
		if variableName.MatchString(text) {
			names[text] = true
		}
	}
	return slices.Collect(maps.Keys(names))
}

// literalText returns the value of a string literal.
func literalText(e ast.Expr) (text string, is bool) {
	lit, is := e.(*ast.BasicLit)
	if !is || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// lastName returns the name of an identifier, or of the selected field.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
