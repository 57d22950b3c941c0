package vmdktest

import "encoding/binary"

// sector is the size of a sector in bytes.
const sector = 512

// garbage is the value of bytes that no reader may return.
const garbage = 0xEE

// fillSector fills b, one sector, with the content that layer writer wrote to sector n. A quarter of
// the disk is text that compresses well; one in sixteen sectors is zeros; the rest does not compress.
func fillSector(b []byte, seed uint64, writer uint8, n int64) {
	x := mixBits(seed ^ uint64(writer)<<56 ^ uint64(n))
	switch {
	case x>>60 == 0:
		clear(b[:sector])
	case n>>7&3 == 0:
		fillText(b, x)
	default:
		for i := 0; i < sector; i += 8 {
			binary.LittleEndian.PutUint64(b[i:], x)
			x = x*0x5851f42d4c957f2d + 0x14057b7ef767814f
		}
	}
}

// fillText repeats sixteen letters that depend on writer and sector.
func fillText(b []byte, x uint64) {
	for i := range 16 {
		b[i] = 'a' + byte(x>>(4*i)&15)
	}
	for i := 16; i < sector; i *= 2 {
		copy(b[i:sector], b[:i])
	}
}

// mixBits returns unrelated numbers for neighbouring x. It is the finalizer of MurmurHash3.
func mixBits(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
