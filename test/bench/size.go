package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of the program's size.
const (
	maxBinaryMB     = 52   // limit of the stripped binary in MB
	maxCommandLines = 9500 // limit of the lines in cmd/decamp
	maxMethods      = 40   // limit of the methods of one type
)

const (
	ownModule  = "github.com/decamp/decamp" // path of this module
	minAreaMB  = 0.25                       // smaller areas are one row
	typesShown = 5                          // number of types in the note
)

// sizeFigures reports the size of the release binary by area, the lines of cmd/decamp,
// and the type with the most methods.
func sizeFigures(ctx context.Context, b *bench) error {
	stripped, full := filepath.Join(b.dir, "decamp.stripped"), filepath.Join(b.dir, "decamp.symbols")
	defer os.Remove(stripped)
	defer os.Remove(full)
	for path, flags := range map[string]string{stripped: "-s -w", full: ""} {
		if out, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", flags, "-o", path, "./cmd/decamp").CombinedOutput(); err != nil {
			return fmt.Errorf("build decamp: %w: %s", err, out)
		}
	}
	file, err := os.Stat(stripped)
	if err != nil {
		return err
	}
	b.atMost(maxBinaryMB, Row{Figure: "size: decamp, stripped", Value: float64(file.Size()) / 1e6, Unit: "MB"})
	areas, err := sizeByArea(full, file.Size())
	if err != nil {
		return err
	}
	var small float64
	for _, name := range sortedBySize(areas) {
		if mb := areas[name] / 1e6; mb >= minAreaMB {
			b.addRow(Row{Figure: "size: " + name, Value: mb, Unit: "MB"})
		} else {
			small += mb
		}
	}
	b.addRow(Row{Figure: "size: all smaller areas", Value: small, Unit: "MB"})

	lines, err := linesOfFolder("cmd/decamp")
	if err != nil {
		return err
	}
	b.atMost(maxCommandLines, Row{Figure: "size: cmd/decamp without tests", Value: float64(lines), Unit: "lines"})

	methods, err := methodsByType("cmd", "internal")
	if err != nil {
		return err
	}
	largest := sortedBySize(methods)
	var note []string
	for _, name := range largest[:min(typesShown, len(largest))] {
		note = append(note, fmt.Sprintf("%s %.0f", name, methods[name]))
	}
	b.atMost(maxMethods, Row{Figure: "size: methods of the largest type", Value: methods[largest[0]], Unit: "methods", Note: strings.Join(note, ", ")})
	return nil
}

// sortedBySize returns the names, the largest value first.
func sortedBySize(sizes map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), strings.Compare(a, b))
	})
}

// sizeByArea divides size, the bytes of the stripped binary, by the symbols of the
// binary at path. The table of functions (.gopclntab) has no symbols by package; it
// counts in proportion to code.
func sizeByArea(path string, size int64) (map[string]float64, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var modules []string
	for _, m := range info.Deps {
		modules = append(modules, m.Path)
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	code, table := f.Section(".text"), f.Section(".gopclntab")
	symbols, err := f.Symbols()
	if err != nil || code == nil || table == nil {
		return nil, fmt.Errorf("%s: no symbols, code or table of functions: %w", path, err)
	}
	// The table of functions is in proportion to the code that it describes.
	scale := 1 + float64(table.Size)/float64(code.Size)
	areas, rest := map[string]float64{}, float64(size)
	for _, s := range symbols {
		if int(s.Section) >= len(f.Sections) || strings.HasPrefix(s.Name, "runtime.pclntab") {
			continue
		}
		section := f.Sections[s.Section]
		bytes := float64(s.Size)
		switch {
		case section.Type == elf.SHT_NOBITS: // not in the file
			continue
		// The share of the table of functions is added to code only.
		case section == code:
			bytes *= scale
		}
		areas[areaOfSymbol(s.Name, modules)] += bytes
		rest -= bytes
	}
	areas["types, strings and other data without a package"] += rest
	return areas, nil
}

// areaOfSymbol returns the module of a symbol, and for symbols of decamp the package
// below internal.
func areaOfSymbol(name string, modules []string) string {
	name, _, _ = strings.Cut(name, "[") // type arguments
	name = strings.ReplaceAll(name, "%2e", ".")
	if strings.HasPrefix(name, "type:") || strings.HasPrefix(name, "go:") {
		return "types, strings and other data without a package"
	}
	if strings.HasPrefix(name, "main.") {
		return "cmd/decamp"
	}
	if rest, own := strings.CutPrefix(name, ownModule+"/internal/"); own {
		return "internal/" + rest[:max(strings.IndexAny(rest, "./"), 0)]
	}
	module := ""
	for _, m := range modules {
		if len(m) > len(module) && (strings.HasPrefix(name, m+"/") || strings.HasPrefix(name, m+".")) {
			module = m
		}
	}
	return cmp.Or(module, "standard library")
}

// linesOfFolder counts the lines of the Go files of a folder without tests.
func linesOfFolder(dir string) (lines int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no Go files in %s: %w", dir, err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		lines += bytes.Count(text, []byte("\n"))
	}
	return lines, nil
}

// methodsByType counts the methods that each type below the roots declares outside
// tests.
func methodsByType(roots ...string) (map[string]float64, error) {
	methods := map[string]float64{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, d := range file.Decls {
				if f, is := d.(*ast.FuncDecl); is && f.Recv != nil {
					methods[filepath.ToSlash(filepath.Dir(path))+"."+receiverName(f.Recv.List[0].Type)]++
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(methods) == 0 {
		return nil, fmt.Errorf("no methods below %v", roots)
	}
	return methods, nil
}

// receiverName returns the name of a receiver's type, without pointer and type
// parameters.
func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
