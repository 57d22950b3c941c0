package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// replacedWords are words of earlier names that docs/glossary.md replaces.
var replacedWords = []string{
	"clerk", "desk", "errand", "foresee", "foresight", "foretell", "forewarn", "glimpse", "homeless", "outlook", "roster", "rotten", "sight",
	"talker", "tenure",
}

// nameWords returns the words of an identifier in lower case: hostHealth has host and health.
func nameWords(name string) []string {
	var words []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		ends := i == len(runes) || runes[i] == '_' ||
			unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if ends {
			words = append(words, strings.ToLower(strings.Trim(string(runes[start:i]), "_")))
			start = i
		}
	}
	return words
}

// declaredNames calls f with each declared identifier of a file: its package, types, functions, fields,
// parameters, constants and variables.
func declaredNames(file *ast.File, f func(*ast.Ident)) {
	f(file.Name)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			f(n.Name)
		case *ast.TypeSpec:
			f(n.Name)
		case *ast.Field:
			for _, name := range n.Names {
				f(name)
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				f(name)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, left := range n.Lhs {
					if name, ok := left.(*ast.Ident); ok {
						f(name)
					}
				}
			}
		}
		return true
	})
}

func TestNamesContainNoReplacedWords(t *testing.T) {
	names := 0
	for _, path := range trackedFiles(t, "*.go") {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, readFile(t, path), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		declaredNames(file, func(name *ast.Ident) {
			names++
			for _, word := range nameWords(name.Name) {
				if slices.Contains(replacedWords, word) {
					t.Errorf("%s:%d: the name %s contains %q, which docs/glossary.md replaces", path, files.Position(name.Pos()).Line, name.Name, word)
				}
			}
		})
	}
	if names < 10_000 {
		t.Fatalf("found only %d names", names)
	}
}

func TestNameWords(t *testing.T) {
	for name, want := range map[string]string{
		"hostHealth": "host health", "newDesk": "new desk", "readHTTPBody": "read http body", "VMState": "vm state",
		"snake_case": "snake case", "X": "x", "deskTop2": "desk top2",
	} {
		if got := strings.Join(nameWords(name), " "); got != want {
			t.Errorf("%s has the words %q, want %q", name, got, want)
		}
	}
}
