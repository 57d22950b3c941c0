package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/decamp/decamp/internal/bench"
)

// The chart's picture, in its own units: about the width of a phone, so that its letters have
// their size there too.
const (
	chartWidth, chartHeight = 360.0, 220.0
	left, right             = 44.0, 12.0
	top, bottom             = 10.0, 34.0

	gridLines = 4
)

// chart is the curves of one axis.
type chart struct {
	Title   string
	Axis    string
	Width   float64
	Height  float64
	Base    float64 // y of the axis
	Left    float64
	Right   float64
	Labels  float64 // y of the counts
	Y       []tick
	X       []tick
	Curves  []viewCurve
	Plateau []string
}

// tick is a place on an axis.
type tick struct {
	At    float64
	Label string
}

// viewCurve is a curve on its chart.
type viewCurve struct {
	Name   string
	Color  int
	Path   string // points of an SVG polyline
	Points []viewPoint
}

type viewPoint struct {
	X, Y    float64
	Says    string
	Plateau bool
}

// charts are one for each axis that has curves.
func charts(curves []bench.Curve) []chart {
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
	scale := scale{rate: round(rates), count: float64(count)}
	for i := range gridLines + 1 {
		v := scale.rate * float64(i) / gridLines
		ch.Y = append(ch.Y, tick{scale.y(v), fmt.Sprintf("%.4g", v)})
	}
	for n := 1; n <= count; n *= 2 {
		ch.X = append(ch.X, tick{scale.x(n), fmt.Sprint(n)})
	}
	for i, c := range curves {
		ch.Curves = append(ch.Curves, scale.curve(c, i%colors))
		ch.Plateau = append(ch.Plateau, c.String())
	}
	return ch
}

// scale is what the ends of the axes mean. Counts double from mark to mark.
type scale struct{ rate, count float64 }

func (s scale) x(count int) float64 {
	return left + (chartWidth-left-right)*math.Log2(float64(count))/max(math.Log2(s.count), 1)
}

func (s scale) y(rate float64) float64 {
	return chartHeight - bottom - (chartHeight-top-bottom)*rate/s.rate
}

func (s scale) curve(c bench.Curve, color int) viewCurve {
	v := viewCurve{Name: c.Name, Color: color}
	var path []string
	for _, p := range c.Points {
		x, y := s.x(p.Count), s.y(p.MiBs)
		path = append(path, fmt.Sprintf("%.1f,%.1f", x, y))
		v.Points = append(v.Points, viewPoint{x, y, fmt.Sprintf("%s: %s MiB/s at %d %s", c.Name, rate(p.MiBs), p.Count, c.Axis), p == c.Plateau()})
	}
	v.Path = strings.Join(path, " ")
	return v
}

// round is the next number upwards that can be divided by the grid's lines.
func round(v float64) float64 {
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
