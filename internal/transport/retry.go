package transport

import (
	"math/rand/v2"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

const (
	firstBackOff = time.Second // back-off after the first failure

	// LongestBackOff is the longest back-off.
	LongestBackOff = 30 * time.Second
)

// BackOff returns the wait after that many consecutive failures, at least one. It doubles from one
// second to thirty, and is shortened by up to a half at random, so that readers that failed together do
// not retry together.
func BackOff(failures int) time.Duration {
	d := LongestBackOff
	if failures < 6 {
		d = min(d, firstBackOff<<(failures-1))
	}
	return d - rand.N(d/2)
}

// GiveUp returns the final error of an operation that failed repeatedly. err is the last error, and
// kind its fault. The remedy is that of err, if it has one.
func GiveUp(attempts int, kind fault.Kind, err error) error {
	final := fault.New(kind, "all %d attempts failed: %w", attempts, err)
	if hint := fault.HintOf(err); hint != "" {
		return final.WithHint("%s", hint)
	}
	return final.WithHint("check the load of the host and the network, then run the same command again, which continues the copy")
}
