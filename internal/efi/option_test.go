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

	// debianOption is the entry of the Debian installer. efibootmgr prints it as
	// HD(1,GPT,…,0x800,0x8000)/File(\EFI\debian\shimx64.efi).
	debianOption = "01000000" + "6200" + "640065006200690061006e000000" +
		"04012a00" + "01000000" + "0008000000000000" + "0080000000000000" + "5e2c7a0d7d1f5a4f9a414b8ae11c2f01" + "0202" +
		"04043400" + "5c004500460049005c00640065006200690061006e005c007300680069006d007800360034002e006500660069000000" +
		"7fff0400"

	// vmwareOption is an automatic entry of the VMware firmware on ESXi 7: PciRoot(0)/Pci(15,0)/Pci(0,0)/Scsi(0,0).
	vmwareOption = "010000402400450046004900200056006900720074007500610" +
		"06c0020006400690073006b002000280030002e0030002900000002010c00d041030a0000000001010600001501010600000003020800000000007fff0400"
)

func decodeHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func debianEntry() Entry {
	return Entry{
		Label: "debian", File: `\EFI\debian\shimx64.efi`, Attributes: Active,
		Partition: Partition{Number: 1, Start: 2048, Size: 32768, GUID: mustGUID(espGUID)},
	}
}

// An entry of Debian is parsed and written back unchanged, and optional data survives a round trip.
func TestOptionOfDebian(t *testing.T) {
	data := decodeHex(t, debianOption)
	e, err := ParseOption(data)
	if err != nil || !reflect.DeepEqual(e, debianEntry()) {
		t.Errorf("got %+v, want %+v, error %v", e, debianEntry(), err)
	}
	if again := debianEntry().Option(); !bytes.Equal(again, data) {
		t.Errorf("Option returns %x, want %x", again, data)
	}
	withData := e
	withData.Data = []byte("WINDOWS\x00\x01")
	if again, err := ParseOption(withData.Option()); err != nil || !reflect.DeepEqual(again, withData) {
		t.Errorf("with data: %+v, %v", again, err)
	}
}

// A device path that includes the controller results in the same entry: only the partition matters.
func TestDevicePathWithController(t *testing.T) {
	path := decodeHex(t, "02010c00d041030a00000000"+"010106000015"+"0302080000000000")
	short := debianEntry().Option()
	head := 6 + len(text16("debian"))
	data := append(append(bytes.Clone(short[:head]), path...), short[head:]...)
	data[4] += byte(len(path))
	if e, err := ParseOption(data); err != nil || !reflect.DeepEqual(e, debianEntry()) {
		t.Errorf("got %+v, want %+v, error %v", e, debianEntry(), err)
	}
}

func TestInvalidBootEntriesAreRefused(t *testing.T) {
	good := debianOption
	for name, data := range map[string]string{
		"entry of VMware":     vmwareOption,
		"empty":               "",
		"no end of the label": good[:20],
		"a path too long":     strings.Replace(good, "6200", "ff7f", 1),
		"a node too long":     strings.Replace(good, "04012a00", "0401ff00", 1),
		"an empty node":       strings.Replace(good, "04012a00", "04010000", 1),
		"an MBR partition":    strings.Replace(good, "2f010202", "2f010101", 1),
		"no end of the path":  good[:len(good)-8] + "04040600" + "4100",
		"a file without disk": "01000000" + "0e00" + "0000" + "04040600" + "4100" + "7fff0400",
		"two paths":           strings.Replace(good, "7fff0400", "7f010400", 1),
	} {
		if e, err := ParseOption(decodeHex(t, data)); err == nil {
			t.Errorf("%s: got entry %+v, want an error", name, e)
		}
	}
}

// FuzzParseOption writes each parsed entry and parses it again. Both entries are equal.
func FuzzParseOption(f *testing.F) {
	f.Add(decodeHex(f, debianOption))
	f.Add(decodeHex(f, vmwareOption))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ParseOption(data)
		if err != nil {
			return
		}
		again, err := ParseOption(e.Option())
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("got %+v, want %+v, error %v", again, e, err)
		}
	})
}
