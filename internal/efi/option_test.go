package efi

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

const (
	espGUID = "0d7a2c5e-1f7d-4f5a-9a41-4b8ae11c2f01"

	// What Debian's installer writes: HD(1,GPT,…,0x800,0x8000)/File(\EFI\debian\shimx64.efi), as efibootmgr shows it.
	debianOption = "01000000" + "6200" + "640065006200690061006e000000" +
		"04012a00" + "01000000" + "0008000000000000" + "0080000000000000" + "5e2c7a0d7d1f5a4f9a414b8ae11c2f01" + "0202" +
		"04043400" + "5c004500460049005c00640065006200690061006e005c007300680069006d007800360034002e006500660069000000" +
		"7fff0400"

	// What VMware's firmware makes of its own accord, of an ESXi 7: PciRoot(0)/Pci(15,0)/Pci(0,0)/Scsi(0,0).
	vmwareOption = "010000402400450046004900200056006900720074007500610" +
		"06c0020006400690073006b002000280030002e0030002900000002010c00d041030a0000000001010600001501010600000003020800000000007fff0400"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func debian() Entry {
	return Entry{
		Label: "debian", File: `\EFI\debian\shimx64.efi`, Attributes: Active,
		Partition: Partition{Number: 1, Start: 2048, Size: 32768, GUID: mustGUID(espGUID)},
	}
}

// Bytes that a guest's firmware was given, and the words for them.
func TestOptionOfDebian(t *testing.T) {
	data := unhex(t, debianOption)
	e, err := ParseOption(data)
	if err != nil || !reflect.DeepEqual(e, debian()) {
		t.Errorf("%+v, %v", e, err)
	}
	if again := debian().Option(); !bytes.Equal(again, data) {
		t.Errorf("written: %x", again)
	}
	with := e
	with.Data = []byte("WINDOWS\x00\x01")
	if again, err := ParseOption(with.Option()); err != nil || !reflect.DeepEqual(again, with) {
		t.Errorf("with data: %+v, %v", again, err)
	}
}

// A path over a controller leads to the same partition: firmware finds it on any.
func TestPathOverAController(t *testing.T) {
	path := unhex(t, "02010c00d041030a00000000"+"010106000015"+"0302080000000000")
	short := debian().Option()
	head := 6 + len(text16("debian"))
	data := append(append(bytes.Clone(short[:head]), path...), short[head:]...)
	data[4] += byte(len(path))
	if e, err := ParseOption(data); err != nil || !reflect.DeepEqual(e, debian()) {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestWhatIsNoEntry(t *testing.T) {
	good := debianOption
	for name, data := range map[string]string{
		"VMware's own":        vmwareOption,
		"nothing":             "",
		"no end of the label": good[:20],
		"a path too long":     strings.Replace(good, "6200", "ff7f", 1),
		"a node too long":     strings.Replace(good, "04012a00", "0401ff00", 1),
		"a node of nothing":   strings.Replace(good, "04012a00", "04010000", 1),
		"an MBR's partition":  strings.Replace(good, "2f010202", "2f010101", 1),
		"no end of the path":  good[:len(good)-8] + "04040600" + "4100",
		"a file without disk": "01000000" + "0e00" + "0000" + "04040600" + "4100" + "7fff0400",
		"two paths":           strings.Replace(good, "7fff0400", "7f010400", 1),
	} {
		if e, err := ParseOption(unhex(t, data)); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// FuzzParseOption: what is an entry is written so that it is the same entry.
func FuzzParseOption(f *testing.F) {
	f.Add(unhex(f, debianOption))
	f.Add(unhex(f, vmwareOption))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ParseOption(data)
		if err != nil {
			return
		}
		again, err := ParseOption(e.Option())
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%+v became %+v, %v", e, again, err)
		}
	})
}
