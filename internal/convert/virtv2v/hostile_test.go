package virtv2v

import (
	"encoding/xml"
	"testing"

	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

// TestHostileInventoryInJobs writes the domain for virt-v2v and parses it. The arguments contain no data of the
// inventory.
func TestHostileInventoryInJobs(t *testing.T) {
	r := inventorytest.New(12)
	for range inventorytest.Runs {
		vm := inventorytest.VM(r)
		vm.RemoveInvalid()
		disk := "/srv/" + inventorytest.Line(r) + "/" + inventorytest.Line(r)
		text, err := Job{Name: vm.Name, MemoryMiB: vm.MemoryMiB, CPUs: vm.CPUs, Disks: []string{disk}}.domainXML()
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Name  string `xml:"name"`
			Disks []struct {
				Source struct {
					File string `xml:"file,attr"`
				} `xml:"source"`
			} `xml:"devices>disk"`
		}
		if err := xml.Unmarshal(text, &d); err != nil || d.Name != vm.Name || len(d.Disks) != 1 || d.Disks[0].Source.File != disk {
			t.Fatalf("%q on %q, %v in:\n%s", d.Name, d.Disks, err, text)
		}
	}
}
