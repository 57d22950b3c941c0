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

func open(ctx context.Context, img targets.Image) (disk.Source, error) {
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
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"@", "root@", "root@-oProxyCommand=id", "-l@pve1", "root@a b", "root@pve1:ssh", "a@b@c", "ro ot@pve1"} {
		if l, err := parseLogin(text); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("%q is %+v, %v", text, l, err)
		}
	}
}

// What a node says is either what is expected, or an error of some lines.
func FuzzNode(f *testing.F) {
	f.Add("decamp: ready direct\nz\n")
	f.Add("Welcome!\ndecamp: ready cached\n" + hex.EncodeToString(make([]byte, 32)) + "\n")
	f.Add("decamp: no tool qemu-nbd\n")
	f.Add("decamp: ready direct\ne /dev/x cannot be read at 0\n")
	f.Fuzz(func(t *testing.T, said string) {
		s := &session{Reader: bufio.NewReader(strings.NewReader(said))}
		if err := s.readGreeting("pve1"); err != nil {
			if len(err.Error()) > 3*fault.MaxLine || fault.HintOf(err) == "" {
				t.Errorf("%d bytes of error, remedy %q", len(err.Error()), fault.HintOf(err))
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
					t.Errorf("%d bytes of error, remedy %q", len(err.Error()), fault.HintOf(err))
				}
				continue
			}
			if line := string(text); line != "z\n" && !strings.EqualFold(line, hex.EncodeToString(sum[:])+"\n") {
				t.Errorf("%q is the sum %x", line, sum)
			}
		}
	})
}

// Sums are the node's own, and zeros are told from all else.
func TestSumOfBytes(t *testing.T) {
	t.Parallel()
	p := make([]byte, 4096)
	if sumOfBytes(p) != zeros {
		t.Error("zeros are not zeros")
	}
	p[4095] = 1
	if sumOfBytes(p) != sha256.Sum256(p) {
		t.Error("not the SHA-256")
	}
}
