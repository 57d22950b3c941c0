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

// The tests of the client migrate VMs by a real server.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, "cold", "warm")
	cmd := r.command(tool(t, "python"), "-m", "pytest", "-o", "cache_dir="+r.path("cache"))
	cmd.Dir = pythonDir
	cmd.Env = append(cmd.Env, "PYTHONPATH=src")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(" passed")) || bytes.Contains(out, []byte("skipped")) {
		t.Fatalf("pytest: %v\n%s", err, out)
	}
	r.published("cold", "web01")
	r.published("warm", "db01")
}

// The OpenAPI document is valid for a judge that does not know the server, and the client has the code that is generated
// from it.
func TestPythonClientIsGenerated(t *testing.T) {
	t.Parallel()
	runTool(t, ".", "openapi-spec-validator", "../../docs/schema/openapi/v1.json")
	fresh := filepath.Join(t.TempDir(), "generated")
	if out, err := exec.Command("../../scripts/generate-client.sh", fresh).CombinedOutput(); err != nil {
		t.Fatalf("generate: %v\n%s", err, out)
	}
	want, got := readTree(t, fresh), readTree(t, filepath.Join(pythonDir, "src/decamp_client/generated"))
	if len(want) < 50 {
		t.Errorf("%d files are generated", len(want))
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
	cmd := exec.CommandContext(t.Context(), tool(t, name), args...)
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
