// Package convert changes a guest so that it boots on other hardware than it was made for.
//
// LinuxAppend is for Linux on ext2, ext3 and ext4, also on LVM, and through an Appliance on what
// that mounts: XFS, btrfs. It runs nothing of the guest's and packs nothing again: to each
// initramfs an archive is appended that has the guest's own virtio modules, and a few text files
// are changed. It takes a fraction of a second; with a large initramfs packed by xz, some two;
// with an emulated appliance, some ten.
//
// # What is promised
//
//   - It works on overlays: the image is not touched, and what was written can be thrown away.
//   - Nothing is removed. A file system that cannot be changed safely is refused (see package
//     extwrite), and then no overlay was written to.
//   - The second run changes nothing.
//   - Result lists every path that was changed, with the reason, and in Notes what was left
//     as it is although it may matter.
//
// # What is not
//
// That the guest boots: a trial boot says that. Without an Appliance a root file system on XFS
// or btrfs is refused. So are kernels without initramfs that lack the drivers, and unified
// kernel images, which are signed as a whole.
package convert
