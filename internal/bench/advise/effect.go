package advise

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
)

// A Variable is a part of a setup that the user can change.
type Variable string

// The variables, by the names that flags have.
const (
	NFS   Variable = "nfs"    // export option: async or sync
	From  Variable = "source" // medium of the source
	To    Variable = "dest"   // medium of the destination
	NIC   Variable = "nic"    // speed of the link
	Frame Variable = "mtu"    // MTU in bytes
)

// Variables lists all variables in the order in which the published guide recommends
// changes.
var Variables = []Variable{NFS, From, NIC, To, Frame}

// A Change sets one variable, such as "nic=25g".
type Change struct {
	Variable Variable `json:"variable"` // variable to set
	Value    string   `json:"value"`    // new value
}

// String returns VARIABLE=VALUE.
func (c Change) String() string { return string(c.Variable) + "=" + c.Value }

// ParseChange parses VARIABLE=VALUE. An unknown variable or an invalid value is
// fault.Invalid.
func ParseChange(s string) (Change, error) {
	name, value, ok := strings.Cut(s, "=")
	c := Change{Variable(name), value}
	if _, err := c.applyTo(bench.Setup{}); !ok || err != nil {
		return Change{}, fault.New(fault.Invalid, "change %q: want VARIABLE=VALUE", s).
			WithHint("source=ssd, dest=nvme, nic=25g, mtu=9000, nfs=async")
	}
	return c, nil
}

// applyTo returns the setup with the change.
func (c Change) applyTo(s bench.Setup) (bench.Setup, error) {
	var err error
	switch c.Variable {
	case From:
		s.Source = c.Value
	case To:
		s.Destination = c.Value
	case NIC:
		_, err = bench.Gigabits(c.Value)
		s.NIC = c.Value
	case Frame:
		s.MTU, err = strconv.Atoi(c.Value)
	case NFS:
		s.Export = bench.Export(c.Value)
		if s.Export != bench.Async && s.Export != bench.Sync {
			err = fmt.Errorf("export %q", c.Value)
		}
	default:
		err = fmt.Errorf("variable %q", c.Variable)
	}
	return s, err
}

// valueIn returns the value of the variable in a setup.
func (v Variable) valueIn(s bench.Setup) string {
	switch v {
	case From:
		return s.Source
	case To:
		return s.Destination
	case NIC:
		return s.NIC
	case Frame:
		return strconv.Itoa(s.MTU)
	default:
		return string(s.Export)
	}
}

// An Effect is a pair of rows that differ in one variable only.
type Effect struct {
	Variable Variable  `json:"variable"` // variable that differs
	Before   bench.Row `json:"before"`   // row with the old value
	After    bench.Row `json:"after"`    // row with the new value
}

// Factor returns the ratio of the rates.
func (e Effect) Factor() float64 { return e.After.Rate() / e.Before.Rate() }

// String returns names and rates of both rows.
func (e Effect) String() string {
	return fmt.Sprintf("%s -> %s: %.1f -> %.1f MiB/s", e.Before.Name(), e.After.Name(), e.Before.Rate(), e.After.Rate())
}

// better contains, by variable, the old and the new value of the published tables.
var better = map[Variable][2]string{
	NFS: {string(bench.Sync), string(bench.Async)}, From: {"hdd", "ssd"}, To: {"hdd", "nvme"}, NIC: {"1g", "25g"}, Frame: {"1500", "9000"},
}

// Effects returns all pairs of rows that show a change of the published tables.
func Effects(rows []bench.Row) []Effect {
	var effects []Effect
	for _, v := range Variables {
		for _, a := range rows {
			if v.valueIn(a.Setup) == better[v][0] {
				effects = append(effects, effectsOf(Change{v, better[v][1]}, a, rows)...)
			}
		}
	}
	return effects
}

// effectsOf returns the pairs of row a and a row with the change applied.
func effectsOf(c Change, a bench.Row, rows []bench.Row) (effects []Effect) {
	// A row that has the new value already shows nothing.
	want, err := c.applyTo(a.Setup)
	if err != nil || want == a.Setup {
		return nil
	}
	for _, b := range rows {
		if b.Setup == want {
			effects = append(effects, Effect{c.Variable, a, b})
		}
	}
	return effects
}

// spreadOf returns the error of the model's factors for one variable: the root mean
// square of the logarithms of their ratios to measured factors. Without pairs it is the
// error of all rows, multiplied by √2.
func (m *Model) spreadOf(v Variable, rows []bench.Row) float64 {
	var sum, n float64
	for _, e := range Effects(rows) {
		if e.Variable == v {
			off := m.logError(e.After) - m.logError(e.Before)
			sum, n = sum+off*off, n+1
		}
	}
	if n > 0 {
		return math.Sqrt(sum / n)
	}
	for _, r := range rows {
		if off := m.logError(r); !math.IsInf(off, 0) {
			sum, n = sum+off*off, n+1
		}
	}
	return math.Sqrt(2 * sum / n)
}
