package ntfs

import "fmt"

// hole is the position of a run without clusters on the volume; it reads as zeros.
const hole = -1

// maxRuns limits the runs of one value: 6 MiB of memory.
const maxRuns = 1 << 18

// A run is a contiguous range of clusters.
type run struct {
	vcn   int64 // first cluster, counted within the value
	lcn   int64 // first cluster, counted within the volume; hole if it has no clusters
	count int64 // length in clusters
}

// end returns the first cluster of the value after the run.
func (r run) end() int64 { return r.vcn + r.count }

// splitPair splits the first of the mapping pairs into the numbers of its length and its position, and
// returns the other pairs. The position of a hole is empty. All results are empty at the end of the pairs.
func splitPair(pairs []byte) (length, place, rest []byte, err error) {
	if len(pairs) == 0 || pairs[0] == 0 {
		return nil, nil, nil, nil
	}
	// The low half of the first byte is the size of the length, the high half that of the position.
	lengthBytes, placeBytes := int(pairs[0]&15), int(pairs[0]>>4)
	if lengthBytes == 0 || lengthBytes > 8 || placeBytes > 8 || 1+lengthBytes+placeBytes > len(pairs) {
		return nil, nil, nil, fmt.Errorf("%w: a run of %d and %d bytes", errCorrupt, lengthBytes, placeBytes)
	}
	length, rest = pairs[1:1+lengthBytes], pairs[1+lengthBytes:]
	return length, rest[:placeBytes], rest[placeBytes:], nil
}

// countRuns returns total plus the number of runs of one part. It fails if the result exceeds maxRuns, so
// that the memory of all runs can be charged and allocated once.
func (v *Volume) countRuns(total int, part attribute) (int, error) {
	pairs, err := part.mappingPairs()
	for err == nil {
		var length []byte
		if length, _, pairs, err = splitPair(pairs); len(length) == 0 || err != nil {
			break
		}
		if total++; total > maxRuns {
			return total, fmt.Errorf("a value of more than %d runs", maxRuns)
		}
		// One step of the budget corresponds to eight runs.
		if total%8 == 7 {
			err = v.step(1)
		}
	}
	return total, err
}

// parseRuns appends the runs of one part of a value to runs, which must have room for them. pairs are the
// mapping pairs of the part, which begins at cluster vcn of the value. Positions are relative to the run
// before.
func (v *Volume) parseRuns(runs []run, pairs []byte, vcn int64) ([]run, error) {
	// The first position is relative to cluster 0.
	lcn := int64(0)
	for {
		length, place, rest, err := splitPair(pairs)
		if len(length) == 0 || err != nil {
			return runs, err
		}
		r := run{vcn: vcn, lcn: hole, count: signedNumber(length)}
		if len(place) > 0 {
			lcn += signedNumber(place)
			r.lcn = lcn
		}
		if err := v.checkRun(r, len(place) > 0); err != nil {
			return nil, err
		}
		if len(runs)%8 == 7 {
			if err := v.step(1); err != nil {
				return nil, err
			}
		}
		runs, vcn, pairs = append(runs, r), r.end(), rest
	}
}

// checkRun fails if the run is empty, outside the volume, or reaches beyond maxBytes of the value. placed
// is false for holes.
func (v *Volume) checkRun(r run, placed bool) error {
	most := maxBytes / v.clusterSize
	switch {
	case r.count <= 0 || r.vcn > most || r.count > most-r.vcn:
		return fmt.Errorf("%w: a run of %d clusters from %d on", errCorrupt, r.count, r.vcn)
	case placed && (r.lcn < 0 || r.lcn > v.clusters || r.count > v.clusters-r.lcn):
		return fmt.Errorf("%w: a run of %d clusters at %d of %d", errCorrupt, r.count, r.lcn, v.clusters)
	}
	return nil
}

// signedNumber reads a little-endian number of 1 to 8 bytes, with its sign.
func signedNumber(b []byte) int64 {
	n := int64(int8(b[len(b)-1]))
	for i := len(b) - 2; i >= 0; i-- {
		n = n<<8 | int64(b[i])
	}
	return n
}
