package main

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
	// landLook is how often the files are looked at, landTell how often one that grows is
	// spoken of.
	landLook = time.Second
	landTell = 10 * time.Second

	// landQuiet is when a file that nobody locks is taken for complete: clients other than
	// ESXi do not say.
	landQuiet = 5 * time.Second

	// landSilent is when a lock that is not renewed is stale: ESXi renews every 10 s, and
	// gives another host the lock after 35 (NFS.DiskFileLockUpdateFreq, LockRenewMaxFailureNumber,
	// LockUpdateTimeout).
	landSilent = 35 * time.Second

	// landSmall is the size below which a file is not worth a line: descriptors and locks.
	landSmall = 1 << 20

	// landRest is the longest that a file that nobody writes to is not looked at: a folder
	// may hold a hundred thousand of them.
	landRest = time.Minute

	lockPrefix = ".lck-" // of ESXi's lock files, beside what they lock
)

// landState is where a file stands.
type landState string

const (
	fileLanding landState = "landing"
	fileLanded  landState = "landed"
	fileSilent  landState = "silent"  // its host holds it open and is not heard of
	fileRemoved landState = "removed" // before it was complete
)

// landFile is what is told of one file.
type landFile struct {
	Name    string        `json:"name"` // in the folder
	State   landState     `json:"state"`
	Size    int64         `json:"size"`
	Landed  int64         `json:"landed"`  // bytes that are there: holes do not count
	Elapsed time.Duration `json:"elapsed"` // nanoseconds
}

// landWatch follows the files of a folder that are written to. It learns their names from
// the server and looks at the files themselves.
type landWatch struct {
	dir string

	mu    sync.Mutex
	known map[string]*watchedFile
}

type watchedFile struct {
	landFile
	began   time.Time
	changed time.Time // when it last was another than before
	told    time.Time
	looked  time.Time
	mtime   time.Time
	locked  bool
}

func newLandWatch(dir string) *landWatch {
	return &landWatch{dir: dir, known: map[string]*watchedFile{}}
}

// used notes that a file is about to be used. It may be called for any name. What the file
// is before that is what tells the copy that comes and goes between two looks from a file
// that has been there for years.
func (w *landWatch) used(name string) {
	if strings.HasPrefix(filepath.Base(name), lockPrefix) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known[name] == nil {
		f := &watchedFile{landFile: landFile{Name: name}}
		f.stat(w.dir)
		w.known[name] = f
	}
}

// look returns what is news of the files, by their names.
func (w *landWatch) look(now time.Time) (news []landFile) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.known)) {
		f := w.known[name]
		if f.rests(now) {
			continue
		}
		f.looked = now
		if f.look(w.dir, now) {
			news = append(news, f.landFile)
		}
		if f.State == fileRemoved {
			delete(w.known, name)
		}
	}
	return news
}

// total sums the files that landed, and names those that are not complete.
func (w *landWatch) total() (files int, bytes int64, open []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	open = []string{} // never null, as JSON
	for _, name := range slices.Sorted(maps.Keys(w.known)) {
		switch f := w.known[name]; f.State {
		case fileLanded:
			files++
			bytes += f.Landed
		case fileLanding, fileSilent:
			open = append(open, name)
		}
	}
	return files, bytes, open
}

// rests reports whether a file need not be looked at yet: the longer it was quiet, the more
// seldom.
func (f *watchedFile) rests(now time.Time) bool {
	const share = 16 // of its quiet time
	return (f.State == "" || f.State == fileLanded) && now.Sub(f.looked) < min(now.Sub(f.changed)/share, landRest)
}

// look reports whether there is something to tell.
func (f *watchedFile) look(dir string, now time.Time) bool {
	before := *f
	heard, there := f.stat(dir)
	if !there {
		f.State = fileRemoved
		return before.State == fileLanding || before.State == fileSilent
	}
	moved := f.Landed != before.Landed || f.Size != before.Size || !f.mtime.Equal(before.mtime)
	if moved || f.changed.IsZero() {
		f.changed = now
	}
	switch next := f.next(now, moved || f.locked, before.locked && !f.locked, f.locked && now.Sub(heard) > landSilent); {
	case f.Size < landSmall:
		return false
	case next != f.State:
		return f.enter(next, now)
	case next == fileLanding && now.Sub(f.told) >= landTell:
		return f.tell(now)
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

// next is the state after a look.
func (f *watchedFile) next(now time.Time, active, unlocked, unheard bool) landState {
	switch {
	case f.locked && unheard:
		return fileSilent
	case f.State == fileLanding && (unlocked || !f.locked && now.Sub(f.changed) >= landQuiet), f.State == fileSilent && !f.locked:
		return fileLanded
	case active:
		return fileLanding
	}
	return f.State
}

func (f *watchedFile) enter(s landState, now time.Time) bool {
	if s == fileLanding && f.State != fileSilent {
		f.began = now
	}
	f.State = s
	return f.tell(now)
}

func (f *watchedFile) tell(now time.Time) bool {
	f.told, f.Elapsed = now, now.Sub(f.began)
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

// String is a line for eyes.
func (f landFile) String() string {
	name := plain(f.Name)
	switch f.State {
	case fileLanded:
		return fmt.Sprintf("%s: landed, %s of %s in %s (%s)", name, size(f.Landed), size(f.Size), duration(f.Elapsed), rate(f.Landed, f.Elapsed))
	case fileSilent:
		return fmt.Sprintf("%s: its host has not been heard of for %s; %s of %s are here", name, landSilent, size(f.Landed), size(f.Size))
	case fileRemoved:
		return fmt.Sprintf("%s: removed before it was complete", name)
	}
	if f.Elapsed == 0 {
		return fmt.Sprintf("%s: begins to land, %s", name, size(f.Size))
	}
	return fmt.Sprintf("%s: %s of %s so far, %s", name, size(f.Landed), size(f.Size), rate(f.Landed, f.Elapsed))
}
