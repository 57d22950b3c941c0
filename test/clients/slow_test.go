//go:build slow

package clients

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The tasks of the playbook refuse.yml succeed: commands to plans change them once, and each refusal has a remedy.
func TestAnsibleRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, "cold", "warm")
	r.runPlaybook("refuse.yml")
}

// pipBootstrap replaces the script that ansible-test downloads to install pip.
const pipBootstrap = `import ensurepip, subprocess, sys
ensurepip.bootstrap()
subprocess.check_call([sys.executable, "-m", "pip", "install", "-q"] + [a for a in sys.argv[1:] if a.startswith("pip")])
`

// The collection passes the sanity tests of ansible-core. They run on a copy and install their tools from PyPI.
func TestAnsibleSanity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	collection := filepath.Join(dir, "ansible_collections", "decamp", "decamp")
	must(t, os.CopyFS(collection, os.DirFS("../../clients/ansible")))
	cache := filepath.Join(dir, ".ansible", "test", "cache")
	must(t, os.MkdirAll(cache, 0o700))
	must(t, os.WriteFile(filepath.Join(cache, "get_pip_24_2.py"), []byte(pipBootstrap), 0o600))
	path := "PATH=" + filepath.Dir(toolPath(t, "python")) + ":/usr/bin:/bin" // Debian's Python, whose version ansible-test knows
	for _, args := range [][]string{{"git", "init", "-q"}, {"git", "add", "-A"}, {"ansible-test", "sanity", "--local", "--python", "default"}} {
		cmd := exec.CommandContext(t.Context(), "/usr/bin/env", args...)
		cmd.Dir = collection
		cmd.Env = append(os.Environ(), path, "HOME="+dir, "LC_ALL=C.UTF-8")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
}

// The client has complete type annotations and works with the oldest Python version of its package.
func TestPythonClientIsTyped(t *testing.T) {
	t.Parallel()
	runTool(t, pythonDir, "mypy", "--cache-dir", t.TempDir(), "src", "tests")
	runTool(t, pythonDir, "vermin", "-t=3.9-", "--eval-annotations", "--violations", "src")
}

// Two builds of the wheel and of the archive of the collection are identical. Both can be installed and have the version.
func TestPackagesAreReproducible(t *testing.T) {
	t.Parallel()
	wheel, archive := "decamp_client-1.2.3-py3-none-any.whl", "decamp-decamp-1.2.3.tar.gz"
	var built []string
	for range 2 {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "../../scripts/clients.sh", dir, "1.2.3")
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000", "ANSIBLE_HOME="+t.TempDir(), "LC_ALL=C.UTF-8")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("scripts/clients.sh: %v\n%s", err, out)
		}
		built = append(built, dir)
	}
	for _, name := range []string{wheel, archive} {
		one, err := os.ReadFile(filepath.Join(built[0], name))
		must(t, err)
		other, err := os.ReadFile(filepath.Join(built[1], name))
		must(t, err)
		if !bytes.Equal(one, other) {
			t.Errorf("two builds of %s differ", name)
		}
	}

	python := filepath.Join(built[0], "python")
	runTool(t, ".", "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--target", python, filepath.Join(built[0], wheel))
	cmd := exec.CommandContext(t.Context(), toolPath(t, "python"), "-c", "import decamp_client, importlib.metadata as m; print(decamp_client.__file__, m.version('decamp-client'))")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+python)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != python+"/decamp_client/__init__.py 1.2.3\n" {
		t.Errorf("the installed client: %v\n%s", err, out)
	}

	install := exec.CommandContext(t.Context(), toolPath(t, "ansible-galaxy"), "collection", "install", "--offline", "-p", built[0], filepath.Join(built[0], archive))
	install.Env = append(os.Environ(), "ANSIBLE_HOME="+t.TempDir(), "LC_ALL=C.UTF-8")
	if out, err := install.CombinedOutput(); err != nil {
		t.Errorf("ansible-galaxy: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(built[0], "ansible_collections/decamp/decamp/plugins/modules/plan.py")); err != nil {
		t.Error(err)
	}
}
