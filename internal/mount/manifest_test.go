package mount

import (
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

const proxmoxManifest = `{
  "ha-datacenter": {
    "vms": {"web 01": {"config": {"datastore": "datastore1", "path": "web 01/web 01.vmx", "checksum": "07b5"}, "disks": [], "power": "poweredOff"}},
    "datastores": {"fast": "/vmfs/volumes/65ca32f8-8970e68a-3b43-02ffff771b50/", "datastore1": "/vmfs/volumes/65c1f000-fd51f79c-82ae-02ffff771b50/"}
  }
}`

func TestManifestNamesDatastores(t *testing.T) {
	got, err := ReadManifest(strings.NewReader(proxmoxManifest))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, ds := range got {
		names = append(names, ds.Datacenter+"/"+ds.Name)
	}
	if want := []string{"ha-datacenter/datastore1", "ha-datacenter/fast"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	for _, bad := range []string{"", "[]", `{"a": 1}`, `{"a": {"datastores": ["x"]}}`, proxmoxManifest + "x"} {
		if _, err := ReadManifest(strings.NewReader(bad)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%.30q: error %v, want kind Invalid", bad, err)
		}
	}
}

func TestFolderNamesAreEscaped(t *testing.T) {
	tree := folderTree([]inventory.Datastore{
		{Datacenter: "A/DC", Name: "one"}, {Datacenter: "B/DC", Name: "two"}, {Datacenter: "A/other", Name: "a/b"}, {Datacenter: "", Name: ".."},
	})
	for dc, ds := range map[string]string{"A%2fDC": "one", "B%2fDC": "two", "other": "a%2fb", "%.": "%.."} {
		if _, ok := tree[dc][ds]; !ok || len(tree[dc]) != 1 {
			t.Errorf("folder %s contains %v, want %s", dc, tree[dc], ds)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add(proxmoxManifest)
	f.Add(`{"..": {"datastores": {"/": "", "..": "", "": ""}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		stores, err := ReadManifest(strings.NewReader(text))
		if err != nil {
			return
		}
		for dc, in := range folderTree(stores) {
			for ds := range in {
				for _, name := range []string{dc, ds} {
					if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
						t.Fatalf("%q is not a valid name of a folder", name)
					}
				}
			}
		}
	})
}
