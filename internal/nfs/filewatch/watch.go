// Package filewatch follows the files of a served folder that clients write to, and reports when each is complete.
// ESXi holds a lock file beside a file for as long as it writes; for other clients a quiet time counts.
package filewatch

import (
	"fmt"
	"io/fs"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// reportEvery is the shortest time between two reports of a file that grows.
	reportEvery = 10 * time.Second

	// quietAfter is when a file that nobody locks is taken for complete: clients other than
	// ESXi do not say.
	quietAfter = 5 * time.Second

	// SilentAfter is when a lock that is not renewed is stale: ESXi renews every 10 s, and
	// gives another host the lock after 35 (NFS.DiskFileLockUpdateFreq, LockRenewMaxFailureNumber,
	// LockUpdateTimeout).
	SilentAfter = 35 * time.Second

	// leastSize is the size below which a file is not reported: descriptors and locks.
	leastSize = 1 << 20

	// longestRest is the longest time that a file without writes is not looked at: a folder
	// may hold a hundred thousand of them.
	longestRest = time.Minute

	lockPrefix = ".lck-" // of ESXi's lock files, beside what they lock
)

// State is how far a file is.
type State string

// States of a file; "" is one that nobody has written to.
const (
	Landing State = "landing"
	Landed  State = "landed"
	Silent  State = "silent"  // its host holds it open and does not renew the lock
	Removed State = "removed" // before it was complete
)

// File is one report of a file.
type File struct {
	Name    string        `json:"name"` // in the folder
	State   State         `json:"state"`
	Size    int64         `json:"size"`
	Landed  int64         `json:"landed"`  // bytes that are there: holes do not count
	Elapsed time.Duration `json:"elapsed"` // nanoseconds
}

// Watch follows the files of a folder that are written to. The server reports their names to it, and it
// looks at the files themselves. It is safe for concurrent use.
type Watch struct {
	dir string

	mu    sync.Mutex
	known map[string]*watchedFile
}

type watchedFile struct {
	File
	began    time.Time
	changed  time.Time // when it last was another than before
	reported time.Time
	checked  time.Time
	mtime    time.Time
	locked   bool
}

// New returns a watch on the folder dir.
func New(dir string) *Watch {
	return &Watch{dir: dir, known: map[string]*watchedFile{}}
}

// Used notes that a file is about to be used. It may be called for any name. What the file
// is before that is what tells the copy that comes and goes between two looks from a file
// that has been there for years.
func (w *Watch) Used(name string) {
	if strings.HasPrefix(filepath.Base(name), lockPrefix) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known[name] == nil {
		f := &watchedFile{File: File{Name: name}}
		f.stat(w.dir)
		w.known[name] = f
	}
}

// Look returns what is new of the files since the last call, ordered by their names.
func (w *Watch) Look(now time.Time) (news []File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.known)) {
		f := w.known[name]
		if f.isResting(now) {
			continue
		}
		f.checked = now
		if f.update(w.dir, now) {
			news = append(news, f.File)
		}
		if f.State == Removed {
			delete(w.known, name)
		}
	}
	return news
}

// Total sums the files that landed, and names those that are not complete.
func (w *Watch) Total() (files int, bytes int64, open []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	open = []string{} // never null, as JSON
	for _, name := range slices.Sorted(maps.Keys(w.known)) {
		switch f := w.known[name]; f.State {
		case Landed:
			files++
			bytes += f.Landed
		case Landing, Silent:
			open = append(open, name)
		}
	}
	return files, bytes, open
}

// isResting reports whether a file need not be looked at yet: the longer it was quiet, the more
// seldom.
func (f *watchedFile) isResting(now time.Time) bool {
	const share = 16 // of its quiet time
	return (f.State == "" || f.State == Landed) && now.Sub(f.checked) < min(now.Sub(f.changed)/share, longestRest)
}

// update reports whether there is something to tell.
func (f *watchedFile) update(dir string, now time.Time) bool {
	before := *f
	heard, there := f.stat(dir)
	if !there {
		f.State = Removed
		return before.State == Landing || before.State == Silent
	}
	moved := f.Landed != before.Landed || f.Size != before.Size || !f.mtime.Equal(before.mtime)
	if moved || f.changed.IsZero() {
		f.changed = now
	}
	switch next := f.nextState(now, moved || f.locked, before.locked && !f.locked, f.locked && now.Sub(heard) > SilentAfter); {
	case f.Size < leastSize:
		return false
	case next != f.State:
		return f.enterState(next, now)
	case next == Landing && now.Sub(f.reported) >= reportEvery:
		return f.markReported(now)
	}
	return false
}

// stat reads what the file is now, and when its lock was last renewed.
func (f *watchedFile) stat(dir string) (heard time.Time, there bool) {
	info, err := os.Lstat(filepath.Join(dir, f.Name))
	if err != nil || !info.Mode().IsRegular() {
		return time.Time{}, false
	}
	st := info.Sys().(*syscall.Stat_t)
	f.Size, f.Landed, f.mtime = info.Size(), st.Blocks*512, info.ModTime()
	heard, f.locked = lockOf(filepath.Join(dir, filepath.Dir(f.Name)), st.Ino)
	return heard, true
}

// nextState is the state after a look.
func (f *watchedFile) nextState(now time.Time, active, unlocked, unheard bool) State {
	switch {
	case f.locked && unheard:
		return Silent
	case f.State == Landing && (unlocked || !f.locked && now.Sub(f.changed) >= quietAfter), f.State == Silent && !f.locked:
		return Landed
	case active:
		return Landing
	}
	return f.State
}

func (f *watchedFile) enterState(s State, now time.Time) bool {
	if s == Landing && f.State != Silent {
		f.began = now
	}
	f.State = s
	return f.markReported(now)
}

func (f *watchedFile) markReported(now time.Time) bool {
	f.reported, f.Elapsed = now, now.Sub(f.began)
	return true
}

// lockOf returns when the lock of a file was last renewed, and whether there is one. Its name
// is the file's id in hex, least significant byte first (KB 340515).
func lockOf(folder string, inode uint64) (renewed time.Time, locked bool) {
	info, err := os.Lstat(filepath.Join(folder, fmt.Sprintf("%s%016x", lockPrefix, bits.ReverseBytes64(inode))))
	if err != nil {
		return time.Time{}, false // fs.ErrNotExist, or it cannot be seen
	}
	return info.ModTime(), info.Mode().Type() == fs.FileMode(0)
}
