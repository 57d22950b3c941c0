package efi

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

// newSection returns a section of an .nvram file.
func newSection(name string, data []byte) []byte {
	b := append([]byte(name), make([]byte, 8-len(name))...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(data))), data...)
}

// newVariable returns a variable of the section EFI_NV.
func newVariable(vendor, name string, attributes uint32, data []byte) []byte {
	g, text := mustGUID(vendor), text16(name)
	b := binary.LittleEndian.AppendUint32(g[:], attributes)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)+len(data)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	return append(append(b, text...), data...)
}

// newNVRAM returns an .nvram file with the sections of an EFI guest, in the order of ESXi 7.
func newNVRAM(room int, records ...[]byte) []byte {
	store := append([]byte("VMWNVRAM\x00\x00\x00\x00\x00\x00\x00\x00"), bytes.Join(records, nil)...)
	binary.LittleEndian.PutUint32(store[12:], uint32(len(store)))
	store = append(store, bytes.Repeat([]byte{0xff}, room-len(store))...)
	file := []byte("MRVN\x01\x00\x00\x00")
	for _, s := range [][]byte{
		newSection("CMOStimA", make([]byte, 4)), newSection("CMOStimB", make([]byte, 8)), newSection("CMOS", make([]byte, 128)),
		newSection("CMOS440", make([]byte, 128)), newSection("CMOS440v", make([]byte, 4)), newSection("CMOS440x", make([]byte, 128)),
		newSection("ESCD", make([]byte, 8192)), newSection("EFI_NV", store),
	} {
		file = append(file, s...)
	}
	return file
}

const (
	globalGUID = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
	shimGUID   = "605dab50-e046-4300-abb6-3dd810dd8b23"
	esxiRoom   = 262144
)

// debianNVRAM returns the .nvram file of a Debian guest with an enrolled machine owner key.
func debianNVRAM(t testing.TB) []byte {
	return newNVRAM(esxiRoom,
		newVariable(globalGUID, "PK", 0x27, append(make([]byte, 40), "authenticated"...)),
		newVariable(globalGUID, "Lang", 7, []byte("eng\x00")),
		newVariable(globalGUID, "Boot0000", 7, decodeHex(t, vmwareOption)),
		newVariable(globalGUID, "BootOrder", 7, []byte{0, 0}),
		newVariable(globalGUID, "Boot0004", 7, decodeHex(t, debianOption)),
		newVariable(shimGUID, "MokList", 3, []byte("a key")),
		newVariable(shimGUID, "SbatLevel", 3, []byte("sbat,1")),
		newVariable(globalGUID, "BootOrder", 7, []byte{4, 0, 0, 0, 9, 0, 4, 0}),
	)
}

func TestStateInVMwareFile(t *testing.T) {
	file := debianNVRAM(t)
	if len(file) != 270840 { // size of the file of ESXi 7
		t.Errorf("file of %d bytes, want 270840", len(file))
	}
	vars, err := ReadVMware(file)
	if err != nil || len(vars) != 7 || vars[1].Name != "Lang" || string(vars[1].Data) != "eng\x00" || vars[1].Vendor != Global || vars[1].Attributes != 7 {
		t.Fatalf("variables %+v, error %v", vars, err)
	}
	s, foreign := StateOf(vars)
	want := debianEntry()
	want.Number = 4
	if len(s.Entries) != 1 || !reflect.DeepEqual(s.Entries[0], want) || foreign != 1 {
		t.Errorf("entries %+v, %d foreign", s.Entries, foreign)
	}
	if len(s.Keys) != 1 || s.Keys[0].Name != "MokList" || s.Keys[0].Vendor.String() != shimGUID {
		t.Errorf("keys %+v", s.Keys)
	}
}

// The file of a BIOS guest has no variables. A truncated or contradictory file is an error.
func TestVMwareFilesWithoutVariables(t *testing.T) {
	bios := []byte("MRVN\x01\x00\x00\x00" + string(newSection("CMOS", make([]byte, 128))))
	if vars, err := ReadVMware(bios); err != nil || len(vars) > 0 {
		t.Errorf("BIOS: got %+v, want none, error %v", vars, err)
	}
	good := debianNVRAM(t)
	at := bytes.Index(good, []byte("VMWNVRAM"))
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":              func([]byte) []byte { return nil },
		"another magic":      func(b []byte) []byte { b[0] = 'X'; return b },
		"another version":    func(b []byte) []byte { b[4] = 2; return b },
		"truncated":          func(b []byte) []byte { return b[:len(b)-1] },
		"truncated name":     func(b []byte) []byte { return b[:at-20] },
		"no store":           func(b []byte) []byte { b[at] = 0; return b },
		"more in use":        func(b []byte) []byte { b[at+14] = 0xff; return b },
		"less in use":        func(b []byte) []byte { b[at+12]--; return b },
		"a record too long":  func(b []byte) []byte { b[at+16+22] = 1; return b },
		"a name too long":    func(b []byte) []byte { b[at+16+24] = 0xff; return b },
		"a name without end": func(b []byte) []byte { b[at+16+28+4] = 'x'; return b },
	} {
		if vars, err := ReadVMware(damage(bytes.Clone(good))); err == nil {
			t.Errorf("%s: got %d variables, want an error", name, len(vars))
		}
	}
}

// FuzzReadVMware checks that ReadVMware terminates and returns no more bytes than the file has.
func FuzzReadVMware(f *testing.F) {
	f.Add(newNVRAM(4096, newVariable(globalGUID, "Boot0004", 7, decodeHex(f, debianOption)), newVariable(globalGUID, "BootOrder", 7, []byte{4, 0})))
	f.Add([]byte("MRVN\x01\x00\x00\x00" + strings.Repeat("\x00", 12)))
	f.Fuzz(func(t *testing.T, file []byte) {
		vars, err := ReadVMware(file)
		if err != nil {
			return
		}
		size := 0
		for _, v := range vars {
			size += recordHeader + len(v.Data) + 2
		}
		if size > len(file) {
			t.Errorf("%d bytes of variables in a file of %d bytes", size, len(file))
		}
		StateOf(vars)
	})
}
