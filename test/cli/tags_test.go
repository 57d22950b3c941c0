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

// inscribed is a vCenter whose VM has notes, tags and custom attributes, among tags that others have.
func inscribed() lab.Config {
	cfg := small()
	cfg.VCenter = true
	vm := &cfg.VMs[0]
	vm.Annotation = "bill to: <R&D>\nsecond line"
	vm.Tags = []lab.Tag{{Category: "Env", Name: "Prod"}, {Category: "app", Name: "db & web"}, {Category: "app", Name: "日本"}}
	vm.Attributes = map[string]string{"Owner": "anna", "Cost centre": "<4711>"}
	cfg.Tagging.Spare = []lab.Tag{{Category: "Env", Name: "Test"}, {Category: "backup", Name: "never"}}
	return cfg
}

// What people wrote on a VM is listed, is in the record to the letter, and in libvirt's domain.
func TestTagsComeAlong(t *testing.T) {
	t.Parallel()
	r := newRig(t, inscribed()).trusting().atVCenter()
	r.source("ls", r.url(), "web01").ends(0).says("Env/Prod, app/db & web, app/日本", "Owner: anna", "Cost centre: <4711>", "bill to: <R&D>; second line")
	r.migrate("web01", "--dry-run").ends(0).says("tags      Env/Prod, app/db & web, app/日本", "attr      Owner: anna")
	r.migrate("web01").ends(0)
	if n := r.lab.TagSessions(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	tags := []inventory.Tag{{Category: "Env", Name: "Prod"}, {Category: "app", Name: "db & web"}, {Category: "app", Name: "日本"}}
	attributes := map[string]string{"Owner": "anna", "Cost centre": "<4711>"}
	var record struct{ Source inventory.VM }
	text, err := os.ReadFile(filepath.Join(r.vms(), "web01", "vm.json"))
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
	text, err = os.ReadFile(filepath.Join(r.vms(), "web01", "domain.xml"))
	must(t, err)
	must(t, xml.Unmarshal(text, &domain))
	for i, want := range tags {
		if len(domain.Tags) != len(tags) || inventory.Tag(domain.Tags[i]) != want {
			t.Fatalf("domain.xml: %+v", domain)
		}
	}
	for _, a := range domain.Attributes {
		if len(domain.Attributes) != len(attributes) || attributes[a.Name] != a.Value {
			t.Errorf("domain.xml: %+v", domain)
		}
	}
}

// If tags cannot be read, the VM is migrated without them, and its record contains the reason.
func TestTagsThatCannotBeReadStayBehind(t *testing.T) {
	t.Parallel()
	cfg := inscribed()
	cfg.Faults = []lab.Fault{{Kind: lab.FaultREST, Path: "/tagging/", Status: 403}}
	r := newRig(t, cfg).trusting().atVCenter()
	out := r.migrate("web01", "--json").ends(0)
	text, err := os.ReadFile(filepath.Join(r.vms(), "web01", "vm.json"))
	must(t, err)
	if !strings.Contains(string(text), "its tags cannot be read") || !strings.Contains(string(text), "anna") || strings.Contains(string(text), "db & web") {
		t.Errorf("vm.json: %s\n%s", text, out.stdout)
	}
	if strings.Contains(string(text)+out.stdout+out.stderr, secret) {
		t.Error("the password was told")
	}
}
