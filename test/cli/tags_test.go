package cli

import (
	"encoding/json"
	"encoding/xml"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// annotatedLab returns a vCenter whose VM has notes, tags and custom attributes. The vCenter also has unused tags.
func annotatedLab() lab.Config {
	cfg := smallLab()
	cfg.VCenter = true
	vm := &cfg.VMs[0]
	vm.Annotation = "bill to: <R&D>\nsecond line"
	vm.Tags = []lab.Tag{{Category: "Env", Name: "Prod"}, {Category: "app", Name: "db & web"}, {Category: "app", Name: "日本"}}
	vm.Attributes = map[string]string{"Owner": "anna", "Cost centre": "<4711>"}
	cfg.Tagging.Spare = []lab.Tag{{Category: "Env", Name: "Test"}, {Category: "backup", Name: "never"}}
	return cfg
}

// The notes, tags and custom attributes of a VM are listed by decamp ls, and are copied to vm.json and the libvirt domain.
func TestTagsAreCopied(t *testing.T) {
	t.Parallel()
	r := newRig(t, annotatedLab()).withFingerprint().atVCenter()
	r.runOnSource("ls", r.url(), "web01").wantExit(0).wantOutput("Env/Prod, app/db & web, app/日本", "Owner: anna", "Cost centre: <4711>", "bill to: <R&D>; second line")
	r.migrate("web01", "--dry-run").wantExit(0).wantOutput("tags      Env/Prod, app/db & web, app/日本", "attr      Owner: anna")
	r.migrate("web01").wantExit(0)
	if n := r.lab.TagSessions(); n != 0 {
		t.Errorf("%d sessions are open, want 0", n)
	}
	tags := []inventory.Tag{{Category: "Env", Name: "Prod"}, {Category: "app", Name: "db & web"}, {Category: "app", Name: "日本"}}
	attributes := map[string]string{"Owner": "anna", "Cost centre": "<4711>"}
	var record struct{ Source inventory.VM }
	text, err := os.ReadFile(filepath.Join(r.vmsDir(), "web01", "vm.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &record))
	if got := record.Source; !slices.Equal(got.Tags, tags) || !maps.Equal(got.Attributes, attributes) || got.Annotation != "bill to: <R&D>\nsecond line" {
		t.Errorf("vm.json: %+v", got)
	}
	var domain struct {
		Tags []struct {
			Category string `xml:"category,attr"`
			Name     string `xml:"name,attr"`
		} `xml:"metadata>source>tag"`
		Attributes []struct {
			Name  string `xml:"name,attr"`
			Value string `xml:",chardata"`
		} `xml:"metadata>source>attribute"`
	}
	text, err = os.ReadFile(filepath.Join(r.vmsDir(), "web01", "domain.xml"))
	must(t, err)
	must(t, xml.Unmarshal(text, &domain))
	var gotTags []inventory.Tag
	for _, tag := range domain.Tags {
		gotTags = append(gotTags, inventory.Tag(tag))
	}
	gotAttributes := map[string]string{}
	for _, a := range domain.Attributes {
		gotAttributes[a.Name] = a.Value
	}
	if !slices.Equal(gotTags, tags) || len(domain.Attributes) != len(attributes) || !maps.Equal(gotAttributes, attributes) {
		t.Errorf("domain.xml: %+v", domain)
	}
}

// If decamp cannot read the tags, it migrates the VM without them, and vm.json contains the reason.
func TestUnreadableTagsAreNotMigrated(t *testing.T) {
	t.Parallel()
	cfg := annotatedLab()
	cfg.Faults = []lab.Fault{{Kind: lab.FaultREST, Path: "/tagging/", Status: 403}}
	r := newRig(t, cfg).withFingerprint().atVCenter()
	out := r.migrate("web01", "--json").wantExit(0)
	text, err := os.ReadFile(filepath.Join(r.vmsDir(), "web01", "vm.json"))
	must(t, err)
	if !strings.Contains(string(text), "its tags cannot be read") || !strings.Contains(string(text), "anna") || strings.Contains(string(text), "db & web") {
		t.Errorf("vm.json: %s\n%s", text, out.stdout)
	}
	if strings.Contains(string(text)+out.stdout+out.stderr, secret) {
		t.Error("the record or the output contains the password")
	}
}
