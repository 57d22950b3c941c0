package dir

import (
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// What a place says of a VM is told with the rest; how it is started, only of one that does not run.
func TestWarningsOfAPlaceAreTold(t *testing.T) {
	of := func(codes ...string) (all []inventory.Warning) {
		for _, code := range codes {
			all = append(all, inventory.Warning{Code: code})
		}
		return all
	}
	delivered := &targets.Receipt{Warnings: of("uuid", targets.NotStarted, "bus")}
	for _, v := range []struct {
		delivered *targets.Receipt
		runs      bool
		want      string
	}{
		{nil, false, "no-boot-code"},
		{delivered, false, "no-boot-code uuid no-server bus"},
		{delivered, true, "no-boot-code uuid bus"},
	} {
		p := &Published{Record: &Record{Warnings: of("no-boot-code"), Delivered: v.delivered}}
		for range 2 { // nothing of the record is changed by it
			got := ""
			for _, w := range p.Warnings(v.runs) {
				got += " " + w.Code
			}
			if got[1:] != v.want {
				t.Errorf("runs %v: %s, want %s", v.runs, got[1:], v.want)
			}
		}
	}
}
