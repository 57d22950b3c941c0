package planfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
)

// largePlan returns a plan of ten thousand VMs, each with its own keys, and their inventory.
func largePlan() (text []byte, vms []inventory.VM) {
	var b strings.Builder
	b.WriteString(head + "defaults: {to: [dir:/srv/vm]}\nselect: name ~ *\nvms:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "  - vm: vm%05d\n    uuid: 42200b7e-5d1c-4c1f-9a55-%012d\n    priority: %d\n    warm: {interval: 30m}\n", i, i, i%10)
		vms = append(vms, inventory.VM{Ref: inventory.MoRef(fmt.Sprint("vm-", i)), Name: fmt.Sprintf("vm%05d", i), UUID: fmt.Sprintf("42200b7e-5d1c-4c1f-9a55-%012d", i)})
	}
	return []byte(b.String()), vms
}

func TestPlanOfTenThousandVMs(t *testing.T) {
	text, vms := largePlan()
	f := mustParse(t, string(text))
	if moves, found := f.Resolve(vms, esx.NewIndex(vms)); len(moves) != 10_000 || len(found) > 0 {
		t.Errorf("got %d moves, findings %v", len(moves), found)
	}
}

func BenchmarkParse(b *testing.B) {
	text, _ := largePlan()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, found := parseAndCheck(text); len(found) > 0 {
			b.Fatal(found)
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	text, vms := largePlan()
	f, found := Parse(text)
	if len(found) > 0 {
		b.Fatal(found)
	}
	b.ReportAllocs()
	for b.Loop() {
		if moves, _ := f.Resolve(vms, esx.NewIndex(vms)); len(moves) != len(vms) {
			b.Fatal(len(moves))
		}
	}
}
