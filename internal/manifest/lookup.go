package manifest

import (
	"cmp"
	"fmt"
	"slices"
)

// Hash returns the hash of a safe chunk, and false if the chunk is not safe. It reads
// the file and looks through the whole index: it is meant for samples.
func (l *Log) Hash(chunk int64) (Hash, bool, error) {
	l.io.Lock()
	defer l.io.Unlock()
	if !l.Has(chunk) {
		return Hash{}, false, nil
	}
	var newest record
	for _, r := range l.index {
		if int64(r.first) <= chunk && chunk < int64(r.end()) && r.off >= newest.off {
			newest = r
		}
	}
	if newest.kind == kindZeros {
		return l.head.info.zeroHash(chunk), true, nil
	}
	var h Hash
	at := newest.part(uint32(chunk), uint32(chunk)+1).off
	if _, err := l.f.ReadAt(h[:], at); err != nil {
		return Hash{}, false, fmt.Errorf("read manifest %s at byte %d: %w", l.path, at, err)
	}
	return h, true, nil
}

// Recent returns up to n safe chunks from the newest records, a few of each: what a crash
// of the storage would have hit first.
func (l *Log) Recent(n int) []int64 {
	const each = 4
	l.io.Lock()
	defer l.io.Unlock()
	records := slices.Clone(l.index)
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(b.off, a.off) })
	var chunks []int64
	for _, r := range records {
		for c := int64(r.end()) - 1; c >= max(int64(r.first), int64(r.end())-each) && len(chunks) < n; c-- {
			if l.Has(c) {
				chunks = append(chunks, c)
			}
		}
	}
	return chunks
}
