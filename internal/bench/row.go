package bench

import (
	"fmt"
	"math"
	"time"
)

// MiB is the unit of all rates here: 2^20 bytes.
const MiB = 1 << 20

// A Row is one measurement of one way through one Setup. Zeros were not measured.
type Row struct {
	Setup
	Origin    string  `json:"origin"`           // who measured it
	Seconds   float64 `json:"seconds"`          // from the first byte asked for to the last one written
	Allocated int64   `json:"allocated"`        // bytes of the disk that hold data
	Wire      float64 `json:"wireMiBs"`         // allocated bytes over the network, MiB/s
	Read      Device  `json:"read,omitzero"`    // the source's
	Written   Device  `json:"written,omitzero"` // the destination's
	Note      string  `json:"note,omitempty"`
}

// Device is what one end was seen to do.
type Device struct {
	IOPS float64 `json:"iops,omitempty"`
	MiBs float64 `json:"mibs,omitempty"`
}

// contradicts is how far a rate and a duration may be apart before one of them is wrong: disks
// are said to be "about" so large.
const contradicts = 0.25

// Rate is in MiB/s of allocated bytes. The duration was read off a clock, so it stands where the
// two contradict each other.
func (r Row) Rate() float64 {
	if r.Contradicts() || r.Wire == 0 {
		return r.timed()
	}
	return r.Wire
}

// Contradicts reports whether the rate that was told cannot be the one of this duration.
func (r Row) Contradicts() bool {
	return r.Wire > 0 && r.Seconds > 0 && math.Abs(r.Wire/r.timed()-1) > contradicts
}

func (r Row) timed() float64 { return float64(r.Allocated) / MiB / r.Seconds }

// Duration is Seconds.
func (r Row) Duration() time.Duration { return time.Duration(r.Seconds * float64(time.Second)) }

// Check says what is missing or impossible in a row that somebody wrote.
func (r Row) Check() error {
	if _, err := ParseName(r.Name()); err != nil {
		return err
	}
	switch {
	case r.Export != Async && r.Export != Sync:
		return fmt.Errorf("export %q: want async or sync", r.Export)
	case !(r.Seconds > 0) || r.Allocated <= 0:
		return fmt.Errorf("%s: seconds and allocated (bytes) have to be more than nothing", r.Name())
	case r.Wire < 0:
		return fmt.Errorf("%s: a rate of %v MiB/s", r.Name(), r.Wire)
	}
	return nil
}
