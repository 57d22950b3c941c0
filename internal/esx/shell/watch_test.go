package shell_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/lab"
)

// Watch reports the bytes that the host reads, once each, and esxtop ends with the context.
func TestWatchReportsReads(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const size = 8 << 20
	l := startLab(t, lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{Capacity: size, Fill: 100}}}}})
	s := dial(t, fromLab(l))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	first := make(chan shell.Load, 1000) // Watch never waits, so that At is the time of the sample
	watched := make(chan error)
	go func() {
		watched <- s.Watch(ctx, time.Second, func(l shell.Load) {
			select {
			case first <- l:
			case <-ctx.Done():
			}
		})
	}()
	began := (<-first).At // start of the measurement
	out, err := s.Run(ctx, "md5sum", "/vmfs/volumes/datastore1/web01/web01-flat.vmdk")
	must(t, err)
	must(t, out.Err())
	var reads, bytes float64
	for last := began; bytes < size*9/10; { // samples have two decimals and last about a second
		l := <-first
		took := l.At.Sub(last).Seconds()
		if last = l.At; l.Reads > 0 {
			reads, bytes = reads+l.Reads*max(took, 1), bytes+l.Bytes*max(took, 1)
		}
	}
	if bytes > size*3/2 || reads < 1 {
		t.Errorf("%.0f bytes in %.0f reads, want %d bytes", bytes, reads, size)
	}
	end()
	must(t, <-watched)
	eventually(t, "esxtop ends", func() bool {
		out, err := s.Run(t.Context(), "ps")
		return err == nil && !strings.Contains(string(out.Stdout), "esxtop")
	})
}
