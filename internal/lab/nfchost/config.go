package nfchost

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Config configures a Server. Certificate, Tickets and Pacer are required.
type Config struct {
	Addr        string                      // host:port to listen on
	Certificate func() *tls.Certificate     // returns the certificate of both TLS sessions; called at each handshake
	Tickets     Tickets                     // tickets and the disks that they allow to read
	Pacer       func(rate int64) Pacer      // returns a new rate limit of rate bytes/s; 0 is unlimited
	Fault       func(Op) *Fault             // returns the fault of an operation, nil for none; nil injects no faults
	Count       func(change func(s *Stats)) // runs change under the lock of the counters; nil counts nothing
	Rules       Rules                       // behaviour of the host
	Log         *slog.Logger                // receives connection errors; nil discards them
}

// Tickets are the tickets that the SOAP API issued.
type Tickets interface {
	// Redeem spends a ticket. It returns the ticket's service ("nfc" or "vpxa-nfc") and its
	// grant, or false for one that is unknown or spent.
	Redeem(id string) (service string, grant Grant, ok bool)
}

// A Grant contains the rights of one ticket.
type Grant interface {
	// Open opens the disk of a descriptor. An error of type *Refusal sets code and text of the ERROR
	// record.
	Open(path string) (Disk, error)
}

// A Disk is an open disk: one link of a chain with its parents. Its methods may be called concurrently.
type Disk interface {
	io.ReaderAt
	Size() int64 // returns the capacity in bytes
	// NextData returns the first data that ends after off, or Size, Size.
	NextData(off int64) (start, end int64, err error)
	// Allocated returns the parts of a range that are allocated according to the map, in order.
	Allocated(off, length int64) ([]Area, error)
	// Entry returns the value of a key of the disk database, without "ddb."; empty if it does not exist.
	Entry(key string) string
	// Pacer returns the rate limit of the datastore, in bytes read from it.
	Pacer() Pacer
	Close() // releases the disk
}

// An Area is a byte range of a disk.
type Area struct{ Offset, Length int64 }

// A Pacer limits a rate. Its methods may be called concurrently.
type Pacer interface {
	// reserves n bytes and returns how long the caller must wait before it sends them
	Reserve(n int, now time.Time) time.Duration
}

// A Refusal is an error that is sent as an ERROR record.
type Refusal struct {
	Code uint64 // error code of NFC
	Text string // message for the client
}

// Error returns code and text.
func (r *Refusal) Error() string { return fmt.Sprintf("NFC error %d: %s", r.Code, r.Text) }

// The error codes that were seen. The codes of other errors are not documented; the emulator sends
// codeOther for them.
const (
	codeOther    = 1  // code of errors whose real code is not known
	codeMemory   = 5  // out of NFC memory
	CodeReadOnly = 11 // no right to the file, or write flags on a read-only ticket
)

// Refuse returns a Refusal with codeOther, for errors whose real code is not known.
func Refuse(format string, args ...any) *Refusal {
	return &Refusal{Code: codeOther, Text: fmt.Sprintf(format, args...)}
}

// Order is the order in which the fragments of reads are sent.
type Order string

// The orders. A host may send fragments in any of them.
const (
	InOrder  Order = ""          // ascending, in the order of the requests
	Reversed Order = "reversed"  // the last fragment of each read first
	OddFirst Order = "odd-first" // the second, fourth and so on of each read before the others
	Mixed    Order = "mixed"     // one fragment of each pending read in turn, the newest read first
)

// Policy is the reaction of a host whose NFC memory is used up.
type Policy string

// The policies. Error 5 was reported for large reads of many sessions. According to the 8.0
// programming guide, sessions wait.
const (
	RefuseSession Policy = ""      // OPEN_SESSION fails with error 5
	RefuseRead    Policy = "read"  // each read reserves its length and 24 bytes, and fails with error 5
	Queue         Policy = "queue" // OPEN_SESSION is answered once there is memory
)

// Packing is the treatment of the compression that a read requests.
type Packing string

// The ways to compress. Fragments that would not shrink are stored under each.
const (
	Honour  Packing = ""       // compressed as requested
	Stored  Packing = "stored" // never compressed
	Variety Packing = "mixed"  // compressed as requested, but every third fragment stored
)

// Rules configure the behaviour of the host. The zero value is a host of version 11 without limits.
type Rules struct {
	LibVersion   uint32 // answered to VERSION; default 11 (ESXi 8); 9 was seen on 7.0.3; below 3 there is no AIO
	NoSHA256     bool   // the banner lacks it: THUMBPRINT_SHA2 answers 530, message 43 is refused
	NoTLS        bool   // the banner lacks NFCSSL: only services in clear
	TLS13        bool   // offer TLS 1.3; hosts were seen with 1.2
	LateAck      bool   // whether message 36 is sent only after 51 has arrived (7.0.3); otherwise at once (8.0)
	NoVersion    bool   // word 16 of message 36 is 0
	LooseRecords bool   // whether all messages of a TLS record are processed; no real host was seen to do so

	MaxBuffer     int64  // largest buffer size of OPEN_SESSION in bytes; default 2 MiB: 16 MiB was refused
	SessionMemory int64  // largest size x count of one session in bytes; default 16 MiB
	MaxRead       int64  // longest read in bytes, longer ones get error 5; 0 is unlimited
	Memory        int64  // NFC memory of the host in bytes; 0 is unlimited
	Exhausted     Policy // reaction when the NFC memory is used up

	SessionRate int64         // disk bytes/s of each session; 0 is unlimited
	HostRate    int64         // disk bytes/s of all sessions together; 0 is unlimited
	LinkRate    int64         // bytes/s on the wire of all sessions together; 0 is unlimited
	Latency     time.Duration // delay of each read, counted from its arrival

	Order     Order         // order of the fragments
	Fragments []int         // sizes of fragments in bytes, used in turn and limited by the buffer; empty: the size of the buffer
	Hold      int           // number of reads of each session that are held until all have arrived, then answered newest first
	HoldFor   time.Duration // how long to wait for the held reads; default 3 s
	Packing   Packing       // compression of fragments

	ErrorTail Tail // whether the zero reply follows an ERROR record
	DirtyTail bool // whether the bits of the bitmap beyond the count are ones
}

// Tail selects the ERROR records after which a reply of zeros follows as well. It was seen for
// OPEN_FILE on 7.0.3; the behaviour for reads is not known.
type Tail string

// The tails.
const (
	TailControl Tail = ""       // after all ERROR records except those of reads
	TailAlways  Tail = "always" // after every ERROR record
	TailNever   Tail = "never"  // after no ERROR record
)

// Defaults of Rules, see there.
const (
	defaultVersion       = 11              // library version of ESXi 8
	defaultMaxBuffer     = 2 << 20         // bytes
	defaultSessionMemory = 16 << 20        // bytes
	defaultHoldFor       = 3 * time.Second // longer than a client needs to send its first reads
)

// withDefaults returns the rules with zero fields set to their defaults.
func (r Rules) withDefaults() Rules {
	if r.LibVersion == 0 {
		r.LibVersion = defaultVersion
	}
	if r.MaxBuffer == 0 {
		r.MaxBuffer = defaultMaxBuffer
	}
	if r.SessionMemory == 0 {
		r.SessionMemory = defaultSessionMemory
	}
	if r.HoldFor == 0 {
		r.HoldFor = defaultHoldFor
	}
	return r
}

// Stats are the counters of a server.
type Stats struct {
	Sessions     int64 `json:"sessions"`     // number of opened AIO sessions
	SessionsOpen int64 `json:"sessionsOpen"` // number of open sessions
	SessionsPeak int64 `json:"sessionsPeak"` // most sessions open at a time
	Refused      int64 `json:"refused"`      // number of ERROR records
	Reads        int64 `json:"reads"`        // number of accepted reads
	ReadBytes    int64 `json:"readBytes"`    // disk bytes sent, before compression
	WireBytes    int64 `json:"wireBytes"`    // bytes on the wire, with headers
	DepthPeak    int64 `json:"depthPeak"`    // most pending reads of one session
	HoldsMet     int64 `json:"holdsMet"`     // number of sessions whose first Rules.Hold reads were in flight together
	HoldsMissed  int64 `json:"holdsMissed"`  // number of sessions that sent fewer reads in time
	MapQueries   int64 `json:"mapQueries"`   // number of answered QUERY_ALLOCATED_BLOCKS
	MemoryPeak   int64 `json:"memoryPeak"`   // most NFC memory in use, in bytes
}
