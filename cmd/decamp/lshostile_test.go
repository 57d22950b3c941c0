package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

// The tables of decamp ls contain no text of an inventory that breaks a line, moves the cursor or changes the
// direction of text.
func TestHostileInventoryOnATerminal(t *testing.T) {
	r := inventorytest.New(14)
	for range inventorytest.Runs / 10 {
		vms := make([]inventory.VM, 3)
		for i := range vms {
			vms[i] = *inventorytest.VM(r)
			problems := vms[i].RemoveInvalid()
			vms[i].Warnings = []inventory.Warning{{Code: "invalid", Text: strings.Join(problems, "; "), Remedy: inventorytest.Garbage(r), Blocks: true}}
		}
		c := contents{
			Hosts:      []inventory.Host{{Name: inventorytest.Garbage(r), Version: inventorytest.Garbage(r), Build: inventorytest.Garbage(r)}},
			Datastores: []inventory.Datastore{{Name: inventorytest.Garbage(r), Type: inventorytest.Garbage(r)}},
			VMs:        vms,
		}
		c.Hosts[0].RemoveInvalid()
		c.Datastores[0].RemoveInvalid()
		var out bytes.Buffer
		writeContents(&out, "esx1", c)
		if lines := strings.Count(out.String(), "\n"); lines != 8 { // source, host, datastore, two for the header, and 3 VMs
			t.Fatalf("got %d lines, want 8:\n%s", lines, &out)
		}
		writeWarnings(&out, c.VMs)
		if err := writeVM(&out, &vms[0]); err != nil {
			t.Fatal(err)
		}
		for _, x := range out.String() {
			if x != '\n' && !unicode.IsPrint(x) {
				t.Fatalf("%q is printed:\n%q", x, &out)
			}
		}
	}
}
