package cli

import (
	"net"
	"os"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/loopback"
)

// With --source-hash, the hash that the host computes matches the hash of the copy.
func TestSourceHashMatchesCopy(t *testing.T) {
	t.Parallel()
	for _, has := range []bool{true, false} { // the host has sha256sum, or only openssl
		cfg := freeLicence(smallLab())
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
		r.migrateByLanding("--source-hash", "--json").wantExit(0).decodeLast(&out)
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

// --source-hash finds a bit that flips outside of TLS. The VM is not published.
func TestSourceHashFindsWrongData(t *testing.T) {
	t.Parallel()
	cfg := smallLab()
	cfg.SSH.Enabled, cfg.SSH.Addr = true, loopback.Reserve(t)
	cfg.Faults = []lab.Fault{{Kind: lab.FaultFlip, At: 5000, Path: "-flat.vmdk"}}
	r := newRig(t, cfg).withFingerprint()
	_, port, err := net.SplitHostPort(cfg.SSH.Addr)
	must(t, err)
	r.migrate("web01", "--source-hash", "--spot", "0", "--ssh-port", port).wantExit(8).wantOutput("the image differs from the source", "nothing was published")
	if _, err := os.Stat(r.vmsDir() + "/web01"); err == nil {
		t.Error("the VM is published")
	}
}

func TestSourceHashNeedsSSH(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	r.migrate("web01", "--source-hash").wantExit(4).wantOutput("SSH is required", "--enable-ssh")
}
