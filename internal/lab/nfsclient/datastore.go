package nfsclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"
)

// Datastore is a mounted export. Its methods may be called concurrently.
type Datastore struct {
	*rpcClient

	root   Handle
	addr   string // host:port of NFS
	limits Limits

	background context.Context // of heartbeats and lock renewals
	stop       context.CancelFunc
	running    sync.WaitGroup

	mu    sync.Mutex
	locks map[uint64]*lock // by the fileid they guard
	open  int              // files
}

// Mount mounts an export as ESXi does, or says which step of it failed.
func Mount(ctx context.Context, cfg Config) (*Datastore, error) {
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, cfg.Times.Mount)
	defer cancel()
	d := &Datastore{rpcClient: &rpcClient{cfg: cfg, health: newHealth(cfg.Times.APD, cfg.OnEvent), fileIDs: map[Handle]uint64{}}, locks: map[uint64]*lock{}}
	d.background, d.stop = context.WithCancel(context.Background())
	if err := d.connectAndMount(ctx); err != nil {
		d.close()
		return nil, fmt.Errorf("mount %s:%s: %w", cfg.Host, cfg.Path, err)
	}
	d.running.Go(d.runHeartbeats)
	return d, nil
}

func (d *Datastore) connectAndMount(ctx context.Context) error {
	mountd, err := d.cfg.getPort(ctx, progMount, versMount)
	if err != nil {
		return err
	}
	if d.root, err = d.cfg.mountExport(ctx, mountd); err != nil {
		return err
	}
	if len(d.root) > maxHandle {
		return fmt.Errorf("%w: it has %d", ErrHandleSize, len(d.root))
	}
	if d.addr, err = d.cfg.getPort(ctx, progNFS, versNFS); err != nil {
		return err
	}
	for range d.cfg.Connections {
		l, err := newLink(ctx, &d.cfg, d.addr)
		if err != nil {
			return err
		}
		d.links = append(d.links, l)
	}
	return d.checkRoot(ctx)
}

// checkRoot asks what every mount begins with.
func (d *Datastore) checkRoot(ctx context.Context) (err error) {
	if d.limits, err = d.fsInfo(ctx, d.root); err != nil {
		return err
	}
	root, err := d.getAttr(ctx, d.root)
	if err != nil {
		return err
	}
	if root.Type != Directory {
		return fmt.Errorf("the root is of type %d, not a directory", root.Type)
	}
	_, err = d.fsStat(ctx, d.root)
	return err
}

// Unmount closes the files' locks, tells the server and disconnects. The datastore is gone
// also when it returns an error.
func (d *Datastore) Unmount(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Times.Mount)
	defer cancel()
	defer d.close()
	addr, err := d.cfg.getPort(ctx, progMount, versMount) // another one after a restart
	if err != nil {
		return fmt.Errorf("unmount %s:%s: %w", d.cfg.Host, d.cfg.Path, err)
	}
	return d.cfg.unmountExport(ctx, addr)
}

// Abandon disconnects and tells nobody, as a host that loses power does.
func (d *Datastore) Abandon() { d.close() }

// Sever takes the network to the server away, or brings it back.
func (d *Datastore) Sever(cut bool) {
	for _, l := range d.links {
		l.setSevered(cut)
	}
}

func (d *Datastore) close() {
	d.stop()
	d.health.close()
	for _, l := range d.links {
		l.close()
	}
	d.running.Wait()
}

// runHeartbeats asks for the root's attributes every so often, until the datastore is closed.
func (d *Datastore) runHeartbeats() {
	tick := time.NewTicker(d.cfg.Times.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.sendHeartbeat()
		case <-d.background.Done():
			return
		}
	}
}

func (d *Datastore) sendHeartbeat() {
	ctx, cancel := context.WithTimeout(d.background, d.cfg.Times.HeartbeatTimeout)
	defer cancel()
	r := request{proc: procGetAttr, args: handleArgs(d.root), failed: noResult}
	var a Attr
	r.ok = readAttrInto(&a)
	reply, err := d.sendAndWait(ctx, context.Background(), r) // also while all paths are down
	if err == nil {
		err = r.readResult(reply)
	}
	if err == nil {
		err = d.checkFileID(d.root, postOp{a, true})
	}
	switch {
	case d.background.Err() != nil:
	case err != nil:
		d.health.heartbeatMissed(err)
	default:
		d.health.heartbeatAnswered()
	}
}

// Limits is what the server said about itself in FSINFO.
func (d *Datastore) Limits() Limits { return d.limits }

// OpenFiles is how many files are open: a datastore with any cannot be removed.
func (d *Datastore) OpenFiles() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Down reports whether all paths are down: I/O fails.
func (d *Datastore) Down() bool { return d.health.downNow().Err() != nil }

// Space asks how much room there is.
func (d *Datastore) Space(ctx context.Context) (Space, error) { return d.fsStat(ctx, d.root) }

// resolveParent finds the folder a path lies in, and its last name.
func (d *Datastore) resolveParent(ctx context.Context, name string) (dir Handle, base string, err error) {
	elems := strings.Split(path.Clean("/" + name)[1:], "/")
	dir = d.root
	for _, e := range elems[:len(elems)-1] {
		var a Attr
		if dir, a, err = d.lookup(ctx, dir, e); err != nil {
			return "", "", fmt.Errorf("%s: %w", name, err)
		}
		if a.Type != Directory {
			return "", "", fmt.Errorf("%s: %q is not a directory", name, e)
		}
	}
	return dir, elems[len(elems)-1], nil
}

// resolvePath resolves a path; "" is the root.
func (d *Datastore) resolvePath(ctx context.Context, name string) (Handle, Attr, error) {
	dir, base, err := d.resolveParent(ctx, name)
	if err != nil {
		return "", Attr{}, err
	}
	if base == "" {
		a, err := d.getAttr(ctx, d.root)
		return d.root, a, err
	}
	h, a, err := d.lookup(ctx, dir, base)
	return h, a, wrapError(err, name)
}

// Stat returns a file's attributes.
func (d *Datastore) Stat(ctx context.Context, name string) (Attr, error) {
	_, a, err := d.resolvePath(ctx, name)
	return a, err
}

// ReadDir lists a folder.
func (d *Datastore) ReadDir(ctx context.Context, name string) ([]Entry, error) {
	h, _, err := d.resolvePath(ctx, name)
	if err != nil {
		return nil, err
	}
	all, err := d.readDir(ctx, h)
	return all, wrapError(err, name)
}

// MkdirAll makes a folder and those above it.
func (d *Datastore) MkdirAll(ctx context.Context, name string) error {
	made := ""
	for _, e := range strings.Split(path.Clean("/" + name)[1:], "/") {
		made = path.Join(made, e)
		dir, base, err := d.resolveParent(ctx, made)
		if err != nil {
			return err
		}
		if base == "" {
			continue
		}
		if err := d.makeDir(ctx, dir, base); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w", made, err)
		}
	}
	return nil
}

// Remove removes a file, or an empty folder.
func (d *Datastore) Remove(ctx context.Context, name string) error {
	dir, base, err := d.resolveParent(ctx, name)
	if err != nil {
		return err
	}
	h, a, err := d.lookup(ctx, dir, base)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	proc := uint32(procRemove)
	if a.Type == Directory {
		proc = procRmdir
	}
	if err := d.removeName(ctx, proc, dir, base); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	d.forgetHandle(h) // the server may give the handle to another file
	return nil
}

// Rename gives a file another name, in place of what has that name.
func (d *Datastore) Rename(ctx context.Context, old, name string) error {
	from, oldBase, err := d.resolveParent(ctx, old)
	if err != nil {
		return err
	}
	to, base, err := d.resolveParent(ctx, name)
	if err != nil {
		return err
	}
	return wrapError(d.rename(ctx, from, oldBase, to, base), old)
}
