// Package nfs serves local folders over NFS version 3 (RFC 1813), with MOUNT version 3 and the port mapper, over
// TCP. It is written for ESXi first; Linux, libnfs and QEMU are the other clients. It contains
// nothing about VMs or disks: Export.Open chooses, file by file, what holds the bytes.
//
// # Terms
//
// An Export is a folder with the path that clients mount. A node is a file, folder or link that a client has a
// handle of; the handle is its name in calls. A Content holds the bytes of one file: usually the file itself, and
// something faster for a disk that is landing.
//
// # How a WRITE travels
//
//	oncrpc: record, header -> write: handle, file -> Pool.Get -> payload -> Content.Write -> reply
//	        \______ the connection's reader, one call after another ___/   \__ beside others __/
//
// The payload is read from the socket directly into the buffer that the Content then owns. The file is opened
// before the payload is read, so that the 84 bytes of a lock file never wait for the memory that the disks share:
// plain files use a separate pool. While the pool of a disk is used up, its connection is not read, and TCP slows
// the client down. This pause is bounded, because heartbeats and lock renewals follow the WRITEs in the same
// connection: see payload.go.
//
// # What is promised
//
// Handles are 32 bytes: export, inode number and time of birth. They survive a restart of the server; those of
// regular files expire with the boot of the machine. No state is kept beside the files: after a restart, the
// server finds the files of handles by one walk over the export. A handle leads to a file of the export or is
// stale. The price is that the first call after a restart reads the whole tree, and that each known file uses
// about 300 bytes of memory. On file systems without times of birth (most have them) a handle can outlive its
// file and mean the next file with that inode number. The same can happen if another program replaces a file
// within a clock tick of its birth. The server itself creates no file with the handle of one that it removed
// (removedFiles).
//
// The fileid of a file is its inode number. ESXi makes the names of its lock files from it.
//
// Nothing outside the folder is reached: each part of a path is opened separately, links are never followed, names
// contain no slash, and other file systems mounted below are not shown. There are regular files, folders and
// links. Names are bytes.
//
// Cookies of listings are hashes of the names. A listing can therefore continue after any change of the folder,
// and shows every name that existed throughout exactly once.
//
// A call that changes names or attributes is not executed again when it is sent twice (oncrpc.Cache), nor is a
// WRITE. A repeated exclusive CREATE is recognized even after a restart.
//
// # Why FILE_SYNC without a flush is honest here
//
// RFC 1813 lets a server answer FILE_SYNC when the bytes are on the medium. Unless Options.Durable is set, this
// server answers FILE_SYNC as soon as the Content has the bytes in memory. That makes a copy 13 to 24 times as
// fast as with a server that follows the rule, because ESXi requests FILE_SYNC for every write. The purpose of
// the rule is that a client may discard acknowledged data. During a landing no client depends on that:
//
//   - the disks that land are copies, and their source stays unchanged until the end;
//   - a copy is complete only after the image was read back from the medium and compared with the hashes of the
//     received data, regardless of the client's report;
//   - after a crash of this machine or process, all chunks that are not durable are copied again.
//
// It is not safe if an acknowledgement has to mean more: for a VM that runs on the datastore, for a client that
// deletes its source after copying, for a copy that is used without verification, and for a server that restarts
// during a copy if the lost data is not detected. The write verifier changes with each start. It informs clients
// that request UNSTABLE writes; clients that request FILE_SYNC ignore it. They do use the handle: after another
// boot of the machine (Options.Boot) handles of regular files are stale, and a running copy fails. In all these
// cases, set Durable: then FILE_SYNC and DATA_SYNC writes are flushed one by one, UNSTABLE ones by COMMIT, and
// names with their folder.
//
// # Memory
//
//	payloads   Options.Pool + Options.PlainMemory + 32 MiB
//	replies    64 MiB of large ones, and 8 KiB for each call in work
//	files      about 300 bytes for each that was seen; 128 open at most, and the Contents
//	names      of each folder that was listed and not changed since
//	repeats    12288 replies, 6 MiB
//
// # Permissions
//
// Clients are admitted by address (Options.Admit). An admitted client may do everything that Export.Writable
// allows: modes and owners are stored and shown, and not enforced.
//
// A client cannot prepare an attack on the users of this machine:
//
//   - Setuid, setgid and sticky bits are removed from each mode that a client sets. Files that have
//     setuid or setgid already cannot be written.
//   - If the server runs as root, a new file belongs to the user and the group of its creator, as
//     AUTH_SYS has them. Root is mapped to user 65534 unless Options.NoRootSquash is set.
//     Otherwise, all files belong to the server's user.
//   - A client cannot give a file to another user.
//   - A new symbolic link must not be absolute and must not contain "..".
//   - There are no device nodes, no extended attributes and no access control lists.
//
// # Limits
//
// No NLM: ESXi does not use it with NFSv3, and Linux mounts with nolock. No NFSv4, no Kerberos, no MKNOD, and UDP
// only for the port mapper.
package nfs
