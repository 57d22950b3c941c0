package nfc

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/nfc"
)

const (
	// A heat lasts until so much was read and so much time passed, or longestHeat did.
	heatBytes   = 16 << 20
	heatTime    = 250 * time.Millisecond
	longestHeat = 5 * time.Second

	// rounds is how many heats each compression has after the warm-up. Of the first the better
	// counts, of the others the worse: a busy machine makes one heat in ten twice as fast.
	rounds = 2

	// fast is a rate at which the wire does not bind, in bytes/s: two and a half times 1 Gbit/s.
	// Compression would only cost the host then.
	fast = 300e6

	// gain is by how much another compression must be faster; worse is how far behind after
	// its first heat it gets no second.
	gain  = 1.15
	worse = 0.8
)

// trial finds the compression to ask for, on the disk's own first reads. It is a state
// machine without a clock: callers tell it the time. What it compares is bytes of the disk
// a second, which is all that counts; whether wire, host or we are the limit does not
// matter to it.
//
//	warm-up (first) -> heat of each -> second heat of those not far behind -> decided
type trial struct {
	mu      sync.Mutex
	among   []nfc.Compression
	rates   []float64 // bytes/s of each; 0: no heat yet
	current int       // index of the one in use
	heat    int       // heats begun, the warm-up included
	began   time.Time // first delivery of this heat; zero before
	bytes   int64     // delivered since
	decided bool
}

func newTrial(among []nfc.Compression) *trial {
	return &trial{among: among, rates: make([]float64, len(among)), decided: len(among) == 1}
}

// nextCompression returns the compression that the next read should ask for.
func (t *trial) nextCompression() nfc.Compression {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.among[t.current]
}

// recordRead tells that n bytes came that c was asked for. The first of a heat only starts
// its time: it was under way beside reads of the heat before.
func (t *trial) recordRead(now time.Time, n int64, c nfc.Compression) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.decided || c != t.among[t.current]:
		return
	case t.began.IsZero():
		t.began = now
		return
	}
	t.bytes += n
	took := now.Sub(t.began)
	if took < heatTime || t.bytes < heatBytes && took < longestHeat {
		return
	}
	t.endHeat(float64(t.bytes) / took.Seconds())
}

// endHeat books a heat and begins the next.
func (t *trial) endHeat(rate float64) {
	if t.heat > 0 { // the warm-up does not count
		t.recordRate(rate)
	}
	if t.current == 0 && rate >= fast {
		t.decide()
		return
	}
	t.chooseNext()
	t.began, t.bytes = time.Time{}, 0
}

func (t *trial) recordRate(rate float64) {
	switch have := t.rates[t.current]; {
	case have == 0:
		t.rates[t.current] = rate
	case t.current == 0:
		t.rates[0] = max(have, rate)
	default:
		t.rates[t.current] = min(have, rate)
	}
}

// chooseNext chooses who runs the next heat, and decides after the last.
func (t *trial) chooseNext() {
	for t.heat++; t.heat <= rounds*len(t.among); t.heat++ {
		i := (t.heat - 1) % len(t.among)
		if t.rates[i] == 0 || i == 0 || t.rates[i] >= worse*t.rates[0] {
			t.current = i
			return
		}
	}
	t.decide()
}

func (t *trial) decide() {
	t.decided = true
	t.current = 0
	for i := range t.among {
		if t.rates[i] > gain*t.rates[0] && (t.current == 0 || t.rates[i] > t.rates[t.current]) {
			t.current = i
		}
	}
}

// outcome returns what is in use, and the rates that led to it, if it is decided.
func (t *trial) outcome() (nfc.Compression, string) {
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
