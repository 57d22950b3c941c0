package openstack

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/targets"
)

// metadataKey matches the keys that Nova and Cinder accept.
var metadataKey = regexp.MustCompile(`^[a-zA-Z0-9\-_:. ]{1,255}$`)

func taggedVM() *inventory.VM {
	return changedVM(webVM(), func(vm *inventory.VM) {
		vm.Tags = []inventory.Tag{{Category: "App", Name: "db"}, {Category: "App", Name: "web & <more> 🏷"}, {Category: "Env/日本", Name: "Prod"}}
		vm.Attributes = map[string]string{"Owner": "R&D\nsecond line", "Cost centre": "4711"}
	})
}

// wantMetadata returns the metadata of taggedVM in the cloud. A key that lost characters ends with a hash.
func wantMetadata() map[string]string {
	return map[string]string{
		"decamp_tag_App": "db", "decamp_tag_App_2": "web & <more> ?", "decamp_tag_Env-e2a8a417": "Prod",
		"decamp_attribute_Owner": "R&D second line", "decamp_attribute_Cost-centre": "4711",
	}
}

// The tags and attributes of the VM are in the metadata of the record, and of the server and image. The outline has
// the same tags.
func TestMetadataHaveTagsAndAttributes(t *testing.T) {
	for address, from := range map[string]func(*lab.Cloud) map[string]string{
		"lab": func(c *lab.Cloud) map[string]string { return c.Volumes()[0].Metadata },
		"lab?boot=image": func(c *lab.Cloud) map[string]string {
			properties := map[string]string{}
			for key, value := range c.Images()[0].Fields {
				properties[key] = fmt.Sprint(value)
			}
			return properties
		},
	} {
		cloud, vm := startCloud(t, lab.Config{}), taggedVM()
		if strings.Contains(address, "image") {
			vm.Disks = vm.Disks[:1]
		}
		p := newPlatform(t, cloud, address)
		d := newTestDelivery(t, vm)
		o, err := p.Outline(d.Definition, targets.Outline{})
		if err != nil {
			t.Fatal(err)
		}
		mustDeliver(t, p, d)
		mustStart(t, p, d)
		for key, want := range wantMetadata() {
			if got, server := from(cloud)[key], cloud.Servers()[0].Metadata[key]; got != want || server != want {
				t.Errorf("%s: %s = %q, of the server %q, want %q", address, key, got, server, want)
			}
			if strings.HasPrefix(key, tagKey) && !slices.Contains(o.Tags, key+"="+want) {
				t.Errorf("%s: the outline has tags %q without %s", address, o.Tags, key)
			}
		}
		mustDeliver(t, p, d) // the VM is still recognized as delivered
	}
}

func FuzzInscriptions(f *testing.F) {
	for _, seed := range []string{"", "prod", "日本", "\xff\xfe", "/", "a/b=c,d:e", strings.Repeat("é", 300), "\u202ereversed", "-", "ref", "\x00", "🏷"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		vm := changedVM(webVM(), func(vm *inventory.VM) {
			for _, c := range []string{a, strings.ToUpper(a), b, a} {
				vm.Tags = append(vm.Tags, inventory.Tag{Category: c, Name: b})
			}
			vm.Attributes = map[string]string{a: b, b: a, strings.ToLower(a): a}
		})
		items, _ := tagMetadata(vm)
		if len(items) != len(vm.Tags)+len(vm.Attributes) {
			t.Errorf("%q for %q and %q", items, vm.Tags, vm.Attributes)
		}
		for key, value := range items {
			if !metadataKey.MatchString(key) || !strings.HasPrefix(key, tagKey) && !strings.HasPrefix(key, attributeKey) || len([]rune(value)) > maxText {
				t.Errorf("%q: %q", key, value)
			}
		}
	})
}

// Clouds accept 128 items. A warning reports items that are left out or cut.
func TestTooManyTagsCauseWarning(t *testing.T) {
	for _, address := range []string{"lab", "lab?boot=image"} {
		cloud, vm := startCloud(t, lab.Config{}), taggedVM()
		vm.Disks = vm.Disks[:1]
		vm.Attributes["Long"] = strings.Repeat("é", 300)
		for i := range 200 {
			vm.Tags = append(vm.Tags, inventory.Tag{Category: fmt.Sprint(i), Name: "x"})
		}
		p, d := newPlatform(t, cloud, address), newTestDelivery(t, vm)
		r := mustDeliver(t, p, d)
		mustStart(t, p, d)
		at := slices.IndexFunc(r.Warnings, func(w inventory.Warning) bool { return w.Code == "tags" })
		if at < 0 || r.Warnings[at].Remedy == "" || !strings.Contains(r.Warnings[at].Text, "126 of") {
			t.Errorf("%s: %+v", address, r.Warnings)
		}
	}
}
