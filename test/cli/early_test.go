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

// logsInto makes decamp use an ssh that logs in at the node with its key. It returns the parameters for --to.
func (r *rig) logsInto(node *pve.Server) (d *pve.SSH, more string) {
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

// roundsSince waits for n rounds that ended after a moment. Earlier events may still be unread.
func (u *under) roundsSince(moment time.Time, n int) {
	u.t.Helper()
	for n > 0 {
		if u.untilEvent(journal.RoundDone, "round").Time.After(moment) {
			n--
		}
	}
}

// A warm migration has its volumes on the node before the outage, which sends what the guest wrote last.
func TestOutageSendsTheDelta(t *testing.T) {
	t.Parallel()
	cfg := writing()
	cfg.VMs[0].Disks = manyBytes() // much more than the outage changes
	cfg.VMs[0].Guest.Writes.Rate, cfg.VMs[0].Guest.Writes.AtStop = 0, 3
	r := newRig(t, cfg).trusting()
	node, to := r.proxmox()
	d, more := r.logsInto(node)
	u := r.beginTo(to+more, "web01", "--staging", r.vms(), "--warm", "--interval", "300ms", "--transport", "nfc")
	u.rounds(2) // what the first brought is on the node
	first := d.Sent()
	must(t, r.lab.GuestWrites("web01", 10))
	u.roundsSince(time.Now(), 3) // the first may have begun before, and what the second brings is there once the third ends
	early := d.Sent()
	r.run("cutover", r.onlyRun()).ends(0)
	u.succeeds()
	if last := d.Sent() - early; first < 20<<20 || last < 1<<20 || last > 7<<20 { // 3 writes change 6 MiB at most
		t.Errorf("sent %d, %d and, in the outage, %d bytes", first, early-first, last)
	}
	r.asFound(inventory.PoweredOff)
	for i, option := range []string{"scsi0", "scsi1"} {
		held, err := node.Read(t.Context(), node.Guest(100)[option])
		must(t, err)
		size := cfg.VMs[0].Disks[i].Capacity
		if tail := held[size:]; !bytes.Equal(tail, make([]byte, len(tail))) {
			t.Errorf("what %s is larger than the disk is not zeros", option)
		}
		r.sameAsSource(r.write(option, string(held[:size])), "web01", i)
	}
}
