// Package filewatch follows the files of a served folder that clients write to, and reports when each is complete.
// ESXi keeps a lock file beside a file while it writes; a file of another client is complete after a quiet time.
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
	// reportEvery is the shortest time between two reports of a growing file.
	reportEvery = 10 * time.Second

	// quietAfter is the time without writes after which a file without a lock counts as complete: clients
	// other than ESXi give no sign.
	quietAfter = 5 * time.Second

	// SilentAfter is the age of the last renewal from which a lock is stale. ESXi renews every 10 s, and
	// another host may take the lock after 35 s (NFS.DiskFileLockUpdateFreq, LockRenewMaxFailureNumber,
	// LockUpdateTimeout).
	SilentAfter = 35 * time.Second

	// leastSize is the smallest file that is reported, in bytes: smaller ones are descriptors and locks.
	leastSize = 1 << 20

	// longestRest is the longest time in which a file without writes is not examined: a folder may contain
	// a hundred thousand files.
	longestRest = time.Minute

	lockPrefix = ".lck-" // prefix of ESXi's lock files, which are in the folder of the locked file
)

// State is the progress of a file.
type State string

// States of a file; "" before the first write.
const (
	Landing State = "landing" // a client writes to the file
	Landed  State = "landed"  // complete: its lock is gone, or the file was quiet
	Silent  State = "silent"  // locked, but the host no longer renews the lock
	Removed State = "removed" // deleted before it was complete
)

// File is one report of a file.
type File struct {
	Name    string        `json:"name"`    // path relative to the folder
	State   State         `json:"state"`   // progress; empty before the first write
	Size    int64         `json:"size"`    // length in bytes
	Landed  int64         `json:"landed"`  // allocated bytes: holes do not count
	Elapsed time.Duration `json:"elapsed"` // time since the first write, in nanoseconds
}

// Watch follows the files of a folder that clients write to. The server reports their names to it, and
// it examines the files themselves. It is safe for concurrent use.
type Watch struct {
	dir string // folder with the files

	mu    sync.Mutex              // guards known and the files in it
	known map[string]*watchedFile // files that were used, by name
}

// watchedFile is a file with the history that its State depends on.
type watchedFile struct {
	File
	began    time.Time // time at which it became Landing
	changed  time.Time // time of the last examination that found a change
	reported time.Time // time of the last report
	checked  time.Time // time of the last examination
	mtime    time.Time // modification time at that examination
	locked   bool      // a lock file of ESXi exists
}

// New returns a watch on the folder dir.
func New(dir string) *Watch {
	return &Watch{dir: dir, known: map[string]*watchedFile{}}
}

// Used records that a file is about to be used. It may be called for any name. It records the state
// before the use. Later, that separates a copy that starts and ends between two calls of Look from a
// file that has existed for long.
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

// Poll examines the files and returns those with news since the last call, sorted by name. now is the
// current time.
func (w *Watch) Poll(now time.Time) (news []File) {
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

// Total returns the number and the bytes of the complete files, and the names of the incomplete ones.
func (w *Watch) Total() (files int, bytes int64, open []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	open = []string{} // an empty list, not null, in JSON
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

// isResting reports whether a file need not be examined yet: the longer it was quiet, the less often.
func (f *watchedFile) isResting(now time.Time) bool {
	const share = 16 // pause between examinations: this part of the quiet time
	return (f.State == "" || f.State == Landed) && now.Sub(f.checked) < min(now.Sub(f.changed)/share, longestRest)
}

// update examines the file and reports whether there is news of it.
func (f *watchedFile) update(dir string, now time.Time) bool {
	before := *f
	renewed, exists := f.stat(dir)
	if !exists {
		f.State = Removed
		return before.State == Landing || before.State == Silent
	}
	moved := f.Landed != before.Landed || f.Size != before.Size || !f.mtime.Equal(before.mtime)
	if moved || f.changed.IsZero() {
		f.changed = now
	}
	switch next := f.nextState(now, moved || f.locked, before.locked && !f.locked, f.locked && now.Sub(renewed) > SilentAfter); {
	case f.Size < leastSize:
		return false
	case next != f.State:
		return f.enterState(next, now)
	case next == Landing && now.Sub(f.reported) >= reportEvery:
		return f.markReported(now)
	}
	return false
}

// stat reads the current attributes of the file and the time of its lock's last renewal. exists is
// false if it is not a regular file.
func (f *watchedFile) stat(dir string) (renewed time.Time, exists bool) {
	info, err := os.Lstat(filepath.Join(dir, f.Name))
	if err != nil || !info.Mode().IsRegular() {
		return time.Time{}, false
	}
	st := info.Sys().(*syscall.Stat_t)
	f.Size, f.Landed, f.mtime = info.Size(), st.Blocks*512, info.ModTime()
	renewed, f.locked = lockOf(filepath.Join(dir, filepath.Dir(f.Name)), st.Ino)
	return renewed, true
}

// nextState returns the state after an examination. active: written or locked; unlocked: the lock was
// removed since the last examination; stale: the lock was not renewed in time.
func (f *watchedFile) nextState(now time.Time, active, unlocked, stale bool) State {
	switch {
	case f.locked && stale:
		return Silent
	case f.State == Landing && (unlocked || !f.locked && now.Sub(f.changed) >= quietAfter), f.State == Silent && !f.locked:
		return Landed
	case active:
		return Landing
	}
	return f.State
}

// enterState changes the state and reports it. It always returns true.
func (f *watchedFile) enterState(s State, now time.Time) bool {
	if s == Landing && f.State != Silent {
		f.began = now
	}
	f.State = s
	return f.markReported(now)
}

// markReported records the time of a report. It always returns true.
func (f *watchedFile) markReported(now time.Time) bool {
	f.reported, f.Elapsed = now, now.Sub(f.began)
	return true
}

// lockOf returns the time of the last renewal of a file's lock, and whether a lock exists. Its name
// contains the file's inode number in hexadecimal, least significant byte first (KB 340515).
func lockOf(folder string, inode uint64) (renewed time.Time, locked bool) {
	info, err := os.Lstat(filepath.Join(folder, fmt.Sprintf("%s%016x", lockPrefix, bits.ReverseBytes64(inode))))
	if err != nil {
		return time.Time{}, false // fs.ErrNotExist, or no access
	}
	return info.ModTime(), info.Mode().Type() == fs.FileMode(0)
}
