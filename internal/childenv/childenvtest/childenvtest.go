// Package childenvtest finds out which variables a program gets that decamp starts.
package childenvtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Secrets are variables of decamp that no program may get.
var Secrets = []string{"CREDENTIALS_DIRECTORY", "PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "DECAMP_DB", "DECAMP_TOKEN_FILE", "NOTIFY_SOCKET", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY"}

// Replace puts a program of that name into PATH. The program writes its environment to a file. Replace
// also sets Secrets and the variables pass. The function that it returns checks the file: the program
// must have received pass and HOME, and no secret.
func Replace(t *testing.T, program string, pass ...string) (check func()) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "environ")
	script := "#!/bin/sh\ntr '\\0' '\\n' </proc/$$/environ >" + file + ".new; mv " + file + ".new " + file + "\n"
	if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("HOME", dir)
	for _, name := range append(append([]string{}, Secrets...), pass...) {
		if name != "LD_PRELOAD" { // LD_PRELOAD would affect the shell
			t.Setenv(name, "/nowhere")
		}
	}
	return func() {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%s was not started: %v", program, err)
		}
		got := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(line, "=")
			got[name] = true
		}
		for _, name := range Secrets {
			if got[name] {
				t.Errorf("%s gets %s", program, name)
			}
		}
		for _, name := range append([]string{"PATH", "HOME"}, pass...) {
			if !got[name] {
				t.Errorf("%s does not get %s", program, name)
			}
		}
	}
}
