package clients

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const pythonDir = "../../clients/python"

// The tests of the Python client pass. They migrate VMs with a real server.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, "cold", "warm")
	cmd := r.command(toolPath(t, "python"), "-m", "pytest", "-o", "cache_dir="+r.path("cache"))
	cmd.Dir = pythonDir
	cmd.Env = append(cmd.Env, "PYTHONPATH=src")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(" passed")) || bytes.Contains(out, []byte("skipped")) {
		t.Fatalf("pytest: %v\n%s", err, out)
	}
	r.checkPublished("cold", "web01")
	r.checkPublished("warm", "db01")
}

// The OpenAPI document is valid, and the generated code of the client is up to date.
func TestPythonClientIsGenerated(t *testing.T) {
	t.Parallel()
	runTool(t, ".", "openapi-spec-validator", "../../docs/schema/openapi/v1.json")
	fresh := filepath.Join(t.TempDir(), "generated")
	if out, err := exec.Command("../../scripts/generate-client.sh", fresh).CombinedOutput(); err != nil {
		t.Fatalf("generate: %v\n%s", err, out)
	}
	want, got := readTree(t, fresh), readTree(t, filepath.Join(pythonDir, "src/decamp_client/generated"))
	if len(want) < 50 {
		t.Errorf("got %d generated files, want 50 or more", len(want))
	}
	for name := range want {
		if want[name] != got[name] {
			t.Errorf("%s is not up to date: run make generate", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s is not generated any more: run make generate", name)
	}
}

// runTool runs a program that scripts/setup.sh installed.
func runTool(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), toolPath(t, name), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// readTree returns the Python files below a folder by their paths.
func readTree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	must(t, fs.WalkDir(os.DirFS(root), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".py") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		files[path] = string(text)
		return err
	}))
	return files
}
