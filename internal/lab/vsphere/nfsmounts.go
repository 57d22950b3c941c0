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

// NFS is how the emulated hosts mount NFS datastores. Zero fields are what real hosts do,
// as far as that is known (package nfsclient).
type NFS struct {
	Portmap     string `json:"portmap,omitempty"`     // host:port of every server's portmapper; default port 111 of the server
	Connections int    `json:"connections,omitempty"` // connections per datastore if the mount sets no number; default 1
	Unstable    bool   `json:"unstable,omitempty"`    // WRITE UNSTABLE and COMMIT in place of FILE_SYNC
	WriteSize   Bytes  `json:"writeSize,omitempty"`   // bytes in one WRITE; default 64 KiB
	InFlight    int    `json:"inFlight,omitempty"`    // WRITEs in flight for one file; default 11 to 30 by Seed
	Seed        uint64 `json:"seed,omitempty"`        // seed of the order of WRITEs
	MaxVolumes  int    `json:"maxVolumes,omitempty"`  // NFS datastores of one host; default 32 (NFS.MaxVolumes since 7.0)

	Times nfsclient.Times `json:"-"` // how long they wait for what

	// OnEvent hears of heartbeats, lost connections and locks of every mount. It must not
	// block.
	OnEvent func(host, datastore string, e nfsclient.Event) `json:"-"`
}

// maxVolumes is how many NFS datastores a host mounts where Config does not say.
const maxVolumes = 32

// unmountTimeout bounds how long taking leave of a server may take.
const unmountTimeout = 30 * time.Second

// nas is a datastore that one host has mounted at run time.
type nasMount struct {
	host   types.ManagedObjectReference
	spec   types.HostNasVolumeSpec
	client *nfsclient.Datastore
	ref    types.ManagedObjectReference // datastore of the mount; hosts share it

	machine string // the host's name
}

// nasMounts is every mount of every host.
type nasMounts struct {
	cfg  *Config
	jobs *jobs

	mu   sync.Mutex
	all  []*nasMount
	lost []*nasMount // mounts of hosts that lost power: configured, and not mounted
}

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

// mountsOf lists the mounts of one host; a zero reference is all.
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

// mountsAt lists the mounts of one datastore.
func (t *nasMounts) mountsAt(ref types.ManagedObjectReference) (all []*nasMount) {
	for _, n := range t.mountsOf(types.ManagedObjectReference{}) {
		if n.ref == ref {
			all = append(all, n)
		}
	}
	return all
}

func (t *nasMounts) addMount(n *nasMount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, n)
}

func (t *nasMounts) removeMount(n *nasMount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(o *nasMount) bool { return o == n })
}

// dropAll drops every mount without a word to the servers.
func (t *nasMounts) dropAll() {
	for _, n := range t.mountsOf(types.ManagedObjectReference{}) {
		n.client.Abandon()
		t.removeMount(n)
		t.loseMount(n)
	}
}

func (t *nasMounts) loseMount(n *nasMount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = append(t.lost, n)
}

// takeLost returns the lost mounts that match, and forgets them.
func (t *nasMounts) takeLost(match func(*nasMount) bool) (taken []*nasMount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = slices.DeleteFunc(t.lost, func(n *nasMount) bool {
		if !match(n) {
			return false
		}
		taken = append(taken, n)
		return true
	})
	return taken
}

// mountNAS mounts an export on a host as its name in the inventory.
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

// unmountOne removes a datastore from its host. The server gets the request, and need not answer.
func (t *nasMounts) unmountOne(n *nasMount) {
	t.removeMount(n)
	ctx, cancel := t.jobs.jobContext(context.Background())
	defer cancel()
	if err := n.client.Unmount(ctx); err != nil {
		t.cfg.Log.Debug("unmount", "datastore", n.spec.LocalPath, "err", err)
	}
}

// Mounts lists what the hosts have mounted: host, datastore name and server:path.
func (t *nasMounts) Mounts() (all []Mount) {
	for _, n := range t.mountsOf(types.ManagedObjectReference{}) {
		all = append(all, Mount{
			Host: n.host.Value, Datastore: n.spec.LocalPath, Server: n.spec.RemoteHost, Path: n.spec.RemotePath,
			OpenFiles: n.client.OpenFiles(), Down: n.client.Down(),
		})
	}
	return all
}

// Mount is one NFS datastore on one host.
type Mount struct {
	Host      string `json:"host"` // managed object id
	Datastore string `json:"datastore"`
	Server    string `json:"server"`
	Path      string `json:"path"`
	OpenFiles int    `json:"openFiles"`
	Down      bool   `json:"down"` // all paths down
}

// PowerCutHost makes the hosts drop every NFS mount without a word, as a host that loses
// power does: locks stay behind, copies end nowhere, and so do processes and SSH sessions.
// The inventory keeps the datastores; see BootHost.
func (l *Lab) PowerCutHost() {
	l.jobs.cutJobs()
	l.nasMounts.dropAll()
	l.DropNFC()
	for _, h := range l.sshHosts.all {
		h.machine.KillAll()
		h.dropConns()
	}
}

// BootHost mounts the datastores again that a power cut unmounted: NFS datastores are part of a host's
// configuration. A datastore whose server does not answer stays inaccessible, and is in the error.
func (t *nasMounts) BootHost() error {
	var errs []error
	for _, n := range t.takeLost(func(*nasMount) bool { return true }) {
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

// CutNFS takes the network between the hosts and their NFS servers away; HealNFS brings it
// back. Copies wait, and fail once all paths count as down (nfsclient.Times.APD).
func (t *nasMounts) CutNFS() { t.severNFS(true) }

// HealNFS ends what CutNFS began.
func (t *nasMounts) HealNFS() { t.severNFS(false) }

func (t *nasMounts) severNFS(cut bool) {
	for _, n := range t.mountsOf(types.ManagedObjectReference{}) {
		n.client.Sever(cut)
	}
}

// jobs are what the hosts do by themselves: copies, mounts, processes.
type jobs struct {
	mu      sync.Mutex
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// errHostGone ends the jobs of a host that is no more.
var errHostGone = errors.New("the host is gone")

func (j *jobs) init() { j.ctx, j.cancel = context.WithCancelCause(context.Background()) }

// jobContext returns one that ends with ctx and with the host.
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

// cutJobs ends every job; those that come later run again.
func (j *jobs) cutJobs() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cancel(errHostGone)
	j.init()
}

// close ends every job for good and waits for them.
func (j *jobs) close() {
	j.mu.Lock()
	j.cancel(errHostGone)
	j.mu.Unlock()
	j.running.Wait()
}
