package ldm

import (
	"cmp"
	"maps"
	"slices"
)

// maxSectors limits sector numbers so that byte offsets fit int64.
const maxSectors = 1 << 50

// A recordIndex contains the records of a database by their owners.
type recordIndex struct {
	records
	ofVolume    map[uint64][]uint64    // IDs of the components of a volume
	ofComponent map[uint64][]partition // partitions of a component
}

// joinVolumes returns the volumes that have a piece on the disk of h, sorted by name. It combines them
// from their components and partitions.
func (h Header) joinVolumes(all *records) []Volume {
	g := &recordIndex{records: *all, ofVolume: map[uint64][]uint64{}, ofComponent: map[uint64][]partition{}}
	for _, id := range slices.Sorted(maps.Keys(all.components)) {
		volume := all.components[id].volume
		g.ofVolume[volume] = append(g.ofVolume[volume], id)
	}
	for _, p := range all.partitions {
		g.ofComponent[p.component] = append(g.ofComponent[p.component], p)
	}
	var here []Volume
	for _, id := range slices.Sorted(maps.Keys(all.volumes)) {
		if v, ok := h.describeVolume(g, id); ok {
			here = append(here, v)
		}
	}
	slices.SortStableFunc(here, func(a, b Volume) int { return cmp.Compare(a.Name, b.Name) })
	return here
}

// describeVolume returns one volume. ok is false if no piece of it is on the disk of h.
func (h Header) describeVolume(g *recordIndex, id uint64) (v Volume, ok bool) {
	raw := g.volumes[id]
	v = Volume{Name: raw.name, Hint: raw.hint, Size: int64(min(raw.size, maxSectors)) * sectorSize}
	for _, component := range g.ofVolume[id] {
		pieces := g.ofComponent[component]
		v.Pieces += len(pieces)
		v.Layout = layoutOf(g.components[component].layout, len(pieces))
		for _, p := range pieces {
			if g.disks[p.disk] != h.disk {
				continue
			}
			ok = true
			if v.Layout == Simple {
				v.Whole = h.pieceOf(p)
			}
		}
	}
	if len(g.ofVolume[id]) > 1 {
		v.Layout = Mirrored
	}
	return v, ok
}

// pieceOf returns the location of a partition on the disk of h; zero if its numbers are invalid.
func (h Header) pieceOf(p partition) Piece {
	if p.start > maxSectors || p.size > maxSectors {
		return Piece{}
	}
	return Piece{(h.data + int64(p.start)) * sectorSize, int64(p.size) * sectorSize}
}

// layoutOf returns the layout of a component with the number of partitions.
func layoutOf(kind byte, pieces int) Layout {
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
