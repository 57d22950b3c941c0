package advise

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
)

// A Variable is a changeable part of a setup.
type Variable string

// The variables, by the names that flags have.
const (
	NFS   Variable = "nfs"
	From  Variable = "source"
	To    Variable = "dest"
	NIC   Variable = "nic"
	Frame Variable = "mtu"
)

// Variables has all of them, in the order in which the published guide recommends changes.
var Variables = []Variable{NFS, From, NIC, To, Frame}

// A Change sets one variable: "nic=25g".
type Change struct {
	Variable Variable `json:"variable"`
	Value    string   `json:"value"`
}

func (c Change) String() string { return string(c.Variable) + "=" + c.Value }

// ParseChange reads "nic=25g".
func ParseChange(s string) (Change, error) {
	name, value, ok := strings.Cut(s, "=")
	c := Change{Variable(name), value}
	if _, err := c.apply(bench.Setup{}); !ok || err != nil {
		return Change{}, fault.New(fault.Invalid, "change %q: want VARIABLE=VALUE", s).
			WithHint("source=ssd, dest=nvme, nic=25g, mtu=9000, nfs=async")
	}
	return c, nil
}

// apply is the setup with the change made.
func (c Change) apply(s bench.Setup) (bench.Setup, error) {
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

// value is what a setup has there now.
func (v Variable) value(s bench.Setup) string {
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

// An Effect is two rows that differ in one variable alone: what that did.
type Effect struct {
	Variable Variable  `json:"variable"`
	Before   bench.Row `json:"before"`
	After    bench.Row `json:"after"`
}

// Factor is how many times faster it became.
func (e Effect) Factor() float64 { return e.After.Rate() / e.Before.Rate() }

func (e Effect) String() string {
	return fmt.Sprintf("%s -> %s: %.1f -> %.1f MiB/s", e.Before.Name(), e.After.Name(), e.Before.Rate(), e.After.Rate())
}

// better is the value each variable is changed to by the published tables, from what.
var better = map[Variable][2]string{
	NFS: {string(bench.Sync), string(bench.Async)}, From: {"hdd", "ssd"}, To: {"hdd", "nvme"}, NIC: {"1g", "25g"}, Frame: {"1500", "9000"},
}

// Effects finds the pairs of rows that prove what each variable does alone.
func Effects(rows []bench.Row) []Effect {
	var effects []Effect
	for _, v := range Variables {
		for _, a := range rows {
			if v.value(a.Setup) == better[v][0] {
				effects = append(effects, effectsOf(Change{v, better[v][1]}, a, rows)...)
			}
		}
	}
	return effects
}

// effectsOf finds what the change made of a row.
func effectsOf(c Change, a bench.Row, rows []bench.Row) (effects []Effect) {
	want, err := c.apply(a.Setup)
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

// spread is how far the model's factors are from those that the pairs of one variable show: the
// root of the mean square of the logarithms. Without pairs it is that of all rows, twice over.
func (m *Model) spread(v Variable, rows []bench.Row) float64 {
	var sum, n float64
	for _, e := range Effects(rows) {
		if e.Variable == v {
			off := m.off(e.After) - m.off(e.Before)
			sum, n = sum+off*off, n+1
		}
	}
	if n > 0 {
		return math.Sqrt(sum / n)
	}
	for _, r := range rows {
		if off := m.off(r); !math.IsInf(off, 0) {
			sum, n = sum+off*off, n+1
		}
	}
	return math.Sqrt(2 * sum / n)
}
