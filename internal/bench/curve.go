package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Axis is what a curve counts.
type Axis string

// The axes: how much goes at a time.
const (
	ByStreams  Axis = "streams"
	ByTogether Axis = "VMs"
	ByCopies   Axis = "destinations"
)

// Axes are all of them.
var Axes = []Axis{ByStreams, ByTogether, ByCopies}

// Of is how many a setup has: one where it does not say.
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

func (a Axis) without(s Setup) Setup {
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
	Count int     `json:"count"`
	MiBs  float64 `json:"mibs"` // all together
}

// A Curve is what more at a time gave, with everything else the same.
type Curve struct {
	Axis   Axis    `json:"axis"`
	Name   string  `json:"name"`
	Points []Point `json:"points"` // points by their counts
}

// enough is the part of the best rate from which on more at a time is no gain.
const enough = 0.95

// Plateau is the least count that gives nearly what the best one does.
func (c Curve) Plateau() Point {
	most := slices.MaxFunc(c.Points, func(a, b Point) int { return cmp.Compare(a.MiBs, b.MiBs) })
	i := slices.IndexFunc(c.Points, func(p Point) bool { return p.MiBs >= enough*most.MiBs })
	return c.Points[i]
}

// Curves finds what rows say of counts: each curve has two points at least. Of rows that are of
// the same setup the last one counts.
func Curves(rows []Row) []Curve {
	var all []Curve
	for _, a := range Axes {
		all = append(all, a.curves(rows)...)
	}
	return all
}

func (a Axis) curves(rows []Row) []Curve {
	var found []Curve
	for _, r := range rows {
		n := a.Of(r.Setup)
		if n == 0 {
			continue
		}
		name := a.without(r.Setup).Name()
		i := slices.IndexFunc(found, func(c Curve) bool { return c.Name == name })
		if i < 0 {
			found, i = append(found, Curve{Axis: a, Name: name}), len(found)
		}
		found[i].put(Point{n, r.Rate()})
	}
	return slices.DeleteFunc(found, func(c Curve) bool { return len(c.Points) < 2 })
}

func (c *Curve) put(p Point) {
	i, there := slices.BinarySearchFunc(c.Points, p.Count, func(q Point, n int) int { return cmp.Compare(q.Count, n) })
	if there {
		c.Points[i] = p
		return
	}
	c.Points = slices.Insert(c.Points, i, p)
}

// Curves are those that were published: VDDK by VMs at a time, and connections to /folder.
func (p Published) Curves() []Curve {
	cold := Curve{Axis: ByTogether, Name: "MTV cold, one host"}
	warm := Curve{Axis: ByTogether, Name: "MTV warm, one host"}
	for _, list := range []struct {
		rows []MTVRow
		of   *Curve
	}{{p.MTV.Cold, &cold}, {p.MTV.Warm, &warm}} {
		for _, r := range list.rows {
			if r.Hosts == 1 && r.MiBs > 0 {
				list.of.put(Point{r.VMs, r.MiBs})
			}
		}
	}
	https := Curve{Axis: ByStreams, Name: "https /folder, 1g, mtu1500"}
	for _, r := range p.HTTPS.Rows {
		if r.MTU == publishedMTU {
			https.put(Point{r.Connections, r.MiBs()})
		}
	}
	return []Curve{https, cold, warm}
}

// publishedMTU is that of the connections' curve: large frames were seen to slow it.
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
