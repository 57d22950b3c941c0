package vmdk

import (
	"bytes"
	"compress/flate"
	_ "embed"
	"io"
	"sync"
	"unicode/utf8"
)

// A codePage is a code page whose characters have one or two bytes. GB18030 also has four. The tables are
// those of golang.org/x/text, without its encoders, which are most of its size: a test compares them, and
// writes codepages.deflate with -update.
type codePage int

const (
	gb18030 codePage = iota
	big5
	shiftJIS
	eucKR
	codePages // number of code pages
)

const (
	tablePairs  = 128 * 256 // pairs of a first byte from 0x80 on and any second byte
	tableFours  = 39420     // GB18030's characters of four bytes in the basic plane
	tableSize   = 3 * tablePairs
	firstCombos = 0x110000 // entries from this one on are in big5Combos
	oneByte     = 0x80     // flag in the third plane: the entry is for the first byte alone
)

// big5Combos are the pairs of Big5 with two characters.
var big5Combos = []string{"\u00ca\u0304", "\u00ca\u030c", "\u00ea\u0304", "\u00ea\u030c"}

//go:embed codepages.deflate
var packedCodePages []byte

// unpackCodePages returns the tables: for each code page three planes with the low, middle and high bits of
// each pair's character, then two planes with the characters of tableFours.
var unpackCodePages = sync.OnceValue(func() []byte {
	tables, err := io.ReadAll(flate.NewReader(bytes.NewReader(packedCodePages)))
	if err != nil {
		panic(err) // the program is damaged
	}
	return tables
})

// lookUp returns the character of a pair, and its number of bytes.
func (p codePage) lookUp(first, second byte) (entry rune, size int) {
	table := unpackCodePages()[int(p)*tableSize:]
	i := int(first-0x80)<<8 | int(second)
	high := table[2*tablePairs+i]
	size = 2
	if high&oneByte != 0 {
		size = 1
	}
	return rune(table[i]) | rune(table[tablePairs+i])<<8 | rune(high&^oneByte)<<16, size
}

// decodeFour returns the character of four bytes of GB18030. It returns utf8.RuneError and 1 if they are none.
func decodeFour(text []byte) (r rune, size int) {
	if len(text) < 4 || text[2] < 0x81 || text[2] == 0xff || text[3] < 0x30 || text[3] > 0x39 {
		return utf8.RuneError, 1
	}
	n := ((rune(text[0]-0x81)*10+rune(text[1]-0x30))*126+rune(text[2]-0x81))*10 + rune(text[3]-0x30)
	const supplementary = 189000 // number of U+10000
	switch {
	case n < tableFours:
		fours := unpackCodePages()[int(codePages)*tableSize:]
		return rune(fours[n]) | rune(fours[tableFours+n])<<8, 4
	case n >= supplementary && n < supplementary+0x100000:
		return n - supplementary + 0x10000, 4
	}
	return utf8.RuneError, 1
}

// decodeAll returns text in UTF-8. Invalid bytes become U+FFFD.
func (p codePage) decodeAll(text []byte) []byte {
	var out []byte
	for len(text) > 0 {
		entry, size := rune(text[0]), 1
		switch {
		case text[0] < utf8.RuneSelf:
		case len(text) == 1:
			if entry, size = p.lookUp(text[0], 0); size == 2 {
				entry, size = utf8.RuneError, 1
			}
		case p == gb18030 && text[0] > 0x80 && text[0] < 0xff && text[1] >= 0x30 && text[1] < 0x40:
			entry, size = decodeFour(text)
		default:
			entry, size = p.lookUp(text[0], text[1])
		}
		if entry >= firstCombos {
			out = append(out, big5Combos[entry-firstCombos]...)
		} else {
			out = utf8.AppendRune(out, entry)
		}
		text = text[size:]
	}
	return out
}
