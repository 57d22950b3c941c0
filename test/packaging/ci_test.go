package packaging

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"sigs.k8s.io/yaml"
)

// actionlint accepts the workflows and rejects an invalid one.
func TestWorkflowsAreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	must(t, err)
	if len(files) != 2 {
		t.Errorf("workflows %v", files)
	}
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	must(t, err)
	for _, file := range files {
		problems, err := linter.LintFile(file, nil)
		must(t, err)
		for _, p := range problems {
			t.Errorf("%s:%d: %s", file, p.Line, p.Message)
		}
	}
	problems, err := linter.Lint("bad.yml", []byte("on: push\njobs: {a: {runs-on: ubuntu-latest, steps: [{runs: true}]}}\n"), nil)
	must(t, err)
	if len(problems) == 0 {
		t.Error("actionlint accepts an invalid workflow")
	}
}

// The CI definitions of GitHub and GitLab call the same commands.
func TestCICallsExistingCommands(t *testing.T) {
	if _, err := os.Stat(filepath.Join(root, ".ci/run")); err != nil {
		t.Error(err)
	}
	for _, files := range [][]string{{".github/workflows/ci.yml", ".github/workflows/release.yml"}, {".gitlab-ci.yml"}} {
		var all strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(root, file))
			must(t, err)
			all.Write(text)
		}
		for _, command := range []string{"bash .ci/run", "make release", "make test-slow"} {
			if !strings.Contains(all.String(), command) {
				t.Errorf("%v: no call of %s", files, command)
			}
		}
	}
}

// The GitLab CI definition is valid for GitLab's JSON schema. A definition with a mistake is not.
func TestGitLabCIConformsToItsSchema(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".gitlab-ci.yml"))
	must(t, err)
	for name, want := range map[string]struct {
		text  string
		valid bool
	}{"definition": {string(text), true}, "mistake": {strings.Replace(string(text), "script:", "scirpt:", 1), false}} {
		file := filepath.Join(t.TempDir(), "ci.yml")
		must(t, os.WriteFile(file, []byte(want.text), 0o600))
		tool := filepath.Join(root, "build/check-jsonschema/bin/check-jsonschema")
		out, err := exec.CommandContext(t.Context(), tool, "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", file).CombinedOutput()
		if (err == nil) != want.valid || !want.valid && !strings.Contains(string(out), "scirpt") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// The issue forms are YAML with the expected keys. The complete check of GitHub needs its server.
func TestIssueFormsParse(t *testing.T) {
	forms, err := filepath.Glob(filepath.Join(root, ".github/ISSUE_TEMPLATE/*.yml"))
	must(t, err)
	if len(forms) != 3 {
		t.Errorf("forms %v", forms)
	}
	for _, form := range forms {
		text, err := os.ReadFile(form)
		must(t, err)
		var f struct {
			Name, Description string
			Body              []struct {
				Type       string
				ID         string
				Attributes map[string]any
			}
		}
		must(t, yaml.Unmarshal(text, &f))
		if filepath.Base(form) == "config.yml" {
			continue
		}
		if f.Name == "" || f.Description == "" || len(f.Body) < 3 {
			t.Errorf("%s: %+v", form, f)
		}
		for _, b := range f.Body {
			if (b.Type != "markdown" && b.ID == "") || len(b.Attributes) == 0 {
				t.Errorf("%s: %+v", form, b)
			}
		}
	}
}
