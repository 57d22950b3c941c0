package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/licenseclassifier/v2/assets"
)

// A module is a Go module that a program contains, or Go's standard library.
type module struct {
	path     string    // module path; std for the standard library
	version  string    // version, such as v1.10.2
	sum      string    // hash as in go.sum, such as h1:…; empty for the standard library
	licences []string  // SPDX identifiers, sorted
	texts    []licence // files with licences and notices
}

// A licence is a file with a licence, a notice or a patent grant.
type licence struct {
	name string // path in the module
	text []byte // content
}

// licenceFile matches the names of files that must be passed on with a program.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)([-._].*)?$`)

// othersLicences matches the names of lists with licences of other programs, which may contain more than is linked.
var othersLicences = regexp.MustCompile(`(?i)(3rd|third).?party`)

// knownLicences are the licences of modules that the classifier does not recognise. make audit checks the text.
var knownLicences = map[string]string{"modernc.org/mathutil": "BSD-3-Clause"}

// listModules returns the modules of a program's binaries for all architectures, sorted.
func (r *release) listModules(ctx context.Context, p program, binaries string) ([]module, error) {
	found := map[string]*module{}
	texts := map[string]map[string]bool{} // paths of licence files by module
	for _, arch := range architectures {
		build, err := buildinfo.ReadFile(filepath.Join(binaries, arch, p.name))
		if err != nil {
			return nil, err
		}
		found["std"] = &module{path: "std", version: build.GoVersion}
		for _, d := range build.Deps {
			found[d.Path] = &module{path: d.Path, version: d.Version, sum: d.Sum}
		}
		if err := r.findLicences(ctx, p, arch, texts); err != nil {
			return nil, err
		}
	}
	for _, m := range found {
		for _, name := range slices.Sorted(maps.Keys(texts[m.path])) {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			m.texts = append(m.texts, licence{name, text})
		}
		if err := m.classifyLicences(); err != nil {
			return nil, err
		}
	}
	var modules []module
	for _, m := range found {
		m.shortenNames()
		modules = append(modules, *m)
	}
	slices.SortFunc(modules, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return modules, nil
}

// findLicences adds the licence files of all packages in a program to texts: those in the folders from the package
// up to its module.
func (r *release) findLicences(ctx context.Context, program program, arch string, texts map[string]map[string]bool) error {
	env := buildEnvironment(arch)
	if program.plugin {
		env = append(env, "CGO_ENABLED=1")
	}
	list, err := runCommand(ctx, r.root, env, "go", "list", "-deps", "-tags=netgo,osusergo", "-json=Dir,Root,Standard,Module", "./cmd/"+program.command())
	if err != nil {
		return err
	}
	for d := json.NewDecoder(strings.NewReader(list)); ; {
		var p struct {
			Dir, Root string
			Standard  bool
			Module    *struct {
				Path, Dir string
				Main      bool
			}
		}
		if err := d.Decode(&p); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		name, top := "std", p.Root
		if p.Standard {
			p.Dir = p.Root // licences in folders below are of code that is linked with cgo only
		} else if p.Module.Main {
			continue
		} else {
			name, top = p.Module.Path, p.Module.Dir
		}
		if texts[name] == nil {
			texts[name] = map[string]bool{}
		}
		for folder := p.Dir; top != "" && strings.HasPrefix(folder, top); folder = filepath.Dir(folder) {
			entries, err := os.ReadDir(folder)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.Type().IsRegular() && licenceFile.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go") {
					texts[name][filepath.Join(folder, e.Name())] = true
				}
			}
		}
	}
}

// shortenNames replaces the paths of the licence files, which are paths of this machine, by paths in the module.
func (m *module) shortenNames() {
	top := ""
	for _, t := range m.texts {
		if folder := filepath.Dir(t.name); top == "" || len(folder) < len(top) {
			top = folder
		}
	}
	for i := range m.texts {
		m.texts[i].name = strings.TrimPrefix(m.texts[i].name, top+"/")
	}
}

// classifier returns the identifiers of the licences in a text.
var classifier = sync.OnceValues(func() (func([]byte) []string, error) {
	c, err := assets.DefaultClassifier()
	return func(text []byte) (names []string) {
		for _, m := range c.Match(text).Matches {
			if m.MatchType == "License" {
				names = append(names, m.Name)
			}
		}
		return names
	}, err
})

// classifyLicences sets the identifiers of the licences. A module without a known licence is an error.
func (m *module) classifyLicences() error {
	classify, err := classifier()
	if err != nil {
		return err
	}
	for _, t := range m.texts {
		if othersLicences.MatchString(t.name) {
			continue
		}
		m.licences = append(m.licences, classify(t.text)...)
	}
	if known := knownLicences[m.path]; known != "" && len(m.texts) > 0 {
		m.licences = append(m.licences, known)
	}
	slices.Sort(m.licences)
	m.licences = slices.Compact(m.licences)
	if len(m.licences) == 0 {
		return fmt.Errorf("the licence of the module %s is unknown: %d files were read", m.path, len(m.texts))
	}
	return nil
}

// formatLicences returns the licences and notices of modules as one text.
func formatLicences(modules []module) []byte {
	var b bytes.Buffer
	b.WriteString("This program contains the Go modules below. Their licences and notices follow.\n\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "  %s %s: %s\n", m.path, m.version, strings.Join(m.licences, ", "))
	}
	for _, m := range modules {
		for _, t := range m.texts {
			fmt.Fprintf(&b, "\n%[1]s\n%s %s, %s\n%[1]s\n\n%[5]s\n", strings.Repeat("-", 80), m.path, m.version, t.name, bytes.TrimSpace(t.text))
		}
	}
	return b.Bytes()
}
