package nfchost

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Config is what a Server is made of.
type Config struct {
	Addr        string                      // host:port
	Certificate func() *tls.Certificate     // of both TLS sessions; asked at each handshake
	Tickets     Tickets                     // who may read what
	Pacer       func(rate int64) Pacer      // a new cap of so many bytes/s; 0 is none
	Fault       func(Op) *Fault             // what goes wrong with an operation; nil is nothing
	Count       func(change func(s *Stats)) // how the counters are changed
	Rules       Rules
	Log         *slog.Logger
}

// Tickets are what SOAP handed out.
type Tickets interface {
	// Redeem spends a ticket. It returns the ticket's service ("nfc" or "vpxa-nfc") and its
	// grant, or false for one that is unknown or spent.
	Redeem(id string) (service string, grant Grant, ok bool)
}

// A Grant is what one ticket allows.
type Grant interface {
	// Open opens a descriptor's disk. Errors of type *Refusal choose code and text.
	Open(path string) (Disk, error)
}

// A Disk is an open disk: one link of a chain with its parents. Its methods may be called
// concurrently.
type Disk interface {
	io.ReaderAt
	Size() int64
	// NextData returns the first data that ends after off, or Size, Size.
	NextData(off int64) (start, end int64, err error)
	// Allocated is what of a range the allocation map admits to, in order.
	Allocated(off, length int64) ([]Area, error)
	// Entry is a value of the disk database without "ddb.", or empty.
	Entry(key string) string
	// Pacer is the cap of the datastore, in bytes read from it.
	Pacer() Pacer
	Close()
}

// An Area is a range of a disk.
type Area struct{ Offset, Length int64 }

// A Pacer caps a flow: it grants n bytes and says how long to wait before they move.
type Pacer interface {
	Reserve(n int, now time.Time) time.Duration
}

// A Refusal is an ERROR record.
type Refusal struct {
	Code uint64
	Text string
}

func (r *Refusal) Error() string { return fmt.Sprintf("NFC error %d: %s", r.Code, r.Text) }

// The codes that were seen. What else can go wrong has codes nobody wrote down; the lab
// says codeOther then.
const (
	codeOther    = 1
	codeMemory   = 5  // out of NFC memory
	CodeReadOnly = 11 // no right to the file, or write flags on a read-only ticket
)

// Refuse makes a Refusal whose code is not known.
func Refuse(format string, args ...any) *Refusal {
	return &Refusal{Code: codeOther, Text: fmt.Sprintf(format, args...)}
}

// Order is how the fragments of reads come.
type Order string

// The orders. A host may send fragments in any of them.
const (
	InOrder  Order = ""          // as asked, ascending
	Reversed Order = "reversed"  // of each read the last first
	OddFirst Order = "odd-first" // of each read the second, fourth ... before the first, third ...
	Mixed    Order = "mixed"     // one of each waiting read in turn, the newest read first
)

// Policy is what a host does when its NFC memory is used up.
type Policy string

// The policies. Error 5 was reported for large reads of many sessions; that sessions wait
// is what the 8.0 programming guide says.
const (
	RefuseSession Policy = ""      // OPEN_SESSION gets error 5
	RefuseRead    Policy = "read"  // memory is taken by each read, its length and 24 bytes, and that read gets error 5
	Queue         Policy = "queue" // OPEN_SESSION is answered once there is memory
)

// Packing is what becomes of the compression a read asks for.
type Packing string

// The ways to compress. Fragments that would not shrink are stored under each.
const (
	Honour  Packing = ""       // as asked
	Stored  Packing = "stored" // never
	Variety Packing = "mixed"  // as asked, every third fragment stored
)

// Rules are how the host behaves. The zero value is a host of version 11 without caps.
type Rules struct {
	LibVersion   uint32 // answered to VERSION; default 11 (ESXi 8); 9 was seen on 7.0.3; below 3 there is no AIO
	NoSHA256     bool   // the banner lacks it: THUMBPRINT_SHA2 answers 530, message 43 is refused
	NoTLS        bool   // the banner lacks NFCSSL: only services in clear
	TLS13        bool   // offer TLS 1.3; hosts were seen with 1.2
	LateAck      bool   // 36 only after 51 has come (7.0.3); else at once (8.0)
	NoVersion    bool   // word 16 of message 36 is 0
	LooseRecords bool   // take every message of a TLS record, as no host was seen to

	MaxBuffer     int64  // of OPEN_SESSION; default 2 MiB: 16 MiB was refused
	SessionMemory int64  // size x count of one session; default 16 MiB
	MaxRead       int64  // a longer read gets error 5; 0 is no limit
	Memory        int64  // of all sessions; 0 is no limit
	Exhausted     Policy // when there is no more of it

	SessionRate int64         // bytes of disk a second, of each session
	HostRate    int64         // the same, of all sessions together
	LinkRate    int64         // bytes on the wire a second, of all sessions together
	Latency     time.Duration // of each read, from its arrival

	Order     Order
	Fragments []int         // sizes of fragments in turn, at most the buffer's; none: the buffer's
	Hold      int           // of each session the first so many reads are held until all are there, then answered newest first
	HoldFor   time.Duration // how long to wait for them; default 3 s
	Packing   Packing

	ErrorTail Tail // whether the zero reply follows an ERROR record
	DirtyTail bool // bits of the bitmap past the count are ones
}

// Tail says after which ERROR records the reply of the request follows all the same, all
// zero. Seen for OPEN_FILE on 7.0.3; nobody knows about reads.
type Tail string

// The tails.
const (
	TailControl Tail = ""       // after those of everything but reads
	TailAlways  Tail = "always" // after every one
	TailNever   Tail = "never"
)

// Defaults of Rules, see there.
const (
	defaultVersion       = 11
	defaultMaxBuffer     = 2 << 20
	defaultSessionMemory = 16 << 20
	defaultHoldFor       = 3 * time.Second
)

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

// Stats count what a server did.
type Stats struct {
	Sessions     int64 `json:"sessions"`     // AIO sessions opened
	SessionsOpen int64 `json:"sessionsOpen"` // now
	SessionsPeak int64 `json:"sessionsPeak"` // most at a time
	Refused      int64 `json:"refused"`      // ERROR records sent
	Reads        int64 `json:"reads"`
	ReadBytes    int64 `json:"readBytes"` // bytes of disk sent
	WireBytes    int64 `json:"wireBytes"` // what they took, headers included
	DepthPeak    int64 `json:"depthPeak"` // most reads of one session waiting at a time
	HoldsMet     int64 `json:"holdsMet"`  // sessions whose first Rules.Hold reads were in flight together
	HoldsMissed  int64 `json:"holdsMissed"`
	MapQueries   int64 `json:"mapQueries"` // QUERY_ALLOCATED_BLOCKS answered
	MemoryPeak   int64 `json:"memoryPeak"`
}
