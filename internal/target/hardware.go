package target

// Hardware is what a VM is defined with on the target.
type Hardware string

const (
	// Compat is the hardware that QEMU has in common with VMware: the guest is not changed, and
	// boots with the drivers it has. It is meant where nothing is said.
	Compat Hardware = "compat"

	// Virtio is virtio-scsi for disks and virtio-net for cards: for a guest that was converted, or
	// has the drivers.
	Virtio Hardware = "virtio"
)
