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

	root   Handle // handle of the exported directory
	addr   string // host:port of NFS
	limits Limits // transfer sizes of the server, from FSINFO

	background context.Context    // context of heartbeats and lock renewals
	stop       context.CancelFunc // ends background
	running    sync.WaitGroup     // goroutines of heartbeats and lock renewals

	mu    sync.Mutex       // guards the fields below
	locks map[uint64]*lock // locks of this host by the fileid of the locked file
	open  int              // number of open files
}

// Mount mounts an export as ESXi does. Its error names the step that failed.
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

// connectAndMount finds MOUNT and NFS through the portmapper, gets the root handle and opens the
// connections.
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

// checkRoot makes the first calls of every mount: FSINFO, GETATTR and FSSTAT of the root.
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

// Unmount calls UMNT, then disconnects. Locks of open files stay on the server. The datastore is closed
// even if an error is returned.
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

// Abandon disconnects without a call to the server, as a host does that loses power.
func (d *Datastore) Abandon() { d.close() }

// Sever cuts the network to the server, or restores it.
func (d *Datastore) Sever(cut bool) {
	for _, l := range d.links {
		l.setSevered(cut)
	}
}

// close ends heartbeats, lock renewals and connections, and fails pending calls.
func (d *Datastore) close() {
	d.stop()
	d.health.close()
	for _, l := range d.links {
		l.close()
	}
	d.running.Wait()
}

// runHeartbeats sends a heartbeat at each interval until the datastore is closed.
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

// sendHeartbeat makes a GETATTR of the root and reports the result to health. Unlike other calls it is
// sent while all paths are down.
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

// Limits returns the transfer sizes of the server.
func (d *Datastore) Limits() Limits { return d.limits }

// OpenFiles returns the number of open files. ESXi refuses to remove a datastore with open files.
func (d *Datastore) OpenFiles() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Down reports whether all paths are down, so that I/O fails.
func (d *Datastore) Down() bool { return d.health.downNow().Err() != nil }

// Space returns the space of the file system.
func (d *Datastore) Space(ctx context.Context) (Space, error) { return d.fsStat(ctx, d.root) }

// resolveParent returns the handle of the directory that contains the path, and the last element of the
// path: "" for the root.
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

// resolvePath returns the handle and the attributes of a path; "" is the root.
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

// Stat returns the attributes of a path.
func (d *Datastore) Stat(ctx context.Context, name string) (Attr, error) {
	_, a, err := d.resolvePath(ctx, name)
	return a, err
}

// ReadDir lists a directory, in the order of the server.
func (d *Datastore) ReadDir(ctx context.Context, name string) ([]Entry, error) {
	h, _, err := d.resolvePath(ctx, name)
	if err != nil {
		return nil, err
	}
	all, err := d.readDir(ctx, h)
	return all, wrapError(err, name)
}

// MkdirAll creates a directory and its missing parents.
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

// Remove removes a file or an empty directory.
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
	d.forgetHandle(h) // the server may use the handle for another file
	return nil
}

// Rename renames a file or directory, and replaces an existing file.
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
