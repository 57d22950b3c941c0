package nfchost

import "time"

// Op is one operation, for whoever decides what goes wrong with it.
type Op struct {
	Name   string // one of the Op names
	Path   string // of the open disk, or of the one being opened
	Offset int64  // of a read or a query
	Length int64
}

// The operations that can go wrong.
const (
	OpSession      = "SESSION"
	OpProxy        = "PROXY"
	OpHandshake    = "HANDSHAKE"
	OpOpenSession  = "OPEN_SESSION"
	OpOpenFile     = "OPEN_FILE"
	OpEntry        = "DDB_GET"
	OpMap          = "QUERY_ALLOCATED_BLOCKS"
	OpRead         = "IO"
	OpCloseFile    = "CLOSE_FILE"
	OpCloseSession = "CLOSE_SESSION"
)

// FaultKind says what goes wrong.
type FaultKind string

// The kinds. All but the first six happen to the first fragment of a read.
const (
	FaultError     FaultKind = "error"      // an ERROR record of Code and Text
	FaultStatus    FaultKind = "status"     // the reply of an OPEN_FILE or a read has Code as its status
	FaultRefuse    FaultKind = "refuse"     // the ticket is not taken, or the handshake is answered with type 4
	FaultOtherCert FaultKind = "other-cert" // the second TLS session shows another certificate
	FaultCut       FaultKind = "cut"        // the connection is reset: at once, or in the middle of the fragment
	FaultStall     FaultKind = "stall"      // nothing more comes until Release
	FaultMagic     FaultKind = "magic"      // of the reply's header
	FaultOpID      FaultKind = "op-id"      // of the reply's header
	FaultRange     FaultKind = "range"      // the fragment begins behind the read's end
	FaultOverlap   FaultKind = "overlap"    // the fragment comes twice
	FaultEmpty     FaultKind = "empty"      // a fragment of length 0 comes before it
	FaultLength    FaultKind = "length"     // the length on the wire is one less than what follows
	FaultHuge      FaultKind = "huge"       // the length on the wire is 4 GiB less one
	FaultSum       FaultKind = "checksum"   // zlib only: the checksum is wrong
	FaultRun       FaultKind = "run"        // SkipZ only: a run goes past the end of the fragment
	FaultFalling   FaultKind = "falling"    // SkipZ only: runs in falling order
	FaultMatch     FaultKind = "match"      // FastLZ only: a match from before the beginning
	FaultFlip      FaultKind = "flip"       // one bit of the data is wrong, and nothing says so
)

// A Fault happens to one operation.
type Fault struct {
	Kind    FaultKind
	Code    uint64
	Text    string
	At      int64           // offset on the disk for cut, stall and flip; 0: the middle, the start and the first byte of the fragment
	Release <-chan struct{} // ends a stall
}

func (f *Fault) isKind(kind FaultKind) bool { return f != nil && f.Kind == kind }

// nextFault asks what goes wrong.
func (c *conn) nextFault(op Op) *Fault {
	if c.server.cfg.Fault == nil {
		return nil
	}
	if op.Path == "" {
		op.Path = c.path
	}
	return c.server.cfg.Fault(op)
}

// applyEarly is what all operations share: the cut, the stall and the ERROR record.
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

// sleepFor sleeps for d of real time, or until the connection ends.
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
