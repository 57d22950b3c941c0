package packaging

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"sigs.k8s.io/yaml"
)

// actionlint finds nothing in the workflows, and finds a wrong one.
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
		t.Error("actionlint accepts everything")
	}
}

// The definitions call the same commands on GitHub and on GitLab, and these exist.
func TestCICallsWhatExists(t *testing.T) {
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
				t.Errorf("%v do not call %s", files, command)
			}
		}
	}
}

// gitlabJob is a job of .gitlab-ci.yml.
type gitlabJob struct {
	Stage     string              `json:"stage"`
	Timeout   string              `json:"timeout"`
	Rules     []map[string]string `json:"rules"`
	Script    []string            `json:"script"`
	Artifacts map[string]any      `json:"artifacts"`
}

// gitlabCI is the part of GitLab's format that .gitlab-ci.yml uses.
type gitlabCI struct {
	Default   map[string]string              `json:"default"`
	Workflow  map[string][]map[string]string `json:"workflow"`
	Stages    []string                       `json:"stages"`
	Variables map[string]string              `json:"variables"`
	Test      gitlabJob                      `json:"test"`
	Nightly   gitlabJob                      `json:"nightly"`
	Release   gitlabJob                      `json:"release"`
}

// .gitlab-ci.yml and the forms of issues are YAML with the expected keys. GitLab's and GitHub's own checks need a server.
func TestDefinitionsParse(t *testing.T) {
	var ci gitlabCI
	text, err := os.ReadFile(filepath.Join(root, ".gitlab-ci.yml"))
	must(t, err)
	must(t, yaml.UnmarshalStrict(text, &ci))
	for _, job := range []gitlabJob{ci.Test, ci.Nightly, ci.Release} {
		if len(job.Script) == 0 || len(job.Rules) == 0 || (job.Stage != "test" && job.Stage != "release") {
			t.Errorf("job %+v", job)
		}
	}
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
