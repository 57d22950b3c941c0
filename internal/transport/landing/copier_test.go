package landing_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/transport/landing"
)

// shells logs in to the rig's host by SSH.
func (r *rig) shells() landing.Shells {
	key, err := shell.FingerprintOf([]byte(r.lab.SSHHostKey("")))
	r.must(err)
	s, err := shell.Dial(r.Context(), shell.Config{
		Addr: r.lab.SSHAddr(""), User: "root", HostKey: key.Fingerprint, Poll: 5 * time.Millisecond,
		Password: func(context.Context) (esx.Secret, error) { return esx.Secret(r.lab.Password()), nil },
	})
	r.must(err)
	r.Cleanup(func() { r.check(s.Close()) })
	return func(context.Context, inventory.MoRef) (*shell.Shell, error) { return s, nil }
}

// bySSH is a landing that asks by SSH where the API may not, and records what it begins.
func (r *rig) bySSH(chosen func(inventory.MoRef, error), copies int64) *landing.Transport {
	open := r.shells()
	choice := &landing.Choice{
		API: landing.API{Host: r.session}, Chosen: chosen,
		SSH: &landing.SSH{Open: open, Copies: copies, Leftovers: r.leftovers(), Server: r.lab.Addr()},
	}
	t := landing.New(landing.WithShell{Host: r.session, Open: open, Refused: choice.Refused}, landing.Options{
		Dir: r.dir, Ports: r.ports, Memory: 64 << 20, Leftovers: r.leftovers(), Server: r.lab.Addr(), After: soon,
		Copier: choice,
	})
	r.Cleanup(func() { r.check(t.Close()) })
	return t
}

// sshRig is a rig with a free licence, so that all is done by SSH, and memory on the host
// for so many copies.
func sshRig(t *testing.T, room int, disks ...lab.Disk) *rig {
	t.Helper()
	return newRigOf(t, lab.Config{
		ReadOnlyLicence: true, SSH: lab.SSH{Enabled: true, MaxClones: room}, VMs: []lab.VM{{Name: "web 01", Disks: disks}},
	})
}

// A host has memory for few copies: the others wait, and none is killed for it.
func TestCopiesBySSHWaitForEachOther(t *testing.T) {
	const room = 2
	var disks []lab.Disk
	for i := range 5 {
		disks = append(disks, lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: uint64(i + 1)})
	}
	r := sshRig(t, room, disks...)
	told := 0
	tr := r.bySSH(func(_ inventory.MoRef, why error) {
		told++
		if !esx.Forbidden(why) {
			t.Errorf("by SSH because of %v", why)
		}
	}, 0)
	var landing sync.WaitGroup
	files, errs := make([]image.File, len(disks)), make([]error, len(disks))
	for i := range disks {
		landing.Go(func() { files[i], errs[i] = r.land(tr, i, image.Raw) })
	}
	landing.Wait()
	for i := range disks {
		r.must(errs[i])
		r.same(files[i], i)
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	r.must(tr.Close())
	if list, err := r.leftovers().List(); err != nil || len(list) > 0 {
		t.Errorf("on record: %v, %v", list, err)
	}
}

// With more at once than the host has memory for, those that are killed may be tried again.
func TestCopyThatIsKilledIsTransient(t *testing.T) {
	r := sshRig(t, 1, lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: 1}, lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: 2})
	r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneStall, At: 2 << 20})
	tr := r.bySSH(nil, 2)
	ended := make(chan error, 2)
	for i := range 2 {
		go func() { _, err := r.land(tr, i, image.Raw); ended <- err }()
	}
	if err := <-ended; !fault.Is(err, fault.Transient) {
		t.Errorf("the one that found no room: %v", err)
	}
	r.lab.Faults().Clear()
	r.must(<-ended)
	list, err := r.leftovers().List()
	r.must(err)
	for _, rec := range list {
		if rec.Kind == "shell-job" {
			t.Errorf("on record: %+v", rec)
		}
	}
}

// calls is a Copier that counts its calls and always returns err.
type calls struct {
	n   int
	err error
}

func (c *calls) CopyDisk(context.Context, inventory.MoRef, esx.DiskCopy, func()) error {
	c.n++
	return c.err
}

// Disks without a flat file are copied by SSH, also on a host whose API copies other disks.
func TestDisksWithoutAFileAreCopiedBySSH(t *testing.T) {
	api, ssh := &calls{}, &calls{}
	choice := &landing.Choice{API: api, SSH: ssh, Chosen: func(inventory.MoRef, error) { t.Error("the API refused nothing") }}
	for i, want := range []struct{ api, ssh int }{{0, 1}, {1, 1}} {
		if err := choice.CopyDisk(t.Context(), "host-1", esx.DiskCopy{Object: i == 0}, func() {}); err != nil {
			t.Error(err)
		}
		if api.n != want.api || ssh.n != want.ssh {
			t.Errorf("copy %d: %d by the API, %d by SSH, want %+v", i, api.n, ssh.n, want)
		}
	}
}
