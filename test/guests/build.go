package guests

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// sources are the files that the images depend on, besides the packages.
//
//go:embed *.go files
var sources embed.FS

// Build builds the images of the repository at repo that are missing or outdated. It requires root.
// Several processes may call it at once: one builds, the others wait.
func Build(ctx context.Context, repo string) error {
	if os.Geteuid() != 0 { // owners and mounts need root
		return errors.New("the real guests are built by root: owners are kept, file systems mounted")
	}
	dir := imagesDir(repo)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	key, err := cacheKey()
	if err != nil {
		return err
	}
	for _, name := range Names() {
		if err := buildStale(ctx, repo, name, key); err != nil {
			return fmt.Errorf("build guest %s: %w", name, err)
		}
	}
	return nil
}

// buildStale builds one image, unless it exists and was built with this key.
func buildStale(ctx context.Context, repo string, name Name, key string) error {
	image := File(repo, name)
	if built, err := os.ReadFile(image + ".key"); err == nil && string(built) == key {
		if _, err := os.Stat(image); err == nil {
			return nil
		}
	}
	v := allVariants()[name]
	if err := v.base.fetchArchive(ctx, imagesDir(repo)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(imagesDir(repo), "tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := builder{ctx: ctx, dir: dir, archive: v.base.archivePath(imagesDir(repo)), name: name, variant: v}
	if err := b.build(); err != nil {
		return err
	}
	if err := os.Rename(b.imagePath(), image); err != nil {
		return err
	}
	return os.WriteFile(image+".key", []byte(key), 0o644)
}

// cacheKey returns a hash of the files that the images depend on. Test files do not count.
func cacheKey() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := sources.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// runTool runs a program, which scripts/setup.sh guests installs, with text as standard input. Its
// error contains the output.
func runTool(ctx context.Context, text, name string, args ...string) error {
	path, err := lookTool(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(text)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// lookTool returns the path of a program, also in the folders for root's programs, which are not in the
// PATH of other users.
func lookTool(name string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s: run scripts/setup.sh guests", name)
}
