package nfs

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/nfs/oncrpc"
	"github.com/decamp/decamp/internal/writebehind"
)

// Buffer is the memory that the payload of a WRITE is read into.
type Buffer = writebehind.Buffer

// While a disk's memory is used up, its connection is not read: that is what slows the
// client down. But behind its WRITEs stand its heartbeats and the renewals of its locks,
// which must be answered within 5 s (NFS.HeartbeatTimeout, NFS.DiskFileLockUpdateTimeout).
// So where nothing has come free for a while, payloads are read into spare memory, and
// their calls wait in place of the connection: until the spare memory, or the connection's
// number of calls in work, is used up too.
const (
	sparePatience = 250 * time.Millisecond
	spareMemory   = 32 << 20 // ESXi has 30 writes of 64 KiB in flight, 2 MiB a connection
)

// shortage is since when nothing was free, in Unix nanoseconds; 0 while something is.
type shortage struct{ since atomic.Int64 }

// remainingWait returns how long to wait still before spare memory is used.
func (s *shortage) remainingWait() time.Duration {
	now := time.Now()
	s.since.CompareAndSwap(0, now.UnixNano())
	return sparePatience - now.Sub(time.Unix(0, s.since.Load()))
}

func (s *shortage) end() {
	if s.since.Load() != 0 {
		s.since.Store(0)
	}
}

// expired is for asking a pool without waiting.
var expiredContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// payloadMemory is where the payloads of WRITEs are read into. The pools lock themselves.
type payloadMemory struct {
	disks *writebehind.Pool // for Contents of Export.Open; nil: as for plain files
	plain *writebehind.Pool // for files that are themselves
	spare *writebehind.Pool // for payloads whose own memory is used up

	shortage shortage
}

func newPayloadMemory(o Options) *payloadMemory {
	return &payloadMemory{
		disks: o.Pool, plain: writebehind.NewPool(o.PlainMemory),
		spare: writebehind.NewPool(spareMemory + spareMemory/3), // a quarter is for writing behind, and never made
	}
}

// getBuffer returns memory for n bytes that are to be written to a file at a place, and
// whether it is spare.
func (m *payloadMemory) getBuffer(ctx context.Context, c *oncrpc.Call, f *file, n int, at writebehind.Place) (b *Buffer, spare bool, err error) {
	pool := m.poolOf(f)
	if b, err := pool.GetAt(expiredContext, n, at); !errors.Is(err, context.Canceled) {
		m.shortage.end()
		return b, false, err
	}
	c.Pause()
	if wait := m.shortage.remainingWait(); wait > 0 {
		patience, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if b, err = pool.GetAt(patience, n, at); err == nil || ctx.Err() != nil {
			m.shortage.end()
			return b, false, err
		}
	}
	b, err = m.spare.Get(ctx, n)
	return b, true, err
}

// poolOf returns where the payload of a write to the file comes from.
func (m *payloadMemory) poolOf(f *file) *writebehind.Pool {
	if f.special && m.disks != nil {
		return m.disks
	}
	return m.plain
}
