package signature

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// Identify recognizes every image format of qemu-img except raw.
func TestIdentifiesFormatsOfQEMU(t *testing.T) {
	for format, want := range map[string]Format{
		"qcow2": QCOW2, "vmdk": VMDK, "qcow": "qcow (version 1)", "qed": "QED", "vdi": VDI, "vhdx": VHDX, "vpc": VHD, "parallels": "Parallels", "raw": "",
	} {
		path := filepath.Join(t.TempDir(), "x.img")
		if out, err := exec.Command("qemu-img", "create", "-q", "-f", format, path, "8M").CombinedOutput(); err != nil {
			t.Fatalf("qemu-img: %v: %s", err, out)
		}
		head, tail := headAndTail(t, path)
		if got := Identify(head, tail); got != want {
			t.Errorf("%s: %q, want %q", format, got, want)
		}
		err := Refuse(path, head, tail)
		if refused := want != "" && want != VMDK && want != QCOW2; (err != nil) != refused {
			t.Errorf("%s: %v", format, err)
		} else if refused {
			remedy, _, _ := strings.Cut(strings.TrimPrefix(fault.HintOf(err), "convert it first: "), ";")
			cmd := exec.Command("sh", "-c", remedy)
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: the remedy %q: %v: %s", format, remedy, err, out)
			}
		}
	}
}

// A fixed VHD is a raw disk with a footer.
func TestIdentifiesAFixedVHD(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.img")
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "vpc", "-o", "subformat=fixed", path, "8M").CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	if got := Identify(headAndTail(t, path)); got != VHD {
		t.Errorf("got %q, want %q", got, VHD)
	}
}

func FuzzIdentify(f *testing.F) {
	f.Add([]byte("QFI\xfb\x00\x00\x00\x03"), []byte("conectix"))
	f.Add([]byte("# comment\n\nRW 8 FLAT \"x\"\n"), []byte{})
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		format := Identify(head, tail)
		if err := Refuse("x", head, tail); err != nil && (format == "" || format == VMDK || format == QCOW2 || fault.HintOf(err) == "") {
			t.Errorf("%q is refused: %v", format, err)
		}
		if IsDescriptor(head) && format == "" {
			t.Error("IsDescriptor accepts the file, but Identify returns no format")
		}
	})
}

func headAndTail(t *testing.T, path string) (head, tail []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b[:min(len(b), HeadSize)], b[max(0, len(b)-TailSize):]
}
