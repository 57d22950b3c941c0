package clients

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// codeBlock matches a code block of a Markdown page.
var codeBlock = regexp.MustCompile("(?s)\n```(python|yaml)\n(.*?)```")

// guideBlocks returns the code blocks of docs/automation.md in a language.
func guideBlocks(t *testing.T, language string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/automation.md")
	must(t, err)
	for _, m := range codeBlock.FindAllStringSubmatch(string(page), -1) {
		if m[1] == language {
			blocks = append(blocks, m[2])
		}
	}
	return blocks
}

// The curl requests and the Python program of the guide to automation work with a real server.
func TestAutomationGuide(t *testing.T) {
	t.Parallel()
	r := newRig(t, "guide")
	plan := "version: 1\nname: wave-1\nsource: {url: '" + r.source + "', credentials: {name: lab}}\n" +
		"vms: [{vm: web02, to: ['dir:" + r.path("guide") + "']}]\n"
	must(t, os.WriteFile(r.path("plan.yaml"), []byte(plan), 0o600))
	here := strings.NewReplacer("https://mover:8470", r.url, "AB:CD:…", r.fingerprint, "ci.token", r.path("operate.token"), "plan.yaml", r.path("plan.yaml"))

	programs := guideBlocks(t, "python")
	if len(programs) != 1 {
		t.Fatalf("got %d programs, want 1", len(programs))
	}
	cmd := r.command(toolPath(t, "python"), "-c", here.Replace(programs[0]))
	cmd.Env = append(cmd.Env, "PYTHONPATH="+pythonDir+"/src")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ended {'done': 1}\n" {
		t.Errorf("the program: %v\n%s", err, out)
	}
	r.checkPublished("guide", "web02")

	page, err := os.ReadFile("../../docs/automation.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## curl\n")
	var script strings.Builder
	script.WriteString("set -e\n")
	requests := 0
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "## ") {
			break
		}
		command, isCode := strings.CutPrefix(line, "    ")
		if !isCode {
			continue
		}
		if strings.HasPrefix(command, "curl ") {
			requests++
			command = strings.Replace(command, "curl ", "curl -sS --max-time 60 ", 1)
		}
		if strings.Contains(command, "/v1/events") { // an endless stream, so head ends it
			command = strings.TrimSuffix(command, "\n") + " | head -n 12\n"
		}
		script.WriteString(here.Replace(command))
	}
	out, err := r.command("bash", "-c", script.String()).CombinedOutput()
	for _, want := range []string{`"name":"wave-1"`, `"state":"ended"`, "event: changes", `"kind":"conflict"`} { // the conflict: the plan has ended, so it has no cutover
		if !strings.Contains(string(out), want) {
			t.Errorf("the output of the requests does not contain %s", want)
		}
	}
	if err != nil || requests != 4 {
		t.Errorf("%d requests: %v\n%s\n%s", requests, err, script.String(), out)
	}
}

// The playbook of the guide has valid syntax for Ansible, and the other YAML blocks are valid.
func TestAutomationGuideParses(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, dir: t.TempDir()}
	blocks := guideBlocks(t, "yaml")
	if len(blocks) != 4 {
		t.Fatalf("got %d blocks, want 4", len(blocks))
	}
	must(t, os.WriteFile(r.path("playbook.yml"), []byte(blocks[0]), 0o600))
	if out, err := r.ansibleCommand("ansible-playbook", "--syntax-check", r.path("playbook.yml")).CombinedOutput(); err != nil {
		t.Errorf("the playbook: %v\n%s", err, out)
	}
	for _, block := range blocks[1:] {
		cmd := exec.CommandContext(t.Context(), toolPath(t, "python"), "-c", "import sys, yaml; assert isinstance(yaml.safe_load(sys.stdin), dict)")
		cmd.Stdin = strings.NewReader(block)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, block, out)
		}
	}
}
