package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab/executable"
	"github.com/decamp/decamp/internal/lab/pve"
)

// useNodeSSH makes decamp use an ssh command that logs in at the node with its key. It returns the SSH server of the
// node and the parameters for --to.
func (r *rig) useNodeSSH(node *pve.Server) (d *pve.SSH, more string) {
	r.t.Helper()
	d, err := node.StartSSH()
	must(r.t, err)
	real, err := exec.LookPath("ssh")
	must(r.t, err)
	folder := filepath.Join(r.dir, "bin")
	must(r.t, os.Mkdir(folder, 0o755))
	script := fmt.Sprintf("#!/bin/sh\nexec %s -F none -i '%s' -o IdentitiesOnly=yes -o 'UserKnownHostsFile=\"%s\"' \"$@\"\n", real, d.Key, d.KnownHosts)
	executable.Write(r.t, filepath.Join(folder, "ssh"), script)
	r.env = append(r.env, "PATH="+folder+":"+os.Getenv("PATH"))
	return d, "&ssh=root@" + d.Addr
}

// waitRoundsSince waits for n rounds that ended after moment. Earlier events may still be unread.
func (u *migration) waitRoundsSince(moment time.Time, n int) {
	u.t.Helper()
	for n > 0 {
		if u.untilEvent(journal.RoundDone, "round").Time.After(moment) {
			n--
		}
	}
}

// A warm migration sends its volumes to the node before the outage. The outage sends only the last writes of the guest.
func TestOutageSendsTheDelta(t *testing.T) {
	t.Parallel()
	cfg := writingLab()
	cfg.VMs[0].Disks = mostlyUnchangedDisks() // much more than the outage changes
	cfg.VMs[0].Guest.Writes.Rate, cfg.VMs[0].Guest.Writes.AtStop = 0, 3
	r := newRig(t, cfg).withFingerprint()
	node, to := r.startProxmox()
	d, more := r.useNodeSSH(node)
	u := r.startMigrationTo(to+more, "web01", "--staging", r.vmsDir(), "--warm", "--interval", "300ms", "--transport", "nfc")
	u.waitRounds(2) // the data of the first round is on the node
	first := d.Sent()
	must(t, r.lab.GuestWrites("web01", 10))
	u.waitRoundsSince(time.Now(), 3) // the first may have begun before; the data of the second is there when the third ends
	early := d.Sent()
	r.run("cutover", r.onlyRun()).wantExit(0)
	u.waitSuccess()
	if last := d.Sent() - early; first < 20<<20 || last < 1<<20 || last > 7<<20 { // 3 writes change 6 MiB at most
		t.Errorf("sent %d, %d and, in the outage, %d bytes", first, early-first, last)
	}
	r.checkRestored(inventory.PoweredOff)
	for i, option := range []string{"scsi0", "scsi1"} {
		held, err := node.Read(t.Context(), node.Guest(100)[option])
		must(t, err)
		size := cfg.VMs[0].Disks[i].Capacity
		if tail := held[size:]; !bytes.Equal(tail, make([]byte, len(tail))) {
			t.Errorf("%s: the bytes after the end of the disk are not zero", option)
		}
		r.compareImage(r.writeFile(option, string(held[:size])), "web01", i)
	}
}
