package ntfs

import (
	"fmt"
	"slices"
)

// maxList is what Windows lets an attribute list have, in bytes.
const maxList = 256 << 10

// parts collects the pieces of one attribute, in order: it may be spread over records,
// which the file's attribute list names. The records stay in memory as long as the pieces;
// v.parked counts their bytes.
func (v *Volume) parts(r *record, kind uint32, name string) ([]attribute, error) {
	list, ok := r.first(typeList, "")
	if !ok {
		a, ok := r.first(kind, name)
		if !ok {
			return nil, nil
		}
		return []attribute{a}, nil
	}
	refs, err := v.holders(list, kind, name)
	if err != nil {
		return nil, fmt.Errorf("attribute list: %w", err)
	}
	var parts []attribute
	for _, ref := range refs {
		holder, err := v.holder(r, ref)
		if err != nil {
			return nil, err
		}
		if err := v.r.Budget().Hold(v.recordSize); err != nil {
			return nil, err
		}
		v.parked += v.recordSize
		if err := v.step(len(holder.attributes)); err != nil {
			return nil, err
		}
		for _, a := range holder.attributes {
			if a.kind == kind && a.name == name {
				parts = append(parts, a)
			}
		}
	}
	slices.SortStableFunc(parts, func(a, b attribute) int { return int(max(-1, min(1, a.first-b.first))) })
	return parts, nil
}

// holder reads the record behind a reference of r's own list.
func (v *Volume) holder(r *record, ref uint64) (*record, error) {
	if num := int64(ref & refNumber); num != r.number {
		holder, err := v.record(num)
		if err == nil && holder.sequence != uint16(ref>>48) {
			err = fmt.Errorf("%w: record %d belongs to another file by now", errCorrupt, num)
		}
		return holder, err
	}
	return r, nil
}

// holders returns references to the records that hold pieces of an attribute, each once.
func (v *Volume) holders(list attribute, kind uint32, name string) ([]uint64, error) {
	b, err := v.whole(list)
	if err != nil {
		return nil, err
	}
	var refs []uint64
	seen := map[uint64]bool{}
	for len(b) >= 26 {
		if err := v.step(1); err != nil {
			return nil, err
		}
		length := int(le16(b, 4))
		if length < 26 || length > len(b) {
			return nil, fmt.Errorf("%w: an entry of %d bytes", errCorrupt, length)
		}
		entry, err := text(b[:length], int(b[7]), int(b[6]))
		if err != nil {
			return nil, err
		}
		if ref := le64(b, 16); le32(b, 0) == kind && entry == name && !seen[ref] {
			seen[ref] = true
			refs = append(refs, ref)
		}
		b = b[length:]
	}
	return refs, nil
}

// whole reads an attribute list, which is in one piece.
func (v *Volume) whole(list attribute) ([]byte, error) {
	s, err := v.streamOf([]attribute{list})
	if err != nil {
		return nil, err
	}
	if s.size > maxList {
		return nil, fmt.Errorf("%w: %d bytes", errCorrupt, s.size)
	}
	b := make([]byte, s.size)
	return b, s.readAt(b, 0)
}
