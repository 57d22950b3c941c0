package complete

import (
	"cmp"
	"context"
	_ "embed" // the script
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/planfile"
)

// BashTargets is appended to cobra's completion script for bash: it completes values of --to.
//
//go:embed bash.sh
var BashTargets string

// valuesOf is the key of the cache before a parameter of a target, and the target.
const valuesOf = "values "

// kinds are the beginnings of the values of --to.
var kinds = []string{"dir:", "kubevirt:", "libvirt:qemu:///system", "libvirt:qemu+ssh://", "openstack:", "place:", "proxmox:https://"}

// Targets returns the longer values of --to that begin with typed: kinds of targets, their names in the config
// files and the access file, targets of earlier runs, and folders. After the question mark of a target, it
// returns the names of parameters, and the storages and networks of the target. flags are the names of all
// flags, which config.Load checks.
func (c *Completer) Targets(ctx context.Context, typed string, files config.Paths, flags []string) []string {
	kind, address, hasKind := strings.Cut(typed, ":")
	path, query, hasQuery := strings.Cut(address, "?")
	words := append(c.earlierTargets(), kinds...)
	switch {
	case hasQuery && kind != planfile.Dir:
		return c.completeParameter(ctx, typed[:len(typed)-len(query)], query)
	case hasKind && (kind == planfile.Dir || kind == planfile.KubeVirt):
		words = append(words, foldersOf(kind+":", path)...)
	case hasKind && kind == planfile.Place:
		words = append(words, c.places()...)
	case !hasKind:
		if settings, err := config.Load(files, flags); err == nil {
			words = slices.AppendSeq(words, maps.Keys(settings.Targets))
		}
	}
	return slices.DeleteFunc(Plain(words), func(w string) bool { return w == typed || !strings.HasPrefix(w, typed) })
}

// completeParameter returns the words for the last parameter of a target: its name, or its value. before is
// the target with its question mark, and query the text after that. Values that a URL encodes are omitted.
func (c *Completer) completeParameter(ctx context.Context, before, query string) (words []string) {
	last := strings.LastIndexByte(query, '&') + 1
	name, value, hasValue := strings.Cut(query[last:], "=")
	before += query[:last]
	kind := planfile.Destination(before).Kind()
	if hasValue {
		to := planfile.Destination(strings.TrimRight(before, "?&"))
		names := c.Cache.Words(ctx, valuesOf+name+" "+string(to), func(ctx context.Context) ([]string, error) {
			return assemble.ListValues(ctx, to, name)
		})
		for _, word := range names {
			if decoded, err := url.QueryUnescape(word); err == nil && decoded == word && strings.HasPrefix(word, value) {
				words = append(words, before+name+"="+word)
			}
		}
		return words
	}
	for _, p := range assemble.ParametersOf(kind) {
		if used := strings.Contains("&"+query[:last], "&"+p+"="); !used && strings.HasPrefix(p, name) {
			words = append(words, before+p+"=")
		}
	}
	return words
}

// places returns the named places of the access file.
func (c *Completer) places() (words []string) {
	if _, ok := c.stateDir(); !ok {
		return nil // Access would create the directory
	}
	access, err := c.Assembler.Access()
	if err != nil {
		return nil
	}
	for _, name := range access.PlacesFor(planfile.Local) {
		words = append(words, planfile.Place+":"+name)
	}
	return words
}

// earlierTargets returns the targets of earlier runs, without their parameters: these belong to one run.
func (c *Completer) earlierTargets() (words []string) {
	dir, ok := c.stateDir()
	if !ok {
		return nil
	}
	runs, _ := journal.NewStore(dir).Runs() // those that can be read
	for _, r := range runs {
		to, _, _ := strings.Cut(r.Plan.Target, "?")
		words = append(words, to)
	}
	return words
}

// foldersOf returns the folders whose paths begin with path, each after a prefix. Hidden ones require a dot.
func foldersOf(prefix, path string) (words []string) {
	parent, name := filepath.Split(path)
	entries, _ := os.ReadDir(cmp.Or(parent, ".")) // those that can be read
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), name) && (name != "" || e.Name()[0] != '.') {
			words = append(words, prefix+parent+e.Name()+"/")
		}
	}
	return words
}
