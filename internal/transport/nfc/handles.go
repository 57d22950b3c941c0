package nfc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfc"
)

const (
	// depth is how many requests are under way on a handle.
	depth = 4

	// leastRequest is read at once also where buffers are small: the host cuts it up. An
	// eighth of it is the least that is tried when the host is out of memory.
	leastRequest = 256 << 10

	coldSize  = 1 << 20 // buffers for a VM that is off
	coldCount = 4

	// extraSetup bounds the opening of a handle when others are open: hosts of 8 let sessions
	// wait for memory, and who waits with them reads nothing.
	extraSetup = 10 * time.Second

	// crowded is how long no more handles are opened after the host was out of memory.
	shortagePause = time.Minute
)

// handle is one session on the disk.
type handle struct {
	disk *nfc.Disk // nil while it is being opened
	busy int       // reads on it
}

// handles are the sessions on one disk. They are opened by whoever finds that there is more
// to do than the open ones have hands for, and closed by whoever finds that there are more
// than the disk's share.
type handles struct {
	src  *Source
	cost int64 // of one handle, in the host's NFC memory

	mu          sync.Mutex
	list        []*handle
	reserved    int           // handles that memory was taken for; at least one until close
	changed     chan struct{} // closed and replaced when list changes
	buffers     nfc.Buffers
	request     int64     // bytes of one request of handles opened from now on
	noMoreUntil time.Time // until then no more handles are opened
	lastAddress string    // address of the last that was opened
	most        int
	wire        int64 // received on handles that are closed
}

func newHandles(s *Source) *handles {
	h := &handles{src: s, changed: make(chan struct{}), buffers: s.t.opts.Buffers}
	cold := s.disk.Snapshot == ""
	if h.buffers == (nfc.Buffers{}) && cold {
		h.buffers = nfc.Buffers{Size: coldSize, Count: coldCount}
	}
	h.request = max(h.buffers.Size, leastRequest)
	h.cost = max(h.buffers.Memory(), depth*h.request)
	return h
}

// claimHandle returns an open handle, the one with the least to do. The caller releases it.
func (h *handles) claimHandle(ctx context.Context) (*handle, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h.mu.Lock()
		h.pruneFailed()
		best := h.claimLeastBusy()
		fresh := h.addHandle(best)
		changed := h.changed
		h.mu.Unlock()
		switch {
		case fresh != nil:
			if err := h.openHandle(ctx, fresh); err == nil || !h.canContinue(err) {
				return fresh, err
			}
		case best != nil:
			return best, nil
		default: // all are being opened by others
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// pruneFailed takes out handles that are over and that nobody has any more: a read that was
// cancelled at its very end breaks its session after it gave the handle back. h.mu is held.
func (h *handles) pruneFailed() {
	for _, x := range slices.Clone(h.list) {
		if x.disk != nil && x.busy == 0 && x.disk.Failed() != nil {
			h.remove(x)
		}
	}
}

// claimLeastBusy returns the open handle with the least to do, claimed; nil if none is open. h.mu
// is held.
func (h *handles) claimLeastBusy() *handle {
	var best *handle
	for _, x := range h.list {
		if x.disk != nil && x.disk.Failed() == nil && (best == nil || x.busy < best.busy) {
			best = x
		}
	}
	if best != nil {
		best.busy++
	}
	return best
}

// addHandle returns a place for another handle if there should be one, and then gives best back.
// h.mu is held.
func (h *handles) addHandle(best *handle) *handle {
	o := h.src.t.opts
	wanted := best == nil || best.busy > 1 && o.Now().After(h.noMoreUntil)
	if !wanted || len(h.list) >= o.Handles {
		return nil
	}
	if len(h.list) >= h.reserved {
		if !h.src.esxi.memory.tryReserve(h.cost, int64(h.reserved)*h.cost) {
			return nil
		}
		h.reserved++
	}
	if best != nil {
		best.busy--
	}
	x := &handle{busy: 1}
	h.list = append(h.list, x)
	return x
}

// openHandle opens x. When it fails x is out of the list again.
func (h *handles) openHandle(ctx context.Context, x *handle) error {
	d, err := h.openDisk(ctx)
	h.recordOpened(x, d, err)
	if err == nil {
		h.src.t.reportAddress(h.src.disk.VM.Host, h.readAddress())
	}
	return err
}

func (h *handles) recordOpened(x *handle, d *nfc.Disk, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.remove(x)
		return
	}
	x.disk = d
	h.lastAddress = d.Addr()
	h.most = max(h.most, h.openCount())
	h.notifyChange()
}

// openCount returns how many handles are open and in order. h.mu is held.
func (h *handles) openCount() (n int) {
	for _, x := range h.list {
		if x.disk != nil && x.disk.Failed() == nil {
			n++
		}
	}
	return n
}

// openDisk asks for a ticket and opens the disk with it.
func (h *handles) openDisk(ctx context.Context) (*nfc.Disk, error) {
	s := h.src
	ticket, err := s.t.host.NFCTicket(ctx, s.disk.VM.Ref)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	o := nfc.Options{
		Server: s.t.host.Addr(), Wire: s.t.opts.Wire, Stall: s.t.opts.Stall, Setup: s.t.opts.Stall,
		Buffers: h.buffers, Request: h.request, Depth: depth, Dial: s.t.opts.Dial,
	}
	if h.openCount() > 0 {
		o.Setup = min(o.Setup, extraSetup)
	}
	h.mu.Unlock()
	d, err := h.tryAddresses(ctx, ticket, o)
	if err != nil {
		h.learnFrom(err)
		h.useHostBuffers(err)
	}
	return d, err
}

// useHostBuffers asks for the host's own buffers from now on, a sixteenth of ours, when it had no
// memory for the only handle: a slow one is better than none.
func (h *handles) useHostBuffers(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	short := errors.Is(err, nfc.ErrMemory) || errors.Is(err, nfc.ErrQueued)
	if !short || h.buffers == (nfc.Buffers{}) || h.openCount() > 0 {
		return
	}
	h.src.t.opts.Log.Info("the host is short of NFC memory, its own buffers are used", "disk", h.src.file.Key, "err", err)
	h.buffers = nfc.Buffers{}
}

// tryAddresses tries the addresses of the host one after the other. A ticket is used up only when
// it was shown, which one that nobody answered at has not seen.
func (h *handles) tryAddresses(ctx context.Context, t nfc.Ticket, o nfc.Options) (d *nfc.Disk, err error) {
	for _, addr := range h.src.esxi.network.dialAddresses(t.Addr(o.Server), t.Host != "") {
		d, err = nfc.Open(ctx, toAddr(t, addr), h.src.path, o)
		if !fault.Is(err, fault.Unreachable) {
			return d, err
		}
		h.src.t.opts.Log.Debug("nobody answers", "host", addr, "err", err)
	}
	return d, err
}

// learnFrom takes from an error how later handles should be opened.
func (h *handles) learnFrom(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, nfc.ErrBuffers) && h.buffers != (nfc.Buffers{}):
		h.src.t.opts.Log.Info("the host takes its own buffers only", "disk", h.src.file.Key, "err", err)
		h.buffers = nfc.Buffers{}
	case errors.Is(err, nfc.ErrMemory):
		if now := h.src.t.opts.Now(); now.After(h.noMoreUntil) { // else it is another reader's news of the same
			h.noMoreUntil = now.Add(shortagePause)
			h.request = max(h.request/2, leastRequest/8)
		}
	}
}

// readerRequest is how many bytes a reader should ask for at once: its share of what is under way
// on a handle.
func (h *handles) readerRequest() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.request * depth / readers
}

// canContinue reports whether a failure to open one more handle is none of the caller's business:
// others are open and read on. For a while no more are opened.
func (h *handles) canContinue(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.openCount() == 0 {
		return false
	}
	h.noMoreUntil = h.src.t.opts.Now().Add(shortagePause)
	h.src.t.opts.Log.Debug("no more handles", "disk", h.src.file.Key, "err", err)
	return true
}

// releaseHandle gives a handle back. One that is over goes; so does one beyond the disk's share.
func (h *handles) releaseHandle(x *handle) {
	h.mu.Lock()
	x.busy--
	if x.disk.Failed() != nil {
		h.remove(x)
	}
	idle, surplus := h.shrinkToShare(x)
	h.mu.Unlock()
	if idle {
		x.disk.Close() // before others may use its memory
	}
	if surplus {
		h.src.esxi.memory.release(h.cost)
	}
}

// shrinkToShare gives up memory for one handle if the disk has more than its share, and with it x
// if it is idle and memory without a handle is not to be had. h.mu is held.
func (h *handles) shrinkToShare(x *handle) (idle, surplus bool) {
	if h.reserved <= 1 || !h.src.esxi.memory.exceedsShare(int64(h.reserved)*h.cost) {
		return false, false
	}
	switch {
	case len(h.list) < h.reserved:
	case x.busy == 0 && x.disk.Failed() == nil:
		h.remove(x)
		idle = true
	default:
		return false, false
	}
	h.reserved--
	return idle, true
}

// remove takes x out of the list, if it is there. h.mu is held.
func (h *handles) remove(x *handle) {
	if i := slices.Index(h.list, x); i >= 0 {
		h.list = slices.Delete(h.list, i, i+1)
		if x.disk != nil {
			h.wire += x.disk.Received()
		}
		h.notifyChange()
	}
}

// notifyChange wakes who waits for a change. h.mu is held.
func (h *handles) notifyChange() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// close closes all handles; none is in use. It gives all memory back.
func (h *handles) close() {
	h.mu.Lock()
	list, reserved := slices.Clone(h.list), h.reserved
	for _, x := range list {
		h.remove(x)
	}
	h.reserved = 0
	h.mu.Unlock()
	for _, x := range list {
		x.disk.Close()
	}
	if reserved > 0 {
		h.src.esxi.memory.leaveDisk(int64(reserved) * h.cost)
	}
}

func (h *handles) readAddress() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.src.esxi.network; n.note != "" && n.hasAddress(h.lastAddress) {
		return h.lastAddress + " (" + n.note + ")"
	}
	return h.lastAddress
}

// totals returns how many bytes were received, and how many handles were open at once.
func (h *handles) totals() (wire int64, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wire = h.wire
	for _, x := range h.list {
		if x.disk != nil {
			wire += x.disk.Received()
		}
	}
	return wire, h.most
}
