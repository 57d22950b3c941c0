// Package export examines the NFS server that somebody keeps here for ESXi to copy to: the
// kernel's or nfs-ganesha. Those who have decamp land disks by itself need none of it.
//
// # Two truths
//
// What is exported is written in files (/etc/exports and exports.d, ganesha.conf), and it is held
// by a server, which read the files when it was last told to. Most that goes wrong with exports is
// between the two: a file was edited, and nobody ran exportfs -ra. So both are read and compared.
// The kernel's truth is etab, which exportfs wrote, and above it /proc/fs/nfsd/exports, which has
// what the kernel holds by now; nfs-ganesha's is what it answers to MOUNT's EXPORT.
//
// All other checks judge what is written, as that holds once the server has read it; what a server
// exports beyond the files is judged as it stands.
//
// # Sync
//
// ESXi waits for each of its writes of 64 KiB, and asks for each to be stable. An export that is
// sync, the default since nfs-utils 1.0.0, flushes the medium each time: 13 to 24 times slower in the
// guide's own words, 43 times by its durations. async acknowledges from memory; what is lost in a
// power cut is the copy, which is made again. Nfs-ganesha has no such option: it flushes.
//
// # Bounds
//
// Files are read through an fs.FS, up to 1 MiB each. Nothing is changed but by the write probe,
// which removes its file.
package export
