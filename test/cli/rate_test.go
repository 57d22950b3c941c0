package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
)

// The printed rates do not exceed the 8 MB/s that the source sends, although most of the disk is holes, which take no
// time. That is true during the copy and in the table at the end.
func TestRatesDoNotExceedSourceRate(t *testing.T) {
	t.Parallel()
	const limit = 8e6
	r := newRig(t, lab.Config{
		VMs:    []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: 256 << 20, Fill: 8, Seed: 1}}}},
		Limits: lab.Limits{DatastoreRate: limit},
	}).withFingerprint()
	res := r.migrate("web01", "--json").wantExit(0)
	rates := 0
	for line := range strings.Lines(res.stdout) {
		var o struct{ Event journal.Event }
		must(t, json.Unmarshal([]byte(line), &o))
		b := o.Event.Bytes
		if o.Event.Kind != journal.Progressed || o.Event.Step != "copy" || b.Rate == 0 {
			continue
		}
		if rates++; b.Rate > limit*1.1 { // the emulated host may be ahead by 20 ms and by the socket buffers
			t.Errorf("got a rate of %d bytes/s after %d of %d bytes, want at most %.0f", b.Rate, b.Done, b.Total, limit*1.1)
		}
	}
	if rates == 0 {
		t.Error("no rate was printed")
	}
	var out struct {
		Facts struct{ Stages []journal.StageTime }
	}
	res.decodeLast(&out)
	copies := 0
	for _, s := range out.Facts.Stages {
		if !strings.HasPrefix(s.Name, "copy 2") {
			continue
		}
		if copies++; s.Bytes != 256<<20 || s.Read > 48<<20 || float64(s.Read)/s.Elapsed.Seconds() > limit*1.1 {
			t.Errorf("stage %+v", s)
		}
	}
	if copies != 1 {
		t.Errorf("%d stages copy the disk, want 1: %+v", copies, out.Facts.Stages)
	}
}
