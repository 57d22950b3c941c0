package hive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/hive/hivetest"
)

func openHive(t testing.TB, data []byte) *Hive {
	t.Helper()
	h, err := Open(budgettest.New(t), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// readValue returns a value of the key at a path.
func readValue(t testing.TB, h *Hive, path, name string) Value {
	t.Helper()
	k, err := h.Key(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := k.Value(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestReadsHiveOfHivex(t *testing.T) {
	long := strings.Repeat("long ", 1500)
	h := openHive(t, hivetest.New(t, `[\Select]
"Current"=dword:00000002
"Big"=hex(b):88,77,66,55,44,33,22,11

[\ControlSet002\Services\viostor]
"Start"=dword:00000000
"ImagePath"=`+hivetest.ExpandText(`System32\drivers\viostor.sys`)+`
"Group"="SCSI miniport"
"Servers"=`+hivetest.MultiText("10.0.0.1", "10.0.0.2")+`
"Long"="`+long+`"
"Short"=hex:01,02
@="the default"
`))
	if h.Dirty() {
		t.Error("Dirty is true, want false")
	}
	if n, ok := readValue(t, h, `select`, "CURRENT").Number(); !ok || n != 2 {
		t.Errorf("current control set %d, %v", n, ok)
	}
	if n, ok := readValue(t, h, `Select`, "Big").Number(); !ok || n != 0x1122334455667788 {
		t.Errorf("long number %x, %v", n, ok)
	}
	const service = `\ControlSet002\services\VIOSTOR`
	for name, want := range map[string]string{
		"ImagePath": `System32\drivers\viostor.sys`, "Group": "SCSI miniport", "Long": long, "": "the default", "Servers": "10.0.0.1", "Start": "",
	} {
		if got := readValue(t, h, service, name).Text(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := readValue(t, h, service, "Servers").Texts(); !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2"}) {
		t.Errorf("texts %q", got)
	}
	if v := readValue(t, h, service, "Short"); v.Type != Binary || !bytes.Equal(v.Data, []byte{1, 2}) {
		t.Errorf("bytes %+v", v)
	}
	for _, path := range []string{`Nothing`, `Select\Current`, `ControlSet002\Services\vio`} {
		if _, err := h.Key(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", path, err, fs.ErrNotExist)
		}
	}
	k, _ := h.Key("Select")
	if _, err := k.Value("Failed"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing value: got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestManyKeys(t *testing.T) {
	var text strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&text, "[\\Services\\driver-%04d]\n\"Start\"=dword:%08x\n\n", i*7%1200, i*7%1200)
	}
	h := openHive(t, hivetest.New(t, text.String()))
	k, err := h.Key("Services")
	if err != nil {
		t.Fatal(err)
	}
	all, err := k.Subkeys()
	if err != nil || len(all) != 1200 {
		t.Fatalf("%d keys, %v", len(all), err)
	}
	pages := int64(len(h.pages.cached) * pageSize)
	if got, want := h.budget.Used().Memory-pages, int64(1200*(keyMemory+len("driver-0000"))); got != want {
		t.Errorf("%d bytes are charged for the keys, want %d", got, want)
	}
	for i, sub := range all {
		if want := fmt.Sprintf("driver-%04d", i); sub.Name != want {
			t.Errorf("key %d is %s, want %s", i, sub.Name, want)
		}
		if n, _ := readValue(t, h, `services\DRIVER-`+sub.Name[7:], "start").Number(); n != uint64(i) {
			t.Errorf("%s: Start is %d, want %d", sub.Name, n, i)
		}
	}
}

// writer appends cells to an empty hive, of the kinds that hivex reads but does not write.
type writer struct {
	data []byte
	next int
}

// addCell writes a cell and returns its offset.
func (w *writer) addCell(content []byte) uint32 {
	size := (len(content) + 4 + 7) &^ 7
	at := w.next
	w.next += size
	binary.LittleEndian.PutUint32(w.data[4096+at:], ^uint32(size)+1)
	copy(w.data[4096+at+4:], content)
	return uint32(at)
}

// newList returns a list: a mark, a count, and 32-bit words.
func newList(mark string, count int, all ...uint32) []byte {
	b := append([]byte(mark), byte(count), byte(count>>8))
	for _, n := range all {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

// newKey returns a key without values.
func newKey(name string) []byte {
	b := make([]byte, 76+len(name))
	copy(b, "nk\x20")
	for _, at := range []int{28, 32, 40, 44, 48} {
		binary.LittleEndian.PutUint32(b[at:], noCell)
	}
	binary.LittleEndian.PutUint32(b[16:], 32) // offset of the root
	binary.LittleEndian.PutUint16(b[72:], uint16(len(name)))
	copy(b[76:], name)
	return b
}

// newWideHive returns a hive whose root has a list of lists of each kind, and a value of many pieces. It also returns
// the value.
func newWideHive() (data, big []byte) {
	const bin = 256 << 10
	w := &writer{data: append(hivetest.Empty()[:4096], make([]byte, bin)...), next: hivetest.End}
	copy(w.data[4096:], hivetest.Empty()[4096:4096+hivetest.End])
	put := binary.LittleEndian.PutUint32
	put(w.data[40:], bin)
	put(w.data[4096+8:], bin)
	a, b, c := w.addCell(newKey("alpha")), w.addCell(newKey("beta")), w.addCell(newKey("gamma"))
	hashOf := func(s string) uint32 { n, _ := hashName(s); return n }
	lists := w.addCell(newList("ri", 3, w.addCell(newList("li", 1, a)), w.addCell(newList("lf", 1, b, binary.LittleEndian.Uint32([]byte("beta")))),
		w.addCell(newList("lh", 1, c, hashOf("gamma")))))
	big = make([]byte, 100000)
	rand.NewChaCha8([32]byte{1}).Read(big)
	var pieces []uint32
	for piece := range slices.Chunk(big, blockData) {
		pieces = append(pieces, w.addCell(append(bytes.Clone(piece), 0, 0, 0, 0)))
	}
	db := newList("db", len(pieces), w.addCell(newList("", 0, pieces...)[2:]))
	vk := append([]byte("vk\x03\x00"), make([]byte, 16)...)
	put(vk[4:], uint32(len(big)))
	put(vk[8:], w.addCell(db))
	put(vk[12:], uint32(Binary))
	vk[16] = latin1Value
	values := w.addCell(binary.LittleEndian.AppendUint32(nil, w.addCell(append(vk, "big"...))))
	root := w.data[4096+36:]
	put(root[20:], 3)
	put(root[28:], lists)
	put(root[36:], 1)
	put(root[40:], values)
	put(w.data[4096+w.next:], uint32(bin-w.next))
	hivetest.Seal(w.data)
	return w.data, big
}

// The hive that the test writes is also checked with hivexml and hivexget.
func TestListsAndValuesOfEveryKind(t *testing.T) {
	data, big := newWideHive()
	path := filepath.Join(t.TempDir(), "hive")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	listing, err := exec.Command("hivexml", path).Output()
	if err != nil {
		t.Fatalf("hivexml: %v", err)
	}
	h := openHive(t, data)
	root, err := h.Key("")
	if err != nil {
		t.Fatal(err)
	}
	all, err := root.Subkeys()
	if err != nil || len(all) != 3 {
		t.Fatalf("%d keys, %v", len(all), err)
	}
	for i, want := range []string{"alpha", "beta", "gamma"} {
		if all[i].Name != want || !strings.Contains(string(listing), `name="`+want+`"`) {
			t.Errorf("key %d is %q, want %q; hivexml: %s", i, all[i].Name, want, listing)
		}
		if _, err := h.Key(strings.ToUpper(want)); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
	if v := readValue(t, h, "", "BIG"); !bytes.Equal(v.Data, big) {
		t.Errorf("value of %d bytes differs, want %d bytes", len(v.Data), len(big))
	}
	got, err := exec.Command("hivexget", path, `\`, "big").Output()
	if err != nil || !bytes.Equal(got, big) {
		t.Errorf("hivexget reads %d bytes, want %d: %v", len(got), len(big), err)
	}
}
