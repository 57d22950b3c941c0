package guest

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// sources are the files that the images depend on, besides the kernel.
//
//go:embed *.go init/*.go
var sources embed.FS

// Build builds the images of the repository at repo that are missing or outdated. Several processes may
// call it at once: one builds, the others wait.
func Build(ctx context.Context, repo string) error {
	dir := filepath.Join(repo, "build", "guest")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock() // another process may then find the images fresh
	k, err := findKernel(filepath.Join(repo, "build", "kernel"))
	if err != nil {
		return err
	}
	a, err := findAgent(filepath.Join(repo, "build", "agent"))
	if err != nil {
		return err
	}
	key, err := cacheKey(k, a)
	if err != nil {
		return err
	}
	if isFresh(repo, key, a) {
		return nil
	}
	if err := buildAll(ctx, repo, k, a); err != nil {
		return err
	}
	return os.WriteFile(keyFile(repo), []byte(key), 0o644)
}

// lockFile locks the file at path, and waits if another process holds the lock. unlock releases it.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// keyFile returns the file with the key of the existing images.
func keyFile(repo string) string { return filepath.Join(repo, "build", "guest", "key") }

// cacheKey returns a hash of everything that the images depend on.
func cacheKey(k kernel, a agent) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, k.release)
	needs, err := a.inputsHash()
	if err != nil {
		return "", err
	}
	fmt.Fprintln(h, needs)
	err = fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// isFresh reports whether all images exist and were built with this key. The guest with the agent may
// be missing if a is nil.
func isFresh(repo, key string, a agent) bool {
	for _, v := range allVariants() {
		if _, err := os.Stat(File(repo, v.name)); err != nil && (a != nil || !v.agent) {
			return false
		}
	}
	built, err := os.ReadFile(keyFile(repo))
	return err == nil && string(built) == key
}

// buildAll builds the images in a temporary folder and renames each to its place.
func buildAll(ctx context.Context, repo string, k kernel, a agent) error {
	dir, err := os.MkdirTemp(filepath.Join(repo, "build", "guest"), "tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	initProgram := filepath.Join(dir, "init")
	if err := buildInit(ctx, repo, initProgram); err != nil {
		return err
	}
	for _, v := range allVariants() {
		if v.agent && a == nil { // scripts/setup.sh has not fetched the agent
			continue
		}
		scratch := filepath.Join(dir, string(v.name))
		if err := os.Mkdir(scratch, 0o755); err != nil {
			return err
		}
		b := builder{ctx: ctx, dir: scratch, kernel: k, agent: a, init: initProgram, variant: v}
		if err := b.build(); err != nil {
			return fmt.Errorf("build guest %s: %w", v.name, err)
		}
		if err := os.Rename(b.imagePath(), File(repo, v.name)); err != nil {
			return err
		}
	}
	return nil
}

// buildInit compiles the guest's init, statically, to the file out.
func buildInit(ctx context.Context, repo, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "./test/guest/init")
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the guest's init: %w: %s", err, text)
	}
	return nil
}
