package vsphere

import (
	"strings"
	"testing"
)

func TestDescriptors(t *testing.T) {
	vm := VM{Name: "web01", ChangeTracking: true, Snapshots: []string{"s"}, Disks: []Disk{
		{Capacity: 8 << 20, Fill: 10},
		{Capacity: 8 << 20, Thick: true, Controller: "ide", Mode: "independent_persistent"},
		{Capacity: 8 << 20, RDM: "physicalMode"},
		{Capacity: 8 << 20, RDM: "virtualMode", Mode: "independent_persistent"},
		{Capacity: 8 << 20, Datastore: "vsan", Mode: "independent_persistent"},
		{Capacity: 8 << 20, Datastore: "nas"},
	}}
	l := startLab(t, Config{Datastores: []Datastore{{Name: "datastore1"}, {Name: "vsan", Type: "vsan"}, {Name: "nas", Type: "NFS"}}, VMs: []VM{vm}})
	c := newClient(t, l)
	for file, lines := range map[string][]string{
		"web01.vmdk": {
			"# Disk DescriptorFile", "version=1", "parentCID=ffffffff", `createType="vmfs"`, `RW 16384 VMFS "web01-flat.vmdk"`,
			`ddb.adapterType = "lsilogic"`, `ddb.thinProvisioned = "1"`, `ddb.uuid = "60 00 c2 9`, `changeTrackPath="web01-ctk.vmdk"`,
		},
		"web01-000001.vmdk":              {`createType="seSparse"`, `parentFileNameHint="web01.vmdk"`, `RW 16384 SESPARSE "web01-000001-sesparse.vmdk"`},
		"web01_1.vmdk":                   {`RW 16384 VMFS "web01_1-flat.vmdk"`, `ddb.adapterType = "ide"`},
		"web01_2.vmdk":                   {`createType="vmfsPassthroughRawDeviceMap"`, `RW 16384 VMFSRDM "web01_2-rdmp.vmdk"`},
		"web01_3.vmdk":                   {`createType="vmfsRawDeviceMap"`, `RW 16384 VMFSRDM "web01_3-rdm.vmdk"`},
		"web01_4.vmdk?dsName=vsan":       {`RW 16384 VMFS "vsan://`},
		"web01_5-000001.vmdk?dsName=nas": {`createType="vmfsSparse"`, `RW 16384 VMFSSPARSE "web01_5-000001-delta.vmdk"`},
	} {
		name, query, _ := strings.Cut(file, "?")
		u := folderURL(l, "web01/"+name)
		if query != "" {
			u, _, _ = strings.Cut(u, "?")
			u += "?" + query
		}
		_, data, err := fetch(t, c, folderRequest(t, l, "GET", u))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(data), "\n"+line) && !strings.HasPrefix(string(data), line) {
				t.Errorf("%s: no line %s in\n%s", name, line, data)
			}
		}
		if name == "web01_1.vmdk" && strings.Contains(string(data), "thinProvisioned") {
			t.Error("the descriptor of a thick disk has thinProvisioned")
		}
	}
	for _, file := range []string{"web01_2-flat.vmdk", "web01_2-rdmp.vmdk", "web01_3-rdm.vmdk"} {
		if got := fetchStatus(t, c, folderRequest(t, l, "GET", folderURL(l, "web01/"+file))); got != 404 {
			t.Errorf("%s: %d; raw device mappings have no data file", file, got)
		}
	}
}

func TestMACAddressesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, vm := range []string{"web01", "web02", "Files & Büro"} {
		for i := range 10 {
			mac := macOf(vm, i)
			if seen[mac] {
				t.Errorf("network card %d of %s has the address %s of another card", i, vm, mac)
			}
			seen[mac] = true
		}
	}
}
