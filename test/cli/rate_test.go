package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
)

// A source that sends 8 MB/s is never shown as faster, although nearly all of its disk are holes that take
// no time: neither while the disk is copied, nor in the table at the end.
func TestRatesAreNoMoreThanTheSourceSends(t *testing.T) {
	t.Parallel()
	const limit = 8e6
	r := newRig(t, lab.Config{
		VMs:    []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: 256 << 20, Fill: 8, Seed: 1}}}},
		Limits: lab.Limits{DatastoreRate: limit},
	}).trusting()
	res := r.migrate("web01", "--json").ends(0)
	rates := 0
	for line := range strings.Lines(res.stdout) {
		var o struct{ Event journal.Event }
		must(t, json.Unmarshal([]byte(line), &o))
		b := o.Event.Bytes
		if o.Event.Kind != journal.Progressed || o.Event.Step != "copy" || b.Rate == 0 {
			continue
		}
		if rates++; b.Rate > limit*1.1 { // the emulated host may be ahead by 20 ms, and by what the sockets hold
			t.Errorf("%d bytes a second after %d of %d bytes", b.Rate, b.Done, b.Total)
		}
	}
	if rates == 0 {
		t.Error("no rate was shown")
	}
	var out struct {
		Facts struct{ Stages []journal.StageTime }
	}
	res.last(&out)
	for _, s := range out.Facts.Stages {
		if strings.HasPrefix(s.Name, "copy 2") && (s.Bytes != 256<<20 || s.Read > 48<<20 || float64(s.Read)/s.Elapsed.Seconds() > limit*1.1) {
			t.Errorf("stage %+v", s)
		}
	}
}
