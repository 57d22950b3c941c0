package vsphere

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/lab/nfchost"
)

// FaultKind selects the kind of fault.
type FaultKind string

// The kinds. At counts bytes of the reply's body.
const (
	FaultStatus      FaultKind = "status"       // Status in place of the file: 503 is the busy host
	FaultSlow        FaultKind = "slow"         // Delay before the first byte
	FaultStall       FaultKind = "stall"        // nothing after At bytes, until Release
	FaultReset       FaultKind = "reset"        // TCP reset after At bytes
	FaultShort       FaultKind = "short"        // the connection ends cleanly after At bytes, before Content-Length
	FaultShortLength FaultKind = "short-length" // At bytes and the matching Content-Length, in conflict with Content-Range
	FaultWrongRange  FaultKind = "wrong-range"  // the right bytes, a Content-Range that is At bytes off
	FaultOtherBytes  FaultKind = "other-bytes"  // the right Content-Range, bytes from At further on
	FaultIgnoreRange FaultKind = "ignore-range" // 200 with the whole file in place of 206
	FaultFlip        FaultKind = "flip"         // the byte at At has one bit flipped
	FaultReadFlip    FaultKind = "read-flip"    // the same, but At counts bytes of the file: only a GET of that byte is hit

	// These happen to copies of disks on the host. At counts bytes of the disk, Path is part
	// of the destination's path.
	FaultCloneKill  FaultKind = "clone-kill"  // the process is killed; its files stay
	FaultCloneFail  FaultKind = "clone-fail"  // the clone fails with an I/O error
	FaultCloneStall FaultKind = "clone-stall" // the clone makes no progress until Release
	FaultCloneFlip  FaultKind = "clone-flip"  // the copy has one bit of the byte at At flipped

	// These happen to snapshots and change tracking. Path is part of the VM's name.
	FaultSnapshotCreate      FaultKind = "snapshot-create"      // the task fails
	FaultSnapshotRemove      FaultKind = "snapshot-remove"      // the task fails, the snapshot stays
	FaultVMBusy              FaultKind = "vm-busy"              // snapshots and shutdowns are refused with TaskInProgress, as while it is moved
	FaultSnapshotConsolidate FaultKind = "snapshot-consolidate" // the snapshot is removed and its delta remains: consolidation is needed
	FaultCBTFail             FaultKind = "cbt-fail"             // QueryChangedDiskAreas fails with FileFault
	FaultCBTLose             FaultKind = "cbt-lose"             // its answer leaves out every other area, silently

	// The following faults affect vim-cmd. Method is its command, such as snapshot.create.
	FaultVimCmdQuiet FaultKind = "vim-cmd-quiet" // vim-cmd ends with status 0 regardless of the result
	FaultVimCmdStall FaultKind = "vim-cmd-stall" // vim-cmd does nothing until Release
	FaultVimCmdLate  FaultKind = "vim-cmd-late"  // vim-cmd returns at once; its work is done after Delay

	// These happen to the REST service of a vCenter. Path is part of the URL's path.
	FaultREST        FaultKind = "rest-status"  // Status in place of the answer: 503 is the busy service
	FaultRESTGarbage FaultKind = "rest-garbage" // an answer that is cut off in the middle

	// These happen to tickets for NFC. Path is part of the VM's name.
	FaultNFCTicket     FaultKind = "nfc-no-ticket"  // NoPermission
	FaultNFCThumbprint FaultKind = "nfc-thumbprint" // the ticket names another certificate

	// And these to NFC connections. Path is part of the datastore path, Method one of the
	// nfchost.Op names; the default is the operation they make sense for, which for most is a
	// read. At is an offset on the disk: it affects only a read of that byte, or any read if 0.
	FaultNFCError     FaultKind = "nfc-error"      // an ERROR record of Code and Text
	FaultNFCStatus    FaultKind = "nfc-status"     // Code as status of a reply
	FaultNFCRefuse    FaultKind = "nfc-refuse"     // the handshake ends with type 4; with Method SESSION the ticket is rejected
	FaultNFCOtherCert FaultKind = "nfc-other-cert" // the second TLS session shows another certificate
	FaultNFCCut       FaultKind = "nfc-cut"        // TCP reset, in the middle of a fragment or at At
	FaultNFCStall     FaultKind = "nfc-stall"      // nothing more, until Release
	FaultNFCMagic     FaultKind = "nfc-magic"      // a reply's header has a wrong magic
	FaultNFCOpID      FaultKind = "nfc-op-id"      // a reply names a request that was never made
	FaultNFCRange     FaultKind = "nfc-range"      // a fragment from behind the end
	FaultNFCOverlap   FaultKind = "nfc-overlap"    // a fragment twice
	FaultNFCEmpty     FaultKind = "nfc-empty"      // a fragment of no length
	FaultNFCLength    FaultKind = "nfc-length"     // a length on the wire that is one too small
	FaultNFCHuge      FaultKind = "nfc-huge"       // a length on the wire of 4 GiB
	FaultNFCSum       FaultKind = "nfc-checksum"   // zlib with a wrong checksum
	FaultNFCRun       FaultKind = "nfc-run"        // SkipZ with a run past the end
	FaultNFCFalling   FaultKind = "nfc-falling"    // SkipZ with runs in falling order
	FaultNFCMatch     FaultKind = "nfc-match"      // FastLZ with a match from before the start
	FaultNFCFlip      FaultKind = "nfc-flip"       // one bit is wrong, without an error
)

// nfcKinds maps the kinds for NFC connections to the operation that they affect by default.
var nfcKinds = map[FaultKind]string{
	FaultNFCError: nfchost.OpRead, FaultNFCStatus: nfchost.OpRead, FaultNFCRefuse: nfchost.OpHandshake, FaultNFCOtherCert: nfchost.OpProxy,
	FaultNFCCut: nfchost.OpRead, FaultNFCStall: nfchost.OpRead, FaultNFCMagic: nfchost.OpRead, FaultNFCOpID: nfchost.OpRead, FaultNFCRange: nfchost.OpRead,
	FaultNFCOverlap: nfchost.OpRead, FaultNFCEmpty: nfchost.OpRead, FaultNFCLength: nfchost.OpRead, FaultNFCHuge: nfchost.OpRead, FaultNFCSum: nfchost.OpRead,
	FaultNFCRun: nfchost.OpRead, FaultNFCFalling: nfchost.OpRead, FaultNFCMatch: nfchost.OpRead, FaultNFCFlip: nfchost.OpRead,
}

// cloneFaults are the kinds for copies of disks.
var cloneFaults = []FaultKind{FaultCloneKill, FaultCloneFail, FaultCloneStall, FaultCloneFlip}

// faultKinds are all kinds except those for NFC connections.
var faultKinds = []FaultKind{
	FaultStatus, FaultSlow, FaultStall, FaultReset, FaultShort, FaultShortLength, FaultWrongRange, FaultOtherBytes, FaultIgnoreRange, FaultFlip, FaultReadFlip,
	FaultCloneKill, FaultCloneFail, FaultCloneStall, FaultCloneFlip, FaultNFCTicket, FaultNFCThumbprint,
	FaultSnapshotCreate, FaultSnapshotRemove, FaultSnapshotConsolidate, FaultVMBusy, FaultCBTFail, FaultCBTLose,
	FaultVimCmdQuiet, FaultVimCmdStall, FaultVimCmdLate, FaultREST, FaultRESTGarbage,
}

// restFaults are the kinds for the REST service.
var restFaults = []FaultKind{FaultREST, FaultRESTGarbage}

// vmFaults are the kinds for operations on VMs.
var vmFaults = []FaultKind{
	FaultNFCTicket, FaultNFCThumbprint, FaultSnapshotCreate, FaultSnapshotRemove, FaultSnapshotConsolidate, FaultVMBusy, FaultCBTFail, FaultCBTLose,
	FaultVimCmdQuiet, FaultVimCmdStall, FaultVimCmdLate,
}

// A Fault is a failure of requests or operations while it is active.
type Fault struct {
	ID          int       `json:"id,omitempty"`          // identifier, set by Add
	Kind        FaultKind `json:"kind"`                  // kind of the failure
	Path        string    `json:"path,omitempty"`        // only requests whose decoded path contains it; empty matches all
	Method      string    `json:"method,omitempty"`      // only this method; empty matches all
	Skip        int       `json:"skip,omitempty"`        // number of matching requests that pass first
	Count       int       `json:"count,omitempty"`       // number of requests that then fail; 0 is unlimited
	Probability float64   `json:"probability,omitempty"` // chance of each request, 0 to 1; 0 is certain
	Status      int       `json:"status,omitempty"`      // HTTP status of "status"; default 503
	At          int64     `json:"at,omitempty"`          // byte of the body, the file or the disk, depending on the kind
	Delay       Duration  `json:"delay,omitempty"`       // delay of "slow"
	Code        uint64    `json:"code,omitempty"`        // code of "nfc-error" and "nfc-status"
	Text        string    `json:"text,omitempty"`        // text of "nfc-error"
}

// validate returns an error for an unknown kind or an invalid number.
func (f Fault) validate() error {
	switch {
	case !slices.Contains(faultKinds, f.Kind) && nfcKinds[f.Kind] == "":
		return fmt.Errorf("fault %q: unknown kind", f.Kind)
	case f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("fault %q: probability %v: want 0 to 1", f.Kind, f.Probability)
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("fault %q: status %d: want 4xx or 5xx", f.Kind, f.Status)
	case f.At < 0 || f.Skip < 0 || f.Count < 0:
		return fmt.Errorf("fault %q: at, skip and count must not be negative", f.Kind)
	}
	return nil
}

// Faults is the set of active faults. A request meets the first fault that matches. Its methods may be
// called concurrently.
type Faults struct {
	mu      sync.Mutex    // guards the fields below
	active  []*Fault      // active faults, oldest first; their counts decrease
	lastID  int           // ID of the newest fault
	release chan struct{} // closed and replaced to continue stalled replies
}

// newFaults returns a set with the faults of the configuration, which must be valid.
func newFaults(initial []Fault) *Faults {
	fs := &Faults{release: make(chan struct{})}
	for _, f := range initial {
		fs.insertFault(f)
	}
	return fs
}

// Add activates a fault and returns its ID. It returns an error for an invalid fault.
func (fs *Faults) Add(f Fault) (int, error) {
	if err := f.validate(); err != nil {
		return 0, err
	}
	return fs.insertFault(f), nil
}

// insertFault activates a valid fault.
func (fs *Faults) insertFault(f Fault) int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.lastID++
	f.ID = fs.lastID
	fs.active = append(fs.active, &f)
	return f.ID
}

// Remove deactivates a fault. An unknown ID is ignored, because faults with a count end by themselves.
func (fs *Faults) Remove(id int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.active = slices.DeleteFunc(fs.active, func(f *Fault) bool { return f.ID == id })
}

// Clear deactivates all faults and continues stalled requests.
func (fs *Faults) Clear() {
	fs.mu.Lock()
	fs.active = nil
	fs.mu.Unlock()
	fs.Release()
}

// List returns copies of the active faults, with their remaining counts.
func (fs *Faults) List() []Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	list := []Fault{}
	for _, f := range fs.active {
		list = append(list, *f)
	}
	return list
}

// Release continues stalled replies. Later stalls wait for the next Release.
func (fs *Faults) Release() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	close(fs.release)
	fs.release = make(chan struct{})
}

// takeFor returns the fault of a request to /folder, or nil.
func (fs *Faults) takeFor(r *http.Request) *injected {
	return fs.takeIf(func(f *Fault) bool {
		return f.ofFolder() && f.readsFaultyByte(r) && f.matchesPath(r.URL.Path, r.Method)
	})
}

// readsFaultyByte reports whether a request reads the byte of FaultReadFlip. It is true for all other
// kinds.
func (f *Fault) readsFaultyByte(r *http.Request) bool {
	if f.Kind != FaultReadFlip {
		return true
	}
	first, length, _, ok := parseRange(r.Header.Get("Range"), math.MaxInt64)
	return ok && r.Method == http.MethodGet && f.At >= first && f.At-first < length
}

// ofFolder reports whether the kind affects /folder.
func (f *Fault) ofFolder() bool {
	return !slices.Contains(cloneFaults, f.Kind) && !slices.Contains(vmFaults, f.Kind) && !slices.Contains(restFaults, f.Kind) && nfcKinds[f.Kind] == ""
}

// takeREST returns the fault of a request to the REST service, or nil.
func (fs *Faults) takeREST(r *http.Request) *injected {
	return fs.takeIf(func(f *Fault) bool { return slices.Contains(restFaults, f.Kind) && f.matchesPath(r.URL.Path, r.Method) })
}

// takeClone returns the fault of a copy, or nil.
func (fs *Faults) takeClone(path string) *injected {
	return fs.takeIf(func(f *Fault) bool { return slices.Contains(cloneFaults, f.Kind) && f.matchesPath(path, "") })
}

// takeTicket returns the fault of a ticket for NFC, or nil.
func (fs *Faults) takeTicket(vm string) *injected {
	return fs.takeIf(func(f *Fault) bool {
		return (f.Kind == FaultNFCTicket || f.Kind == FaultNFCThumbprint) && f.matchesPath(vm, "")
	})
}

// takeNFC returns the fault of an operation on an NFC connection, or nil.
func (fs *Faults) takeNFC(op nfchost.Op) *nfchost.Fault {
	hit := fs.takeIf(func(f *Fault) bool {
		meant := nfcKinds[f.Kind]
		wrongPlace := f.At != 0 && (f.At < op.Offset || f.At >= op.Offset+op.Length)
		if meant == "" || f.Method == "" && meant != op.Name || wrongPlace {
			return false
		}
		return f.matchesPath(op.Path, op.Name)
	})
	if hit == nil {
		return nil
	}
	kind := nfchost.FaultKind(strings.TrimPrefix(string(hit.Kind), "nfc-"))
	return &nfchost.Fault{Kind: kind, Code: hit.Code, Text: hit.Text, At: hit.At, Release: hit.release}
}

// takeIf returns the first active fault for which hits returns true, and decrements its count; nil if
// there is no such fault. hits runs with mu held and may change the fault.
func (fs *Faults) takeIf(hits func(*Fault) bool) *injected {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i, f := range fs.active {
		if !hits(f) {
			continue
		}
		hit := &injected{Fault: *f, release: fs.release}
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				fs.active = slices.Delete(fs.active, i, i+1)
			}
		}
		return hit
	}
	return nil
}

// matchesPath reports whether the fault affects a request. It decrements Skip and applies Probability.
func (f *Fault) matchesPath(path, method string) bool {
	if !strings.Contains(path, f.Path) || f.Method != "" && f.Method != method {
		return false
	}
	if f.Skip > 0 { // this request passes
		f.Skip--
		return false
	}
	return f.Probability == 0 || rand.Float64() < f.Probability
}

// An injected is a fault of one request. All methods do nothing on nil.
type injected struct {
	Fault
	release <-chan struct{} // closed when stalled replies continue
}

// errShort ends a body early. Unlike other errors, it does not break the connection.
var errShort = errors.New("short body")

// isKind reports whether f is a fault of this kind.
func (f *injected) isKind(kind FaultKind) bool { return f != nil && f.Kind == kind }

// beforeReply delays the reply, or returns an error that replaces it.
func (f *injected) beforeReply(ctx context.Context) error {
	if f.isKind(FaultSlow) {
		return sleepContext(ctx, time.Duration(f.Delay))
	}
	if f.isKind(FaultStatus) {
		status := f.Status
		setDefault(&status, http.StatusServiceUnavailable)
		return &httpError{status, http.StatusText(status)}
	}
	return nil
}

// changeLength makes the head of a reply contradict its body. size is the length of the file.
func (f *injected) changeLength(a *replyHead, size int64) {
	switch {
	case f.isKind(FaultIgnoreRange):
		*a = replyHead{status: http.StatusOK, length: size, shown: size}
	case f.isKind(FaultShortLength):
		a.length = min(a.length, f.At)
		a.shown = a.length
	case f.isKind(FaultWrongRange) && a.contentRange != "":
		a.contentRange = fmt.Sprintf("bytes %d-%d/%d", a.first+f.At, a.first+f.At+a.length-1, size)
	case f.isKind(FaultOtherBytes):
		a.first = min(a.first+f.At, size-a.length)
	}
}

// atByte is called before each piece of a body. It returns how many of the next n bytes to send, so
// that the next piece begins at the fault.
func (f *injected) atByte(ctx context.Context, w *wire, sent, n int64) (int64, error) {
	if !f.isKind(FaultReset) && !f.isKind(FaultShort) && !f.isKind(FaultStall) {
		return n, nil
	}
	if sent < f.At {
		return min(n, f.At-sent), nil
	}
	switch f.Kind {
	case FaultReset:
		w.resetTCP() // the client sees "connection reset by peer"
		return 0, fmt.Errorf("reset at byte %d", sent)
	case FaultShort:
		return 0, errShort
	}
	select {
	case <-f.release:
		f.At = 1 << 62
		return n, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// flipSent flips one bit in p, which is at sent in the body and at off in the file, if p contains the
// byte of the fault.
func (f *injected) flipSent(p []byte, sent, off int64) {
	switch {
	case f.isKind(FaultFlip):
		f.flipBit(p, sent)
	case f.isKind(FaultReadFlip), f.isKind(FaultCloneFlip):
		f.flipBit(p, off)
	}
}

// flipBit flips a bit of the byte at At, if p, which begins at from, contains it.
func (f *injected) flipBit(p []byte, from int64) {
	if f.At >= from && f.At < from+int64(len(p)) {
		p[f.At-from] ^= 1
	}
}

// waitRelease waits until stalled requests continue or ctx ends.
func (f *injected) waitRelease(ctx context.Context) error {
	select {
	case <-f.release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// atBlock is called before each block of a copy. It returns the error of the fault, or nil.
func (f *injected) atBlock(ctx context.Context, off int64) error {
	if f == nil || off < f.At || f.isKind(FaultCloneFlip) {
		return nil
	}
	switch f.Kind {
	case FaultCloneKill:
		return errKilled
	case FaultCloneFail:
		return errInjected
	}
	if err := f.waitRelease(ctx); err != nil {
		return err
	}
	f.At = 1 << 62
	return nil
}
