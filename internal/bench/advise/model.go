package advise

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
)

// A Layer is a part of the path that takes time.
type Layer string

// The layers, in the order a byte passes them.
const (
	Source      Layer = "source"      // read of the datastore's medium
	Host        Layer = "host"        // work of the ESXi host
	Wire        Layer = "wire"        // transfer over the link
	Destination Layer = "destination" // write to the image's medium
	Commit      Layer = "commit"      // wait for the medium on a sync export
)

const (
	// writesMiB is the number of writes per MiB. ESXi's clone writes 64 KiB on average
	// (published).
	writesMiB = 16

	jumboMTU = 9000 // bytes from which frames are jumbo frames

	mostMiBs = 1e6 // faster than any disk or memory
)

// A Model contains the fitted parameters; see the package comment for the formula.
type Model struct {
	Source      map[string]float64 `json:"source"`      // s/MiB by medium
	Destination map[string]float64 `json:"destination"` // s/MiB by medium
	Commit      map[string]float64 `json:"commit"`      // seconds per write by the destination's medium
	Host        float64            `json:"host"`        // s/MiB
	Efficiency  float64            `json:"efficiency"`  // share of a NIC's bits that carry the disk's data
	Jumbo       float64            `json:"jumbo"`       // factor of host and wire time with jumbo frames
	P           float64            `json:"p"`           // exponent of the overlap of reading, host and wire
	Q           float64            `json:"q"`           // exponent of the overlap of these and the destination
}

// costs contains the time of each layer in s/MiB.
type costs map[Layer]float64

// costsOf returns the time of each layer of a setup. A medium may be a rate such as
// "450MiB/s". An unknown medium or NIC is fault.Invalid.
func (m *Model) costsOf(s bench.Setup) (costs, error) {
	source, err := mediumTime("source", m.Source, s.Source)
	if err != nil {
		return nil, err
	}
	destination, err := mediumTime("destination", m.Destination, s.Destination)
	if err != nil {
		return nil, err
	}
	gbits, err := bench.Gigabits(s.NIC)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err)
	}
	// The factor applies from the size of jumbo frames on.
	frames := 1.0
	if s.MTU >= jumboMTU {
		frames = m.Jumbo
	}
	c := costs{Source: source, Destination: destination, Host: m.Host * frames, Wire: wireTime(gbits) / m.Efficiency * frames}
	if s.Export == bench.Sync {
		commit, known := m.Commit[s.Destination]
		if !known {
			return nil, unknownError("destination of a sync export", m.Commit, s.Destination)
		}
		c[Commit] = writesMiB * commit
	}
	return c, nil
}

// wireTime returns the seconds per MiB on a link without overhead.
func wireTime(gbits float64) float64 { return bench.MiB * 8 / (gbits * 1e9) }

// mediumTime returns the seconds per MiB of a medium. what names the end in errors.
func mediumTime(what string, known map[string]float64, name string) (float64, error) {
	if t, ok := known[name]; ok {
		return t, nil
	}
	if rate, ok := ownRate(name); ok {
		return 1 / rate, nil
	}
	return 0, unknownError(what, known, name)
}

// unknownError returns fault.Invalid with the known media.
func unknownError(what string, known map[string]float64, name string) error {
	names := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	return fault.New(fault.Invalid, "nothing is known of the %s %q", what, name).
		WithHint("known media: %s; a measured rate is more exact: 450MiB/s", names)
}

// ownRate parses "450MiB/s" or "1.5GiB/s". It returns MiB/s.
func ownRate(s string) (float64, bool) {
	for suffix, scale := range map[string]float64{"MiB/s": 1, "GiB/s": 1024} {
		digits, is := strings.CutSuffix(s, suffix)
		if v, err := strconv.ParseFloat(digits, 64); is && err == nil && v > 0 && v < mostMiBs {
			return v * scale, true
		}
	}
	return 0, false
}

// A Prediction is the model's result for a setup.
type Prediction struct {
	bench.Setup
	MiBs   float64 `json:"mibs"`   // rate in MiB/s
	Layers []Share `json:"layers"` // layers, the one with the largest influence first
}

// Share is the influence of one layer on the rate.
type Share struct {
	Layer Layer   `json:"layer"` // layer of the path
	Part  float64 `json:"part"`  // share of a small change here that reaches the rate: 0 to 1, the sum is 1
	Alone float64 `json:"alone"` // MiB/s if all other layers took no time
}

// Predict returns the rate of a setup and the influence of each layer.
func (m *Model) Predict(s bench.Setup) (Prediction, error) {
	c, err := m.costsOf(s)
	if err != nil {
		return Prediction{}, err
	}
	// Layers without time are omitted from the prediction.
	total, parts := m.combineCosts(c)
	p := Prediction{Setup: s, MiBs: 1 / total}
	for _, l := range []Layer{Source, Host, Wire, Destination, Commit} {
		if c[l] > 0 {
			p.Layers = append(p.Layers, Share{Layer: l, Part: parts[l], Alone: 1 / c[l]})
		}
	}
	slices.SortStableFunc(p.Layers, func(a, b Share) int { return cmp.Compare(b.Part, a.Part) })
	return p, nil
}

// combineCosts evaluates the formula of the package comment. parts contains the
// derivatives of its logarithm by the logarithm of each layer; their sum is 1.
func (m *Model) combineCosts(c costs) (total float64, parts map[Layer]float64) {
	sending := pNorm(m.P, c[Source], c[Host], c[Wire])
	async := pNorm(m.Q, sending, c[Destination])
	total = async + c[Commit]
	share := async / total
	parts = map[Layer]float64{Destination: share * math.Pow(c[Destination]/async, m.Q), Commit: c[Commit] / total}
	sent := share * math.Pow(sending/async, m.Q)
	for _, l := range []Layer{Source, Host, Wire} {
		parts[l] = sent * math.Pow(c[l]/sending, m.P)
	}
	return total, parts
}

// pNorm returns (x^p + y^p + ...)^(1/p).
func pNorm(p float64, times ...float64) float64 {
	var sum float64
	for _, t := range times {
		sum += math.Pow(t, p)
	}
	return math.Pow(sum, 1/p)
}
