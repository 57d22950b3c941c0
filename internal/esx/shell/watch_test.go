package shell_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/lab"
)

// What a host reads while somebody watches is what esxtop counts, once.
func TestWatchCountsWhatTheHostReads(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const size = 8 << 20
	l := startLab(t, lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: size, Fill: 100}}}}})
	s := dial(t, fromLab(l))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	first := make(chan shell.Load)
	watched := make(chan error)
	go func() {
		watched <- s.Watch(ctx, time.Second, func(l shell.Load) {
			select {
			case first <- l:
			case <-ctx.Done():
			}
		})
	}()
	began := (<-first).At // from here on it counts
	out, err := s.Run(ctx, "md5sum", "/vmfs/volumes/datastore1/web01/web01-flat.vmdk")
	must(t, err)
	must(t, out.Err())
	var reads, bytes float64
	for last := began; bytes < size*9/10; { // samples are told with two decimals, and their length is near a second
		l := <-first
		took := l.At.Sub(last).Seconds()
		if last = l.At; l.Reads > 0 {
			reads, bytes = reads+l.Reads*max(took, 1), bytes+l.Bytes*max(took, 1)
		}
	}
	if bytes > size*3/2 || reads < 1 {
		t.Errorf("it read %.0f bytes in %.0f reads, of %d", bytes, reads, size)
	}
	end()
	must(t, <-watched)
	eventually(t, "esxtop ends", func() bool {
		out, err := s.Run(t.Context(), "ps")
		return err == nil && !strings.Contains(string(out.Stdout), "esxtop")
	})
}
