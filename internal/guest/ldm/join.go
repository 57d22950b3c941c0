package ldm

import (
	"cmp"
	"maps"
	"slices"
)

// maxSectors keeps bytes within int64.
const maxSectors = 1 << 50

// A group has a database's records by their owners.
type group struct {
	records
	ofVolume    map[uint64][]uint64    // the components of a volume
	ofComponent map[uint64][]partition // the partitions of a component
}

// join puts volumes together from their components and partitions, and returns those that
// have a piece on the disk of h, by name.
func (h Header) join(all *records) []Volume {
	g := &group{records: *all, ofVolume: map[uint64][]uint64{}, ofComponent: map[uint64][]partition{}}
	for _, id := range slices.Sorted(maps.Keys(all.components)) {
		volume := all.components[id].volume
		g.ofVolume[volume] = append(g.ofVolume[volume], id)
	}
	for _, p := range all.partitions {
		g.ofComponent[p.component] = append(g.ofComponent[p.component], p)
	}
	var here []Volume
	for _, id := range slices.Sorted(maps.Keys(all.volumes)) {
		if v, ok := h.volume(g, id); ok {
			here = append(here, v)
		}
	}
	slices.SortStableFunc(here, func(a, b Volume) int { return cmp.Compare(a.Name, b.Name) })
	return here
}

// volume describes one volume; ok is false where nothing of it is on the disk of h.
func (h Header) volume(g *group, id uint64) (v Volume, ok bool) {
	raw := g.volumes[id]
	v = Volume{Name: raw.name, Hint: raw.hint, Size: int64(min(raw.size, maxSectors)) * sectorSize}
	for _, component := range g.ofVolume[id] {
		pieces := g.ofComponent[component]
		v.Pieces += len(pieces)
		v.Layout = layout(g.components[component].layout, len(pieces))
		for _, p := range pieces {
			if g.disks[p.disk] != h.disk {
				continue
			}
			ok = true
			if v.Layout == Simple {
				v.Whole = h.piece(p)
			}
		}
	}
	if len(g.ofVolume[id]) > 1 {
		v.Layout = Mirrored
	}
	return v, ok
}

// piece returns the position of a partition on the disk of h.
func (h Header) piece(p partition) Piece {
	if p.start > maxSectors || p.size > maxSectors {
		return Piece{}
	}
	return Piece{(h.data + int64(p.start)) * sectorSize, int64(p.size) * sectorSize}
}

// layout names what a component is.
func layout(kind byte, pieces int) Layout {
	switch {
	case kind == 1:
		return Striped
	case kind == 2 && pieces == 1:
		return Simple
	case kind == 2:
		return Spanned
	case kind == 3:
		return RAID5
	}
	return Unknown
}
