package vsphere

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/nfsclient"
)

// NFS configures NFS mounts of the hosts. Zero fields are the behaviour of real hosts, as far as it is
// known (package nfsclient).
type NFS struct {
	Portmap     string `json:"portmap,omitempty"`     // host:port of every server's portmapper; default port 111 of the server
	Connections int    `json:"connections,omitempty"` // connections per datastore if the mount sets no number; default 1
	Unstable    bool   `json:"unstable,omitempty"`    // WRITE UNSTABLE and COMMIT in place of FILE_SYNC
	WriteSize   Bytes  `json:"writeSize,omitempty"`   // bytes in one WRITE; default 64 KiB
	InFlight    int    `json:"inFlight,omitempty"`    // WRITEs in flight for one file; default 11 to 30 by Seed
	Seed        uint64 `json:"seed,omitempty"`        // seed of the order of WRITEs
	MaxVolumes  int    `json:"maxVolumes,omitempty"`  // NFS datastores of one host; default 32 (NFS.MaxVolumes since 7.0)

	Times nfsclient.Times `json:"-"` // intervals and timeouts

	// OnEvent hears of heartbeats, lost connections and locks of every mount. It must not
	// block.
	OnEvent func(host, datastore string, e nfsclient.Event) `json:"-"`
}

// maxVolumes is the default limit of NFS datastores of a host.
const maxVolumes = 32

// unmountTimeout limits the calls that follow a copy, also after its cancellation.
const unmountTimeout = 30 * time.Second

// A nasMount is an NFS datastore that a host has mounted at run time.
type nasMount struct {
	host   types.ManagedObjectReference // host of the mount
	spec   types.HostNasVolumeSpec      // specification of the request
	client *nfsclient.Datastore         // mounted export
	ref    types.ManagedObjectReference // datastore of the mount; hosts share it

	machine string // name of the host, for locks
}

// nasMounts are the mounts of all hosts.
type nasMounts struct {
	cfg  *Config // configuration with defaults
	jobs *jobs   // context of mounts

	mu   sync.Mutex  // guards the fields below
	all  []*nasMount // mounts in the order in which they were added
	lost []*nasMount // mounts of hosts that lost power: configured and not mounted
}

// findMount returns the mount with a datastore name on a host, or nil.
func (t *nasMounts) findMount(host types.ManagedObjectReference, name string) *nasMount {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.all {
		if n.host == host && n.spec.LocalPath == name {
			return n
		}
	}
	return nil
}

// mountsOf returns the mounts of one host; a zero reference selects all hosts.
func (t *nasMounts) mountsOf(host types.ManagedObjectReference) (all []*nasMount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.all {
		if n.host == host || host.Value == "" {
			all = append(all, n)
		}
	}
	return all
}

// hasMount reports whether a host has mounted the datastore at run time, or lost that mount.
func (t *nasMounts) hasMount(ref types.ManagedObjectReference) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	match := func(n *nasMount) bool { return n.ref == ref }
	return slices.ContainsFunc(t.all, match) || slices.ContainsFunc(t.lost, match)
}

// addMount registers a mount.
func (t *nasMounts) addMount(n *nasMount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, n)
}

// removeMount removes a mount from the list.
func (t *nasMounts) removeMount(n *nasMount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(o *nasMount) bool { return o == n })
}

// dropAll disconnects all mounts without a call to the servers, and records them as lost.
func (t *nasMounts) dropAll() {
	for _, n := range t.mountsOf(types.ManagedObjectReference{}) {
		n.client.Abandon()
		t.removeMount(n)
		t.loseMount(n)
	}
}

// loseMount records a lost mount.
func (t *nasMounts) loseMount(n *nasMount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = append(t.lost, n)
}

// takeLost removes the lost mounts from the list, and returns them.
func (t *nasMounts) takeLost() []*nasMount {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.lost
	t.lost = nil
	return taken
}

// takeMounts removes the mounts of a datastore from the lists: those of one host, or all if host is zero.
// busy reports that one of them has open files; then none is removed.
func (t *nasMounts) takeMounts(ref, host types.ManagedObjectReference) (mounted, lost []*nasMount, busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	match := func(n *nasMount) bool { return n.ref == ref && (host.Value == "" || n.host == host) }
	if slices.ContainsFunc(t.all, func(n *nasMount) bool { return match(n) && n.client.OpenFiles() > 0 }) {
		return nil, nil, true
	}
	return takeMatching(&t.all, match), takeMatching(&t.lost, match), false
}

// takeMatching removes the mounts that match from a list, and returns them.
func takeMatching(list *[]*nasMount, match func(*nasMount) bool) (taken []*nasMount) {
	*list = slices.DeleteFunc(*list, func(n *nasMount) bool {
		if match(n) {
			taken = append(taken, n)
			return true
		}
		return false
	})
	return taken
}

// mountNAS mounts an export on a host. machine is the name of the host for credentials and locks.
func (t *nasMounts) mountNAS(host types.ManagedObjectReference, machine string, spec types.HostNasVolumeSpec) (*nasMount, error) {
	ctx, cancel := t.jobs.jobContext(context.Background())
	defer cancel()
	cfg := t.cfg.NFS
	connections := int(spec.Connections)
	setDefault(&connections, cfg.Connections)
	client, err := nfsclient.Mount(ctx, nfsclient.Config{
		Host: spec.RemoteHost, Path: spec.RemotePath, PortmapAddr: cfg.Portmap, Machine: machine, Connections: connections,
		Unstable: cfg.Unstable, WriteSize: int(cfg.WriteSize), Seed: cfg.Seed, Times: cfg.Times,
		OnEvent: func(e nfsclient.Event) {
			if cfg.OnEvent != nil {
				cfg.OnEvent(machine, spec.LocalPath, e)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return &nasMount{host: host, spec: spec, client: client, machine: machine}, nil
}

// unmountClient disconnects a mount that is not in the lists. An error of the server is logged only.
func (t *nasMounts) unmountClient(n *nasMount) {
	ctx, cancel := t.jobs.jobContext(context.Background())
	defer cancel()
	if err := n.client.Unmount(ctx); err != nil {
		t.cfg.Log.Debug("unmount", "datastore", n.spec.LocalPath, "err", err)
	}
}

// Mounts returns the mounts of all hosts.
func (t *nasMounts) Mounts() (all []Mount) {
	for _, n := range t.mountsOf(types.ManagedObjectReference{}) {
		all = append(all, Mount{
			Host: n.host.Value, Datastore: n.spec.LocalPath, Server: n.spec.RemoteHost, Path: n.spec.RemotePath,
			OpenFiles: n.client.OpenFiles(), Down: n.client.Down(),
		})
	}
	return all
}

// Mount is an NFS datastore on one host.
type Mount struct {
	Host      string `json:"host"`      // managed object ID of the host
	Datastore string `json:"datastore"` // name of the datastore
	Server    string `json:"server"`    // name or address of the NFS server
	Path      string `json:"path"`      // exported path
	OpenFiles int    `json:"openFiles"` // number of files that the host has open
	Down      bool   `json:"down"`      // whether all paths are down
}

// PowerCutHost simulates a power failure of all hosts: NFS mounts end without a call to the servers, so
// that locks remain; copies, processes and SSH sessions end. The inventory keeps the datastores; see
// BootHost.
func (l *Lab) PowerCutHost() {
	l.jobs.cutJobs()
	l.nasMounts.dropAll()
	l.DropNFC()
	for _, h := range l.sshHosts.all {
		h.machine.KillAll()
		h.dropConns()
	}
}

// BootHost mounts the datastores again that PowerCutHost unmounted: NFS datastores are part of a host's
// configuration. A datastore whose server does not answer stays inaccessible, and its error is
// returned.
func (t *nasMounts) BootHost() error {
	var errs []error
	for _, n := range t.takeLost() {
		again, err := t.mountNAS(n.host, n.machine, n.spec)
		if err != nil {
			t.loseMount(n)
			errs = append(errs, err)
			continue
		}
		again.ref = n.ref
		t.addMount(again)
	}
	return errors.Join(errs...)
}

// CutNFS cuts the network between the hosts and their NFS servers, until HealNFS. Copies wait, and fail
// when all paths are down (nfsclient.Times.APD).
func (t *nasMounts) CutNFS() { t.severNFS(true) }

// HealNFS reverts CutNFS.
func (t *nasMounts) HealNFS() { t.severNFS(false) }

// severNFS cuts or restores the network of all mounts.
func (t *nasMounts) severNFS(cut bool) {
	for _, n := range t.mountsOf(types.ManagedObjectReference{}) {
		n.client.Sever(cut)
	}
}

// jobs are the copies, mounts and processes of the hosts.
type jobs struct {
	mu      sync.Mutex              // guards ctx and cancel
	ctx     context.Context         // ends when the hosts lose power; cutJobs replaces it
	cancel  context.CancelCauseFunc // ends ctx with a cause
	running sync.WaitGroup          // goroutines of jobs
}

// errHostGone is the cause that ends the jobs of a host without power.
var errHostGone = errors.New("the host is gone")

// init creates a new context. mu must be held, except at the start.
func (j *jobs) init() { j.ctx, j.cancel = context.WithCancelCause(context.Background()) }

// jobContext returns a context that ends with ctx, or when the hosts lose power. The function releases
// its resources.
func (j *jobs) jobContext(ctx context.Context) (context.Context, context.CancelFunc) {
	j.mu.Lock()
	host := j.ctx
	j.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(host, func() { cancel(context.Cause(host)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// cutJobs ends all jobs. Later jobs run normally.
func (j *jobs) cutJobs() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cancel(errHostGone)
	j.init()
}

// close ends all jobs and waits for them.
func (j *jobs) close() {
	j.mu.Lock()
	j.cancel(errHostGone)
	j.mu.Unlock()
	j.running.Wait()
}
