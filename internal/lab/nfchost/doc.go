// Package nfchost emulates port 902 of an ESXi host: authd, and the NFC server behind it, for clients that
// read disks. It accesses tickets and disks only through the interfaces Tickets and Disk, which package
// vsphere implements.
//
//	s, err := nfchost.Listen(nfchost.Config{Addr: "127.0.0.1:0", Tickets: t, Certificate: cert, Pacer: p})
//	defer s.Close()
//	s.Addr() // address for the tickets
//
// # A connection
//
//	banner in clear -> TLS -> SESSION, BANNER, THUMBPRINT_SHA2, PROXY -> TLS is abandoned
//	-> in clear (nfc) or in a second TLS session (nfcssl):
//	   classic messages 43 33 51, 54 55 52 -> AIO messages
//
// One goroutine reads requests, another answers them. Up to maxQueue requests wait between the two; beyond
// that the socket is not read.
//
// # Terms
//
// A fragment is one reply to a read: a part of its data, with a separate header. A record is a TLS record:
// hosts process one message of each record, and the rest of it when the next record arrives. Other terms
// are those of the protocol.
//
// # Sources
//
// Two independent descriptions of the protocol are based on captures of real hosts. Each field of Rules
// documents where the two differ, or where neither has information. Requests that neither describes are
// refused, so that a client that depends on them is noticed: unaligned or empty reads, writes, a second
// file in a session, flat files.
//
// # Memory
//
// A session has one buffer of the negotiated size, and one for compression. The NFC memory of Rules is a
// number only: no such memory is allocated.
package nfchost
