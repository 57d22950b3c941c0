//go:build slow

package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Commands to plans change them once, and each refusal has a remedy.
func TestAnsibleRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, "cold", "warm")
	r.playbook("refuse.yml")
}

// bootstrap is the script with which ansible-test installs pip. It would download its own.
const bootstrap = `import ensurepip, subprocess, sys
ensurepip.bootstrap()
subprocess.check_call([sys.executable, "-m", "pip", "install", "-q"] + [a for a in sys.argv[1:] if a.startswith("pip")])
`

// The sanity tests of ansible-core have no objection to the collection. They run on copies, and install their tools
// from PyPI.
func TestAnsibleSanity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	collection := filepath.Join(dir, "ansible_collections", "decamp", "decamp")
	must(t, os.CopyFS(collection, os.DirFS("../../clients/ansible")))
	cache := filepath.Join(dir, ".ansible", "test", "cache")
	must(t, os.MkdirAll(cache, 0o700))
	must(t, os.WriteFile(filepath.Join(cache, "get_pip_24_2.py"), []byte(bootstrap), 0o600))
	path := "PATH=" + filepath.Dir(tool(t, "python")) + ":/usr/bin:/bin" // Debian's Python, whose version ansible-test knows
	for _, args := range [][]string{{"git", "init", "-q"}, {"git", "add", "-A"}, {"ansible-test", "sanity", "--local", "--python", "default"}} {
		cmd := exec.CommandContext(t.Context(), "/usr/bin/env", args...)
		cmd.Dir = collection
		cmd.Env = append(os.Environ(), path, "HOME="+dir, "LC_ALL=C.UTF-8")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
}
