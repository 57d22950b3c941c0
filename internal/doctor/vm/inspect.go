package vm

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
)

// InspectFunc reads the disks of a VM that is off. It returns one report per disk, in the
// order of VM.Disks.
type InspectFunc func(ctx context.Context, vm *inventory.VM) ([]guest.Report, error)

// maxInspections limits the number of VMs that are read concurrently. Each needs a session
// on the host.
const maxInspections = 4

// checkInside inspects the disks of VMs before they are copied. Running VMs are
// omitted, because their files are locked and change.
func (g *group) checkInside(ctx context.Context) []doctor.Finding {
	if g.Inspect == nil {
		return nil
	}
	found := make([][]doctor.Finding, len(g.VMs))
	var looks errgroup.Group
	looks.SetLimit(maxInspections)
	for i := range g.VMs {
		if vm := &g.VMs[i]; vm.Power == inventory.PoweredOff && len(vm.Disks) > 0 {
			looks.Go(func() error { found[i] = g.lookInto(ctx, vm); return nil })
		}
	}
	_ = looks.Wait() // none returns an error
	var all []doctor.Finding
	for i, of := range found {
		for _, f := range of {
			f.On = onVM(&g.VMs[i])
			all = append(all, f)
		}
	}
	return all
}

// lookInto returns the verdict for one guest and the warnings of its disks. If several
// disks have a verdict, the last one counts.
func (g *group) lookInto(ctx context.Context, vm *inventory.VM) (found []doctor.Finding) {
	reports, err := g.Inspect(ctx, vm)
	if err != nil {
		return unknownFinding(err)
	}
	verdict := "no known operating system on the disks"
	// The reports are in the order of the VM's disks.
	for i, r := range reports {
		if r.Verdict != "" {
			verdict = r.Verdict
		}
		for _, w := range r.Warnings {
			found = append(found, ofGuest(w, i))
		}
	}
	return append(found, doctor.Finding{Found: verdict})
}

// ofGuest converts a warning about disk n, counted from 0.
func ofGuest(w guest.Warning, n int) doctor.Finding {
	remedy, known := guestRemedies[w.Code]
	if !known {
		remedy = "# check that the guest boots at the source, or inspect a copy of the disk:\ndecamp inspect DISK --guest"
	}
	return doctor.Finding{
		Status: doctor.Warning, Found: fmt.Sprintf("disk %d: %s (%s)", n+1, w.Text, w.Code), Want: "a guest that can boot on other hardware", Remedy: remedy,
	}
}

// What to type in a guest before it is shut down for the last time.
const (
	// commands for a complete shutdown of Windows
	shutDown  = "# in the guest, as administrator:\npowercfg /h off\nshutdown /s /t 0"
	checkDisk = "# in the guest, as administrator, followed by a restart:\nchkdsk C: /f" // commands that repair NTFS
	// commands that suspend BitLocker
	suspend = "# in the guest, as administrator, to print the recovery key and to suspend BitLocker:\nmanage-bde -protectors -get C:\nmanage-bde -protectors -disable C: -RebootCount 0"
)

// guestRemedies contains remedies by the codes of package guest.
var guestRemedies = map[string]string{
	"hibernated": shutDown, "fast-startup": shutDown, "ntfs-dirty": checkDisk, "ntfs-journal": checkDisk, "bitlocker": suspend,
	"registry-dirty":  "# in the guest, after a boot at the source, for a complete shutdown:\nshutdown /s /t 0",
	"encrypted":       "# in the guest, to list the key slots; a key in the TPM is not migrated, so a passphrase is required:\ncryptsetup luksDump /dev/DEVICE",
	"dynamic-disk":    "# in the guest; dynamic disks are migrated unchanged, but a system volume on them cannot be converted. Convert the disk to a basic disk after a backup:\ndiskpart",
	guest.NotExamined: "# the guest is migrated unchanged. Repair damaged file systems in the guest. For details, on a copy of the disk:\ndecamp inspect DISK --guest",
	"efi-fallback":    "# in the guest:\ngrub-install --removable   # Debian and Ubuntu: --force-extra-removable\n# or migrate the VM with --hardware virtio, which adds the loader",
	"little-room":     "# in the guest:\ndf -h; journalctl --vacuum-size=50M; apt autoremove --purge",
	"static-address":  "# in the guest, to note its addresses:\nipconfig /all",
	"lvm-missing":     "# in the guest, to remove missing disks from the volume group:\nvgs -o +devices; vgreduce --removemissing GROUP",
}
