package ntfs

import (
	"cmp"
	"fmt"
	"slices"
)

// maxList is the maximum size of an attribute list in Windows, in bytes.
const maxList = 256 << 10

// partMemory is the charge for one part of an attribute in bytes, with room to grow.
const partMemory = 160

// findParts returns the parts of one attribute in order; none if the file does not have it. An
// attribute may be spread over several records, which the file's attribute list names. The records
// remain in memory as long as the parts. v.partBytes counts their bytes; openStream releases them.
// findParts fails at the record with which the parts exceed maxRuns runs.
func (v *Volume) findParts(r *record, kind uint32, name string) ([]attribute, error) {
	// Without an attribute list all attributes are in the base record.
	list, ok := r.findAttribute(typeList, "")
	if !ok {
		a, ok := r.findAttribute(kind, name)
		if !ok {
			return nil, nil
		}
		return []attribute{a}, nil
	}
	refs, err := v.partRefs(list, kind, name)
	if err != nil {
		return nil, fmt.Errorf("attribute list: %w", err)
	}
	var parts []attribute
	runs := 0
	for _, ref := range refs {
		holder, err := v.readPartRecord(r, ref)
		if err != nil {
			return nil, err
		}
		// The parts refer to the record's memory until openStream has parsed their runs.
		if err := v.r.Budget().Hold(v.recordSize); err != nil {
			return nil, err
		}
		v.partBytes += v.recordSize
		if err := v.step(len(holder.attributes)); err != nil {
			return nil, err
		}
		for _, a := range holder.attributes {
			if a.kind != kind || a.name != name {
				continue
			}
			if runs, err = v.countRuns(runs, a); err != nil {
				return nil, err
			}
			if err := v.r.Budget().Hold(partMemory); err != nil {
				return nil, err
			}
			v.partBytes += partMemory
			parts = append(parts, a)
		}
	}
	// The list may have the parts in any order; runs require the order of the value.
	slices.SortStableFunc(parts, func(a, b attribute) int { return cmp.Compare(a.firstVCN, b.firstVCN) })
	return parts, nil
}

// readPartRecord returns the record that ref refers to, or r itself. It fails if the record was reused
// for another file.
func (v *Volume) readPartRecord(r *record, ref uint64) (*record, error) {
	if num := int64(ref & refNumber); num != r.number {
		holder, err := v.readRecord(num)
		if err == nil && holder.sequence != uint16(ref>>48) {
			err = fmt.Errorf("%w: record %d belongs to another file by now", errCorrupt, num)
		}
		return holder, err
	}
	return r, nil
}

// partRefs returns the references to the records with parts of an attribute. Each occurs once.
func (v *Volume) partRefs(list attribute, kind uint32, name string) ([]uint64, error) {
	b, err := v.readList(list)
	if err != nil {
		return nil, err
	}
	var refs []uint64
	seen := map[uint64]bool{}
	// 26 bytes are an entry without a name.
	for len(b) >= 26 {
		if err := v.step(1); err != nil {
			return nil, err
		}
		// An entry has the type, its length, the name and, at offset 16, the reference of the record.
		length := int(le16(b, 4))
		if length < 26 || length > len(b) {
			return nil, fmt.Errorf("%w: an entry of %d bytes", errCorrupt, length)
		}
		entry, err := utf16Text(b[:length], int(b[7]), int(b[6]))
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

// readList returns the bytes of an attribute list, which must have a single part.
func (v *Volume) readList(list attribute) ([]byte, error) {
	s, err := v.newStream([]attribute{list})
	if err != nil {
		return nil, err
	}
	defer s.release()
	if s.size > maxList {
		return nil, fmt.Errorf("%w: %d bytes", errCorrupt, s.size)
	}
	b := make([]byte, s.size)
	return b, s.readAt(b, 0)
}
