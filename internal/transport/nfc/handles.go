package nfc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/nfc"
)

const (
	// depth is the number of concurrent requests on a handle.
	depth = 4

	// leastRequest is the lowest request size in bytes, even if the host's buffers are smaller: the host
	// divides it. When the host is out of memory, requests shrink to an eighth of it.
	leastRequest = 256 << 10

	coldSize  = 1 << 20 // bytes of a buffer for a VM that is off
	coldCount = 4       // number of buffers for a VM that is off

	// extraSetup bounds the opening of a further handle. Hosts of version 8 delay sessions until memory is
	// free, and a reader that waits with them reads nothing.
	extraSetup = 10 * time.Second

	// shortagePause is the time without new handles after the host was out of memory.
	shortagePause = time.Minute

	// shortageEnd is the time without a shortage of memory after which buffers and requests have their first
	// size again.
	shortageEnd = 10 * time.Minute
)

// handle is one session on the disk.
type handle struct {
	disk    *nfc.Disk // open disk; nil while it is being opened
	busy    int       // number of reads on it
	reduced bool      // it was opened while the host was short of memory, with smaller buffers or requests
}

// handles are the sessions on one disk. A reader opens another one if all open ones are busy. A reader
// closes one if the disk has more than its share of the host's memory.
type handles struct {
	src  *Source // disk of the handles
	cost int64   // bytes of one handle in the host's NFC memory

	mu          sync.Mutex      // guards the fields below, and the fields of each handle
	host        inventory.MoRef // ESXi host of the VM when its addresses were read
	network     network         // addresses of host
	list        []*handle       // handles that are open or being opened
	reserved    int             // number of handles with reserved memory; at least one until close
	changed     chan struct{}   // closed and replaced when list changes
	first       nfc.Buffers     // buffers without a shortage of memory; zero is the host's default
	buffers     nfc.Buffers     // buffers for further handles; zero is the host's default
	request     int64           // bytes of one request on further handles
	noMoreUntil time.Time       // no further handles are opened before it
	shortage    time.Time       // time of the last shortage of memory; zero if none, or if it has ended
	lastAddress string          // address of the last opened handle
	most        int             // highest number of concurrent handles
	wire        int64           // bytes received on closed handles
}

// newHandles returns the handles of s, without opening one. Large buffers are used only for a VM that
// is off.
func newHandles(s *Source) *handles {
	h := &handles{src: s, changed: make(chan struct{}), buffers: s.t.opts.Buffers, host: s.disk.VM.Host, network: s.esxi.network}
	cold := s.disk.Snapshot == ""
	if h.buffers == (nfc.Buffers{}) && cold {
		h.buffers = nfc.Buffers{Size: coldSize, Count: coldCount}
	}
	h.first, h.request = h.buffers, max(h.buffers.Size, leastRequest)
	h.cost = max(h.buffers.Memory(), depth*h.request)
	return h
}

// claimHandle returns the open handle with the fewest reads, after adding one. It opens another handle
// if that is useful, and waits if all are being opened. The caller must release the handle.
func (h *handles) claimHandle(ctx context.Context) (*handle, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h.mu.Lock()
		h.pruneFailed()
		h.endShortage()
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
		default: // other goroutines are opening all handles
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// pruneFailed removes unused handles whose session ended: a read that was canceled at its very end
// breaks the session after its release. mu must be held.
func (h *handles) pruneFailed() {
	for _, x := range slices.Clone(h.list) {
		if x.disk != nil && x.busy == 0 && x.disk.Failed() != nil {
			h.remove(x)
		}
	}
}

// endShortage restores the buffers and requests that were reduced because the host was out of memory,
// after shortageEnd. An export may read a disk for days. mu must be held.
func (h *handles) endShortage() {
	if h.shortage.IsZero() || h.src.t.opts.Now().Sub(h.shortage) < shortageEnd {
		return
	}
	h.shortage = time.Time{}
	h.buffers, h.request = h.first, max(h.first.Size, leastRequest)
}

// isReduced reports whether further handles have smaller buffers or requests because of a shortage. mu
// must be held.
func (h *handles) isReduced() bool {
	return h.buffers != h.first || h.request < max(h.first.Size, leastRequest)
}

// claimLeastBusy returns the open handle with the fewest reads, after adding one; nil if none is open.
// mu must be held.
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

// addHandle adds a handle to open, and takes the read off best, if another handle is useful and
// allowed. Otherwise it returns nil. mu must be held.
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
	x := &handle{busy: 1, reduced: h.isReduced()}
	h.list = append(h.list, x)
	return x
}

// openHandle opens x. After an error, x is not in the list any more.
func (h *handles) openHandle(ctx context.Context, x *handle) error {
	d, err := h.openDisk(ctx)
	h.recordOpened(x, d, err)
	if err == nil {
		host, _ := h.address()
		h.src.t.reportAddress(host, h.readAddress())
	}
	return err
}

// recordOpened records the result of opening x, and wakes waiters.
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

// openCount returns the number of handles that are open and work. mu must be held.
func (h *handles) openCount() (n int) {
	for _, x := range h.list {
		if x.disk != nil && x.disk.Failed() == nil {
			n++
		}
	}
	return n
}

// openDisk requests a ticket and opens the disk with it.
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
		err = h.followVM(ctx, err)
	}
	return d, err
}

// followVM handles err, the failure to open the disk at an interface that the user chose. After vMotion
// the ticket is for another host, and the interface has another address there: followVM reads the
// addresses of that host for the next attempt. It returns err, or the error that the new host has no such
// interface.
func (h *handles) followVM(ctx context.Context, err error) error {
	s := h.src
	old, network := h.address()
	if network.only == "" || !fault.Is(err, fault.Unreachable) && !fault.Is(err, fault.Denied) {
		return err
	}
	host, unknown := s.t.host.VMHost(ctx, s.disk.VM.Ref)
	if unknown != nil || host == old {
		return err
	}
	e, missing := s.t.esxiOf(ctx, host)
	if missing != nil {
		return missing
	}
	s.t.opts.Log.Info("the VM moved to another host", "vm", s.disk.VM.Ref, "host", host)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.host, h.network = host, e.network
	return err
}

// address returns the host of the VM, and its addresses.
func (h *handles) address() (inventory.MoRef, network) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.host, h.network
}

// useHostBuffers switches to the host's default buffers, a sixteenth of our default, if the host had no
// memory for the only handle: a slow handle is better than none.
func (h *handles) useHostBuffers(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	short := errors.Is(err, nfc.ErrMemory) || errors.Is(err, nfc.ErrQueued)
	if !short || h.buffers == (nfc.Buffers{}) || h.openCount() > 0 {
		return
	}
	h.src.t.opts.Log.Info("host is short of NFC memory, sessions use its default buffers", "disk", h.src.file.Key, "err", err)
	h.buffers, h.shortage = nfc.Buffers{}, h.src.t.opts.Now()
}

// tryAddresses opens the disk at the first address of the host that answers. A ticket can be used for
// the next address, because an unreachable one has not seen it.
func (h *handles) tryAddresses(ctx context.Context, t nfc.Ticket, o nfc.Options) (d *nfc.Disk, err error) {
	_, network := h.address()
	for _, addr := range network.dialAddresses(t.Addr(o.Server), t.Host != "") {
		d, err = nfc.Open(ctx, toAddr(t, addr), h.src.path, o)
		if !fault.Is(err, fault.Unreachable) {
			return d, err
		}
		h.src.t.opts.Log.Debug("no answer", "host", addr, "err", err)
	}
	return d, err
}

// learnFrom adapts the parameters of further handles to an error.
func (h *handles) learnFrom(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, nfc.ErrBuffers) && h.buffers != (nfc.Buffers{}):
		h.src.t.opts.Log.Info("host accepts only its default buffers", "disk", h.src.file.Key, "err", err)
		h.buffers, h.first = nfc.Buffers{}, nfc.Buffers{}
	case errors.Is(err, nfc.ErrMemory):
		now := h.src.t.opts.Now()
		h.shortage = now
		if now.After(h.noMoreUntil) { // otherwise another reader reported the same shortage
			h.noMoreUntil = now.Add(shortagePause)
			h.request = max(h.request/2, leastRequest/8)
		}
	}
}

// readerRequest returns the bytes that a reader should request at once: its share of the requests on a
// handle.
func (h *handles) readerRequest() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.request * depth / readers
}

// canContinue reports whether the failure to open a further handle can be ignored, because others are
// open. Then no further ones are opened for shortagePause.
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

// releaseHandle ends a read on x. It closes x if its session ended, if the disk has more than its share,
// or if x was opened in a shortage that has ended.
func (h *handles) releaseHandle(x *handle) {
	h.mu.Lock()
	x.busy--
	if x.disk.Failed() != nil {
		h.remove(x)
	}
	idle, surplus := h.shrinkToShare(x)
	if !idle && x.busy == 0 && x.reduced && !h.isReduced() && slices.Contains(h.list, x) {
		h.remove(x)
		idle = true
	}
	h.mu.Unlock()
	if idle {
		x.disk.Close() // before others may use its memory
	}
	if surplus {
		h.src.esxi.memory.release(h.cost)
	}
}

// shrinkToShare returns the memory of one handle if the disk has more than its share. surplus reports
// that the caller must release it. idle reports that the caller must close x, which was removed. mu
// must be held.
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

// remove removes x from the list, if it is there. mu must be held.
func (h *handles) remove(x *handle) {
	if i := slices.Index(h.list, x); i >= 0 {
		h.list = slices.Delete(h.list, i, i+1)
		if x.disk != nil {
			h.wire += x.disk.Received()
		}
		h.notifyChange()
	}
}

// notifyChange wakes the goroutines that wait for a change of the list. mu must be held.
func (h *handles) notifyChange() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// close closes all handles and returns their memory. No read may be running.
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

// readAddress returns the address of the last opened handle, with the reason for it.
func (h *handles) readAddress() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.network; n.note != "" && n.hasAddress(h.lastAddress) {
		return h.lastAddress + " (" + n.note + ")"
	}
	return h.lastAddress
}

// totals returns the received bytes, and the highest number of concurrent handles.
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
