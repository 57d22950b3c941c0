package extwrite

import "math/bits"

// Versions of a hash tree's hash. A version that is higher by three is the same hash for unsigned
// characters.
const (
	hashLegacy  = 0 // hash of the first kernels with hash trees
	hashHalfMD4 = 1 // half MD4, the default of mke2fs
	hashTEA     = 2 // Tiny Encryption Algorithm
)

// hashOf returns the hash of a name. s is the superblock: it contains the hash seed, and a flag for
// machines whose char type is unsigned. known is false if the version is not supported. Bit 0 is
// clear, because the tree uses it to mark collisions.
func hashOf(name string, version byte, s []byte) (hash uint32, known bool) {
	// s_flags: EXT2_FLAGS_UNSIGNED_HASH
	const unsignedHash = 2
	signed := le32(s, 0x160)&unsignedHash == 0
	if version > hashTEA {
		version, signed = version-3, false
	}
	// Initial state of MD4; s_hash_seed replaces it unless it is zero.
	state := [4]uint32{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}
	if seed := [4]uint32{le32(s, 0xec), le32(s, 0xf0), le32(s, 0xf4), le32(s, 0xf8)}; seed != ([4]uint32{}) {
		state = seed
	}
	switch version {
	case hashLegacy:
		hash = legacyHash(name, signed)
	case hashHalfMD4:
		for rest := name; len(name) > 0; rest = rest[min(32, len(rest)):] {
			if rest == "" {
				break
			}
			mixHalfMD4(&state, packWords(rest, 8, signed))
		}
		hash = state[1]
	case hashTEA:
		for rest := name; rest != ""; rest = rest[min(16, len(rest)):] {
			mixTEA(&state, packWords(rest, 4, signed))
		}
		hash = state[0]
	default:
		return 0, false
	}
	hash &^= 1
	// The highest value is reserved for the end of a folder.
	if hash == 0x7fffffff<<1 {
		hash = 0x7ffffffe << 1
	}
	return hash, true
}

// hashChar extends a byte of the name to 32 bits, with its sign if signed is true.
func hashChar(c byte, signed bool) uint32 {
	if signed {
		return uint32(int32(int8(c)))
	}
	return uint32(c)
}

// packWords packs the first 4*n bytes of a name into n words. Missing bytes are replaced by the length
// of the name, repeated in each byte.
func packWords(name string, n int, signed bool) []uint32 {
	pad := uint32(len(name)) | uint32(len(name))<<8
	pad |= pad << 16
	out := make([]uint32, 0, n)
	val, in := pad, name[:min(len(name), n*4)]
	for i := range len(in) {
		val = hashChar(in[i], signed) + val<<8
		if i%4 == 3 {
			out, val = append(out, val), pad
		}
	}
	if len(out) < n {
		out = append(out, val)
	}
	for len(out) < n {
		out = append(out, pad)
	}
	return out
}

// mixHalfMD4 mixes eight words into the state: three rounds of MD4 over all words.
func mixHalfMD4(state *[4]uint32, in []uint32) {
	rounds := [3]struct {
		f     func(x, y, z uint32) uint32
		k     uint32
		order [8]int
		shift [4]int
	}{
		{func(x, y, z uint32) uint32 { return z ^ x&(y^z) }, 0, [8]int{0, 1, 2, 3, 4, 5, 6, 7}, [4]int{3, 7, 11, 19}},
		{func(x, y, z uint32) uint32 { return x&y + (x^y)&z }, 0x5a827999, [8]int{1, 3, 5, 7, 0, 2, 4, 6}, [4]int{3, 5, 9, 13}},
		{func(x, y, z uint32) uint32 { return x ^ y ^ z }, 0x6ed9eba1, [8]int{3, 7, 2, 6, 1, 5, 0, 4}, [4]int{3, 9, 11, 15}},
	}
	a, b, c, d := state[0], state[1], state[2], state[3]
	for _, r := range rounds {
		for i, word := range r.order {
			a = bits.RotateLeft32(a+r.f(b, c, d)+in[word]+r.k, r.shift[i%4])
			a, b, c, d = d, a, b, c
		}
	}
	state[0], state[1], state[2], state[3] = state[0]+a, state[1]+b, state[2]+c, state[3]+d
}

// mixTEA mixes four words into the state: sixteen rounds of the Tiny Encryption Algorithm.
func mixTEA(state *[4]uint32, in []uint32) {
	b0, b1, sum := state[0], state[1], uint32(0)
	for range 16 {
		sum += 0x9e3779b9
		b0 += (b1<<4 + in[0]) ^ (b1 + sum) ^ (b1>>5 + in[1])
		b1 += (b0<<4 + in[2]) ^ (b0 + sum) ^ (b0>>5 + in[3])
	}
	state[0], state[1] = state[0]+b0, state[1]+b1
}

// legacyHash returns the hash of version hashLegacy (dx_hack_hash in the kernel).
func legacyHash(name string, signed bool) uint32 {
	hash, before := uint32(0x12a3fe2d), uint32(0x37abe8f9)
	for i := range len(name) {
		next := before + (hash ^ hashChar(name[i], signed)*7152373)
		if next&0x80000000 != 0 {
			next -= 0x7fffffff
		}
		before, hash = hash, next
	}
	return hash << 1
}
