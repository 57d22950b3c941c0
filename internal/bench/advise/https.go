package advise

import (
	"math"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
)

// An HTTPSModel predicts the rate of a host's /folder. Each connection has a limit, and
// all share the link.
type HTTPSModel struct {
	Connection float64 `json:"connection"` // MiB/s of one connection
	Efficiency float64 `json:"efficiency"` // share of the NIC's rate that many connections reach together
	Jumbo      float64 `json:"jumbo"`      // factor of the rate with jumbo frames; its cause is unknown
}

// httpsNIC is the speed of the link in the published rows, in Gbit/s.
const httpsNIC = 1

// FitHTTPS computes the model from rows: one connection, several, and several with
// jumbo frames. Each parameter comes from one row, so the rows do not test the model.
func FitHTTPS(rows []bench.HTTPSRow) (HTTPSModel, error) {
	var m HTTPSModel
	for _, r := range rows {
		switch {
		case r.Connections == 1:
			m.Connection = r.MiBs()
		// Several connections reach the limit of the link.
		case r.MTU < jumboMTU:
			m.Efficiency = r.MiBs() * wireTime(httpsNIC)
		default:
			m.Jumbo = r.MiBs()
		}
	}
	if m.Connection == 0 || m.Efficiency == 0 || m.Jumbo == 0 {
		return m, fault.New(fault.Invalid, "rows of one connection, of several, and of jumbo frames are needed")
	}
	m.Jumbo *= wireTime(httpsNIC) / m.Efficiency
	return m, nil
}

// Predict returns the total rate in MiB/s of connections over a NIC of gbits Gbit/s.
func (m HTTPSModel) Predict(connections int, gbits float64, mtu int) float64 {
	rate := math.Min(float64(connections)*m.Connection, m.Efficiency/wireTime(gbits))
	if mtu >= jumboMTU {
		rate *= m.Jumbo
	}
	return rate
}
