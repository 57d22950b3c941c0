//go:build stepwise

package eventqueue

import "time"

// maxPatience makes runs wait until their events are read: tests with this tag act at a certain event.
const maxPatience = 24 * time.Hour
