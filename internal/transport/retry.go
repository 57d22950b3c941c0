package transport

import (
	"math/rand/v2"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

const (
	firstBackOff = time.Second

	// LongestBackOff is the longest that BackOff returns.
	LongestBackOff = 30 * time.Second
)

// BackOff is how long to wait after so many failures in a row, at least one. It doubles from
// one second to thirty and takes up to half off, at random, so that readers that failed
// together do not come back together.
func BackOff(failures int) time.Duration {
	d := LongestBackOff
	if failures < 6 {
		d = min(d, firstBackOff<<(failures-1))
	}
	return d - rand.N(d/2)
}

// GiveUp says how often something was tried that failed with err, which counts as kind. The
// remedy is err's own, if it has one.
func GiveUp(attempts int, kind fault.Kind, err error) error {
	final := fault.New(kind, "gave up after %d attempts: %w", attempts, err)
	if hint := fault.HintOf(err); hint != "" {
		return final.WithHint("%s", hint)
	}
	return final.WithHint("look at the host's load and its network, then start again: the copy goes on where it stopped")
}
