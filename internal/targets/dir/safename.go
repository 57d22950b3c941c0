package dir

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName leaves room, in the 255 bytes that file systems give, for the longest thing
// appended to it.
const maxName = 180

// SafeName turns a VM's display name into a file name that needs no quoting in a shell
// and means nothing to a file system: letters and digits of any script stay, and so do
// inner dots, dashes and underscores; everything else becomes "_". Different names may
// come to the same; the target finds out. Names cut at maxName end in a hash of the
// whole.
func SafeName(name string) string {
	safe := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, strings.ToValidUTF8(name, "_"))
	safe = strings.TrimLeft(safe, ".-")
	if safe == "" {
		safe = "vm"
	}
	if len(safe) <= maxName {
		return safe
	}
	sum := sha256.Sum256([]byte(name))
	cut := maxName - 9
	for !utf8.RuneStart(safe[cut]) {
		cut--
	}
	return safe[:cut] + "-" + hex.EncodeToString(sum[:4])
}
