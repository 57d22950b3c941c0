package export

import (
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/bars"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/internal/units"
)

// progressInterval is the time between two changes of the progress line.
const progressInterval = time.Second

// showProgress shows a line with the clients and the bytes at the end of a terminal, until the caller calls
// stop. Messages appear above it.
func (e *Export) showProgress(screen *terminal.Screen) (stop func()) {
	pool := bars.NewPool(screen.File)
	screen.Redirect(pool)
	line := pool.NewLine(0)
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for last := e.totals(); ; {
			now := e.totals()
			line.SetText(e.progressText(last, now))
			last = now
			select {
			case <-tick.C:
			case <-ending:
				return
			}
		}
	}()
	return func() {
		close(ending)
		<-ended
		line.Remove()
		pool.Wait()
		screen.Redirect(nil)
	}
}

// progressText returns the progress between two moments.
func (e *Export) progressText(last, now End) string {
	return fmt.Sprintf("%s, %s sent (%s), %s read from the host", units.Count(e.server.Clients(), "client"),
		units.Binary(now.Served), units.Rate(now.Served-last.Served, now.Elapsed-last.Elapsed), units.Binary(now.Read))
}
