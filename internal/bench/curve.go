package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Axis is the quantity that varies along a curve.
type Axis string

// The axes: how much goes at a time.
const (
	ByStreams  Axis = "streams"      // parallel streams of a disk
	ByTogether Axis = "VMs"          // VMs copied concurrently
	ByCopies   Axis = "destinations" // destinations written from one read
)

// Axes lists all axes in the order of reports.
var Axes = []Axis{ByStreams, ByTogether, ByCopies}

// Of returns the value of a setup on the axis. A setup without a value has 1; streams
// are 0 then, because the transport chooses.
func (a Axis) Of(s Setup) int {
	switch a {
	case ByStreams:
		return s.Streams // the default is the transport's preference
	case ByTogether:
		return max(s.Together, 1)
	default:
		return max(s.Copies, 1)
	}
}

// withoutAxis returns s with the value removed, so that setups of one curve are equal.
func (a Axis) withoutAxis(s Setup) Setup {
	switch a {
	case ByStreams:
		s.Streams = 0
	case ByTogether:
		s.Together = 0
	default:
		s.Copies = 0
	}
	return s
}

// A Point is the rate at one count.
type Point struct {
	Count int     `json:"count"` // value on the axis
	MiBs  float64 `json:"mibs"`  // total rate in MiB/s
}

// A Curve is the rate by one quantity, with all other parts of the setup unchanged.
type Curve struct {
	Axis   Axis    `json:"axis"`   // quantity that varies
	Name   string  `json:"name"`   // name of the setup without the quantity
	Points []Point `json:"points"` // points by their counts
}

// plateauShare is the share of the best rate from which a larger count counts as no
// gain.
const plateauShare = 0.95

// Plateau returns the point with the smallest count whose rate is close to the best
// one.
func (c Curve) Plateau() Point {
	most := slices.MaxFunc(c.Points, func(a, b Point) int { return cmp.Compare(a.MiBs, b.MiBs) })
	i := slices.IndexFunc(c.Points, func(p Point) bool { return p.MiBs >= plateauShare*most.MiBs })
	return c.Points[i]
}

// Curves returns the curves of rows. Each has at least two points. The last of several
// rows with one setup counts.
func Curves(rows []Row) []Curve {
	var all []Curve
	for _, a := range Axes {
		all = append(all, a.findCurves(rows)...)
	}
	return all
}

// findCurves returns the curves of one axis.
func (a Axis) findCurves(rows []Row) []Curve {
	var found []Curve
	for _, r := range rows {
		n := a.Of(r.Setup)
		if n == 0 {
			continue
		}
		// Rows with equal names differ only in their count.
		name := a.withoutAxis(r.Setup).Name()
		i := slices.IndexFunc(found, func(c Curve) bool { return c.Name == name })
		if i < 0 {
			found, i = append(found, Curve{Axis: a, Name: name}), len(found)
		}
		found[i].addPoint(Point{n, r.Rate()})
	}
	return slices.DeleteFunc(found, func(c Curve) bool { return len(c.Points) < 2 })
}

// addPoint adds a point in the order of counts, or replaces the point with that count.
func (c *Curve) addPoint(p Point) {
	i, there := slices.BinarySearchFunc(c.Points, p.Count, func(q Point, n int) int { return cmp.Compare(q.Count, n) })
	if there {
		c.Points[i] = p
		return
	}
	c.Points = slices.Insert(c.Points, i, p)
}

// Curves returns the published curves: VDDK by concurrent VMs, and connections to
// /folder.
func (p Published) Curves() []Curve {
	cold := Curve{Axis: ByTogether, Name: "MTV cold, one host"}
	warm := Curve{Axis: ByTogether, Name: "MTV warm, one host"}
	for _, list := range []struct {
		rows []MTVRow
		of   *Curve
	}{{p.MTV.Cold, &cold}, {p.MTV.Warm, &warm}} {
		for _, r := range list.rows {
			if r.Hosts == 1 && r.MiBs > 0 {
				list.of.addPoint(Point{r.VMs, r.MiBs})
			}
		}
	}
	https := Curve{Axis: ByStreams, Name: "https /folder, 1g, mtu1500"}
	for _, r := range p.HTTPS.Rows {
		if r.MTU == publishedMTU {
			https.addPoint(Point{r.Connections, r.MiBs()})
		}
	}
	return []Curve{https, cold, warm}
}

// publishedMTU is the MTU of the curve of connections. Jumbo frames were slower.
const publishedMTU = 1500

// String returns the curve on one line.
func (c Curve) String() string {
	p, last := c.Plateau(), c.Points[len(c.Points)-1]
	what := string(c.Axis)
	if p.Count == 1 {
		what = strings.TrimSuffix(what, "s")
	}
	end := "more is no gain"
	if p == last {
		end = "more was not tried"
	}
	return fmt.Sprintf("%s: %.1f MiB/s at %d %s; %s", c.Name, p.MiBs, p.Count, what, end)
}
