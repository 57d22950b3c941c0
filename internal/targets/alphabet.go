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

// An Alphabet is what names at a place are made of: a to z, 0 to 9, and "-" for all that it does not have.
type Alphabet struct {
	Upper bool   // A to Z, too; else they become small
	Signs string // and these, within a word
	Most  int    // bytes of a word
}

// hashed is how much room the hash of a name takes, with what is before it.
const hashed = 1 + 8

// Word makes of any name one of the alphabet. Accents are left off. A name that lost letters, or its
// end, ends in a hash of the whole, so that it stays different from others; those that differ in
// capitals, spaces and signs only come to the same. One of which nothing is left is none, with a hash.
// Most is at least 9 bytes more than none.
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
	return a.hash(safe, name, none)
}

// hash is a word with a hash of the name that it stands for.
func (a Alphabet) hash(word, name, none string) string {
	sum := sha256.Sum256([]byte(name))
	word = strings.TrimRight(word[:min(len(word), a.Most-hashed)], "-"+a.Signs)
	return cmp.Or(word, none) + "-" + hex.EncodeToString(sum[:4])
}

// Unused is word, or word with a number behind it if that is taken, and takes it. Capitals do not tell
// words apart. A number may take a byte or two more than Most.
func Unused(word, between string, taken map[string]bool) string {
	free := word
	for n := 2; taken[strings.ToLower(free)]; n++ {
		free = fmt.Sprintf("%s%s%d", word, between, n)
	}
	taken[strings.ToLower(free)] = true
	return free
}

// TagNames are a VM's tags as people write them: category/name.
func TagNames(vm *inventory.VM) []string {
	var names []string
	for _, t := range vm.Tags {
		names = append(names, t.Category+"/"+t.Name)
	}
	return names
}
