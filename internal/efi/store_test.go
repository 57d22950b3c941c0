package efi

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

const ovmf = "/usr/share/OVMF/"

// templates are the variable templates of Debian: of 2 and 4 MiB, without and with the keys of Microsoft.
var templates = []string{"OVMF_VARS_4M.fd", "OVMF_VARS_4M.ms.fd", "OVMF_VARS.fd", "OVMF_VARS.ms.fd"}

func readTemplate(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(ovmf + name)
	if err != nil {
		t.Skipf("%v; scripts/setup.sh installs it", err)
	}
	return data
}

func openStore(t testing.TB, data []byte) *Store {
	t.Helper()
	s, err := OpenStore(data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testState() State {
	second := debianEntry()
	second.Number, second.Label, second.File, second.Data = 7, "Windows Boot Manager", `\EFI\Microsoft\Boot\bootmgfw.efi`, []byte("WINDOWS\x00")
	return State{Entries: []Entry{debianEntry(), second}, Keys: []Variable{{"MokList", Shim, 3, moklist()}}}
}

// moklist returns an EFI_SIGNATURE_LIST with the SHA-256 of one program.
func moklist() []byte {
	kind := mustGUID("c1c41626-504c-4092-aca9-41f936934328")
	return append(append(kind[:], 76, 0, 0, 0, 0, 0, 0, 0, 48, 0, 0, 0), make([]byte, 48)...)
}

// Add changes nothing in a template except the added variables. The templates with keys already have three boot
// entries without a boot order.
func TestStateInTemplates(t *testing.T) {
	for _, name := range templates {
		before := readTemplate(t, name)
		s := openStore(t, bytes.Clone(before))
		had, hadFree := s.Variables(), s.free
		if err := s.Add(testState()); err != nil {
			t.Fatal(err)
		}
		after := openStore(t, bytes.Clone(s.Bytes()))
		if !reflect.DeepEqual(after.Variables(), s.Variables()) {
			t.Errorf("%s: the variables differ after opening the store again", name)
		}
		want := testState()
		if strings.Contains(name, ".ms.") {
			want.Entries[0].Number = 3
		}
		if got, n := StateOf(after.Variables()); n != 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v and %d foreign entries, want %+v", name, got, n, want)
		}
		for _, v := range had {
			if !slices.ContainsFunc(after.Variables(), func(w Variable) bool { return reflect.DeepEqual(v, w) }) {
				t.Errorf("%s: variable %s is missing", name, v.Name)
			}
		}
		if len(s.Bytes()) != len(before) || !bytes.Equal(before[:hadFree], s.Bytes()[:hadFree]) || !bytes.Equal(before[s.free:], s.Bytes()[s.free:]) {
			t.Errorf("%s: bytes outside of the added records have changed", name)
		}
	}
}

// The entries of a second Add get free numbers and come first in the boot order. BootOrder is replaced.
func TestBootEntriesAddedTwice(t *testing.T) {
	s := openStore(t, readTemplate(t, templates[0]))
	for range 2 {
		if err := s.Add(testState()); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := StateOf(openStore(t, s.Bytes()).Variables())
	var numbers []uint16
	for _, e := range got.Entries {
		numbers = append(numbers, e.Number)
	}
	if !slices.Equal(numbers, []uint16{1, 8, 0, 7}) {
		t.Errorf("order %v", numbers)
	}
	if n := bytes.Count(s.Bytes(), text16("BootOrder")); n != 2 {
		t.Errorf("%d records of BootOrder, want 2, one of them deleted", n)
	}
}

// The store can be filled to its last byte. A larger variable is refused and changes nothing.
func TestFullVariableStoreRefusesVariable(t *testing.T) {
	s := openStore(t, readTemplate(t, "OVMF_VARS.fd"))
	filler := Variable{Vendor: Shim, Attributes: NonVolatile, Data: bytes.Repeat([]byte{1}, 4096)}
	for i := range 1000 {
		filler.Name = string(rune('a'+i%26)) + string(rune('a'+i/26))
		before := bytes.Clone(s.Bytes())
		err := s.Set(filler)
		if err == nil {
			continue
		}
		if !fault.Is(err, fault.Full) || !bytes.Equal(before, s.Bytes()) {
			t.Errorf("got %v, want a full error and an unchanged store", err)
		}
		filler.Data = filler.Data[:s.end-s.free-variableHeader-len(text16(filler.Name))]
		if err := s.Set(filler); err != nil || s.free != s.end {
			t.Errorf("last variable: %v, %d bytes free, want 0", err, s.end-s.free)
		}
		openStore(t, s.Bytes())
		return
	}
	t.Error("the store is not full after 1000 variables")
}

func TestInvalidVariableStoresAreRefused(t *testing.T) {
	good := readTemplate(t, templates[0])
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":                func([]byte) []byte { return nil },
		"zeros":                func(b []byte) []byte { return make([]byte, len(b)) },
		"header checksum":      func(b []byte) []byte { b[50]++; return b },
		"truncated":            func(b []byte) []byte { return b[:len(b)/2] },
		"another store":        func(b []byte) []byte { b[72]++; return b },
		"another state":        func(b []byte) []byte { b[72+21] = 0; return b },
		"a larger store":       func(b []byte) []byte { b[72+18] = 0xff; return b },
		"space not erased":     func(b []byte) []byte { b[72+28+5000] = 0; return b },
		"a variable too large": func(b []byte) []byte { copy(b[100:], "\xaa\x55\x3f"); return b },
	} {
		if _, err := OpenStore(damage(bytes.Clone(good))); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: got %v, want a corrupt error", name, err)
		}
	}
	if err := openStore(t, good).Set(Variable{Name: "db", Vendor: Global, Attributes: 0x27}); !fault.Is(err, fault.Internal) {
		t.Errorf("an authenticated variable: got %v, want an internal error", err)
	}
}

// virt-fw-vars reads the added variables and the existing keys.
func TestVirtFirmwareReadsWrittenStore(t *testing.T) {
	program, err := filepath.Abs("../../build/virt-firmware/bin/virt-fw-vars")
	if _, err2 := os.Stat(program); err != nil || err2 != nil {
		t.Skip("no virt-fw-vars; scripts/setup.sh test installs it")
	}
	for _, name := range templates {
		read := func(data []byte) map[string]string {
			dir := t.TempDir()
			file, out := filepath.Join(dir, "vars.fd"), filepath.Join(dir, "vars.json")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if text, err := exec.CommandContext(t.Context(), program, "-i", file, "--output-json", out).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			var seen struct {
				Variables []struct{ Name, GUID, Data string }
			}
			text, err := os.ReadFile(out)
			if err == nil {
				err = json.Unmarshal(text, &seen)
			}
			if err != nil {
				t.Fatal(err)
			}
			vars := map[string]string{}
			for _, v := range seen.Variables {
				vars[v.Name] = v.GUID + " " + v.Data
			}
			return vars
		}
		want := read(readTemplate(t, name))
		s := openStore(t, readTemplate(t, name))
		if err := s.Add(testState()); err != nil {
			t.Fatal(err)
		}
		first, order := "Boot0000", " 00000700"
		if want[first] != "" {
			first, order = "Boot0003", " 03000700"
		}
		want[first], want["BootOrder"] = globalGUID+" "+debianOption, globalGUID+order
		want["MokList"] = shimGUID + " " + hex.EncodeToString(moklist())
		got := read(s.Bytes())
		if !strings.HasPrefix(got["Boot0007"], globalGUID) {
			t.Errorf("%s: Boot0007 is %q", name, got["Boot0007"])
		}
		delete(got, "Boot0007")
		if !reflect.DeepEqual(got, want) {
			for _, v := range slices.Sorted(maps.Keys(want)) {
				if got[v] != want[v] {
					t.Errorf("%s: %s is %.200q, want %.200q", name, v, got[v], want[v])
				}
			}
			t.Errorf("%s: %d variables, want %d", name, len(got), len(want))
		}
	}
}

// FuzzOpenStore adds a variable to each store that opens. The store opens again and keeps the other variables.
func FuzzOpenStore(f *testing.F) {
	small := func(piece []byte, at int) []byte { // a store of 1 KiB
		b := bytes.Repeat([]byte{erased}, 1024)
		clear(b[:volumeHeader])
		copy(b[16:], volumeOfVariables[:])
		copy(b[32:], []byte{0, 4, 0, 0, 0, 0, 0, 0, '_', 'F', 'V', 'H', 0, 0, 0, 0, volumeHeader, 0})
		copy(b[volumeHeader:], storeOfVariables[:])
		copy(b[volumeHeader+16:], []byte{0x84, 3, 0, 0, formatted, healthy, 0, 0, 0, 0, 0, 0})
		if at >= volumeHeader && at < len(b) {
			copy(b[at:], piece)
		}
		var sum uint16
		for i := 0; i < volumeHeader; i += 2 {
			sum += uint16(b[i]) | uint16(b[i+1])<<8
		}
		b[50], b[51] = byte(-sum), byte(-sum>>8)
		return b
	}
	f.Add(newRecord(Variable{"Lang", Global, 7, []byte("eng\x00")}), volumeHeader+variableStore)
	f.Add([]byte{0xaa, 0x55, 0x3f}, volumeHeader+variableStore)
	f.Fuzz(func(t *testing.T, piece []byte, at int) {
		s, err := OpenStore(small(piece, at))
		if err != nil {
			return
		}
		before := s.Variables()
		add := Variable{"decamp", Shim, NonVolatile, []byte("x")}
		if err := s.Set(add); err != nil {
			return
		}
		again, err := OpenStore(s.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		want := append(slices.DeleteFunc(before, func(v Variable) bool { return v.Name == add.Name && v.Vendor == add.Vendor }), add)
		if got := again.Variables(); len(got) != len(want) || !reflect.DeepEqual(got[len(got)-1], add) {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}
