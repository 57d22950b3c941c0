package vsphere

import (
	"encoding/binary"
	"math/rand/v2"
)

const (
	noiseSize  = 1 << 20  // reused all over a disk: it stays in cache, and stamps make every block different
	blockSize  = 4 << 10  // one stamp in each
	regionSize = 64 << 20 // data and holes have a new layout in each region
	runAlign   = 64 << 10 // alignment of data runs in bytes
)

// A generated is a disk whose bytes are computed, so that it requires no storage. It resembles the disk
// of a VM: runs of data and holes of different lengths, half of the data compressible, and the first
// block is data. Each 4 KiB block of data is unique.
type generated struct {
	noise []byte // source of the bytes, shared by all disks and never modified
	size  int64  // capacity in bytes
	seed  uint64 // seed of layout and bytes
	fill  int    // percentage of the disk that is data
}

// newNoise returns the bytes for generated disks: blocks of random bytes and blocks of repeated text.
func newNoise() []byte {
	p := make([]byte, noiseSize)
	var seed [32]byte
	copy(seed[:], "decamp lab noise")
	src := rand.NewChaCha8(seed)
	text := []byte("the quick brown fox jumps over the lazy dog; ")
	for off := 0; off < len(p); off += blockSize {
		block := p[off : off+blockSize]
		if src.Uint64()&1 == 0 {
			_, _ = src.Read(block) // never fails
			continue
		}
		for n := 0; n < len(block); n += copy(block[n:], text) {
		}
	}
	return p
}

// Size returns the capacity in bytes.
func (g *generated) Size() int64 { return g.size }

// Close does nothing.
func (g *generated) Close() error { return nil }

// ReadAt implements io.ReaderAt.
func (g *generated) ReadAt(p []byte, off int64) (int, error) {
	n, eof := clipRead(p, off, g.size)
	for done := int64(0); done < int64(n); {
		at := off + done
		start, end, _ := g.nextData(at)
		if at < start {
			hole := min(int64(n)-done, start-at)
			clear(p[done : done+hole])
			done += hole
			continue
		}
		run := min(int64(n)-done, end-at)
		g.fillData(p[done:done+run], at)
		done += run
	}
	return n, eof
}

// fillData writes the data at off to p: noise, with a stamp in each block.
func (g *generated) fillData(p []byte, off int64) {
	for done := 0; done < len(p); {
		at := (off + int64(done)) % noiseSize
		done += copy(p[done:], g.noise[at:])
	}
	for block := off / blockSize * blockSize; block < off+int64(len(p)); block += blockSize {
		g.stampBlock(p, off, block)
	}
}

// stampBlock writes the 16 bytes that make the block unique, or the part of them inside p.
func (g *generated) stampBlock(p []byte, off, block int64) {
	if block >= off && block+16 <= off+int64(len(p)) {
		g.putStamp(p[block-off:], block)
		return
	}
	var s [16]byte
	g.putStamp(s[:], block)
	for i := range s {
		if at := block + int64(i) - off; at >= 0 && at < int64(len(p)) {
			p[at] = s[i]
		}
	}
}

// putStamp writes the stamp of a block to the first 16 bytes of p.
func (g *generated) putStamp(p []byte, block int64) {
	binary.LittleEndian.PutUint64(p, uint64(block)|1) // never zero, so no data block is all zero
	binary.LittleEndian.PutUint64(p[8:], mixBits(g.seed^uint64(block)))
}

// nextData implements content. It examines the slots of the region at off and of later regions.
func (g *generated) nextData(off int64) (start, end int64, err error) {
	if g.fill == 0 {
		return g.size, g.size, nil
	}
	for region := off / regionSize * regionSize; region < g.size; region += regionSize {
		slots, length := g.slotLayout(region)
		for i := range slots {
			start, end := g.slotData(region+i*length, min(length, g.size-region-i*length))
			if end > off && end > start {
				return start, end, nil
			}
		}
	}
	return g.size, g.size, nil
}

// slotLayout returns the number and the length of the slots of a region. Each slot contains one run.
func (g *generated) slotLayout(region int64) (n, length int64) {
	n = int64(1) << (mixBits(g.seed+uint64(region)) % 5) // 1 to 16 runs
	return n, regionSize / n
}

// slotData returns the run of one slot: fill percent of it on average, at a pseudo-random position.
func (g *generated) slotData(slot, length int64) (start, end int64) {
	if length <= 0 {
		return slot, slot
	}
	h := mixBits(g.seed ^ mixBits(uint64(slot)))
	want := length * int64(g.fill) / 100
	spread := min(want, length-want) // so that the mean stays at fill
	want += int64(h%1001)*spread/1000 - spread/2
	want = min(length, max(1, (want+runAlign/2)/runAlign)*runAlign)
	if slot == 0 {
		return 0, want // a disk begins with its partition table
	}
	room := (length - want) / runAlign
	start = slot + int64((h>>32)%uint64(room+1))*runAlign
	return start, start + want
}

// mixBits is the finalizer of splitmix64.
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
