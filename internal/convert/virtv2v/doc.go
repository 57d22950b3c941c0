// Package virtv2v has virt-v2v-in-place change a guest, where the user has that program: Windows,
// and Linux that convert.LinuxAppend does not take.
//
// It is driven with a libvirt domain of our own (domain.go), on disks that are throw-away qcow2
// overlays: images are only read. Nothing that it says of the VM is taken over; which hardware the
// guest boots from afterwards is for who looks into the disks.
//
//	Find     where the program is, its release, and which options it has
//	Convert  domain.xml -> virt-v2v-in-place -> QEMU -> overlays; its log, progress, last words
//	Drivers  what is in a virtio-win, ISO image or folder, that a Windows needs
//
// # What is promised
//
//   - The program and all it started are gone when Convert returns, and soon after this process
//     dies: they are one process group, whose leader sees to that.
//   - It ends by its deadline, and when the file system it writes to has no room left: QEMU would
//     stop its VM then, and wait for ever.
//   - All it says is in the log, up to a bound that leaves out the middle. The error is what it
//     said last that means something, with a remedy where the reason is known.
//
// # What is not
//
// That the guest boots: a trial boot says that.
package virtv2v
