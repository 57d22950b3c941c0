//go:build !stepwise

package eventqueue

import "time"

// maxPatience limits how long a run waits until its event is printed, so that later messages follow the event.
// After it, the run does not wait again until the output has accepted all queued events.
const maxPatience = 100 * time.Millisecond
