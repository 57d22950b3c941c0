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

// While a disk's memory is used up, its connection is not read: that slows the client down. But
// heartbeats and lock renewals follow the WRITEs in the connection, and ESXi requires their answers
// within 5 s (NFS.HeartbeatTimeout, NFS.DiskFileLockUpdateTimeout). Therefore, if no memory became
// free for a while, payloads are read into spare memory, and their calls wait instead of the
// connection: until the spare memory, or the connection's number of calls in work, is used up too.
const (
	sparePatience = 250 * time.Millisecond // time without free memory after which spare memory is used
	spareMemory   = 32 << 20               // bytes of spare payloads. ESXi has 30 writes of 64 KiB in flight, 2 MiB a connection.
	smallPayload  = 4 << 10                // largest payload in bytes for which a pool has a reserve, see writebehind.Pool
)

// shortage measures for how long a pool has been used up. It is safe for concurrent use.
type shortage struct{ since atomic.Int64 }

// remainingWait returns how much longer to wait before spare memory is used; 0 or less means now. The
// first call starts the shortage.
func (s *shortage) remainingWait() time.Duration {
	now := time.Now()
	s.since.CompareAndSwap(0, now.UnixNano())
	return sparePatience - now.Sub(time.Unix(0, s.since.Load()))
}

// end ends the shortage. It writes only if there is one, because each WRITE calls it.
func (s *shortage) end() {
	if s.since.Load() != 0 {
		s.since.Store(0)
	}
}

// expiredContext makes Pool.GetAt return at once if it has to wait.
var expiredContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// payloadMemory contains the pools for the payloads of WRITEs. It is safe for concurrent use.
type payloadMemory struct {
	disks *payloadPool      // Options.Pool: for Contents from Export.Open; nil uses plain
	plain *payloadPool      // pool for plain files
	spare *writebehind.Pool // pool for payloads whose pool has been used up for sparePatience
}

// payloadPool is a pool for payloads. Each pool has its own shortages: hosts renew locks, which are plain
// files, while the memory of the disks is used up. If disks and plain files share a pool, the reserve for
// small payloads may be free while there is no memory for larger ones.
type payloadPool struct {
	*writebehind.Pool
	small shortage // how long the pool has been used up for payloads up to smallPayload
	large shortage // how long it has been used up for larger ones
}

// shortageOf returns the shortage of payloads of n bytes.
func (p *payloadPool) shortageOf(n int) *shortage {
	if n <= smallPayload {
		return &p.small
	}
	return &p.large
}

// newPayloadMemory returns the pools for o. No memory is allocated yet.
func newPayloadMemory(o Options) *payloadMemory {
	m := &payloadMemory{
		plain: &payloadPool{Pool: writebehind.NewPool(o.PlainMemory)},
		spare: writebehind.NewPool(spareMemory + spareMemory/3), // the pool reserves a quarter for windows, which are never allocated here
	}
	if o.Pool != nil {
		m.disks = &payloadPool{Pool: o.Pool}
	}
	return m
}

// getBuffer returns a buffer of n bytes for a write to f at a place. spare reports that it is spare
// memory, which the Content must not own. It waits first for the file's pool and then for spare memory,
// until ctx ends. Before it waits it sends held replies.
func (m *payloadMemory) getBuffer(ctx context.Context, c *oncrpc.Call, f *file, n int, at writebehind.DiskOffset) (b *Buffer, spare bool, err error) {
	pool := m.poolOf(f)
	shortage := pool.shortageOf(n)
	if b, err := pool.GetAt(expiredContext, n, at); !errors.Is(err, context.Canceled) {
		shortage.end()
		return b, false, err
	}
	c.Pause()
	if wait := shortage.remainingWait(); wait > 0 {
		patience, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if b, err = pool.GetAt(patience, n, at); err == nil {
			shortage.end()
			return b, false, nil
		}
		if ctx.Err() != nil {
			return nil, false, err
		}
	}
	b, err = m.spare.Get(ctx, n)
	return b, true, err
}

// poolOf returns the pool for writes to f.
func (m *payloadMemory) poolOf(f *file) *payloadPool {
	if f.special && m.disks != nil {
		return m.disks
	}
	return m.plain
}
