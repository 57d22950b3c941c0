package lvm

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/decamp/decamp/internal/guest/budget"
)

// A Group is a volume group.
type Group struct {
	Name    string   // name of the group
	UUID    string   // UUID with dashes, as LVM prints it
	PVs     int      // number of physical volumes
	Missing []string // names, as in the description, of physical volumes that were not passed to Assemble
	Volumes []Volume // visible volumes in the order of the description
}

// A Volume is a logical volume.
type Volume struct {
	Name string                    // name within the group
	UUID string                    // UUID with dashes
	Size int64                     // bytes of the volume
	Kind string                    // "linear", "striped", another segment type of LVM, or "damaged"
	pvs  map[string]physicalVolume // physical volumes of the group by name
	segs []segment                 // segments in the order of the volume, without gaps

	origin   bool // the volume has snapshots
	readOnly bool // the volume or its group lacks the status WRITE
}

// A physicalVolume is a physical volume according to the description of its group.
type physicalVolume struct {
	r     budget.Reader // content; nil if the physical volume is missing
	start int64         // offset of the first extent in bytes; negative if the description has none
}

// A segment maps a range of a volume to its stripes.
type segment struct {
	off, size int64    // range within the volume in bytes
	kind      string   // "linear", "striped" or another type of LVM
	stripe    int64    // bytes of one stripe; the size of the segment if it is linear
	stripes   []stripe // locations; one if the segment is linear
}

// A stripe is a location on a physical volume.
type stripe struct {
	pv  string // name of the physical volume
	off int64  // offset from the first extent in bytes
}

// Assemble returns the volume groups of the physical volumes, in the order of their first one. Each
// group is described by its newest text, the one with the highest seqno.
func Assemble(pvs []PV) []Group {
	byUUID := map[string]budget.Reader{}
	newest := map[string]*text{}
	var order []string
	for _, pv := range pvs {
		byUUID[pv.UUID] = pv.r
		if pv.group == nil {
			continue
		}
		id := pv.group.textValue("id")
		if newest[id] == nil {
			order = append(order, id)
		}
		// Each change of the group increments seqno; a device that was missing has an old text.
		if newest[id] == nil || pv.group.numberValue("seqno") > newest[id].numberValue("seqno") {
			newest[id] = pv.group
		}
	}
	groups := make([]Group, 0, len(order))
	for _, id := range order {
		groups = append(groups, newest[id].toGroup(byUUID))
	}
	return groups
}

// toGroup converts the description of a group. byUUID contains the available physical volumes.
func (t *text) toGroup(byUUID map[string]budget.Reader) Group {
	g := Group{Name: t.name, UUID: t.textValue("id")}
	pvs := map[string]physicalVolume{}
	list := t.subsection("physical_volumes")
	for _, name := range list.order {
		pv := list.sections[name]
		r := byUUID[stripDashes(pv.textValue("id"))]
		if r == nil {
			g.Missing = append(g.Missing, name)
		}
		pvs[name] = physicalVolume{r, min(pv.numberValue("pe_start"), 1<<40) * sector}
	}
	g.PVs = len(pvs)
	extent := t.numberValue("extent_size")
	list = t.subsection("logical_volumes")
	origins := list.originNames()
	for _, name := range list.order {
		lv := list.sections[name]
		if !slices.Contains(lv.values["status"], "VISIBLE") {
			continue
		}
		v := lv.toVolume(name, extent, pvs)
		v.origin, v.readOnly = origins[name], !lv.isWritable() || !t.isWritable()
		g.Volumes = append(g.Volumes, v)
	}
	return g
}

// toVolume converts the description of a logical volume. extent is the size of an extent in sectors.
// The kind of an invalid volume is "damaged".
func (t *text) toVolume(name string, extent int64, pvs map[string]physicalVolume) Volume {
	v := Volume{Name: name, UUID: t.textValue("id"), pvs: pvs}
	for _, s := range t.order {
		seg, ok := t.sections[s].toSegment(extent)
		if !ok {
			v.Kind = "damaged"
			return v
		}
		v.segs = append(v.segs, seg)
	}
	slices.SortStableFunc(v.segs, func(a, b segment) int { return cmp.Compare(a.off, b.off) })
	for _, s := range v.segs {
		// Segments must follow each other without gaps or overlaps.
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

// maxExtents limits the extents of a volume: with extents of 4 MiB, four PiB.
const maxExtents = 1 << 30

// toSegment converts the description of a segment. ok is false if its numbers are invalid.
func (t *text) toSegment(extent int64) (_ segment, ok bool) {
	start, count := t.numberValue("start_extent"), t.numberValue("extent_count")
	if extent <= 0 || extent > 1<<22 || start < 0 || count <= 0 || start > maxExtents || count > maxExtents {
		return segment{}, false
	}
	s := segment{off: start * extent * sector, size: count * extent * sector, kind: t.textValue("type")}
	// Other types are reported but cannot be opened, so their stripes do not matter.
	if s.kind != "striped" && s.kind != "linear" {
		return s, s.kind != ""
	}
	list := t.values["stripes"]
	// The array alternates between a physical volume and its first extent.
	for i := 0; i+1 < len(list); i += 2 {
		first, err := strconv.ParseInt(list[i+1], 10, 64)
		if err != nil || first < 0 || first > maxExtents {
			return s, false
		}
		s.stripes = append(s.stripes, stripe{list[i], first * extent * sector})
	}
	if len(s.stripes) == 1 {
		s.kind, s.stripe = "linear", s.size
		return s, true
	}
	stripe := t.numberValue("stripe_size")
	s.kind, s.stripe = "striped", min(stripe, s.size/sector)*sector
	return s, len(s.stripes) > 0 && stripe > 0 && stripe <= s.size/sector
}

// locateByte returns the physical volume and the offset of byte off of the volume, and the number of
// bytes that are contiguous from there. off must be within the volume.
func (v *Volume) locateByte(off int64) (r budget.Reader, at, length int64) {
	i, _ := slices.BinarySearchFunc(v.segs, off+1, func(s segment, end int64) int { return cmp.Compare(s.off+s.size, end) })
	s := &v.segs[i]
	off -= s.off
	// Stripes alternate between the locations; each row has one stripe of each.
	row, within := off/s.stripe, off%s.stripe
	n := int64(len(s.stripes))
	on := s.stripes[row%n]
	pv := v.pvs[on.pv]
	return pv.r, pv.start + on.off + row/n*s.stripe + within, min(s.stripe-within, s.size-off)
}
