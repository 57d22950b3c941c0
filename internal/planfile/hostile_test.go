package planfile

import (
	"bytes"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

// A draft of VMs with hostile names is valid YAML and a valid plan. It contains exactly the VMs that can be migrated.
func TestHostileInventoryInDrafts(t *testing.T) {
	const vmsPerPlan = 20
	r := inventorytest.New(8)
	for range inventorytest.Runs / vmsPerPlan {
		d := &Draft{Name: "wave-1", URL: "vcenter://a@b.local@vc1", To: []string{"dir:/srv/" + inventorytest.Line(r)}, Mode: Cold, PowerOff: NeverOff, Select: inventorytest.Text(r)}
		vms := make([]inventory.VM, vmsPerPlan)
		for i := range vms {
			vms[i] = *inventorytest.VM(r)
			vms[i].RemoveInvalid()
		}
		for i := range vms {
			c := Candidate{VM: &vms[i]}
			if i%3 == 0 {
				c.Obstacles = []inventory.Warning{{Code: "x", Text: inventorytest.Garbage(r), Remedy: inventorytest.Garbage(r), Blocks: true}}
			}
			d.VMs = append(d.VMs, c)
		}
		names := esx.NewIndex(vms)
		var out bytes.Buffer
		if err := d.Write(&out, names); err != nil {
			t.Fatal(err)
		}
		var plain struct {
			Defaults struct{ To []string }
			VMs      []map[string]string
		}
		if err := yaml.Unmarshal(out.Bytes(), &plain); err != nil {
			t.Fatalf("%v in:\n%s", err, &out)
		}
		movable, _ := d.splitVMs()
		if len(plain.VMs) != len(movable) || len(plain.Defaults.To) != 1 || plain.Defaults.To[0] != d.To[0] {
			t.Fatalf("got %d VMs, want %d; destinations %q, want %q in:\n%s", len(plain.VMs), len(movable), plain.Defaults.To, d.To, &out)
		}
		for i, c := range movable {
			if got, want := plain.VMs[i]["vm"], planNameOf(c.VM, names); got != want {
				t.Fatalf("got VM %q, want %q in:\n%s", got, want, &out)
			}
			if got := plain.VMs[i]["uuid"]; got != c.VM.UUID {
				t.Fatalf("got UUID %q, want %q", got, c.VM.UUID)
			}
			if found, err := names.Find(plain.VMs[i]["vm"]); err != nil || found != c.VM {
				t.Fatalf("name %q does not find the VM: %v", plain.VMs[i]["vm"], err)
			}
		}
		if _, findings := Parse(out.Bytes()); findings.Err() != nil {
			t.Fatalf("%v in:\n%s", findings.Err(), &out)
		}
	}
}
