// Package convert changes a guest so that it boots on other hardware.
//
// LinuxAppend supports Linux on ext2, ext3 and ext4, also on LVM, and with an Appliance on file
// systems that the Appliance mounts: XFS, btrfs. It runs no program of the guest and repacks no
// initramfs: it appends an archive with the guest's own virtio modules to each, and changes a few
// text files. The duration is a fraction of a second, about two seconds with a large initramfs
// that is compressed by xz, and about ten seconds with an emulated appliance.
//
// # Guarantees
//
//   - It works on overlays: the image is unchanged, and the changes can be discarded.
//   - No file is removed. A file system that cannot be changed safely is refused (see package
//     extwrite), without a write to an overlay.
//   - A second run makes no further changes.
//   - Result lists every changed path with the reason, and every part that stays unchanged.
//
// # Limits
//
// Only a trial boot shows that the guest boots. Without an Appliance a root file system on XFS or btrfs is
// refused. So are kernels without initramfs that lack the drivers, and unified kernel images, which are
// signed as a whole.
package convert
