package lvm

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/decamp/decamp/internal/guest/budget"
)

// A Group is a volume group.
type Group struct {
	Name    string
	UUID    string   // UUID with dashes, as LVM prints it
	PVs     int      // physical volumes it consists of
	Missing []string // names of the PVs that were not passed to Assemble
	Volumes []Volume // visible volumes in the order of the description
}

// A Volume is a logical volume.
type Volume struct {
	Name string
	UUID string
	Size int64  // bytes
	Kind string // "linear", "striped", or what lvm2 calls the segments
	pvs  map[string]physical
	segs []segment

	origin   bool // there are snapshots of it
	readOnly bool
}

// physical is a PV as its group describes it.
type physical struct {
	r     budget.Reader // reader of the PV; nil if it is missing
	start int64         // byte of the first extent
}

// A segment maps a range of a volume onto its stripes.
type segment struct {
	off, size int64 // bytes of the volume
	kind      string
	stripe    int64 // bytes of one stripe
	stripes   []stripe
}

type stripe struct {
	pv  string
	off int64 // bytes from the PV's first extent
}

// Assemble puts PVs together. Groups are in the order of their first PV.
func Assemble(pvs []PV) []Group {
	byUUID := map[string]budget.Reader{}
	newest := map[string]*text{}
	var order []string
	for _, pv := range pvs {
		byUUID[pv.UUID] = pv.r
		if pv.group == nil {
			continue
		}
		id := pv.group.string("id")
		if newest[id] == nil {
			order = append(order, id)
		}
		if newest[id] == nil || pv.group.number("seqno") > newest[id].number("seqno") {
			newest[id] = pv.group
		}
	}
	groups := make([]Group, 0, len(order))
	for _, id := range order {
		groups = append(groups, newest[id].describe(byUUID))
	}
	return groups
}

// describe makes a Group of a description.
func (t *text) describe(byUUID map[string]budget.Reader) Group {
	g := Group{Name: t.name, UUID: t.string("id")}
	pvs := map[string]physical{}
	list := t.section("physical_volumes")
	for _, name := range list.order {
		pv := list.sections[name]
		r := byUUID[bare(pv.string("id"))]
		if r == nil {
			g.Missing = append(g.Missing, name)
		}
		pvs[name] = physical{r, min(pv.number("pe_start"), 1<<40) * sector}
	}
	g.PVs = len(pvs)
	extent := t.number("extent_size")
	list = t.section("logical_volumes")
	origins := list.origins()
	for _, name := range list.order {
		lv := list.sections[name]
		if !slices.Contains(lv.values["status"], "VISIBLE") {
			continue
		}
		v := lv.volume(name, extent, pvs)
		v.origin, v.readOnly = origins[name], !lv.canWrite() || !t.canWrite()
		g.Volumes = append(g.Volumes, v)
	}
	return g
}

// volume makes a Volume of a description. The kind of an invalid one contains the error.
func (t *text) volume(name string, extent int64, pvs map[string]physical) Volume {
	v := Volume{Name: name, UUID: t.string("id"), pvs: pvs}
	for _, s := range t.order {
		seg, ok := t.sections[s].segment(extent)
		if !ok {
			v.Kind = "damaged"
			return v
		}
		v.segs = append(v.segs, seg)
	}
	slices.SortStableFunc(v.segs, func(a, b segment) int { return cmp.Compare(a.off, b.off) })
	for _, s := range v.segs {
		if s.off != v.Size {
			v.Kind = "damaged"
			return v
		}
		v.Size += s.size
		if v.Kind == "" || s.kind != "linear" {
			v.Kind = s.kind
		}
	}
	return v
}

const maxExtents = 1 << 30 // maximum extents of a volume: with extents of 4 MiB, four PiB

// segment reads one segment; ok is false where its numbers are impossible.
func (t *text) segment(extent int64) (_ segment, ok bool) {
	start, count := t.number("start_extent"), t.number("extent_count")
	if extent <= 0 || extent > 1<<22 || start < 0 || count <= 0 || start > maxExtents || count > maxExtents {
		return segment{}, false
	}
	s := segment{off: start * extent * sector, size: count * extent * sector, kind: t.string("type")}
	if s.kind != "striped" && s.kind != "linear" {
		return s, s.kind != ""
	}
	list := t.values["stripes"]
	for i := 0; i+1 < len(list); i += 2 {
		first, err := strconv.ParseInt(list[i+1], 10, 64)
		if err != nil || first < 0 || first > maxExtents {
			return s, false
		}
		s.stripes = append(s.stripes, stripe{list[i], first * extent * sector})
	}
	s.kind, s.stripe = "striped", t.number("stripe_size")*sector
	if len(s.stripes) == 1 {
		s.kind, s.stripe = "linear", s.size
	}
	return s, len(s.stripes) > 0 && s.stripe > 0 && s.stripe <= s.size
}

// locate returns where byte off of the volume is, and how many follow it there.
func (v *Volume) locate(off int64) (r budget.Reader, at, length int64) {
	i, _ := slices.BinarySearchFunc(v.segs, off+1, func(s segment, end int64) int { return cmp.Compare(s.off+s.size, end) })
	s := &v.segs[i]
	off -= s.off
	row, within := off/s.stripe, off%s.stripe
	n := int64(len(s.stripes))
	on := s.stripes[row%n]
	pv := v.pvs[on.pv]
	return pv.r, pv.start + on.off + row/n*s.stripe + within, min(s.stripe-within, s.size-off)
}
