package nfs

import (
	"container/list"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// fileState is the state of a node that is a regular file.
type fileState struct {
	opening sync.Mutex // held while the file is opened, so that Export.Open is called once
	open    *file      // open file; nil if it is closed. The cache's mu guards it.

	// drops counts the calls of forget and forgetPlain, which do not wait for opening. A file that is
	// forgotten while it is opened is not kept. The cache's mu guards it.
	drops drops

	// plain is set once Export.Open returned no Content for the file. forget and forgetPlain clear it. The
	// cache's mu is held when it is changed.
	plain atomic.Bool

	// touched is the time of the last change of a Content, in Unix nanoseconds; 0 if there was none since
	// the times were set. The times of the file in the folder do not show it.
	touched atomic.Int64
}

// drops counts calls.
type drops struct{ forget, forgetPlain int64 }

// file is an open regular file. The cache shares it among all calls.
type file struct {
	*os.File
	content   Content   // Content of the file: an osContent, or from Export.Open
	special   bool      // Export.Open returned the Content
	tryWriter tryWriter // the Content as a tryWriter; nil if it has no TryWrite

	refs        int           // number of calls that use the file; the cache's mu guards it and the next two
	closeUnused bool          // the call that drops the last reference closes the file
	idle        *list.Element // entry in the cache's idle list; nil while a call uses the file
}

// closeAll closes the file and, if Export.Open returned it, the Content.
func (f *file) closeAll() error {
	if f.special {
		return errors.Join(f.content.Close(), f.File.Close())
	}
	return f.File.Close()
}

// maxIdle is the number of unused plain files that stay open.
const maxIdle = 128

// fileCache keeps files open between calls: NFSv3 has no open and no close. A file with a Content from
// Export.Open stays open until it is removed or forgotten.
type fileCache struct {
	mu      sync.Mutex      // guards the fields below, fileState.open, and the counters of each file
	idle    *list.List      // list of *idleFile, the longest unused first
	special map[*node]*file // open files with a Content from Export.Open
	closing sync.WaitGroup  // counts files that are being closed in the background
}

// idleFile is an entry of the idle list: an open file without references.
type idleFile struct {
	node *node // node whose fileState.open is file
	file *file
}

// newFileCache returns a cache without open files.
func newFileCache() *fileCache { return &fileCache{idle: list.New(), special: make(map[*node]*file)} }

// acquire returns the open file of n, and opens it if necessary. The caller must release it.
func (c *fileCache) acquire(n *node) (*file, error) {
	if f := c.acquireOpen(n); f != nil {
		return f, nil
	}
	n.file.opening.Lock()
	defer n.file.opening.Unlock()
	if f := c.acquireOpen(n); f != nil {
		return f, nil
	}
	before := c.dropsOf(n)
	f, plain, err := openFile(n)
	if err != nil {
		return nil, err
	}
	c.addOpen(n, f, plain, before)
	return f, nil
}

// contentError wraps an error of Export.Open. The server then returns no attributes of the file,
// because the file in the folder has a wrong size.
type contentError struct{ error }

// Unwrap returns the error of Export.Open.
func (e *contentError) Unwrap() error { return e.error }

// openFile opens the regular file n and its Content. plain reports that it called Export.Open, which
// returned none. n.file.opening must be held.
func openFile(n *node) (f *file, plain bool, err error) {
	o, err := n.export.openNode(n)
	if err != nil {
		return nil, false, err
	}
	defer o.close()
	osFile, err := o.open()
	if err != nil {
		return nil, false, err
	}
	f = &file{File: osFile, content: osContent{osFile}}
	if n.export.Open == nil || n.file.plain.Load() {
		return f, false, nil
	}
	content, err := n.export.Open(n.export.pathOf(n))
	if err != nil {
		return nil, false, errors.Join(&contentError{err}, osFile.Close())
	}
	if content == nil {
		return f, true, nil
	}
	f.content, f.special = content, true
	f.tryWriter, _ = content.(tryWriter)
	return f, false, nil
}

// acquireOpen returns the file if it is open, with another reference; nil if it is closed.
func (c *fileCache) acquireOpen(n *node) *file {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := n.file.open
	if f == nil {
		return nil
	}
	f.refs++
	if f.idle != nil {
		c.idle.Remove(f.idle)
		f.idle = nil
	}
	return f
}

// dropsOf returns how often n was forgotten.
func (c *fileCache) dropsOf(n *node) drops {
	c.mu.Lock()
	defer c.mu.Unlock()
	return n.file.drops
}

// addOpen adds a file that was just opened, with one reference, and sets fileState.plain if plain is
// set. before is the result of dropsOf from before the opening. If the file was forgotten since then,
// only the caller uses it, and release closes it.
func (c *fileCache) addOpen(n *node, f *file, plain bool, before drops) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.refs = 1
	now := n.file.drops
	if now.forget != before.forget || !f.special && now.forgetPlain != before.forgetPlain {
		f.closeUnused = true
		return
	}
	if plain {
		n.file.plain.Store(true)
	}
	n.file.open = f
	if f.special {
		c.special[n] = f
	}
}

// release ends the use of a file by one call. It does not wait: a Content may need long to close.
func (c *fileCache) release(n *node, f *file) {
	if closing := c.dropRef(n, f); closing != nil {
		c.closing.Go(func() {
			_ = closing.closeAll() // no call waits for this error; a Content reports its own
		})
	}
}

// dropRef drops one reference and returns the file that the caller must close: f itself if it was
// forgotten meanwhile, or the longest unused file if too many are idle. It returns nil if none must be
// closed.
func (c *fileCache) dropRef(n *node, f *file) *file {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.refs--
	switch {
	case f.refs > 0:
		return nil
	case f.closeUnused:
		return f
	case f.special:
		return nil
	}
	f.idle = c.idle.PushBack(&idleFile{n, f})
	if c.idle.Len() <= maxIdle {
		return nil
	}
	oldest := c.idle.Remove(c.idle.Front()).(*idleFile)
	oldest.node.file.open = nil
	return oldest.file
}

// forget closes the file of n, or lets the last call that uses or opens it close it. The next use opens
// it again and calls Export.Open.
func (c *fileCache) forget(n *node) error {
	c.mu.Lock()
	n.file.drops.forget++
	unused := c.removeOpen(n)
	c.mu.Unlock()
	if unused == nil {
		return nil
	}
	return unused.closeAll()
}

// forgetPlain is forget for a file that has another path now: Export.Open may return a Content for it. A
// file that has a Content, or gets one from an opening that runs, keeps it.
func (c *fileCache) forgetPlain(n *node) error {
	c.mu.Lock()
	n.file.drops.forgetPlain++
	var unused *file
	if f := n.file.open; f == nil || !f.special {
		unused = c.removeOpen(n)
	}
	c.mu.Unlock()
	if unused == nil {
		return nil
	}
	return unused.closeAll()
}

// removeOpen removes the open file of n from the cache. It returns the file if the caller must close it;
// nil if none is open, or the last call that uses it closes it. mu must be held.
func (c *fileCache) removeOpen(n *node) *file {
	n.file.plain.Store(false)
	f := n.file.open
	n.file.open = nil
	delete(c.special, n)
	if f == nil {
		return nil
	}
	if f.refs > 0 {
		f.closeUnused = true
		return nil
	}
	if f.idle != nil {
		c.idle.Remove(f.idle)
		f.idle = nil
	}
	return f
}

// close closes all files, and waits for those being closed in the background. No call may be in work.
func (c *fileCache) close() error {
	c.closing.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for n, f := range c.special {
		n.file.open = nil
		errs = append(errs, f.closeAll())
	}
	clear(c.special)
	for c.idle.Len() > 0 {
		i := c.idle.Remove(c.idle.Front()).(*idleFile)
		i.node.file.open = nil
		errs = append(errs, i.file.closeAll())
	}
	return errors.Join(errs...)
}

// touch records that the Content was changed now.
func (s *fileState) touch() { s.touched.Store(time.Now().UnixNano()) }

// openRegular returns the open file of a handle. It fails with statusIsDir or statusInval if t is not a
// regular file. The caller must release the file.
func (c *fileCache) openRegular(t target) (*file, error) {
	if t.err != nil {
		return nil, t.err
	}
	switch t.node.format {
	case unix.S_IFDIR:
		return nil, statusIsDir
	case formatFile:
		return c.acquire(t.node)
	}
	return nil, statusInval
}
