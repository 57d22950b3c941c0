package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// openRelease returns the release of a repository. An empty version is the content of the file VERSION.
func openRelease(ctx context.Context, root, out, version string, log io.Writer) (*release, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if version == "" {
		text, err := os.ReadFile(filepath.Join(root, "VERSION"))
		if err != nil {
			return nil, err
		}
		version = strings.TrimSpace(string(text))
	}
	r := &release{root: root, out: out, version: version, log: log}
	if err := r.readCommit(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// readCommit sets the date and the tag from the commit. SOURCE_DATE_EPOCH takes precedence, and is required
// without a repository.
func (r *release) readCommit(ctx context.Context) error {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	head, err := runCommand(ctx, r.root, nil, "git", "log", "-1", "--format=%ct")
	if err != nil && epoch == "" {
		return fmt.Errorf("the time of the commit is unknown: %w; set SOURCE_DATE_EPOCH", err)
	}
	if epoch == "" {
		epoch = strings.TrimSpace(head)
	}
	seconds, wrong := strconv.ParseInt(epoch, 10, 64)
	if wrong != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", wrong)
	}
	r.date = time.Unix(seconds, 0).UTC()
	if err != nil {
		return nil // an exported tree has no tags
	}
	return r.checkTag(ctx)
}

// checkTag fails if the commit has the tag of another version, and warns if it has none or if files are changed.
func (r *release) checkTag(ctx context.Context) error {
	text, err := runCommand(ctx, r.root, nil, "git", "tag", "--points-at", "HEAD", "--list", "v[0-9]*")
	if err != nil {
		return err
	}
	tags := strings.Fields(text)
	r.tagged = slices.Contains(tags, "v"+r.version)
	if len(tags) > 0 && !r.tagged {
		return fmt.Errorf("the commit has the tag %s, but the version is %s: change the file VERSION or the tag", strings.Join(tags, ", "), r.version)
	}
	if !r.tagged {
		r.warn("the commit has no tag v%s: do not publish this release", r.version)
	}
	changed, err := runCommand(ctx, r.root, nil, "git", "status", "--porcelain", "--untracked-files=no")
	if err == nil && changed != "" {
		r.warn("the release contains changes that are not committed")
	}
	return err
}

// warn prints a warning.
func (r *release) warn(format string, args ...any) {
	fmt.Fprintf(r.log, "release: warning: "+format+"\n", args...)
}

// buildBinary compiles a program, static and stripped, for one GOARCH. No variable of the caller's environment
// and no path of this machine changes the result.
func (r *release) buildBinary(ctx context.Context, program, arch, binary string) error {
	flags := "-s -w -X github.com/decamp/decamp/internal/buildinfo.linked=" + r.version
	_, err := runCommand(ctx, r.root, buildEnvironment(arch), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", binary, "./cmd/"+program)
	return err
}

// buildPlugin compiles the plugin of nbdkit for one GOARCH.
func (r *release) buildPlugin(ctx context.Context, arch, binary string) error {
	_, err := runCommand(ctx, r.root, buildEnvironment(arch), "scripts/nbdkit-plugin.sh", binary, r.version, arch)
	return err
}

// buildCopier compiles the static program of the plugin's image for one GOARCH.
func (r *release) buildCopier(ctx context.Context, arch, binary string) error {
	_, err := runCommand(ctx, filepath.Join(r.root, "release"), buildEnvironment(arch), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "./copyplugin")
	return err
}

// buildClients builds the Python client and the Ansible collection in a temporary folder.
func (r *release) buildClients(ctx context.Context, folder string, in *inputs) error {
	epoch := fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix())
	if _, err := runCommand(ctx, r.root, []string{epoch}, "scripts/clients.sh", folder, r.version); err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	in.clients = map[string][]byte{}
	for _, e := range entries {
		if in.clients[e.Name()], err = os.ReadFile(filepath.Join(folder, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// buildEnvironment returns the variables that determine a compilation.
func buildEnvironment(arch string) []string {
	return []string{"GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOEXPERIMENT=", "GOWORK=off"}
}

// runCommand runs a program in a folder and returns its standard output.
func runCommand(ctx context.Context, folder string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = folder, append(os.Environ(), env...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), errors.Join(err, errors.New(strings.TrimSpace(stderr.String()))))
	}
	return stdout.String(), nil
}
