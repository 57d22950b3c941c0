// Command release builds the artefacts of a release: archives, deb and rpm packages, OCI images, bills of
// materials, licences, release notes, checksums and a signature. docs/releasing.md describes them.
//
// It is a separate module, so that decamp does not depend on what only a release needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A release describes what the artefacts have in common.
type release struct {
	root    string    // folder of the repository
	out     string    // folder that receives the artefacts
	version string    // version without a v, such as 0.1.0
	tagged  bool      // the commit has the tag of the version
	date    time.Time // time of the commit, and of every file in an artefact
	log     io.Writer // receives warnings and the list of artefacts
}

// architectures are the values of GOARCH that are released.
var architectures = []string{"amd64", "arm64"}

func main() {
	root := flag.String("root", "..", "`FOLDER` of the repository")
	out := flag.String("out", "../dist", "`FOLDER` of the artefacts")
	version := flag.String("version", "", "version of the release (default: content of the file VERSION)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *root, *out, *version, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// run builds all artefacts of a repository.
func run(ctx context.Context, root, out, version string, log io.Writer) error {
	r, err := openRelease(ctx, root, out, version, log)
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "decamp-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	in, err := r.buildInputs(ctx, temporary)
	if err != nil {
		return err
	}
	return r.writeArtefacts(in)
}

// inputs are the parts of a release that compilation and the module cache provide.
type inputs struct {
	binaries    map[string]map[string][]byte // content by GOARCH and program, and of copier
	completions map[string][]byte            // completion script of decamp by shell
	modules     map[string][]module          // linked modules by program
	clients     map[string][]byte            // wheel of the Python client and Ansible collection by file name
}

// buildInputs compiles the programs in a temporary folder, and reads the licences of what they contain.
func (r *release) buildInputs(ctx context.Context, temporary string) (*inputs, error) {
	in := &inputs{binaries: map[string]map[string][]byte{}, completions: map[string][]byte{}, modules: map[string][]module{}}
	for _, arch := range architectures {
		in.binaries[arch] = map[string][]byte{}
		for _, p := range programs {
			if err := r.buildProgram(ctx, p, arch, filepath.Join(temporary, arch), in.binaries[arch]); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range programs {
		modules, err := r.listModules(ctx, p, temporary)
		if err != nil {
			return nil, err
		}
		in.modules[p.name] = modules
	}
	native := filepath.Join(temporary, runtime.GOARCH, "decamp")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := runCommand(ctx, r.root, nil, native, "completion", shell)
		if err != nil {
			return nil, err
		}
		in.completions[shell] = []byte(script)
	}
	if err := r.buildClients(ctx, filepath.Join(temporary, "clients"), in); err != nil {
		return nil, err
	}
	return in, nil
}

// buildProgram compiles a program in a folder, and adds its content to binaries; with the plugin also the program of
// its image.
func (r *release) buildProgram(ctx context.Context, p program, arch, folder string, binaries map[string][]byte) error {
	builds := map[string]func(string) error{p.name: func(binary string) error { return r.buildBinary(ctx, p.name, arch, binary) }}
	if p.plugin {
		builds[p.name] = func(binary string) error { return r.buildPlugin(ctx, arch, binary) }
		builds[copier] = func(binary string) error { return r.buildCopier(ctx, arch, binary) }
	}
	for name, build := range builds {
		binary := filepath.Join(folder, name)
		if err := build(binary); err != nil {
			return err
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		binaries[name] = content
	}
	return nil
}

// writeArtefacts writes all artefacts. The same release and inputs result in the same bytes.
func (r *release) writeArtefacts(in *inputs) error {
	if err := r.removeArtefacts(); err != nil {
		return err
	}
	w := &artefacts{release: r}
	notes, err := r.cutReleaseNotes()
	if err != nil {
		return err
	}
	w.writeFile("RELEASE-NOTES.md", notes)
	for _, p := range programs {
		files, err := r.collectFiles(p, in)
		if err != nil {
			return err
		}
		for _, arch := range architectures {
			all := append([]file{binaryFile(p, in.binaries[arch][p.name])}, files...)
			w.writeArchive(p, arch, all)
			w.writePackages(p, arch, all)
		}
		w.writeImage(p, in, files)
		w.writeBill(p, in.modules[p.name])
	}
	for name, content := range in.clients {
		w.writeFile(name, content)
	}
	return w.writeSums()
}

// artefacts writes files into the folder of a release, and remembers their names and the first error.
type artefacts struct {
	*release
	names []string // names of the written artefacts
	err   error    // first error; later calls do nothing
}

// writeFile writes one artefact.
func (w *artefacts) writeFile(name string, content []byte) {
	w.createFile(name, func(out io.Writer) error {
		_, err := out.Write(content)
		return err
	})
}

// createFile creates one artefact with the content that write writes.
func (w *artefacts) createFile(name string, write func(io.Writer) error) {
	if w.err != nil {
		return
	}
	f, err := os.Create(filepath.Join(w.out, name))
	if err != nil {
		w.err = err
		return
	}
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		w.err = fmt.Errorf("%s: %w", name, err)
		return
	}
	w.names = append(w.names, name)
}

// removeArtefacts removes the artefacts of an earlier release: the files that its checksums list.
func (r *release) removeArtefacts() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(r.out, sumsName))
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	names := []string{sumsName, signatureName}
	for line := range strings.Lines(string(sums)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			names = append(names, filepath.Base(fields[1]))
		}
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(r.out, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
