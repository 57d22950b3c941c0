package advise

import (
	"math"
	"testing"

	"github.com/decamp/decamp/internal/bench"
)

// The fit of y = b1·(1-exp(-b2·x)) to the data set Misra1a of NIST's Statistical Reference Datasets equals the
// certified one. It begins at the worse of the two starting points of NIST.
func TestFitMatchesCertifiedNISTResult(t *testing.T) {
	x := []float64{77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0}
	y := []float64{10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78}
	residuals := func(b []float64) []float64 {
		var all []float64
		for i := range x {
			all = append(all, y[i]-math.Exp(b[0])*(1-math.Exp(-math.Exp(b[1])*x[i])))
		}
		return all
	}
	b := leastSquares(residuals, []float64{math.Log(500), math.Log(0.0001)})
	checkNear(t, "b1", math.Exp(b[0]), 2.3894212918e+02, 1e-6)
	checkNear(t, "b2", math.Exp(b[1]), 5.5015643181e-04, 1e-6)
	checkNear(t, "sum of squares", sumOfSquares(residuals(b)), 1.2455138894e-01, 1e-8)
}

// The fit to the published rows has the same parameters as that of gonum v0.17.0 (BFGS).
func TestFitOfPublishedRowsMatchesGonum(t *testing.T) {
	rows := bench.Seed().Matrix
	m, err := Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string][2]float64{
		"source hdd":       {m.Source["hdd"], 0.0078867325},
		"source ssd":       {m.Source["ssd"], 0.0023176981},
		"destination hdd":  {m.Destination["hdd"], 0.0063132429},
		"destination nvme": {m.Destination["nvme"], 0.0026073104},
		"host":             {m.Host, 0.0024731525},
		"efficiency":       {m.Efficiency, 0.86170059},
		"jumbo":            {m.Jumbo, 0.94780040},
		"p":                {m.P, 2.4037473},
		"q":                {m.Q, 4.0033339},
		"commit hdd":       {m.Commit["hdd"], 0.032091136},
		"commit nvme":      {m.Commit["nvme"], 0.0048660762},
	} {
		checkNear(t, name, v[0], v[1], 1e-5)
	}
	f := newFitting(rows)
	fitted, err := f.solveModel()
	if err != nil {
		t.Fatal(err)
	}
	checkNear(t, "sum of squares", sumOfSquares(f.residuals(fitted)), 0.00404972976411, 1e-9)
}

func TestEquationsAreSolved(t *testing.T) {
	x, ok := solvePositive([][]float64{{4, 2, 0}, {2, 5, 3}, {0, 3, 6}}, []float64{8, 21, 24})
	if !ok {
		t.Fatal("a positive definite matrix was rejected")
	}
	for i, want := range []float64{1, 2, 3} {
		checkNear(t, "x", x[i], want, 1e-12)
	}
	if _, ok := solvePositive([][]float64{{1, 2}, {2, 1}}, []float64{1, 1}); ok {
		t.Error("an indefinite matrix was accepted")
	}
}

// checkNear checks that got differs from want by at most the given part of want.
func checkNear(t *testing.T, name string, got, want, part float64) {
	t.Helper()
	if !(math.Abs(got-want) <= part*math.Abs(want)) {
		t.Errorf("%s is %.10g, want %.10g", name, got, want)
	}
}
