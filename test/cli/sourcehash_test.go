package cli

import (
	"net"
	"os"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
)

// The hash that the host computes matches the copy of every transport.
func TestSourceHashProvesTheCopy(t *testing.T) {
	t.Parallel()
	for _, has := range []bool{true, false} { // by sha256sum, and by openssl
		cfg := free(small())
		cfg.SSH.SHA256Sum = has
		r := newSSHRig(t, cfg)
		var out struct {
			Facts struct {
				Verified []struct {
					SHA256 string
					Source *struct{ Algorithm, Hex, By string }
				}
			}
		}
		r.land("--source-hash", "--json").ends(0).last(&out)
		if len(out.Facts.Verified) != 2 {
			t.Fatalf("%+v", out)
		}
		for _, v := range out.Facts.Verified {
			if v.Source == nil || v.Source.Algorithm != "sha256" || v.Source.Hex != v.SHA256 || v.Source.By == "" {
				t.Errorf("%+v", v)
			}
		}
	}
}

// A bit that flips where TLS does not see it is found by the host's hash, and by nothing
// that was published.
func TestSourceHashFindsWhatCameInWrong(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.SSH.Enabled, cfg.SSH.Addr = true, loopback.Reserve(t)
	cfg.Faults = []lab.Fault{{Kind: lab.FaultFlip, At: 5000, Path: "-flat.vmdk"}}
	r := newRig(t, cfg).trusting()
	_, port, err := net.SplitHostPort(cfg.SSH.Addr)
	must(t, err)
	r.migrate("web01", "--source-hash", "--spot", "0", "--ssh-port", port).ends(8).says("the image differs from the source", "nothing was published")
	if _, err := os.Stat(r.vms() + "/web01"); err == nil {
		t.Error("it was published")
	}
}

func TestSourceHashNeedsSSH(t *testing.T) {
	t.Parallel()
	r := newRig(t, small()).trusting()
	r.migrate("web01", "--source-hash").ends(4).says("SSH is required", "--enable-ssh")
}
