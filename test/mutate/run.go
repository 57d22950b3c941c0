package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runtimePath is the import path of the package that selects mutants. It exists only
// while a package is compiled.
const runtimePath = "github.com/decamp/decamp/internal/mutant"

//go:embed runtime.go.txt
var runtimeText []byte

// options contains the command line.
type options struct {
	pkg     string   // import path, as go list accepts it
	files   []string // files of the package; empty means all
	short   bool     // run tests with -test.short
	skip    string   // regular expression of tests to skip; empty for none
	workers int      // number of mutants that run concurrently
}

// A program is a test binary with all mutants of its package.
type program struct {
	path    string   // path of the binary
	dir     string   // folder of the package, in which tests run
	short   bool     // run tests with -test.short
	mutants []Mutant // all mutants
	tests   []test   // tests, the fastest first
}

// test is a test of the package with its measurements.
type test struct {
	name    string        // name of the test function
	took    time.Duration // duration without a mutant
	reaches []byte        // by mutant, 1 if the test reaches it
}

// measurePackage builds the test binary, measures its tests, and runs all mutants. It
// writes the results to out.
func measurePackage(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := buildProgram(ctx, o, dir)
	if err != nil {
		return err
	}
	if err := p.measureTests(ctx, o.skip, dir); err != nil {
		return err
	}
	return p.runMutants(ctx, o, out)
}

// buildProgram compiles the tests of the package with all mutants of its files. The
// files of the package do not change: the compiler reads the rewritten ones through an
// overlay.
func buildProgram(ctx context.Context, o options, dir string) (*program, error) {
	var listed struct {
		Dir, ImportPath string
		GoFiles         []string
	}
	text, err := goCommand(ctx, "list", "-json=Dir,ImportPath,GoFiles", o.pkg)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		return nil, fmt.Errorf("go list %s: %w", o.pkg, err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range listed.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(listed.Dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info, err := checkTypes(ctx, fset, listed.ImportPath, files)
	if err != nil {
		return nil, err
	}
	root, err := goCommand(ctx, "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return nil, err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	replace := func(path string, text []byte) error {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay.Replace)))
		overlay.Replace[path] = to
		return os.WriteFile(to, text, 0o600)
	}
	if err := replace(filepath.Join(strings.TrimSpace(string(root)), "internal/mutant/mutant.go"), runtimeText); err != nil {
		return nil, err
	}
	r := &rewriter{fset: fset, info: info}
	for i, name := range listed.GoFiles {
		// Other files of the package are compiled unchanged.
		if len(o.files) > 0 && !slices.Contains(o.files, name) {
			continue
		}
		path := filepath.Join(listed.Dir, name)
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := replace(path, []byte(r.rewriteFile(files[i], src))); err != nil {
			return nil, err
		}
	}
	for _, name := range o.files {
		if !slices.Contains(listed.GoFiles, name) {
			return nil, fmt.Errorf("package %s has no file %s", o.pkg, name)
		}
	}
	text, err = json.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600); err != nil {
		return nil, err
	}
	p := &program{path: filepath.Join(dir, "test"), dir: listed.Dir, short: o.short, mutants: r.mutants}
	_, err = goCommand(ctx, "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", p.path, o.pkg)
	return p, err
}

// checkTypes determines the types of all expressions. It reads the compiler's export
// data of imported packages.
func checkTypes(ctx context.Context, fset *token.FileSet, path string, files []*ast.File) (*types.Info, error) {
	text, err := goCommand(ctx, "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", path)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	// Each line contains an import path and the file with its export data.
	for line := range strings.Lines(string(text)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[name] = file
	}
	lookup := func(path string) (io.ReadCloser, error) {
		// The standard library has vendored packages.
		for _, prefix := range []string{"", "vendor/"} {
			if file := exports[prefix+path]; file != "" {
				return os.Open(file)
			}
		}
		return nil, fmt.Errorf("no export data of %s", path)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	_, err = config.Check(path, fset, files, info)
	return info, err
}

// measureTests runs each test alone, and records its time and the mutants that it
// reaches.
func (p *program) measureTests(ctx context.Context, skip, dir string) error {
	text, err := p.newCommand(ctx, "-test.list", ".").Output()
	if err != nil {
		return fmt.Errorf("list the tests: %w", err)
	}
	skipped, err := regexp.Compile(skip)
	if err != nil {
		return err
	}
	record := filepath.Join(dir, "record")
	for name := range strings.FieldsSeq(string(text)) {
		if strings.HasPrefix(name, "Benchmark") || strings.HasPrefix(name, "Example") || skip != "" && skipped.MatchString(name) {
			continue
		}
		// The runtime maps this file and sets one byte for each mutant that it reaches.
		if err := os.WriteFile(record, make([]byte, len(p.mutants)+1), 0o600); err != nil {
			return err
		}
		began := time.Now()
		c := p.testCommand(ctx, name, 10*time.Minute)
		c.Env = append(c.Env, "MUTANT_RECORD="+record)
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s fails without a mutant: %w\n%s", name, err, text)
		}
		reaches, err := os.ReadFile(record)
		if err != nil {
			return err
		}
		p.tests = append(p.tests, test{name, time.Since(began), reaches})
	}
	slices.SortStableFunc(p.tests, func(a, b test) int { return int(a.took - b.took) })
	return nil
}

// runMutants runs all mutants concurrently, and prints a line for each of them and the
// kill rate.
func (p *program) runMutants(ctx context.Context, o options, out io.Writer) error {
	results := make([]string, len(p.mutants))
	next := make(chan int)
	var workers sync.WaitGroup
	// The mutants are independent of each other.
	for range max(1, o.workers) {
		workers.Go(func() {
			for i := range next {
				results[i] = p.runMutant(ctx, p.mutants[i])
			}
		})
	}
	for i := range p.mutants {
		next <- i
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	survived := 0
	for i, m := range p.mutants {
		killed := strings.HasPrefix(results[i], "killed")
		if !killed {
			survived++
		}
		fmt.Fprintf(out, "%s:%d:%d: %s: %s\n", filepath.Base(m.Pos.Filename), m.Pos.Line, m.Pos.Column, m.Kind, results[i])
	}
	if len(p.mutants) == 0 {
		return errors.New("no operator to change")
	}
	n := len(p.mutants)
	_, err := fmt.Fprintf(out, "%s %s: %d mutants, %d survived: kill rate %.1f %%\n", o.pkg, strings.Join(o.files, ","), n, survived, 100*float64(n-survived)/float64(n))
	return err
}

// runMutant runs the tests that reach a mutant until one fails, and returns the result.
// A test also fails if it takes longer than ten times its normal duration plus 20
// seconds.
func (p *program) runMutant(ctx context.Context, m Mutant) string {
	result := "not reached"
	for _, t := range p.tests {
		if t.reaches[m.ID] == 0 {
			continue
		}
		limit := 10*t.took + 20*time.Second
		c := p.testCommand(ctx, t.name, limit)
		c.Env = append(c.Env, "MUTANT="+strconv.Itoa(m.ID))
		text, err := c.CombinedOutput()
		// An endless loop counts as detected.
		if err != nil && bytes.Contains(text, []byte("panic: test timed out")) {
			return "killed by " + t.name + ", which does not end"
		}
		if err != nil {
			return "killed by " + t.name
		}
		result = "survived"
	}
	return result
}

// testCommand returns a command that runs one test. When the command is canceled, it
// kills all processes of the test.
func (p *program) testCommand(ctx context.Context, name string, limit time.Duration) *exec.Cmd {
	args := []string{"-test.run", "^" + name + "$", "-test.failfast", "-test.timeout", limit.String()}
	if p.short {
		args = append(args, "-test.short")
	}
	c := p.newCommand(ctx, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 10 * time.Second
	return c
}

// newCommand returns a command that runs the test binary in the folder of the package.
func (p *program) newCommand(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, p.path, args...)
	c.Dir, c.Env = p.dir, os.Environ()
	return c
}

// goCommand runs the go command and returns its output.
func goCommand(ctx context.Context, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	c := exec.CommandContext(ctx, "go", args...)
	c.Stderr = &stderr
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return text, nil
}
