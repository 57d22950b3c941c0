package dir

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is the maximum length of a safe name in bytes. File systems allow 255 bytes; the rest is for
// suffixes.
const maxName = 180

// SafeName converts a VM's name to a file name that needs no quotes in a shell. It keeps letters and
// digits of
// any script, and dots, dashes and underscores except at the start. Other characters become "_". A name
// longer
// than maxName is cut and ends in a hash of the whole name. Different names can give the same result;
// the target detects this.
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
