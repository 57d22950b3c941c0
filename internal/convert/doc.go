// Package convert changes a guest so that it boots on other hardware than it was made for.
//
// LinuxAppend is for Linux on ext2, ext3 and ext4, also on LVM, and through an Appliance on what
// that mounts: XFS, btrfs. It runs nothing of the guest's and packs nothing again: to each
// initramfs an archive is appended that has the guest's own virtio modules, and a few text files
// are changed. It takes a fraction of a second; with a large initramfs packed by xz, some two;
// with an emulated appliance, some ten.
//
// # Guarantees
//
//   - It works on overlays: the image is unchanged, and the changes can be discarded.
//   - Nothing is removed. A file system that cannot be changed safely is refused (see package
//     extwrite), without a write to an overlay.
//   - A second run changes nothing.
//   - Result lists every changed path with the reason, and every part that was left.
//
// # Limits
//
// Only a trial boot shows that the guest boots. Without an Appliance a root file system on XFS or btrfs is
// refused. So are kernels without initramfs that lack the drivers, and unified kernel images, which are
// signed as a whole.
package convert
