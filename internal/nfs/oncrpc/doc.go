// Package oncrpc serves ONC RPC version 2 (RFC 5531) over TCP and UDP. It knows no
// program; NFS, MOUNT and the port mapper are Programs given to it.
//
// # How a call travels
//
//	socket -> record -> call header -> Procedure.Decode -> Answer -> reply
//	          \____________ the connection's reader ___/   \_ a goroutine of its own
//
// Decode takes the arguments from the stream of the record, so that a large payload goes
// from the socket straight to where its owner wants it. It runs in the connection's reader:
// as long as it waits, nothing more is read, and TCP holds the client back. Answer runs
// beside the answers of other calls, and replies leave in the order they are ready. A call
// that its Decode finds Quick is answered by the reader, which holds up to six answers back
// while there is more to be read: waking a client for each of them costs more than they do.
//
// A connection that brings quick calls is a stream: its reader blocks in the system and not in
// the runtime's poller. Of 64 KiB WRITEs, eight in flight, into a tmpfs, both together
// took 1.5 times as many a second as before, and a fifth less processor time each.
//
// # Bounds
//
// A connection has at most Options.MaxCalls calls in work and then is not read. Memory for
// replies is at most
//
//	MaxConnections x MaxCalls x 8 KiB  +  ReplyMemory
//
// the second for calls that announce a large reply (Call.Expect). A connection costs 5 KiB
// and a goroutine, one that streams a thread. A record longer than MaxRecord, in more than 1024 fragments or of something
// that is not a call closes its connection, before anything is allocated for it. So
// does a client that begins a record and stalls, one that does not take its replies, and
// one that connects and does not say anything.
//
// # Dead connections
//
// A client that lost its connection comes back from the same port (ESXi does, facts of
// SmartX's operators). An old socket that still lingers on our side can keep the new one
// waiting for more than a minute, so sockets are closed with a reset (SO_LINGER 0), at
// once when the client closed its side, and when its address and port connect anew.
// A client that closes only its sending side therefore gets no more replies; no RPC client
// does.
//
// # Retransmissions
//
// After a reconnection a client sends again what was not answered, and some of that was
// done. A procedure with a Cache is not done twice: the reply is remembered for two minutes
// under the client's address, the xid, the procedure and a checksum of the call. A repetition
// that arrives while the first is in work waits for it. It is one only if the first's
// connection is lost or has the same port, because two clients on one host may use the same
// numbers. The cache is in memory and bounded: it does not help across a restart or after
// very many other calls.
//
// # What it does not promise
//
// AUTH_SYS is believed. Peers are admitted by their address alone.
package oncrpc
