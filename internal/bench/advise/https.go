package advise

import (
	"math"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
)

// An HTTPSModel is what a host's /folder gives: connections are capped each, and share the link.
type HTTPSModel struct {
	Connection float64 `json:"connection"` // MiB/s of one
	Efficiency float64 `json:"efficiency"` // share of the NIC's bits that many connections reach together
	Jumbo      float64 `json:"jumbo"`      // factor of the rate with jumbo frames; the cause is unknown
}

// httpsNIC is what the published rows were measured on, in Gbit/s.
const httpsNIC = 1

// FitHTTPS reads the model off rows: one connection, several, and several with jumbo frames. Each
// parameter has one row, so that the rows are reproduced and nothing tests the model.
func FitHTTPS(rows []bench.HTTPSRow) (HTTPSModel, error) {
	var m HTTPSModel
	for _, r := range rows {
		switch {
		case r.Connections == 1:
			m.Connection = r.MiBs()
		case r.MTU < jumboMTU:
			m.Efficiency = r.MiBs() * wire(httpsNIC)
		default:
			m.Jumbo = r.MiBs()
		}
	}
	if m.Connection == 0 || m.Efficiency == 0 || m.Jumbo == 0 {
		return m, fault.New(fault.Invalid, "rows of one connection, of several, and of jumbo frames are needed")
	}
	m.Jumbo *= wire(httpsNIC) / m.Efficiency
	return m, nil
}

// Predict is the rate in MiB/s of so many connections over a NIC of gbits Gbit/s.
func (m HTTPSModel) Predict(connections int, gbits float64, mtu int) float64 {
	rate := math.Min(float64(connections)*m.Connection, m.Efficiency/wire(gbits))
	if mtu >= jumboMTU {
		rate *= m.Jumbo
	}
	return rate
}
