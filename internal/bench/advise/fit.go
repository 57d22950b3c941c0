package advise

import (
	"math"
	"slices"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
)

// firstGuess is the start of the fit, and the value of parameters that no row
// determines: a medium of about 150 MiB/s, a host of 400 MiB/s, half of the layers'
// time overlapping.
var firstGuess = struct{ medium, host, efficiency, jumbo, p, q float64 }{
	medium: 1.0 / 150, host: 1.0 / 400, efficiency: 0.9, jumbo: 0.97, p: 2.5, q: 4,
}

// priorWeight is the weight of the first guess relative to a row: enough for parameters
// that no row determines, and negligible for others.
const priorWeight = 1e-4

// Fit returns the model with the least squares of logarithmic errors: an error of 5 %
// counts the same at 6 and at 600 MiB/s. Each medium needs a row with an async export.
// The commit times come from the sync rows afterwards.
func Fit(rows []bench.Row) (*Model, error) {
	f := newFitting(rows)
	if len(f.rows) == 0 {
		return nil, fault.New(fault.Invalid, "the measurements have no row of an async export, which the model requires")
	}
	x, err := f.solveModel()
	if err != nil {
		return nil, err
	}
	m := f.toModel(x)
	m.Commit = commitTimes(m, rows)
	return m, nil
}

// A fitting represents the parameters as a vector of logarithms, so that none can
// become negative: sources, destinations, host, efficiency, jumbo, p-1, q-1.
type fitting struct {
	rows                  []bench.Row // rows with an async export
	sources, destinations []string    // names of media, sorted
	guess                 []float64   // start of the fit
}

// newFitting collects the async rows and their media.
func newFitting(rows []bench.Row) *fitting {
	f := &fitting{}
	for _, r := range rows {
		// Rows with a sync export only determine the commit times.
		if r.Export == bench.Sync {
			continue
		}
		f.rows = append(f.rows, r)
		f.sources = append(f.sources, r.Source)
		f.destinations = append(f.destinations, r.Destination)
	}
	slices.Sort(f.sources)
	slices.Sort(f.destinations)
	f.sources, f.destinations = slices.Compact(f.sources), slices.Compact(f.destinations)
	for range len(f.sources) + len(f.destinations) {
		f.guess = append(f.guess, math.Log(firstGuess.medium))
	}
	g := firstGuess
	f.guess = append(f.guess, math.Log(g.host), math.Log(g.efficiency), math.Log(g.jumbo), math.Log(g.p-1), math.Log(g.q-1))
	return f
}

// toModel converts a vector to a model.
func (f *fitting) toModel(x []float64) *Model {
	next := func() float64 {
		v := math.Exp(x[0])
		x = x[1:]
		return v
	}
	m := &Model{Source: map[string]float64{}, Destination: map[string]float64{}}
	for _, name := range f.sources {
		m.Source[name] = next()
	}
	for _, name := range f.destinations {
		m.Destination[name] = next()
	}
	m.Host, m.Efficiency, m.Jumbo = next(), next(), next()
	m.P, m.Q = 1+next(), 1+next()
	return m
}

// residuals returns the logarithmic error of each row, and the distance of each
// parameter from the first guess.
func (f *fitting) residuals(x []float64) []float64 {
	m := f.toModel(x)
	var all []float64
	for _, r := range f.rows {
		all = append(all, m.logError(r))
	}
	for i := range x {
		// The square of this residual has the weight priorWeight.
		all = append(all, math.Sqrt(priorWeight)*(x[i]-f.guess[i]))
	}
	return all
}

// solveModel returns the vector with the least squares. It fails if the result is not
// finite.
func (f *fitting) solveModel() ([]float64, error) {
	x := leastSquares(f.residuals, f.guess)
	if loss := sumOfSquares(f.residuals(x)); math.IsNaN(loss) || math.IsInf(loss, 0) {
		return nil, fault.New(fault.Internal, "the rows have no finite fit")
	}
	return x, nil
}

// logError returns the logarithm of the predicted rate divided by the measured one, or
// +Inf if the model cannot predict the row.
func (m *Model) logError(r bench.Row) float64 {
	p, err := m.Predict(r.Setup)
	if err != nil {
		return math.Inf(1)
	}
	return math.Log(p.MiBs / r.Rate())
}

// commitTimes returns, by medium, the mean time per write that sync rows take longer
// than predicted for an async export, in seconds.
func commitTimes(m *Model, rows []bench.Row) map[string]float64 {
	sum, n := map[string]float64{}, map[string]float64{}
	for _, r := range rows {
		if r.Export != bench.Sync {
			continue
		}
		async := r.Setup
		async.Export = bench.Async
		p, err := m.Predict(async)
		if err != nil {
			continue
		}
		sum[r.Destination] += max(1/r.Rate()-1/p.MiBs, 0) / writesMiB
		n[r.Destination]++
	}
	for name := range sum {
		sum[name] /= n[name]
	}
	return sum
}
