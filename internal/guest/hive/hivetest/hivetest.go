// Package hivetest makes registry hives for tests: an empty one from the specification, into which
// hivexregedit of the hivex project merges text in the format that Windows' registry editor
// exports.
package hivetest

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Offsets in the cells of an empty hive.
const (
	securityAt = 32 + 96         // offset of the security descriptor, after the root key
	End        = securityAt + 48 // offset of the free space in an empty hive
)

// Empty returns a hive of 8 KiB with a root key that has no subkeys and no values.
func Empty() []byte {
	b := make([]byte, 8192)
	copy(b, "regf")
	put := binary.LittleEndian.PutUint32
	put(b[4:], 1)
	put(b[8:], 1)
	put(b[20:], 1)    // version 1.5
	put(b[24:], 5)    //
	put(b[32:], 1)    // format: memory loaded directly
	put(b[36:], 32)   // the root
	put(b[40:], 4096) // bytes of cells
	put(b[44:], 1)
	cells := b[4096:]
	copy(cells, "hbin")
	put(cells[8:], 4096)
	writeRootKey(cells[32:])
	writeSecurity(cells[securityAt:])
	put(cells[End:], 4096-End) // the rest is free
	Seal(b)
	return b
}

// writeRootKey writes a cell of 96 bytes with a key that has no parent.
func writeRootKey(cell []byte) {
	put := binary.LittleEndian.PutUint32
	put(cell, ^uint32(96)+1) // marks the cell as used
	key := cell[4:]
	copy(key, "nk")
	key[2] = 0x2c // flags: root, not deletable, name in Latin-1
	for _, at := range []int{16, 28, 32, 40, 48} {
		put(key[at:], 0xffffffff)
	}
	put(key[44:], securityAt)
	name := "ROOT"
	binary.LittleEndian.PutUint16(key[72:], uint16(len(name)))
	copy(key[76:], name)
}

// writeSecurity writes a cell of 48 bytes with an empty security descriptor, which each key requires.
func writeSecurity(cell []byte) {
	put := binary.LittleEndian.PutUint32
	put(cell, ^uint32(48)+1)
	copy(cell[4:], "sk")
	put(cell[8:], securityAt) // the next and the previous descriptor: itself
	put(cell[12:], securityAt)
	put(cell[16:], 1)  // reference count
	put(cell[20:], 20) // bytes of the descriptor
	cell[24], cell[27] = 1, 0x80
}

// Seal writes the checksum of a hive's base block, which must be done after each change to it.
func Seal(b []byte) {
	sum := uint32(0)
	for at := 0; at < 508; at += 4 {
		sum ^= binary.LittleEndian.Uint32(b[at:])
	}
	binary.LittleEndian.PutUint32(b[508:], sum)
}

// New returns a hive with the keys of text, in the format of .reg files without their first line.
// Keys start with a backslash, [\Select], and need no lines for their parents.
func New(t testing.TB, text string) []byte {
	t.Helper()
	dir := t.TempDir()
	path, reg := filepath.Join(dir, "hive"), filepath.Join(dir, "reg")
	for name, data := range map[string][]byte{path: Empty(), reg: []byte("Windows Registry Editor Version 5.00\n\n" + withParents(text))} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := exec.LookPath("hivexregedit")
	if err != nil {
		t.Skip("no hivexregedit: run scripts/setup.sh test")
	}
	if out, err := exec.Command(tool, "--merge", "--encoding", "UTF-16LE", path, reg).CombinedOutput(); err != nil {
		t.Fatalf("hivexregedit: %v: %s", err, out)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// withParents inserts lines for parent keys, because hivexregedit requires them before their subkeys.
func withParents(text string) string {
	var out strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), `[\`)
		names := strings.Split(strings.TrimSuffix(path, "]"), `\`)
		for i := 1; ok && i < len(names); i++ {
			if parent := strings.Join(names[:i], `\`); !seen[parent] {
				out.WriteString(`[\` + parent + "]\n\n")
				seen[parent] = true
			}
		}
		seen[strings.TrimSuffix(path, "]")] = true
		out.WriteString(line)
	}
	return out.String()
}

// MultiText formats a value of the type REG_MULTI_SZ for New.
func MultiText(texts ...string) string {
	return "hex(7):" + hexText(strings.Join(texts, "\x00")+"\x00\x00")
}

// ExpandText formats a value of the type REG_EXPAND_SZ for New.
func ExpandText(s string) string { return "hex(2):" + hexText(s+"\x00") }

// hexText formats ASCII text as UTF-16 in hexadecimal.
func hexText(s string) string {
	const digits = "0123456789abcdef"
	pairs := make([]string, 0, 2*len(s))
	for i := range len(s) {
		pairs = append(pairs, string([]byte{digits[s[i]>>4], digits[s[i]&15]}), "00")
	}
	return strings.Join(pairs, ",")
}
