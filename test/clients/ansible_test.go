package clients

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ansibleCommand returns an Ansible command that can use the collection.
func (r *rig) ansibleCommand(name string, args ...string) *exec.Cmd {
	r.t.Helper()
	sources, err := filepath.Abs("../../clients/ansible")
	must(r.t, err)
	collection := r.path("collections", "ansible_collections", "decamp", "decamp")
	must(r.t, os.MkdirAll(filepath.Dir(collection), 0o700))
	if err := os.Symlink(sources, collection); !os.IsExist(err) {
		must(r.t, err)
	}
	cmd := r.command(toolPath(r.t, name), args...)
	cmd.Env = append(cmd.Env, "ANSIBLE_COLLECTIONS_PATH="+r.path("collections"), "ANSIBLE_HOME="+r.path("ansible-home"),
		"ANSIBLE_LOCALHOST_WARNING=False", "ANSIBLE_INVENTORY_UNPARSED_WARNING=False", "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED=True", "ANSIBLE_NOCOLOR=1", "LC_ALL=C.UTF-8")
	return cmd
}

// runPlaybook runs a playbook, whose tasks check results, and returns its output.
func (r *rig) runPlaybook(name string) string {
	r.t.Helper()
	out, err := r.ansibleCommand("ansible-playbook", "-vv", filepath.Join("testdata", name)).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	for _, word := range []string{secret, r.readToken("admin"), r.readToken("operate"), "decamp_wrong-6f1e"} {
		if bytes.Contains(out, []byte(word)) {
			r.t.Errorf("%s: the output contains the secret %s", name, word)
		}
	}
	return string(out)
}

// readToken reads the token of a role.
func (r *rig) readToken(role string) string {
	r.t.Helper()
	text, err := os.ReadFile(r.path(role + ".token"))
	must(r.t, err)
	return strings.TrimSpace(string(text))
}

// A playbook migrates one VM cold and one warm. The inventory plugin lists both. Repeated tasks change nothing.
func TestAnsibleMigratesVMs(t *testing.T) {
	t.Parallel()
	r := newRig(t, "ansible")
	out := r.runPlaybook("migrate.yml")
	if !regexp.MustCompile(`ok=\d\d +changed=4 +unreachable=0 +failed=0 +skipped=0 +rescued=0 +ignored=0`).MatchString(out) {
		t.Errorf("unexpected numbers of tasks:\n%s", out)
	}
	r.checkPublished("ansible", "web01")
	r.checkPublished("ansible", "db01")

	config := "plugin: decamp.decamp.fleet\nserver_url: " + r.url + "\nserver_fingerprint: '" + r.fingerprint + "'\n" +
		"compose: {ansible_host: inventory_hostname ~ '.example.com'}\nkeyed_groups: [{key: decamp_warm | string, prefix: warm}]\n"
	must(t, os.WriteFile(r.path("decamp.yml"), []byte(config), 0o600))
	cmd := r.ansibleCommand("ansible-inventory", "-i", r.path("decamp.yml"), "--list")
	cmd.Env = append(cmd.Env, "DECAMP_TOKEN_FILE="+r.path("view.token"))
	var log bytes.Buffer
	cmd.Stderr = &log
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("ansible-inventory: %v\n%s", err, log.String())
	}
	var inventory map[string]struct{ Hosts []string }
	var meta struct {
		Meta struct{ Hostvars map[string]map[string]any } `json:"_meta"`
	}
	must(t, json.Unmarshal(text, &meta))
	must(t, json.Unmarshal(text, &inventory))
	for group, want := range map[string][]string{
		"plan_ansible": {"db01", "web01"}, "state_done": {"db01", "web01"}, "warm_True": {"db01"}, "warm_False": {"web01"},
	} {
		got := inventory[group].Hosts
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("group %s has %q, want %q:\n%s", group, got, want, text)
		}
	}
	host := meta.Meta.Hostvars["web01"]
	for name, want := range map[string]string{"ansible_host": "web01.example.com", "decamp_plan": "ansible", "decamp_state": "done"} {
		if got := host[name]; !reflect.DeepEqual(got, map[string]any{"__ansible_unsafe": want}) { // Ansible marks data of other systems as unsafe
			t.Errorf("web01: %s is %v, want %s", name, got, want)
		}
	}

	cmd = r.ansibleCommand("ansible-inventory", "-i", r.path("decamp.yml"), "--list")
	if text, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(text, []byte("Remedy: create a token")) {
		t.Errorf("without a token: %v\n%s", err, text)
	}
}
