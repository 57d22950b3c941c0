// Package virtv2v converts a guest with virt-v2v-in-place, if the user has installed that program: Windows, and
// Linux guests that convert.LinuxAppend does not support.
//
// It runs with a libvirt domain of decamp (domain.go), on temporary qcow2 overlays: images are only read. Its
// description of the VM is ignored; the changed disks determine the hardware.
//
//	Find     path, release and options of the program
//	Convert  domain.xml -> virt-v2v-in-place -> QEMU -> overlays; its log, progress, last messages
//	Drivers  drivers for Windows in a virtio-win, ISO image or folder
//
// # Guarantees
//
//   - The program and its children have ended when Convert returns, and soon after this process dies:
//     they are one process group, whose leader ends them.
//   - It ends at its deadline, and when the file system of its output is full: QEMU would pause its VM
//     then and wait forever.
//   - All output is in the log; the middle of very long output is omitted. The error is the last
//     meaningful message, with a remedy if the cause is known.
//
// # Limits
//
// Only a trial boot shows that the guest boots.
package virtv2v
