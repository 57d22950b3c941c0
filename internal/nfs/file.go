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

// fileState is what a node keeps of a regular file.
type fileState struct {
	opening sync.Mutex // held while it is opened: a Content is opened once
	open    *file      // the cache's mu guards it

	// plain is set once Export.Open had nothing for the file.
	plain atomic.Bool

	// touched is when a Content was last changed, in Unix nanoseconds. The file in the
	// folder does not know of it.
	touched atomic.Int64
}

// file is a regular file that is open.
type file struct {
	*os.File
	content   Content
	special   bool      // the Content came from Export.Open
	tryWriter tryWriter // the Content, nil if it is none

	refs        int           // the cache's mu guards these three
	closeUnused bool          // to be closed by the last who uses it
	idle        *list.Element // nil while somebody uses it
}

// closeAll closes what is open.
func (f *file) closeAll() error {
	if f.special {
		return errors.Join(f.content.Close(), f.File.Close())
	}
	return f.File.Close()
}

// maxIdle is how many files stay open that nobody uses right now.
const maxIdle = 128

// files keeps files open between calls: NFSv3 has no open and no close. A file with a
// Content of its own stays open until it is removed or forgotten.
type fileCache struct {
	mu      sync.Mutex
	idle    *list.List // of *idleFile, the oldest first
	special map[*node]*file
	closing sync.WaitGroup // of those that were forgotten while they were used
}

type idleFile struct {
	node *node
	file *file
}

func newFileCache() *fileCache { return &fileCache{idle: list.New(), special: make(map[*node]*file)} }

// acquire returns the node's file, opened. The caller releases it.
func (c *fileCache) acquire(n *node) (*file, error) {
	if f := c.acquireOpen(n); f != nil {
		return f, nil
	}
	n.file.opening.Lock()
	defer n.file.opening.Unlock()
	if f := c.acquireOpen(n); f != nil {
		return f, nil
	}
	f, err := openFile(n)
	if err != nil {
		return nil, err
	}
	c.addOpen(n, f)
	return f, nil
}

// contentError is why there is no Content for a file that should have one. Nothing is said
// of the file then, least of all the size of the empty one that stands for it.
type contentError struct{ error }

func (e *contentError) Unwrap() error { return e.error }

// openFile opens a regular file and asks what holds its bytes.
func openFile(n *node) (*file, error) {
	o, err := n.export.openNode(n)
	if err != nil {
		return nil, err
	}
	defer o.close()
	osFile, err := o.open()
	if err != nil {
		return nil, err
	}
	f := &file{File: osFile, content: osContent{osFile}}
	if n.export.Open == nil || n.file.plain.Load() {
		return f, nil
	}
	content, err := n.export.Open(n.export.pathOf(n))
	switch {
	case err != nil:
		return nil, errors.Join(&contentError{err}, osFile.Close())
	case content == nil:
		n.file.plain.Store(true)
	default:
		f.content, f.special = content, true
		f.tryWriter, _ = content.(tryWriter)
	}
	return f, nil
}

// acquireOpen returns the file if it is open.
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

func (c *fileCache) addOpen(n *node, f *file) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.refs = 1
	n.file.open = f
	if f.special {
		c.special[n] = f
	}
}

// release ends the use of a file. It does not wait: a Content may take long to close.
func (c *fileCache) release(n *node, f *file) {
	if closing := c.dropRef(n, f); closing != nil {
		c.closing.Go(func() {
			_ = closing.closeAll() // what was written was answered for; a Content reports its own errors
		})
	}
}

// dropRef returns the file that is to be closed for it.
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

// forget closes the node's file as soon as nobody uses it. The next use opens it anew.
func (c *fileCache) forget(n *node) error {
	n.file.plain.Store(false)
	c.mu.Lock()
	f := n.file.open
	n.file.open = nil
	delete(c.special, n)
	if f == nil || f.refs > 0 {
		if f != nil {
			f.closeUnused = true
		}
		c.mu.Unlock()
		return nil
	}
	if f.idle != nil {
		c.idle.Remove(f.idle)
		f.idle = nil
	}
	c.mu.Unlock()
	return f.closeAll()
}

// close closes everything. Nobody uses a file any more.
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

// now is what a changed Content's times become.
func (s *fileState) touch() { s.touched.Store(time.Now().UnixNano()) }

// openRegular returns the open file of a handle. The caller releases it.
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
