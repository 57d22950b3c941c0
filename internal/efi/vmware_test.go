package efi

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

// section is one of a .nvram file.
func section(name string, data []byte) []byte {
	b := append([]byte(name), make([]byte, 8-len(name))...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(data))), data...)
}

// record is a variable in it.
func record(vendor, name string, attributes uint32, data []byte) []byte {
	g, text := mustGUID(vendor), text16(name)
	b := binary.LittleEndian.AppendUint32(g[:], attributes)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)+len(data)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	return append(append(b, text...), data...)
}

// nvram is a file with the sections that ESXi 7 has in one of EFI, in its order.
func nvram(room int, records ...[]byte) []byte {
	store := append([]byte("VMWNVRAM\x00\x00\x00\x00\x00\x00\x00\x00"), bytes.Join(records, nil)...)
	binary.LittleEndian.PutUint32(store[12:], uint32(len(store)))
	store = append(store, bytes.Repeat([]byte{0xff}, room-len(store))...)
	file := []byte("MRVN\x01\x00\x00\x00")
	for _, s := range [][]byte{
		section("CMOStimA", make([]byte, 4)), section("CMOStimB", make([]byte, 8)), section("CMOS", make([]byte, 128)),
		section("CMOS440", make([]byte, 128)), section("CMOS440v", make([]byte, 4)), section("CMOS440x", make([]byte, 128)),
		section("ESCD", make([]byte, 8192)), section("EFI_NV", store),
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

// moved is the file of a Debian whose owner has a key of his own.
func moved(t testing.TB) []byte {
	return nvram(esxiRoom,
		record(globalGUID, "PK", 0x27, append(make([]byte, 40), "authenticated"...)),
		record(globalGUID, "Lang", 7, []byte("eng\x00")),
		record(globalGUID, "Boot0000", 7, unhex(t, vmwareOption)),
		record(globalGUID, "BootOrder", 7, []byte{0, 0}),
		record(globalGUID, "Boot0004", 7, unhex(t, debianOption)),
		record(shimGUID, "MokList", 3, []byte("a key")),
		record(shimGUID, "SbatLevel", 3, []byte("sbat,1")),
		record(globalGUID, "BootOrder", 7, []byte{4, 0, 0, 0, 9, 0, 4, 0}),
	)
}

func TestStateInVMwaresFile(t *testing.T) {
	file := moved(t)
	if len(file) != 270840 { // the very size of an ESXi 7's
		t.Errorf("%d bytes", len(file))
	}
	vars, err := ReadVMware(file)
	if err != nil || len(vars) != 7 || vars[1].Name != "Lang" || string(vars[1].Data) != "eng\x00" || vars[1].Vendor != Global || vars[1].Attributes != 7 {
		t.Fatalf("%+v, %v", vars, err)
	}
	s, foreign := StateOf(vars)
	want := debian()
	want.Number = 4
	if len(s.Entries) != 1 || !reflect.DeepEqual(s.Entries[0], want) || foreign != 1 {
		t.Errorf("entries %+v, %d foreign", s.Entries, foreign)
	}
	if len(s.Keys) != 1 || s.Keys[0].Name != "MokList" || s.Keys[0].Vendor.String() != shimGUID {
		t.Errorf("keys %+v", s.Keys)
	}
}

// A VM of a BIOS has no variables; what is cut off or contradicts itself is an error.
func TestVMwaresFilesThatHaveNone(t *testing.T) {
	bios := []byte("MRVN\x01\x00\x00\x00" + string(section("CMOS", make([]byte, 128))))
	if vars, err := ReadVMware(bios); err != nil || len(vars) > 0 {
		t.Errorf("a BIOS: %+v, %v", vars, err)
	}
	good := moved(t)
	at := bytes.Index(good, []byte("VMWNVRAM"))
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":              func([]byte) []byte { return nil },
		"another magic":      func(b []byte) []byte { b[0] = 'X'; return b },
		"another version":    func(b []byte) []byte { b[4] = 2; return b },
		"cut off":            func(b []byte) []byte { return b[:len(b)-1] },
		"cut off in a name":  func(b []byte) []byte { return b[:at-20] },
		"no store":           func(b []byte) []byte { b[at] = 0; return b },
		"more in use":        func(b []byte) []byte { b[at+14] = 0xff; return b },
		"less in use":        func(b []byte) []byte { b[at+12]--; return b },
		"a record too long":  func(b []byte) []byte { b[at+16+22] = 1; return b },
		"a name too long":    func(b []byte) []byte { b[at+16+24] = 0xff; return b },
		"a name without end": func(b []byte) []byte { b[at+16+28+4] = 'x'; return b },
	} {
		if vars, err := ReadVMware(damage(bytes.Clone(good))); err == nil {
			t.Errorf("%s: %d variables", name, len(vars))
		}
	}
}

// FuzzReadVMware must end, and take no more out of a file than is in it.
func FuzzReadVMware(f *testing.F) {
	f.Add(nvram(4096, record(globalGUID, "Boot0004", 7, unhex(f, debianOption)), record(globalGUID, "BootOrder", 7, []byte{4, 0})))
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
			t.Errorf("%d bytes of variables in %d", size, len(file))
		}
		StateOf(vars)
	})
}
