package dir

import (
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// The warnings of a platform follow those of the record. The warning about starting the VM is left out if the VM
// runs.
func TestWarningsOfAPlatform(t *testing.T) {
	withCodes := func(codes ...string) (all []inventory.Warning) {
		for _, code := range codes {
			all = append(all, inventory.Warning{Code: code})
		}
		return all
	}
	delivered := &targets.Receipt{Warnings: withCodes("uuid", targets.NotStarted, "bus")}
	for _, v := range []struct {
		delivered *targets.Receipt
		runs      bool
		want      string
	}{
		{nil, false, "no-boot-code"},
		{delivered, false, "no-boot-code uuid no-server bus"},
		{delivered, true, "no-boot-code uuid bus"},
	} {
		p := &Published{Record: &Record{Warnings: withCodes("no-boot-code"), Delivered: v.delivered}}
		for range 2 { // Warnings must not change the record
			got := ""
			for _, w := range p.Warnings(v.runs) {
				got += " " + w.Code
			}
			if got[1:] != v.want {
				t.Errorf("runs %v: got %s, want %s", v.runs, got[1:], v.want)
			}
		}
	}
}
