package inflate

import (
	"math/bits"
	"slices"
	"sync"
)

// An entry of a table, found by the next bits of the input:
//
//	bits  0..5   how many bits it uses, extra bits included
//	bits  8..11  how many of them are the code; of a subtable, how many bits index it
//	bits 12..15  flags
//	bits 16..31  literal, base of a length or distance, or where the subtable begins
//
// Codes in a subtable do not include the bits that selected it.
const (
	special    = 1 << 12 // neither a literal, nor a length or distance
	endOfBlock = 1 << 13 // flag, with special: end of the block
	subtable   = 1 << 14 // flag, with special: reference to a subtable
	literal    = 1 << 15 // the entry is a literal byte

	invalid = special                                   // special alone: no such code
	flags   = special | endOfBlock | subtable | literal // mask of all flags
)

const (
	maxLit  = 288 // symbols of the literal and length code; 286 and 287 are never used
	maxDist = 32  // symbols of the distance code; 30 and 31 are never used
	maxPre  = 19  // symbols of the code that encodes the other two
	maxCode = 15  // longest code in bits

	litBits  = 11              // number of index bits of the first table for literals and lengths
	distBits = 8               // number of index bits of the first table for distances
	preBits  = 7               // number of index bits of the table for code lengths; no code is longer
	litMask  = 1<<litBits - 1  // mask of the index of the first table
	distMask = 1<<distBits - 1 // mask of the index of the first table

	// Table sizes are powers of two, so that a mask replaces the bounds check. Codes of 15 bits need at
	// most 2342 and 402 entries.
	litSize  = 4096
	distSize = 512 // size of the table for distances
)

type (
	// literals and lengths, with subtables
	litTable [litSize]uint32
	// distances, with subtables
	distTable [distSize]uint32
	// code lengths
	preTable [1 << preBits]uint32
)

// A symbols has the entry of each symbol without its code.
type symbols struct {
	lit  [maxLit]uint32  // literals, end of block and lengths
	dist [maxDist]uint32 // distances
	pre  [maxPre]uint32  // code lengths and repetitions
}

// entries returns the entries of all symbols. They are created once and never changed.
var entries = sync.OnceValue(func() *symbols {
	var s symbols
	for i := range 256 {
		s.lit[i] = literal | uint32(i)<<16
	}
	s.lit[256] = special | endOfBlock
	fillRanges(s.lit[257:285], 3, 4)
	s.lit[285] = 258 << 16
	s.lit[286], s.lit[287] = invalid, invalid
	fillRanges(s.dist[:30], 1, 2)
	s.dist[30], s.dist[31] = invalid, invalid
	for i := range s.pre {
		s.pre[i] = uint32(i) << 16
	}
	return &s
})

// fillRanges sets the base and the number of extra bits of lengths or distances (RFC 1951 section
// 3.2.5). The first 2 x each symbols have one value; then the number of extra bits grows by one after
// every each symbols.
func fillRanges(list []uint32, base, each int) {
	for i := range list {
		extra := max(i/each-1, 0)
		list[i] = uint32(base)<<16 | uint32(extra)
		base += 1 << extra
	}
}

// A code has the tables of one block.
type code struct {
	lit  litTable  // literals and lengths
	dist distTable // distances
}

// fixed returns the tables of fixed Huffman codes (RFC 1951 section 3.2.6). They are created once.
var fixed = sync.OnceValue(func() *code {
	var lens [maxLit + maxDist]uint8
	for i := range lens {
		switch {
		case i < 144:
			lens[i] = 8
		case i < 256:
			lens[i] = 9
		case i < 280:
			lens[i] = 7
		case i < maxLit:
			lens[i] = 8
		default:
			lens[i] = 5
		}
	}
	c := &code{}
	buildTable(c.lit[:], litBits, lens[:maxLit], entries().lit[:])
	buildTable(c.dist[:], distBits, lens[maxLit:], entries().dist[:])
	return c
})

// readTables reads the codes of a dynamic block and builds their tables.
func (d *Decoder) readTables(s *input) error {
	head, err := s.takeBits(14)
	if err != nil {
		return err
	}
	lits, dists, pres := int(head&31)+257, int(head>>5&31)+1, int(head>>10)+4
	if lits > 286 || dists > 30 {
		return ErrCorrupt
	}
	if err := d.readPre(s, pres); err != nil {
		return err
	}
	if err := d.readLengths(s, d.lens[:lits+dists]); err != nil {
		return err
	}
	if !buildTable(d.lit[:], litBits, d.lens[:lits], entries().lit[:]) ||
		!buildTable(d.dist[:], distBits, d.lens[lits:lits+dists], entries().dist[:]) {
		return ErrCorrupt
	}
	return nil
}

// preOrder is the order in which the lengths of the first code are sent.
var preOrder = [maxPre]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// readPre reads the code that the lengths of the other two are sent in.
func (d *Decoder) readPre(s *input, count int) error {
	var lens [maxPre]uint8
	for _, at := range preOrder[:count] {
		n, err := s.takeBits(3)
		if err != nil {
			return err
		}
		lens[at] = uint8(n)
	}
	if !buildTable(d.pre[:], preBits, lens[:], entries().pre[:]) {
		return ErrCorrupt
	}
	return nil
}

// readLengths reads the code lengths of all symbols, some of them as repetitions.
func (d *Decoder) readLengths(s *input, lens []uint8) error {
	for i := 0; i < len(lens); {
		e, err := s.nextSymbol(d.pre[:], preBits)
		if err != nil {
			return err
		}
		sym := uint8(e >> 16)
		if sym <= maxCode {
			lens[i] = sym
			i++
			continue
		}
		n, err := s.repeatCount(sym)
		if err != nil {
			return err
		}
		if n > len(lens)-i || sym == 16 && i == 0 {
			return ErrCorrupt
		}
		var value uint8
		if sym == 16 {
			value = lens[i-1]
		}
		for range n {
			lens[i] = value
			i++
		}
	}
	return nil
}

// repeatCount reads the extra bits of the symbols 16 (previous length), 17 and 18 (zeros), and returns
// the number of repeated lengths.
func (s *input) repeatCount(sym uint8) (int, error) {
	extra := [3]uint{2, 3, 7}[sym-16]
	n, err := s.takeBits(extra)
	return int(n) + [3]int{3, 3, 11}[sym-16], err
}

// buildTable fills table for a canonical code. The first primary bits of the input index it; subtables
// follow. It reports whether the lengths are a valid code. As in compress/flate and zlib, all codes
// must be used, except in a code of one symbol or none.
func buildTable(table []uint32, primary uint, lens []uint8, symbols []uint32) bool {
	var count [maxCode + 1]int
	for _, n := range lens {
		count[n]++
	}
	used := len(lens) - count[0]
	count[0] = 0
	space := 0 // part of 1<<maxCode that the codes use
	for n, c := range count {
		space += c << (maxCode - n)
	}
	switch {
	case used == 0 || used == 1 && count[1] == 1:
		buildOne(table[:1<<primary], lens, symbols)
		return true
	case space != 1<<maxCode:
		return false
	}
	var sorted [maxLit]uint16
	buildAll(table, primary, &count, sortSymbols(&sorted, lens, count), symbols)
	return true
}

// buildOne fills a table for a code of one symbol or none: a 1 bit is invalid.
func buildOne(table []uint32, lens []uint8, symbols []uint32) {
	for i := range table {
		table[i] = invalid
	}
	if sym := slices.Index(lens, 1); sym >= 0 {
		for i := 0; i < len(table); i += 2 {
			table[i] = newEntry(symbols[sym], 1)
		}
	}
}

// newEntry returns the entry of a symbol whose code has n bits.
func newEntry(symbol uint32, n uint) uint32 { return symbol + uint32(n)<<8 + uint32(n) }

// sortSymbols returns the symbols in the order of their codes. The result uses the memory of sorted.
func sortSymbols(sorted *[maxLit]uint16, lens []uint8, count [maxCode + 1]int) []uint16 {
	var next [maxCode + 2]int
	for n, c := range count {
		next[n+1] = next[n] + c
	}
	for sym, n := range lens {
		if n != 0 {
			sorted[next[n]] = uint16(sym)
			next[n]++
		}
	}
	return sorted[:next[maxCode]]
}

// buildAll fills table and its subtables. Deflate sends codes with the first bit lowest,
// so a code counts up from its high end: reversed is the next code that way. The table
// begins as that of 1-bit codes and is doubled for each further bit, which repeats each
// entry for every value of the bits after its code.
func buildAll(table []uint32, primary uint, count *[maxCode + 1]int, sorted []uint16, symbols []uint32) {
	reversed, size := uint(0), 1
	for n := uint(1); n <= primary; n++ {
		copy(table[size:2*size], table[:size])
		size *= 2
		for range count[n] {
			table[reversed] = newEntry(symbols[sorted[0]], n)
			sorted = sorted[1:]
			reversed = nextCode(reversed, n)
		}
	}
	buildLong(table, primary, count, sorted, symbols, reversed)
}

// buildLong fills the subtables, from the first code longer than primary. One subtable has all codes
// with the same first primary bits.
func buildLong(table []uint32, primary uint, count *[maxCode + 1]int, sorted []uint16, symbols []uint32, reversed uint) {
	prefix, start, width, end := ^uint(0), uint(0), uint(0), uint(1)<<primary
	for n := primary + 1; len(sorted) > 0; n++ {
		for ; count[n] > 0; count[n]-- {
			if p := reversed & (1<<primary - 1); p != prefix {
				prefix, start, width = p, end, subtableWidth(count, n, primary)
				end = start + 1<<width
				table[prefix] = special | subtable | uint32(start)<<16 | uint32(width)<<8
			}
			e := newEntry(symbols[sorted[0]], n-primary)
			for i := reversed >> primary; i < 1<<width; i += 1 << (n - primary) {
				table[start+i] = e
			}
			sorted = sorted[1:]
			reversed = nextCode(reversed, n)
		}
	}
}

// nextCode returns the code of n bits after reversed. It adds one at the high end.
func nextCode(reversed, n uint) uint {
	zero := uint(bits.Len(reversed ^ (1<<n - 1))) // the highest bit that is not set, from 1
	if zero == 0 {
		return 0 // that was the last code
	}
	return reversed&(1<<(zero-1)-1) | 1<<(zero-1)
}

// subtableWidth returns the index bits of a subtable that begins with the next code of n bits: as many
// as are necessary until codes of that length fill it. count has the number of remaining codes of each
// length.
func subtableWidth(count *[maxCode + 1]int, n, primary uint) uint {
	width := n - primary
	for space := 1 << width; ; width++ {
		space -= count[primary+width]
		if space <= 0 || primary+width == maxCode {
			return width
		}
		space *= 2
	}
}
