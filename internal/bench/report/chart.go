package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/decamp/decamp/internal/bench"
)

// The chart's picture, in its own units: about the width of a phone, so that its
// letters have their size there too.
const (
	// size in SVG units, about the width of a phone, so that text keeps its size there
	chartWidth, chartHeight = 360.0, 220.0
	left, right             = 44.0, 12.0 // margins to the left and right of the curves
	top, bottom             = 10.0, 34.0 // margins above and below

	gridLines = 4 // number of intervals of the vertical axis
)

// chart contains the curves of one axis. Coordinates are SVG units.
type chart struct {
	Title   string      // heading
	Axis    string      // name of the horizontal axis
	Width   float64     // total width
	Height  float64     // total height
	Base    float64     // y of the horizontal axis
	Left    float64     // x of the vertical axis
	Right   float64     // x of the right end
	Labels  float64     // y of the labels below the horizontal axis
	Y       []tick      // labels of rates
	X       []tick      // labels of counts
	Curves  []viewCurve // curves, in the order of the legend
	Plateau []string    // one sentence per curve
}

// tick is a label on an axis.
type tick struct {
	At    float64 // coordinate
	Label string  // text
}

// viewCurve is a curve on its chart.
type viewCurve struct {
	Name   string      // name in the legend
	Color  int         // index of a color of the style
	Path   string      // points of an SVG polyline
	Points []viewPoint // points with tooltips
}

// viewPoint is a point of a curve.
type viewPoint struct {
	X, Y    float64 // coordinates
	Tooltip string  // text of the tooltip
	Plateau bool    // true for the plateau of the curve
}

// newCharts returns one chart for each axis that has curves.
func newCharts(curves []bench.Curve) []chart {
	var all []chart
	for _, a := range bench.Axes {
		var of []bench.Curve
		for _, c := range curves {
			if c.Axis == a {
				of = append(of, c)
			}
		}
		if len(of) > 0 {
			all = append(all, newChart(a, of))
		}
	}
	return all
}

// newChart lays out the curves of one axis.
func newChart(a bench.Axis, curves []bench.Curve) chart {
	ch := chart{Title: "By " + string(a), Axis: string(a), Width: chartWidth, Height: chartHeight, Base: chartHeight - bottom,
		Left: left, Right: chartWidth - right, Labels: chartHeight - bottom + 15}
	var rates float64
	count := 1
	for _, c := range curves {
		for _, p := range c.Points {
			rates, count = max(rates, p.MiBs), max(count, p.Count)
		}
	}
	scale := scale{rate: roundUp(rates), count: float64(count)}
	for i := range gridLines + 1 {
		v := scale.rate * float64(i) / gridLines
		ch.Y = append(ch.Y, tick{scale.yOf(v), fmt.Sprintf("%.4g", v)})
	}
	// The axis is logarithmic, so its labels are powers of two.
	for n := 1; n <= count; n *= 2 {
		ch.X = append(ch.X, tick{scale.xOf(n), fmt.Sprint(n)})
	}
	for i, c := range curves {
		ch.Curves = append(ch.Curves, scale.toViewCurve(c, i%colors))
		ch.Plateau = append(ch.Plateau, c.String())
	}
	return ch
}

// scale contains the values at the ends of the axes. The axis of counts is logarithmic.
type scale struct{ rate, count float64 }

// xOf returns the x coordinate of a count.
func (s scale) xOf(count int) float64 {
	return left + (chartWidth-left-right)*math.Log2(float64(count))/max(math.Log2(s.count), 1)
}

// yOf returns the y coordinate of a rate.
func (s scale) yOf(rate float64) float64 {
	return chartHeight - bottom - (chartHeight-top-bottom)*rate/s.rate
}

// toViewCurve converts a curve to coordinates.
func (s scale) toViewCurve(c bench.Curve, color int) viewCurve {
	v := viewCurve{Name: c.Name, Color: color}
	var path []string
	for _, p := range c.Points {
		x, y := s.xOf(p.Count), s.yOf(p.MiBs)
		path = append(path, fmt.Sprintf("%.1f,%.1f", x, y))
		v.Points = append(v.Points, viewPoint{x, y, fmt.Sprintf("%s: %s MiB/s at %d %s", c.Name, formatRate(p.MiBs), p.Count, c.Axis), p == c.Plateau()})
	}
	v.Path = strings.Join(path, " ")
	return v
}

// roundUp returns the next larger number that the grid lines divide into short numbers.
// It returns 1 for 0.
func roundUp(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 4, 6, 8, 10} {
		if v <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}
