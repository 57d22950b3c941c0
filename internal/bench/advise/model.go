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

// A Layer is a part of the way that takes time.
type Layer string

// The layers, in the order a byte passes them.
const (
	Source      Layer = "source"
	Host        Layer = "host"
	Wire        Layer = "wire"
	Destination Layer = "destination"
	Commit      Layer = "commit"
)

const (
	// writesMiB is how many writes a MiB is: ESXi's clone writes 64 KiB (published as the average).
	writesMiB = 16

	jumboMTU = 9000

	mostMiBs = 1e6 // faster than any disk or memory
)

// A Model is what the layers were fitted to be.
type Model struct {
	Source      map[string]float64 `json:"source"`      // s/MiB, by medium
	Destination map[string]float64 `json:"destination"` // s/MiB, by medium
	Commit      map[string]float64 `json:"commit"`      // s a write, by the destination's medium
	Host        float64            `json:"host"`        // s/MiB
	Efficiency  float64            `json:"efficiency"`  // share of a NIC's bits that carry the disk's data
	Jumbo       float64            `json:"jumbo"`       // times host and wire, with jumbo frames
	P           float64            `json:"p"`           // overlap of reading, handing on and sending
	Q           float64            `json:"q"`           // overlap of that and the destination
}

// costs are a setup's layers in s/MiB.
type costs map[Layer]float64

// costs looks a setup's layers up. A medium may be a rate of one's own: "450MiB/s".
func (m *Model) costs(s bench.Setup) (costs, error) {
	source, err := medium("source", m.Source, s.Source)
	if err != nil {
		return nil, err
	}
	destination, err := medium("destination", m.Destination, s.Destination)
	if err != nil {
		return nil, err
	}
	gbits, err := bench.Gigabits(s.NIC)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err)
	}
	frames := 1.0
	if s.MTU >= jumboMTU {
		frames = m.Jumbo
	}
	c := costs{Source: source, Destination: destination, Host: m.Host * frames, Wire: wire(gbits) / m.Efficiency * frames}
	if s.Export == bench.Sync {
		commit, known := m.Commit[s.Destination]
		if !known {
			return nil, unknown("destination of a sync export", m.Commit, s.Destination)
		}
		c[Commit] = writesMiB * commit
	}
	return c, nil
}

// wire is what a MiB takes on a line without any loss, in seconds.
func wire(gbits float64) float64 { return bench.MiB * 8 / (gbits * 1e9) }

func medium(what string, known map[string]float64, name string) (float64, error) {
	if t, ok := known[name]; ok {
		return t, nil
	}
	if rate, ok := ownRate(name); ok {
		return 1 / rate, nil
	}
	return 0, unknown(what, known, name)
}

func unknown(what string, known map[string]float64, name string) error {
	names := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	return fault.New(fault.Invalid, "nothing is known of the %s %q", what, name).
		WithHint("known media: %s; a measured rate is more exact: 450MiB/s", names)
}

// ownRate reads "450MiB/s" and "1.5GiB/s", in MiB/s.
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
	MiBs   float64 `json:"mibs"`
	Layers []Share `json:"layers"` // the one that limits most first
}

// Share is what one layer has to do with the rate.
type Share struct {
	Layer Layer   `json:"layer"`
	Part  float64 `json:"part"`  // share of a small change here that reaches the rate: 0 to 1, the sum is 1
	Alone float64 `json:"alone"` // MiB/s if nothing else took any time
}

// Predict returns the rate of a setup, with its limits.
func (m *Model) Predict(s bench.Setup) (Prediction, error) {
	c, err := m.costs(s)
	if err != nil {
		return Prediction{}, err
	}
	total, parts := m.combine(c)
	p := Prediction{Setup: s, MiBs: 1 / total}
	for _, l := range []Layer{Source, Host, Wire, Destination, Commit} {
		if c[l] > 0 {
			p.Layers = append(p.Layers, Share{Layer: l, Part: parts[l], Alone: 1 / c[l]})
		}
	}
	slices.SortStableFunc(p.Layers, func(a, b Share) int { return cmp.Compare(b.Part, a.Part) })
	return p, nil
}

// combine is the package comment's formula, with the derivatives of its logarithm.
func (m *Model) combine(c costs) (total float64, parts map[Layer]float64) {
	sending := norm(m.P, c[Source], c[Host], c[Wire])
	async := norm(m.Q, sending, c[Destination])
	total = async + c[Commit]
	share := async / total
	parts = map[Layer]float64{Destination: share * math.Pow(c[Destination]/async, m.Q), Commit: c[Commit] / total}
	sent := share * math.Pow(sending/async, m.Q)
	for _, l := range []Layer{Source, Host, Wire} {
		parts[l] = sent * math.Pow(c[l]/sending, m.P)
	}
	return total, parts
}

// norm is (x^p + y^p + ...)^(1/p).
func norm(p float64, times ...float64) float64 {
	var sum float64
	for _, t := range times {
		sum += math.Pow(t, p)
	}
	return math.Pow(sum, 1/p)
}
