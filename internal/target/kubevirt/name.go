package kubevirt

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxName leaves room, in the 63 bytes of a label, for the number of a disk: names of DataVolumes
// become labels of CDI's pods.
const maxName = 52

// Name turns a VM's display name into a name of Kubernetes: a DNS label as RFC 1123 has it. Accents
// are left off, and what remains that cannot be in it becomes "-". A name that lost letters by that,
// or its end, ends in a hash of the whole, so that it stays different from others. Names that differ
// in capitals, spaces and signs only come to the same; the place finds out.
func Name(name string) string {
	var b strings.Builder
	lost := false
	for _, r := range norm.NFKD.String(strings.ToValidUTF8(name, "_")) {
		switch r = unicode.ToLower(r); {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r): // the accent of the letter before
		default:
			lost = lost || unicode.IsLetter(r) || unicode.IsDigit(r)
			if !strings.HasSuffix(b.String(), "-") {
				b.WriteByte('-')
			}
		}
	}
	safe := strings.Trim(b.String(), "-")
	if safe != "" && !lost && len(safe) <= maxName {
		return safe
	}
	sum := sha256.Sum256([]byte(name))
	safe = strings.TrimRight(safe[:min(len(safe), maxName-9)], "-")
	if safe == "" {
		safe = "vm"
	}
	return safe + "-" + hex.EncodeToString(sum[:4])
}

// diskName is the name of the DataVolume of a VM's i-th disk.
func diskName(vm string, i int) string { return vm + "-disk" + strconv.Itoa(i) }
