// Package export examines the user's NFS server on this machine to which ESXi copies:
// the kernel's or nfs-ganesha. It is not needed for landings by decamp.
//
// # Configuration and server
//
// Exports are configured in files (/etc/exports and exports.d, ganesha.conf). The
// server has read them at its last reload. Most errors come from a difference between
// the two: a file was edited, and exportfs -ra was not run. So both are read and
// compared. The kernel's exports are in etab, which exportfs wrote, and in
// /proc/fs/nfsd/exports, which has the exports in effect; nfs-ganesha returns its list
// to MOUNT's EXPORT.
//
// All other checks examine the files, which apply once the server has read them, and
// exports of the server without a file.
//
// # Sync
//
// ESXi waits for each of its writes of 64 KiB, and requests each to be stable. An
// export with sync, the default since nfs-utils 1.0.0, flushes the medium each time: 13
// to 24 times slower according to the guide, 43 times by its durations. async
// acknowledges from memory; a power cut loses only the copy, which is made again.
// nfs-ganesha has no such option: it flushes.
package export
