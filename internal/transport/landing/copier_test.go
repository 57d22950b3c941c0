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

// openShells logs in to the rig's host by SSH.
func (r *rig) openShells() landing.Shells {
	key, err := shell.FingerprintOf([]byte(r.lab.SSHHostKey("")))
	r.must(err)
	s, err := shell.Dial(r.Context(), shell.Config{
		Addr: r.lab.SSHAddr(""), User: "root", HostKey: key.Fingerprint, Poll: 5 * time.Millisecond,
		Password: func(context.Context) (esx.Secret, error) { return esx.Secret(r.lab.Password()), nil },
	})
	r.must(err)
	r.Cleanup(func() { r.checkError(s.Close()) })
	return func(context.Context, inventory.MoRef) (*shell.Shell, error) { return s, nil }
}

// newSSHLanding returns a landing that copies by SSH if the API refuses, and records its jobs.
func (r *rig) newSSHLanding(onSSH func(inventory.MoRef, error), copies int64) *landing.Transport {
	open := r.openShells()
	choice := &landing.Choice{
		API: landing.API{Host: r.session}, Chosen: onSSH,
		SSH: &landing.SSH{Open: open, Copies: copies, Leftovers: r.leftovers(), Server: r.lab.Addr()},
	}
	t := landing.New(landing.WithShell{Host: r.session, Open: open, Refused: choice.Refused}, landing.Options{
		Dir: r.dir, Ports: r.ports, Memory: 64 << 20, Leftovers: r.leftovers(), Server: r.lab.Addr(), After: fastAfter,
		Copier: choice,
	})
	r.Cleanup(func() { r.checkError(t.Close()) })
	return t
}

// newSSHRig returns a rig with a free licence, so that all copies are made by SSH, and with memory on the host
// for maxClones copies.
func newSSHRig(t *testing.T, maxClones int, disks ...lab.Disk) *rig {
	t.Helper()
	return newRigOf(t, lab.Config{
		ReadOnlyLicence: true, SSH: lab.SSH{Enabled: true, MaxClones: maxClones}, VMs: []lab.VM{{Name: "web 01", Disks: disks}},
	})
}

// If a host has memory for few copies, the other copies wait, and none is killed.
func TestConcurrentSSHCopiesAreLimited(t *testing.T) {
	const room = 2
	var disks []lab.Disk
	for i := range 5 {
		disks = append(disks, lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: uint64(i + 1)})
	}
	r := newSSHRig(t, room, disks...)
	sshHosts := 0
	tr := r.newSSHLanding(func(_ inventory.MoRef, why error) {
		sshHosts++
		if !esx.Forbidden(why) {
			t.Errorf("the copy is made by SSH because of %v, want a refusal of the API", why)
		}
	}, 0)
	var landing sync.WaitGroup
	files, errs := make([]image.File, len(disks)), make([]error, len(disks))
	for i := range disks {
		landing.Go(func() { files[i], errs[i] = r.landDisk(tr, i, image.Raw) })
	}
	landing.Wait()
	for i := range disks {
		r.must(errs[i])
		r.requireSameContent(files[i], i)
	}
	if sshHosts != 1 {
		t.Errorf("Chosen was called %d times, want 1", sshHosts)
	}
	r.must(tr.Close())
	if list, err := r.leftovers().List(); err != nil || len(list) > 0 {
		t.Errorf("leftovers: %v, %v, want none", list, err)
	}
}

// If more copies run than the host has memory for, a killed copy fails with fault.Transient.
func TestKilledCopyIsTransient(t *testing.T) {
	r := newSSHRig(t, 1, lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: 1}, lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: 2})
	r.lab.Faults().Add(lab.Fault{Kind: lab.FaultCloneStall, At: 2 << 20})
	tr := r.newSSHLanding(nil, 2)
	ended := make(chan error, 2)
	for i := range 2 {
		go func() { _, err := r.landDisk(tr, i, image.Raw); ended <- err }()
	}
	if err := <-ended; !fault.Is(err, fault.Transient) {
		t.Errorf("error of the killed copy: %v, want kind Transient", err)
	}
	r.lab.Faults().Clear()
	r.must(<-ended)
	list, err := r.leftovers().List()
	r.must(err)
	for _, rec := range list {
		if rec.Kind == "shell-job" {
			t.Errorf("leftover %+v, want no shell job", rec)
		}
	}
}

// countingCopier is a Copier that counts its calls and always returns err.
type countingCopier struct {
	n   int
	err error
}

func (c *countingCopier) CopyDisk(context.Context, inventory.MoRef, esx.DiskCopy, func()) error {
	c.n++
	return c.err
}

// Disks without a flat file are copied by SSH, even on a host whose API copies other disks.
func TestDisksWithoutFlatFileAreCopiedBySSH(t *testing.T) {
	api, ssh := &countingCopier{}, &countingCopier{}
	choice := &landing.Choice{API: api, SSH: ssh, Chosen: func(inventory.MoRef, error) { t.Error("Chosen was called, but the API refused nothing") }}
	for i, want := range []struct{ api, ssh int }{{0, 1}, {1, 1}} {
		if err := choice.CopyDisk(t.Context(), "host-1", esx.DiskCopy{Object: i == 0}, func() {}); err != nil {
			t.Error(err)
		}
		if api.n != want.api || ssh.n != want.ssh {
			t.Errorf("after copy %d: %d copies by the API, %d by SSH, want %+v", i, api.n, ssh.n, want)
		}
	}
}
