// Package portmap tells clients at which port a program answers: the port mapper, version
// 2, and rpcbind, versions 3 and 4, of RFC 1833. ESXi finds MOUNT and NFS through it and
// through nothing else.
//
// Where port 111 is free, Map.Program is served there, over TCP and UDP. Where the
// system's rpcbind has it, Register enters the services there, and takes them out again.
//
// Of version 2, CALLIT is missing, and of the others what is made of it (RPCB_BCAST,
// RPCB_INDIRECT): it lets strangers call through this machine. SET and UNSET are for
// callers on this machine.
package portmap
