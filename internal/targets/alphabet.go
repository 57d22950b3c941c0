package targets

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/decamp/decamp/internal/inventory"
)

// Alphabet describes the names that a platform accepts: a to z, 0 to 9, and "-" in place of other
// characters.
type Alphabet struct {
	Upper bool   // also A to Z; otherwise letters are folded to lower case
	Signs string // further characters that are allowed inside a word
	Most  int    // maximum length of a word in bytes
}

// hashLen is the length of the suffix that appendHash adds: a dash and eight hex digits.
const hashLen = 1 + 8

// Word converts a name to the alphabet. It removes accents.
//
// If the name loses letters or is cut, the word ends in a hash of the whole name, so that different
// names
// stay different. Names that differ only in case, spaces and signs give the same word.
// If nothing remains, Word returns none with a hash. Most must be at least 9 bytes more than the length
// of none.
func (a Alphabet) Word(name, none string) string {
	var b strings.Builder
	lost := false
	for _, r := range norm.NFKD.String(strings.ToValidUTF8(name, "_")) {
		if !a.Upper {
			r = unicode.ToLower(r)
		}
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(a.Signs, r):
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r): // the accent of the letter before
		default:
			lost = lost || unicode.IsLetter(r) || unicode.IsDigit(r)
			if !strings.HasSuffix(b.String(), "-") {
				b.WriteByte('-')
			}
		}
	}
	safe := strings.Trim(b.String(), "-"+a.Signs)
	if safe != "" && !lost && len(safe) <= a.Most {
		return safe
	}
	return a.appendHash(safe, name, none)
}

// appendHash cuts word to the maximum length and appends four bytes of the SHA-256 of name, in hex.
// An empty word is replaced by none.
func (a Alphabet) appendHash(word, name, none string) string {
	sum := sha256.Sum256([]byte(name))
	word = strings.TrimRight(word[:min(len(word), a.Most-hashLen)], "-"+a.Signs)
	return cmp.Or(word, none) + "-" + hex.EncodeToString(sum[:4])
}

// Unused returns word, or word with a number appended if word is in taken. It adds the result to taken.
// Words are compared without case. The number can make the result a byte or two longer than
// Alphabet.Most.
func Unused(word, between string, taken map[string]bool) string {
	free := word
	for n := 2; taken[strings.ToLower(free)]; n++ {
		free = fmt.Sprintf("%s%s%d", word, between, n)
	}
	taken[strings.ToLower(free)] = true
	return free
}

// TagNames returns the tags of a VM in the form category/name.
func TagNames(vm *inventory.VM) []string {
	var names []string
	for _, t := range vm.Tags {
		names = append(names, t.Category+"/"+t.Name)
	}
	return names
}
