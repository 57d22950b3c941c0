package nfchost

import "time"

// An Op is one operation, to which a fault can be injected.
type Op struct {
	Name   string // one of the Op names
	Path   string // path of the disk that is open or being opened
	Offset int64  // offset of a read or a query, in bytes
	Length int64  // length of a read or a query, in bytes
}

// The operations that can go wrong.
const (
	OpSession      = "SESSION"                // redemption of a ticket
	OpProxy        = "PROXY"                  // start of the second TLS session
	OpHandshake    = "HANDSHAKE"              // classic messages
	OpOpenSession  = "OPEN_SESSION"           // negotiation of buffers
	OpOpenFile     = "OPEN_FILE"              // opening of the disk
	OpEntry        = "DDB_GET"                // query of the disk database
	OpMap          = "QUERY_ALLOCATED_BLOCKS" // query of the allocation map
	OpRead         = "IO"                     // read
	OpCloseFile    = "CLOSE_FILE"             // closing of the disk
	OpCloseSession = "CLOSE_SESSION"          // end of the session
)

// FaultKind is the kind of a fault.
type FaultKind string

// The kinds. All but the first six happen to the first fragment of a read.
const (
	FaultError     FaultKind = "error"      // an ERROR record of Code and Text
	FaultStatus    FaultKind = "status"     // the reply of an OPEN_FILE or a read has Code as its status
	FaultRefuse    FaultKind = "refuse"     // the ticket is rejected, or the handshake is answered with type 4
	FaultOtherCert FaultKind = "other-cert" // the second TLS session shows another certificate
	FaultCut       FaultKind = "cut"        // the connection is reset: at once, or within the fragment
	FaultStall     FaultKind = "stall"      // nothing is sent until Release
	FaultMagic     FaultKind = "magic"      // the header of the reply has a wrong magic
	FaultOpID      FaultKind = "op-id"      // the header of the reply has an unknown operation ID
	FaultRange     FaultKind = "range"      // the fragment begins after the end of the read
	FaultOverlap   FaultKind = "overlap"    // the fragment is sent twice
	FaultEmpty     FaultKind = "empty"      // a fragment of length 0 is sent before it
	FaultLength    FaultKind = "length"     // the length on the wire is one less than the data
	FaultHuge      FaultKind = "huge"       // the length on the wire is 4 GiB minus one
	FaultSum       FaultKind = "checksum"   // zlib only: the checksum is wrong
	FaultRun       FaultKind = "run"        // SkipZ only: a run exceeds the end of the fragment
	FaultFalling   FaultKind = "falling"    // SkipZ only: runs in descending order
	FaultMatch     FaultKind = "match"      // FastLZ only: a match before the beginning
	FaultFlip      FaultKind = "flip"       // one bit of the data is wrong, without an error
)

// A Fault is a failure of one operation.
type Fault struct {
	Kind FaultKind // kind of the failure
	Code uint64    // code of an ERROR record, or status of a reply
	Text string    // text of an ERROR record
	// offset on the disk for cut, stall and flip; 0 selects the middle, the start and the first byte of
	// the fragment
	At      int64
	Release <-chan struct{} // ends a stall
}

// isKind reports whether f is a fault of the kind. A nil f is of no kind.
func (f *Fault) isKind(kind FaultKind) bool { return f != nil && f.Kind == kind }

// nextFault returns the fault of an operation, nil for none. An Op without a path gets the path of the
// open disk.
func (c *conn) nextFault(op Op) *Fault {
	if c.server.cfg.Fault == nil {
		return nil
	}
	if op.Path == "" {
		op.Path = c.path
	}
	return c.server.cfg.Fault(op)
}

// applyEarly applies the faults that all operations have in common: cut, stall and ERROR record.
func (c *conn) applyEarly(f *Fault) error {
	switch {
	case f.isKind(FaultCut):
		c.resetConn()
		return errCut
	case f.isKind(FaultStall):
		return c.waitRelease(f)
	case f.isKind(FaultError):
		return &Refusal{Code: f.Code, Text: f.Text}
	}
	return nil
}

// waitRelease waits until the fault is released or the connection ends.
func (c *conn) waitRelease(f *Fault) error {
	select {
	case <-f.Release:
		return nil
	case <-c.gone:
		return errCut
	}
}

// sleepFor waits for d of real time, or until the connection ends.
func (c *conn) sleepFor(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.gone:
		return errCut
	}
}
