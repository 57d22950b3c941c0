package proxmox

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/targets"
)

func openImage(ctx context.Context, img targets.Image) (disk.Source, error) {
	return image.File{Path: img.Path, Format: img.Format, Size: img.Size}.Read(ctx)
}

func TestLogins(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]string{
		"root@pve1": {"root", "pve1", ""}, "pve1": {"root", "pve1", ""}, "adm@10.0.0.1:2222": {"adm", "10.0.0.1", "2222"},
		"root@[fd00::1]:22": {"root", "fd00::1", "22"},
	} {
		l, err := parseLogin(text)
		if got := [3]string{l.User, l.Host, l.Port}; err != nil || got != want {
			t.Errorf("parseLogin(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"@", "root@", "root@-oProxyCommand=id", "-l@pve1", "root@a b", "root@pve1:ssh", "a@b@c", "ro ot@pve1"} {
		if l, err := parseLogin(text); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("parseLogin(%q) = %+v, %v; want an error with a hint", text, l, err)
		}
	}
}

// A line from a node either has the expected format or becomes a short error with a hint.
func FuzzNode(f *testing.F) {
	f.Add("decamp: ready direct\nz\n")
	f.Add("Welcome!\ndecamp: ready cached\n" + hex.EncodeToString(make([]byte, 32)) + "\n")
	f.Add("decamp: no tool qemu-nbd\n")
	f.Add("decamp: ready direct\ne /dev/x cannot be read at 0\n")
	f.Fuzz(func(t *testing.T, output string) {
		s := &session{Reader: bufio.NewReader(strings.NewReader(output))}
		if err := s.readGreeting("pve1"); err != nil {
			if len(err.Error()) > 3*fault.MaxLine || fault.HintOf(err) == "" {
				t.Errorf("error of %d bytes, hint %q", len(err.Error()), fault.HintOf(err))
			}
			return
		}
		for {
			text, err := s.ReadSlice('\n')
			if err != nil {
				return
			}
			sum, err := parseSum(string(text))
			if err != nil {
				if len(err.Error()) > 8*fault.MaxLine || fault.HintOf(err) == "" {
					t.Errorf("error of %d bytes, hint %q", len(err.Error()), fault.HintOf(err))
				}
				continue
			}
			if line := string(text); line != "z\n" && !strings.EqualFold(line, hex.EncodeToString(sum[:])+"\n") {
				t.Errorf("line %q is parsed as sum %x", line, sum)
			}
		}
	})
}

// sumOfBytes returns a special sum for zeros and the SHA-256 for other data.
func TestSumOfBytes(t *testing.T) {
	t.Parallel()
	p := make([]byte, 4096)
	if sumOfBytes(p) != zeros {
		t.Error("zeros do not have the sum of zeros")
	}
	p[4095] = 1
	if sumOfBytes(p) != sha256.Sum256(p) {
		t.Error("the sum is not the SHA-256")
	}
}
