package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/inventory"
)

// windows reports whether VMware has a VM's guest for a Windows.
func windows(vm *inventory.VM) bool { return strings.HasPrefix(vm.GuestID, "win") }

// clients are beginnings of the guest ids of Windows 8, 10, 11 and 12 (VirtualMachineGuestOsIdentifier).
var clients = []string{"windows8", "windows9", "windows11", "windows12"}

// client reports whether a guest is a Windows for desks, which shuts down by hibernating. Ids of
// servers begin alike.
func client(vm *inventory.VM) bool {
	id := vm.GuestID
	return !strings.Contains(id, "Server") && slices.ContainsFunc(clients, func(c string) bool { return strings.HasPrefix(id, c) })
}

// bitLocker: the TPM of the target is another, and an empty one. What is sealed by the old one opens
// with the recovery key only; Windows 11 encrypts by itself where it finds a TPM.
func (g *group) bitLocker(context.Context) []doctor.Finding {
	return g.each(func(vm *inventory.VM) doctor.Finding {
		switch {
		case !windows(vm):
			return doctor.Finding{}
		case !vm.VTPM:
			return doctor.Finding{Seen: "a Windows without a TPM"}
		}
		return doctor.Finding{
			Status: doctor.Warning, Seen: "a Windows with a virtual TPM, which stays behind: if BitLocker is on, it requests the recovery key",
			Want:   "the key at hand, or BitLocker suspended",
			Remedy: "# in the guest, as administrator, before it is shut down for the last time:\nmanage-bde -status\nmanage-bde -protectors -get C:\nmanage-bde -protectors -disable C: -RebootCount 0",
		}
	})
}

func (g *group) fastStartup(context.Context) []doctor.Finding {
	return g.each(func(vm *inventory.VM) doctor.Finding {
		if !client(vm) {
			return doctor.Finding{}
		}
		return doctor.Finding{
			Status: doctor.Advice, Seen: "a Windows that may shut down by hibernating (fast startup): it would wake up on other hardware, and its file systems cannot be changed",
			Want:   "it is shut down in full",
			Remedy: "# in the guest, as administrator:\npowercfg /h off\n# or, for the last time:\nshutdown /s /t 0",
		}
	})
}

// room is what should be free of a file system: a driver's installation, an initramfs, or a log that
// does not fit keeps a guest from coming up (the bounds are those of virt-v2v's manual).
func room(path string) int64 {
	switch strings.ToUpper(path) {
	case "/", `C:\`:
		return 100 << 20
	case "/BOOT":
		return 50 << 20
	}
	return 10 << 20
}

func (g *group) guestSpace(ctx context.Context) []doctor.Finding {
	var refs []inventory.MoRef
	for i := range g.VMs {
		if g.VMs[i].ToolsRunning {
			refs = append(refs, g.VMs[i].Ref)
		}
	}
	if len(refs) == 0 || g.Source == nil {
		return nil // VMware Tools report nothing
	}
	volumes, err := g.Source.Volumes(ctx, refs)
	if err != nil {
		return unknown(err)
	}
	return g.each(func(vm *inventory.VM) doctor.Finding { return crowded(volumes[vm.Ref]) })
}

// crowded reports all volumes that are too full in one finding.
func crowded(volumes []inventory.Volume) doctor.Finding {
	var full []string
	for _, v := range volumes {
		if least := room(v.Path); v.Free < least && v.Capacity > least { // a medium is always full
			full = append(full, fmt.Sprintf("%s has %d MiB free of %d", v.Path, v.Free>>20, v.Capacity>>20))
		}
	}
	switch {
	case len(volumes) == 0:
		return doctor.Finding{}
	case len(full) == 0:
		return doctor.Finding{Seen: "there is room in all of its file systems"}
	}
	return doctor.Finding{
		Status: doctor.Warning, Seen: strings.Join(full, "; "), Want: "100 MiB of the system, 50 MiB of /boot, 10 MiB of others",
		Remedy: "# make room in the guest; a Linux:\ndf -h; journalctl --vacuum-size=50M\n# a Windows:\ncleanmgr /sageset:1 & cleanmgr /sagerun:1",
	}
}
