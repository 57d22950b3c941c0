package efi

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// MaxVMware limits the size of a .nvram file, in bytes. Those of EFI VMs have about 270
// KiB.
const MaxVMware = 4 << 20

const (
	vmwareMagic   = "MRVN"           // first bytes of the file
	vmwareStore   = "VMWNVRAM"       // first bytes of the section with variables
	vmwareSection = "EFI_NV\x00\x00" // name of the section with variables

	sectionHeader = 12   // bytes of name, subname and length
	storeHeader   = 16   // bytes of magic, zero, and number of bytes in use
	recordHeader  = 28   // bytes of vendor, attributes and two lengths
	maxVariables  = 4096 // limit of the number of variables
)

// ReadVMware returns the variables of a VM's .nvram file. The file of a BIOS VM has
// none. The last of several variables with one name counts, because the firmware
// appends changes.
//
// All integers are little-endian:
//
//	"MRVN", version 1, then sections up to the end of the file:
//	    4+4 name    4 length    data
//	the section "EFI_" "NV":
//	    "VMWNVRAM"    4 zero    4 bytes in use, with these 16    records; the rest is 0xff
//	a record:
//	    16 vendor    4 attributes    4 bytes of name and data    4 of name    name, UTF-16 with NUL    data
func ReadVMware(file []byte) ([]Variable, error) {
	if len(file) < 8 || string(file[:4]) != vmwareMagic {
		return nil, fmt.Errorf("it does not begin with %s", vmwareMagic)
	}
	if v := binary.LittleEndian.Uint32(file[4:]); v != 1 {
		return nil, fmt.Errorf("version %d is not known, only 1", v)
	}
	for rest := file[8:]; len(rest) > 0; {
		at := len(file) - len(rest)
		if len(rest) < sectionHeader {
			return nil, fmt.Errorf("a section at %d is cut off", at)
		}
		name, size := rest[:8], int64(binary.LittleEndian.Uint32(rest[8:]))
		if rest = rest[sectionHeader:]; size > int64(len(rest)) {
			return nil, fmt.Errorf("the section at %d has %d bytes, and %d are left", at, size, len(rest))
		}
		if string(name) == vmwareSection {
			return readStore(rest[:size])
		}
		rest = rest[size:]
	}
	return nil, nil
}

// readStore parses the section with the variables.
func readStore(b []byte) ([]Variable, error) {
	if len(b) < storeHeader || string(b[:8]) != vmwareStore {
		return nil, fmt.Errorf("the section of EFI does not begin with %s", vmwareStore)
	}
	used := int64(binary.LittleEndian.Uint32(b[12:]))
	if used < storeHeader || used > int64(len(b)) {
		return nil, fmt.Errorf("invalid length: %d of %d bytes in use", used, len(b))
	}
	var vars []Variable
	seen := map[string]int{}
	for rest := b[storeHeader:used]; len(rest) > 0; {
		v, size, err := readRecord(rest)
		if err != nil {
			return nil, fmt.Errorf("variable %d: %w", len(vars), err)
		}
		rest = rest[size:]
		key := v.Vendor.String() + v.Name
		// The later record replaces the earlier one, at its position.
		if i, twice := seen[key]; twice {
			vars[i] = v
			continue
		}
		if len(vars) == maxVariables {
			return nil, fmt.Errorf("more than %d variables", maxVariables)
		}
		seen[key] = len(vars)
		vars = append(vars, v)
	}
	return vars, nil
}

// readRecord parses one variable, and returns its size in the file.
func readRecord(b []byte) (v Variable, size int64, err error) {
	if len(b) < recordHeader {
		return v, 0, fmt.Errorf("%d bytes are left, too few", len(b))
	}
	copy(v.Vendor[:], b)
	v.Attributes = binary.LittleEndian.Uint32(b[16:])
	whole, name := int64(binary.LittleEndian.Uint32(b[20:])), int64(binary.LittleEndian.Uint32(b[24:]))
	if name > whole || whole > int64(len(b))-recordHeader {
		return v, 0, fmt.Errorf("%d bytes with a name of %d, and %d are left", whole, name, len(b)-recordHeader)
	}
	b = b[recordHeader:][:whole]
	text, rest, err := cutText(b[:name])
	if err != nil || len(rest) > 0 || text == "" {
		return v, 0, fmt.Errorf("a name of %d bytes that is no text", name)
	}
	v.Name, v.Data = text, bytes.Clone(b[name:])
	return v, recordHeader + whole, nil
}
