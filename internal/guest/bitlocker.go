package guest

import (
	"encoding/binary"
	"slices"
	"strings"
)

// fveSize is the number of bytes of BitLocker metadata that are read. Each of the three copies has
// 64 KiB of space.
const fveSize = 64 << 10

// Kinds of protectors of a BitLocker volume's key.
const (
	protectClear    = 0x0000 // the key is stored unencrypted: protection is suspended or not enabled yet
	protectTPM      = 0x0100 // TPM
	protectStartup  = 0x0200 // startup key on a USB stick
	protectTPMPIN   = 0x0500 // TPM and PIN
	protectRecovery = 0x0800 // recovery password
	protectPassword = 0x2000 // password
)

// A bitLocker contains the fields of a volume's metadata that are readable without its key.
type bitLocker struct {
	state      uint16   // encryption state: 1 decrypted, 2 and 5 encrypted in part
	protectors []uint16 // kinds of the volume's key protectors
}

// readBitLocker parses the first intact copy of the metadata; ok is false if none exists. The
// layout is that of Joachim Metz' "BitLocker Drive Encryption (BDE) format specification", for
// Windows 7 and later.
func readBitLocker(w *window) (bitLocker, bool) {
	boot := make([]byte, 512)
	if !w.readFull(boot, 0) {
		return bitLocker{}, false
	}
	// The boot sector has the offsets of all three copies.
	for _, at := range []int{176, 184, 192} {
		off := int64(binary.LittleEndian.Uint64(boot[at:]))
		if off <= 0 || off > w.size {
			continue
		}
		b := make([]byte, min(fveSize, w.size-off))
		if w.readFull(b, off) {
			if found, ok := parseBitLocker(b); ok {
				return found, true
			}
		}
	}
	return bitLocker{}, false
}

// parseBitLocker parses one copy of the metadata: a block header, a metadata header and entries. It
// returns false if a header is invalid; it ignores entries after an invalid one.
func parseBitLocker(b []byte) (bitLocker, bool) {
	// A block header of 64 bytes, a metadata header of 48 bytes, then entries.
	const head, entries = 64, 64 + 48
	if len(b) < entries || string(b[:8]) != "-FVE-FS-" || binary.LittleEndian.Uint16(b[10:]) != 2 {
		return bitLocker{}, false
	}
	found := bitLocker{state: binary.LittleEndian.Uint16(b[12:])}
	size := int64(binary.LittleEndian.Uint32(b[head:]))
	if size < 48 || size > int64(len(b)-head) {
		return bitLocker{}, false
	}
	for rest := b[entries : head+size]; len(rest) >= 8; {
		length := int(binary.LittleEndian.Uint16(rest))
		if length < 8 || length > len(rest) {
			break
		}
		// An entry of type 2 and value type 8 is a volume master key; its protector is at offset 26.
		const masterKey, asKey = 2, 8
		isKey := binary.LittleEndian.Uint16(rest[2:]) == masterKey && binary.LittleEndian.Uint16(rest[4:]) == asKey
		if isKey && length >= 8+28 {
			found.protectors = append(found.protectors, binary.LittleEndian.Uint16(rest[8+26:]))
		}
		rest = rest[length:]
	}
	return found, true
}

// describeState returns a phrase for a volume that is not fully encrypted, and an empty string
// otherwise.
func (b bitLocker) describeState() string {
	switch b.state {
	case 1:
		return "it is decrypted, except its header"
	case 2, 5:
		return "it is partly encrypted"
	}
	return ""
}

// describeUnlock returns a phrase about what the guest requires at the target to unlock the volume.
func (b bitLocker) describeUnlock() string {
	has := func(kinds ...uint16) bool {
		return slices.ContainsFunc(kinds, func(k uint16) bool { return slices.Contains(b.protectors, k) })
	}
	switch {
	// A volume may have several protectors; the first one in this order is described.
	case has(protectClear):
		return "its key is stored unencrypted, because protection is suspended or was never turned on: the guest unlocks it without a password"
	case has(protectPassword):
		return "it requests its password"
	case has(protectTPM, protectTPMPIN):
		return "its key is bound to the virtual TPM, which is not migrated: the guest needs its recovery key"
	case has(protectStartup):
		return "it needs its startup key"
	}
	return "the guest needs its recovery key"
}

// warnBitLocker adds a warning for a BitLocker volume. It also sets the verdict, unless there is one.
// number is the partition; 0 is the whole disk.
func (d *detector) warnBitLocker(number int, w *window) {
	found, _ := readBitLocker(w)
	parts := []string{found.describeUnlock()}
	if p := found.describeState(); p != "" {
		parts = append([]string{p}, parts...)
	}
	text := strings.Join(parts, "; ")
	d.warn("bitlocker", "%s is encrypted by BitLocker: %s; virtio needs manage-bde -off, or virt-v2v with its recovery key (--key-file)", partitionName(number), text)
	if d.report.Verdict == "" {
		d.report.Verdict = "BitLocker on " + partitionName(number) + ": " + text + "; compat profile changes nothing in it; virtio needs virt-v2v with that key: --key-file"
	}
}
