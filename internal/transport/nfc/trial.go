package nfc

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/nfc"
)

const (
	// A measurement of a rate ends after measureBytes and measureTime, or after longestMeasure.
	measureBytes   = 16 << 20
	measureTime    = 250 * time.Millisecond // shortest duration of a measurement
	longestMeasure = 5 * time.Second        // duration after which a measurement ends with fewer bytes

	// rounds is the number of measurements of each compression after the warm-up. For the first compression the
	// better one counts, for the others the worse one: on a busy machine, one measurement in ten is twice as
	// fast.
	rounds = 2

	// fast is a rate that the wire does not limit, in bytes/s: two and a half times 1 Gbit/s. Then
	// compression would only load the host.
	fast = 300e6

	// leastMeasured is the size of the smallest read that is measured, in bytes. The rate of smaller ones, as
	// those of a guest, is a matter of latency: they use the first compression until the trial is decided.
	leastMeasured = 64 << 10

	// gain is the factor by which another compression must be faster than the first. A compression
	// below the factor worse in its first measurement has no second one.
	gain  = 1.15
	worse = 0.8
)

// compressionTrial finds the best compression by the rates of the disk's first reads. It is a state machine
// without a clock: callers pass the time. It compares bytes of the disk per second; it does not matter
// whether the wire, the host or this machine is the limit. It is safe for concurrent use.
//
//	warm-up (first) -> measurement of each -> second measurement of those not far behind -> decided
type compressionTrial struct {
	mu      sync.Mutex        // guards the fields below
	among   []nfc.Compression // compressions to compare; the first is the default
	rates   []float64         // rate of each in bytes/s; 0 before its first measurement
	current int               // index of the compression in use
	started int               // number of measurements that began, with the warm-up
	began   time.Time         // time of this measurement's first delivery; zero before
	bytes   int64             // bytes delivered since began
	decided bool              // current does not change any more
}

// newCompressionTrial returns a trial of the compressions. A single one is decided at once.
func newCompressionTrial(among []nfc.Compression) *compressionTrial {
	return &compressionTrial{among: among, rates: make([]float64, len(among)), decided: len(among) == 1}
}

// nextCompression returns the compression for the next read, of n bytes.
func (t *compressionTrial) nextCompression(n int64) nfc.Compression {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n < leastMeasured && !t.decided {
		return t.among[0]
	}
	return t.among[t.current]
}

// recordRead records the delivery of n bytes that were requested with c. The first delivery of a measurement
// only starts its time, because its read began in the previous measurement.
func (t *compressionTrial) recordRead(now time.Time, n int64, c nfc.Compression) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.decided || c != t.among[t.current] || n < leastMeasured:
		return
	case t.began.IsZero():
		t.began = now
		return
	}
	t.bytes += n
	took := now.Sub(t.began)
	if took < measureTime || t.bytes < measureBytes && took < longestMeasure {
		return
	}
	t.endMeasurement(float64(t.bytes) / took.Seconds())
}

// endMeasurement records the rate of a measurement and begins the next. mu must be held.
func (t *compressionTrial) endMeasurement(rate float64) {
	if t.started > 0 { // the warm-up does not count
		t.recordRate(rate)
	}
	if t.current == 0 && rate >= fast {
		t.decide()
		return
	}
	t.chooseNext()
	t.began, t.bytes = time.Time{}, 0
}

// recordRate stores the rate of a measurement: see rounds. mu must be held.
func (t *compressionTrial) recordRate(rate float64) {
	switch have := t.rates[t.current]; {
	case have == 0:
		t.rates[t.current] = rate
	case t.current == 0:
		t.rates[0] = max(have, rate)
	default:
		t.rates[t.current] = min(have, rate)
	}
}

// chooseNext selects the compression of the next measurement, and decides after the last one. mu must be held.
func (t *compressionTrial) chooseNext() {
	for t.started++; t.started <= rounds*len(t.among); t.started++ {
		i := (t.started - 1) % len(t.among)
		if t.rates[i] == 0 || i == 0 || t.rates[i] >= worse*t.rates[0] {
			t.current = i
			return
		}
	}
	t.decide()
}

// decide selects the fastest compression, if it is faster than the first by gain. mu must be held.
func (t *compressionTrial) decide() {
	t.decided = true
	t.current = 0
	for i := range t.among {
		if t.rates[i] > gain*t.rates[0] && (t.current == 0 || t.rates[i] > t.rates[t.current]) {
			t.current = i
		}
	}
}

// outcome returns the compression in use. If it is decided, it also returns the measured rates.
func (t *compressionTrial) outcome() (nfc.Compression, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.decided {
		return t.among[t.current], ""
	}
	var rates []string
	for i, c := range t.among {
		if t.rates[i] > 0 {
			rates = append(rates, fmt.Sprintf("%v %.0f MB/s", c, t.rates[i]/1e6))
		}
	}
	return t.among[t.current], strings.Join(rates, ", ")
}
