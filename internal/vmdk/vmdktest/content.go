package vmdktest

import "encoding/binary"

const sector = 512

// garbage fills what no reader may ever show.
const garbage = 0xEE

// fillSector writes into b (one sector) what the layer writer wrote to sector n of the
// disk: a quarter text that compresses well, one in sixteen zeros, the rest noise.
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

// fillText repeats sixteen letters, which tell writer and sector apart.
func fillText(b []byte, x uint64) {
	for i := range 16 {
		b[i] = 'a' + byte(x>>(4*i)&15)
	}
	for i := 16; i < sector; i *= 2 {
		copy(b[i:sector], b[:i])
	}
}

// mixBits makes neighbouring numbers unrelated (the finalizer of MurmurHash3).
func mixBits(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
