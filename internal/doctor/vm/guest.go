package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/inventory"
)

// isWindows reports whether the guest ID of a VM is that of a Windows.
func isWindows(vm *inventory.VM) bool { return strings.HasPrefix(vm.GuestID, "win") }

// clients lists the prefixes of the guest IDs of Windows 8, 10, 11 and 12
// (VirtualMachineGuestOsIdentifier).
var clients = []string{"windows8", "windows9", "windows11", "windows12"}

// isClientWindows reports whether a guest is a desktop Windows, whose shutdown is a
// hibernation (fast startup). IDs of servers have the same prefixes.
func isClientWindows(vm *inventory.VM) bool {
	id := vm.GuestID
	return !strings.Contains(id, "Server") && slices.ContainsFunc(clients, func(c string) bool { return strings.HasPrefix(id, c) })
}

// checkBitLocker warns about a Windows with a virtual TPM. The TPM at the target is new
// and empty. Keys that the old one sealed are replaced only by the recovery key.
// Windows 11 turns BitLocker on by itself if there is a TPM.
func (g *group) checkBitLocker(context.Context) []doctor.Finding {
	return g.forEachVM(func(vm *inventory.VM) doctor.Finding {
		switch {
		case !isWindows(vm):
			return doctor.Finding{}
		case !vm.VTPM:
			return doctor.Finding{Found: "Windows without a virtual TPM"}
		}
		return doctor.Finding{
			Status: doctor.Warning, Found: "Windows with a virtual TPM, which is not migrated; BitLocker, if it is on, requests its recovery key",
			Want:   "the BitLocker recovery key, or BitLocker suspended",
			Remedy: "# in the guest, as administrator, before the last shutdown:\nmanage-bde -status\nmanage-bde -protectors -get C:\nmanage-bde -protectors -disable C: -RebootCount 0",
		}
	})
}

// checkFastStartup warns about a Windows that may hibernate at shutdown.
func (g *group) checkFastStartup(context.Context) []doctor.Finding {
	return g.forEachVM(func(vm *inventory.VM) doctor.Finding {
		if !isClientWindows(vm) {
			return doctor.Finding{}
		}
		return doctor.Finding{
			Status: doctor.Advice, Found: "fast startup may be on: Windows then hibernates at shutdown, resumes on other hardware, and its file systems cannot be changed",
			Want:   "a complete shutdown of Windows",
			Remedy: "# in the guest, as administrator:\npowercfg /h off\n# or, for the last shutdown:\nshutdown /s /t 0",
		}
	})
}

// minFree returns the required free space of a guest's file system, in bytes. Without
// space for a driver, an initramfs or a log, the guest may not boot. The values are
// from virt-v2v's manual.
func minFree(path string) int64 {
	switch strings.ToUpper(path) {
	case "/", `C:\`:
		return 100 << 20
	case "/BOOT":
		return 50 << 20
	}
	return 10 << 20
}

// checkGuestSpace reports guests whose file systems are too full. It needs VMware
// Tools, which report the file systems.
func (g *group) checkGuestSpace(ctx context.Context) []doctor.Finding {
	var refs []inventory.MoRef
	for i := range g.VMs {
		if g.VMs[i].ToolsRunning {
			refs = append(refs, g.VMs[i].Ref)
		}
	}
	// Only running VMs with VMware Tools report their file systems.
	if len(refs) == 0 || g.Source == nil {
		return nil // VMware Tools report nothing
	}
	volumes, err := g.Source.Volumes(ctx, refs)
	if err != nil {
		return unknownFinding(err)
	}
	return g.forEachVM(func(vm *inventory.VM) doctor.Finding { return spaceFinding(volumes[vm.Ref]) })
}

// spaceFinding returns one finding for all file systems of a guest. A file system with
// less capacity than the required space is ignored: media are always full.
func spaceFinding(volumes []inventory.Volume) doctor.Finding {
	var full []string
	for _, v := range volumes {
		if least := minFree(v.Path); v.Free < least && v.Capacity > least { // a medium is always full
			full = append(full, fmt.Sprintf("%s has %d of %d MiB free", v.Path, v.Free>>20, v.Capacity>>20))
		}
	}
	switch {
	case len(volumes) == 0:
		return doctor.Finding{}
	case len(full) == 0:
		return doctor.Finding{Found: "enough free space in all file systems"}
	}
	return doctor.Finding{
		Status: doctor.Warning, Found: strings.Join(full, "; "), Want: "at least 100 MiB free in the system volume, 50 MiB in /boot, 10 MiB in others",
		Remedy: "# in the guest, to free space on Linux:\ndf -h; journalctl --vacuum-size=50M\n# on Windows:\ncleanmgr /sageset:1 & cleanmgr /sagerun:1",
	}
}
