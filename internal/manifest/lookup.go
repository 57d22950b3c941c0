package manifest

import (
	"fmt"
	"slices"
)

// Hash returns the hash of a safe chunk, and false if the chunk is not safe. It reads
// the file each time: it is meant for samples.
func (l *Log) Hash(chunk int64) (Hash, bool, error) {
	l.io.Lock()
	defer l.io.Unlock()
	if !l.Has(chunk) {
		return Hash{}, false, nil
	}
	at := l.safe.run(uint32(chunk))
	if at.kind == kindZeros {
		return l.head.info.zeroHash(chunk), true, nil
	}
	var h Hash
	if _, err := l.f.ReadAt(h[:], at.off); err != nil {
		return Hash{}, false, fmt.Errorf("read manifest %s at byte %d: %w", l.path, at.off, err)
	}
	return h, true, nil
}

// Recent returns up to n safe chunks from the newest records, a few of each: what a crash
// of the storage would have hit first.
func (l *Log) Recent(n int) []int64 {
	const each = 4
	l.mu.RLock()
	defer l.mu.RUnlock()
	var chunks []int64
	for _, r := range slices.Backward(l.safe.recent) {
		for c := int64(r.end()) - 1; c >= max(int64(r.first), int64(r.end())-each) && len(chunks) < n; c-- {
			if l.safe.has(c) {
				chunks = append(chunks, c)
			}
		}
	}
	return chunks
}
