package advise

import "math"

const (
	maxIterations = 200   // limit of steps
	maxDamping    = 1e12  // no step improves the fit
	minGain       = 1e-14 // relative improvement of the sum of squares at which the fit ends
	derivative    = 1e-5  // half width of the central differences
)

// leastSquares returns the vector near start that minimizes the sum of squares of
// residuals(x). It uses the method of Levenberg and Marquardt with numerical
// derivatives. residuals must return the same number of values for each x; leastSquares
// does not keep the slice.
func leastSquares(residuals func(x []float64) []float64, start []float64) []float64 {
	x := append([]float64(nil), start...)
	r := residuals(x)
	damping := 1e-3
	for range maxIterations {
		a, b := normalEquations(residuals, x, r)
		before := sumOfSquares(r)
		// More damping makes the step shorter, until the sum of squares decreases.
		for ; damping < maxDamping; damping *= 4 {
			step, ok := solvePositive(withDamping(a, damping), b)
			if !ok {
				continue
			}
			next := make([]float64, len(x))
			for i := range x {
				next[i] = x[i] - step[i]
			}
			if s := residuals(next); sumOfSquares(s) <= before {
				x, r = next, s
				break
			}
		}
		// This also ends the iteration if a value is NaN.
		if !(before-sumOfSquares(r) > minGain*before) {
			return x
		}
		damping = max(damping/10, 1e-12)
	}
	return x
}

// normalEquations returns JᵀJ and Jᵀr, where J is the Jacobian of residuals at x and r
// is residuals(x).
func normalEquations(residuals func([]float64) []float64, x, r []float64) (a [][]float64, b []float64) {
	columns := make([][]float64, len(x))
	for i := range x {
		at := append([]float64(nil), x...)
		at[i] = x[i] + derivative
		columns[i] = append([]float64(nil), residuals(at)...)
		at[i] = x[i] - derivative
		for k, below := range residuals(at) {
			columns[i][k] = (columns[i][k] - below) / (2 * derivative)
		}
	}
	a, b = make([][]float64, len(x)), make([]float64, len(x))
	for i := range x {
		a[i] = make([]float64, len(x))
		for j := range x {
			a[i][j] = dotProduct(columns[i], columns[j])
		}
		b[i] = dotProduct(columns[i], r)
	}
	return a, b
}

// withDamping returns a copy of a whose diagonal is larger by the given part.
func withDamping(a [][]float64, part float64) [][]float64 {
	c := make([][]float64, len(a))
	for i := range a {
		c[i] = append([]float64(nil), a[i]...)
		c[i][i] *= 1 + part
	}
	return c
}

// solvePositive solves a·x = b by a Cholesky decomposition, which overwrites a. It
// reports false if a is not positive definite.
func solvePositive(a [][]float64, b []float64) (x []float64, ok bool) {
	for i := range a {
		for j := range i + 1 {
			sum := a[i][j] - dotProduct(a[i][:j], a[j][:j])
			if j < i {
				a[i][j] = sum / a[j][j]
				continue
			}
			if !(sum > 0) {
				return nil, false
			}
			a[i][i] = math.Sqrt(sum)
		}
	}
	x = append([]float64(nil), b...)
	for i := range x {
		x[i] = (x[i] - dotProduct(a[i][:i], x[:i])) / a[i][i]
	}
	for i := len(x) - 1; i >= 0; i-- {
		for k := i + 1; k < len(x); k++ {
			x[i] -= a[k][i] * x[k]
		}
		x[i] /= a[i][i]
	}
	return x, true
}

// sumOfSquares returns the squared length of a vector.
func sumOfSquares(v []float64) float64 { return dotProduct(v, v) }

// dotProduct returns the dot product of two vectors of equal length.
func dotProduct(a, b []float64) float64 {
	var sum float64
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
