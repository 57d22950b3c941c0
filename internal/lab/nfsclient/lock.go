package nfsclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// lockSize is the size of a lock file in bytes: each renewal writes all of it (KB 1007909).
const lockSize = 84

// lockName returns the name of the lock file for a fileid: its bytes in hex, least significant first
// (KB 340515).
func lockName(fileID uint64) string { return fmt.Sprintf(".lck-%016x", bits.ReverseBytes64(fileID)) }

// A lock is the .lck file of an open file. A goroutine of the datastore renews it.
type lock struct {
	d      *Datastore // datastore of the file
	dir    Handle     // directory of the file and of the lock file
	name   string     // name of the lock file
	handle Handle     // handle of the lock file
	fileID uint64     // fileid of the locked file

	stop    context.CancelFunc // ends the renewals
	stopped chan struct{}      // closed when the renewals have ended

	mu      sync.Mutex // guards the fields below
	counter uint64     // number of renewals, written to the lock file
	lost    error      // error of a lost lock; nil while the lock is valid
}

// content is a lock file: a counter, by which other hosts detect renewals, and the name of the holder.
// The layout is not documented; this one is the emulator's.
type content [lockSize]byte

// newContent returns a lock file with the counter and the name of the holder.
func newContent(counter uint64, machine string) (c content) {
	binary.LittleEndian.PutUint64(c[:], counter)
	copy(c[8:lockSize-1], machine)
	return c
}

// holder returns the name of the host that holds the lock.
func (c content) holder() string { return strings.TrimRight(string(c[8:]), "\x00") }

// acquireLock locks a file and starts the renewals. It waits for another host's lock to become stale
// and breaks it.
func (d *Datastore) acquireLock(ctx context.Context, dir Handle, fileID uint64) (*lock, error) {
	l := &lock{d: d, dir: dir, name: lockName(fileID), fileID: fileID, stopped: make(chan struct{})}
	if err := d.registerLock(l); err != nil {
		return nil, err
	}
	if err := l.createLockFile(ctx); err != nil {
		d.unregisterLock(l)
		return nil, fmt.Errorf("lock %s: %w", l.name, err)
	}
	renew, stop := context.WithCancel(d.background)
	l.stop = stop
	d.running.Go(func() {
		defer close(l.stopped)
		l.renewUntilReleased(renew)
	})
	return l, nil
}

// registerLock records the lock on this host. It fails if the file is already open here.
func (d *Datastore) registerLock(l *lock) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locks[l.fileID] != nil {
		return fmt.Errorf("fileid %d is open on this host already: %w", l.fileID, ErrLocked)
	}
	d.locks[l.fileID] = l
	return nil
}

// unregisterLock removes the record of the lock.
func (d *Datastore) unregisterLock(l *lock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.locks, l.fileID)
}

// createLockFile creates the lock file exclusively and writes it. It retries after breaking a stale
// lock.
func (l *lock) createLockFile(ctx context.Context) (err error) {
	for {
		verf := rand.Uint64()
		if l.handle, _, err = l.d.createFile(ctx, l.dir, l.name, &verf); err == nil {
			if err = l.writeLockFile(ctx); err != nil { // a full disk, say
				err = errors.Join(err, l.d.removeName(context.WithoutCancel(ctx), procRemove, l.dir, l.name))
			}
			return err
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := l.breakStale(ctx); err != nil {
			return err
		}
	}
}

// breakStale observes another host's lock. It returns nil when the lock is gone, and ErrLocked if the
// lock is renewed.
func (l *lock) breakStale(ctx context.Context) error {
	times := l.d.cfg.Times
	before, err := l.readLockFile(ctx)
	for _, wait := range []time.Duration{times.staleAfter(), times.LockBreak} {
		if err != nil {
			return ignoreGone(err)
		}
		sleep(ctx, wait)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var now content
		if now, err = l.readLockFile(ctx); err == nil && now != before {
			return fmt.Errorf("%w: %s", ErrLocked, now.holder())
		}
	}
	if err != nil {
		return ignoreGone(err)
	}
	l.d.cfg.OnEvent(Event{Kind: LockBroken})
	return ignoreGone(l.d.removeName(ctx, procRemove, l.dir, l.name))
}

// ignoreGone returns nil if err means that the file does not exist.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readLockFile reads another host's lock. A lock that is being created may be shorter; the rest is
// zero.
func (l *lock) readLockFile(ctx context.Context) (c content, err error) {
	h, _, err := l.d.lookup(ctx, l.dir, l.name)
	if err != nil {
		return c, err
	}
	_, _, err = l.d.readOnce(ctx, h, c[:], 0)
	return c, err
}

// writeLockFile writes the lock file with the next counter.
func (l *lock) writeLockFile(ctx context.Context) error {
	l.mu.Lock()
	l.counter++
	c := newContent(l.counter, l.d.cfg.Machine)
	l.mu.Unlock()
	n, _, err := l.d.writeOnce(ctx, l.handle, c[:], 0, fileSync)
	if err == nil && n != lockSize {
		err = fmt.Errorf("WRITE of a lock: %d of %d bytes", n, lockSize)
	}
	return err
}

// renewUntilReleased renews the lock at each interval until ctx ends. Three failures in a row lose it.
func (l *lock) renewUntilReleased(ctx context.Context) {
	tick := time.NewTicker(l.d.cfg.Times.LockUpdate)
	defer tick.Stop()
	for failed := 0; failed < lockMaxFailure; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := l.renewOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failed = 0
			l.d.cfg.OnEvent(Event{Kind: LockRenewed})
			continue
		}
		failed++
		l.d.cfg.OnEvent(Event{Kind: LockNotRenewed, Err: err, N: failed})
		if failed == lockMaxFailure {
			l.markLost(err)
		}
	}
}

// renewOnce writes the lock file within Times.LockTimeout.
func (l *lock) renewOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.d.cfg.Times.LockTimeout)
	defer cancel()
	return l.writeLockFile(ctx)
}

// markLost records that the lock is lost; I/O on the file then fails.
func (l *lock) markLost(err error) {
	l.mu.Lock()
	l.lost = fmt.Errorf("%w: %w", ErrLockLost, err)
	l.mu.Unlock()
	l.d.cfg.OnEvent(Event{Kind: LockLost, Err: err})
}

// lostError returns the error of a lost lock, or nil. It is called before each I/O, as ESXi verifies
// its locks.
func (l *lock) lostError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// verifyOnServer checks that the lock file on the server has the expected size.
func (l *lock) verifyOnServer(ctx context.Context) error {
	a, err := l.d.getAttr(ctx, l.handle)
	if err == nil && a.Size != lockSize {
		err = fmt.Errorf("it has %d bytes, %d were written", a.Size, lockSize)
	}
	return wrapError(err, "lock "+l.name)
}

// release stops the renewals and removes the lock file. A lost lock is not removed: it may belong to
// another host.
func (l *lock) release(ctx context.Context) error {
	l.stop()
	<-l.stopped
	defer l.d.unregisterLock(l)
	if err := l.lostError(); err != nil {
		return err // the file may belong to another host
	}
	l.d.forgetHandle(l.handle)
	// Gone already: a REMOVE that was sent twice because the server went away.
	return wrapError(ignoreGone(l.d.removeName(ctx, procRemove, l.dir, l.name)), "release "+l.name)
}
