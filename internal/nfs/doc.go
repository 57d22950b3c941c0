// Package nfs serves local folders over NFS version 3 (RFC 1813), with MOUNT version 3 and
// the port mapper beside it, over TCP. ESXi is the first client it is written for; Linux,
// libnfs and QEMU are the others. It knows no VMs and no disks: what holds the bytes of a
// file is decided by whoever gives the Export, file by file.
//
// # Terms
//
// An Export is a folder with the path that clients mount. A node is a file, folder or link
// that clients were told of, a handle its name on the wire. A Content holds the bytes of
// one file: usually the file itself, for a disk that lands something faster.
//
// # How a WRITE travels
//
//	oncrpc: record, header -> write: handle, file -> Pool.Get -> payload -> Content.Write -> reply
//	        \______ the connection's reader, one call after another ___/   \__ beside others __/
//
// The payload goes from the socket straight into the buffer that the Content then owns. The
// file is known before, so that a lock file's 84 bytes never wait for the memory that the
// disks compete for: plain files have a pool of their own. Where the pool of a disk is used
// up, its connection is not read, and TCP slows the client down; but not for so long that
// heartbeats and lock renewals, which stand behind the WRITEs in the same connection, are
// late: see payload.go.
//
// # What is promised
//
// Handles are 32 bytes: export, inode number and time of birth. They stay good across a
// restart of the server (those of files: within one boot of the machine), and are found again by going through the export once (walk); no
// state is kept beside the files. A handle leads to a file of the export or is stale:
// there is nothing to guess, because what is not met below the folder is not found. The
// price is that after a restart the first call reads the whole tree, and that about 300
// bytes of memory are kept for each file seen. On file systems without times of birth
// (most have them) a handle may outlive its file and mean the next one of that inode; so it
// may where something beside the server replaces a file within a clock tick of its birth.
// The server itself makes no file that could be taken for one that it removed (graves).
//
// fileids are inode numbers. ESXi makes the names of its lock files of them.
//
// Nothing outside the folder is reached: each part of a way is opened by itself, links are
// never followed, no name holds a slash, and other file systems mounted below are not
// shown. There are regular files, folders and links. Names are bytes.
//
// Cookies of listings are made of the names, so a listing can go on whatever happened to
// the folder, and every name that was there all the time is shown exactly once.
//
// A call that changes names or attributes is not done twice when it is sent twice (oncrpc,
// Cache), nor is a WRITE. An exclusive CREATE is known again even after a restart.
//
// # Why FILE_SYNC without a flush is honest here
//
// RFC 1813 lets a server answer FILE_SYNC when the bytes are on the medium. This one, unless
// Options.Durable is set, answers FILE_SYNC as soon as the Content holds them: in memory. It
// is what makes a copy 13 to 24 times as fast as onto a server that keeps the rule; ESXi asks
// for FILE_SYNC on every write. What the rule is for is that a client may forget what was
// acknowledged. Here nobody acts on that:
//
//   - the disks that land are copies, and their source stays as it is until the end;
//   - a copy does not count when the client says it is done, but when the image was read
//     back from the medium and compared with the hashes of what arrived;
//   - after a crash of this machine or process, what is not known to be safe is copied again.
//
// It breaks where somebody takes an acknowledgement for more: a VM that runs on the
// datastore, a client that deletes its source after copying, a copy that is used without
// having been verified, a server that is started again behind a client's back while its
// copy goes on, and nobody looks at what was lost. The write verifier, a new one with each
// start, tells clients that asked for UNSTABLE writes; those that asked for FILE_SYNC
// do not look at it. What they do look at is the handle: after another boot of the machine
// (Options.Boot) those of regular files are stale, and a copy that was under way fails. Where any of that may happen, set Durable: then FILE_SYNC and DATA_SYNC
// writes are flushed one by one, UNSTABLE ones by COMMIT, and names with their folder.
//
// # Memory
//
//	payloads   Options.Pool + Options.PlainMemory + 32 MiB
//	replies    64 MiB of large ones, and 8 KiB for each call in work
//	files      about 300 bytes for each that was seen; 128 open at most, and the Contents
//	names      of each folder that was listed and not changed since
//	repeats    12288 replies, 6 MiB
//
// # Who may do what
//
// Peers are admitted by address (Options.Admit). Who is admitted may do everything that
// Export.Writable allows: modes and owners are kept and shown, and not enforced.
//
// A client cannot prepare an attack on the users of this machine:
//
//   - Setuid, setgid and sticky bits are removed from each mode that a client sets. Files that have
//     setuid or setgid already cannot be written.
//   - If the server runs as root, a new file belongs to the user and the group of its creator, as
//     AUTH_SYS has them. Root is mapped to nobody unless Options.NoRootSquash is set.
//     Otherwise, all files belong to the server's user.
//   - A client cannot give a file to another user.
//   - A new symbolic link must not be absolute and must not contain "..".
//   - There are no device nodes, no extended attributes and no access control lists.
//
// # What it does not do
//
// No NLM: ESXi does not use it on NFSv3, Linux mounts with nolock. No NFSv4, no Kerberos, no
// MKNOD, no UDP but for the port mapper.
package nfs
