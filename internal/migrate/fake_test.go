package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// world simulates everything outside of decamp: a host with one VM, and a target. It outlives
// the process under test, and it can lose power.
type world struct {
	vm    *inventory.VM
	disks map[int32][]byte

	before func(ctx context.Context, op string) error // called before every operation; never nil

	written  atomic.Int64 // number of completed writes, zeros included
	tagReads atomic.Int64 // number of reads of the VM with its tags
	tagged   inventory.VM // tags and attributes of the VM

	mu        sync.Mutex
	outer     context.Context // context of the current step or a child of it: ends with the process
	images    map[string]*memImage
	published *targets.Definition
	reads     map[int32][]disk.Range // ranges that Transfer read, by disk
	ops       []string
	guest     workload
	slots     *slotQueue // queue for transfer slots; nil grants them at once
	epoch     int64
	locked    bool // a process has locked the images
	started   bool // the published VM runs

	wrongReread bool // the second read of a disk returns a wrong first bit

	wrap     func(targets.Target) targets.Target // wraps the environment's target; may be nil
	hardware journal.Hardware                    // hardware in the plan
	engine   journal.Engine
	runV2V   func(context.Context, virtv2v.Job) (virtv2v.Report, error)
	convert  func(context.Context, []convert.Disk, convert.Options) (convert.Result, error)
}

const mib = 1 << 20

// newWorld returns a world whose VM has two disks with runs of data and zeros. The last chunk of the first is short.
func newWorld() *world {
	w := &world{
		vm: &inventory.VM{
			Ref: "7", Name: "web01", UUID: "4203-u", InstanceUUID: "5203-i",
			Power: inventory.PoweredOff, Firmware: inventory.BIOS,
		},
		disks: map[int32][]byte{}, images: map[string]*memImage{}, reads: map[int32][]disk.Range{},
		before: func(context.Context, string) error { return nil },
	}
	w.addDisk(2000, 5*mib+512)
	w.addDisk(2001, 3*mib)
	return w
}

func (w *world) addDisk(key int32, size int64) {
	data := make([]byte, size)
	rnd := rand.NewChaCha8([32]byte{byte(key)})
	for off := int64(0); off < size; off += 2 * mib {
		rnd.Read(data[off:min(off+mib+4096, size)])
	}
	w.disks[key] = data
	w.vm.Disks = append(w.vm.Disks, inventory.Disk{
		Key: key, Capacity: size, Backing: inventory.Flat, Layers: 1,
		Path: inventory.Path{Datastore: "ds1", File: fmt.Sprintf("web01/web01_%d.vmdk", key)},
	})
}

// operation performs one operation of the world.
func (w *world) operation(ctx context.Context, name string) error {
	if !inner[name] {
		w.mu.Lock()
		w.outer = ctx
		w.mu.Unlock()
	}
	if err := w.before(ctx, name); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops = append(w.ops, name)
	return ctx.Err()
}

// inner are the operations whose context may outlive the step, for example in the checkpoint that ends a
// canceled copy.
var inner = map[string]bool{"read": true, "write": true, "zero": true, "sync": true, "finish": true}

// waitForStop waits until the process ends.
func (w *world) waitForStop() {
	w.mu.Lock()
	ctx := w.outer
	w.mu.Unlock()
	<-ctx.Done()
}

// fakeSource is the host of the VM.
type fakeSource struct{ w *world }

func (s fakeSource) VM(ctx context.Context, ref string) (*inventory.VM, error) {
	vm, err := s.BareVM(ctx, ref)
	if err == nil {
		s.w.tagReads.Add(1)
		vm.CopyTags(&s.w.tagged)
	}
	return vm, err
}

func (s fakeSource) BareVM(ctx context.Context, ref string) (*inventory.VM, error) {
	if err := s.w.operation(ctx, "vm"); err != nil {
		return nil, err
	}
	if ref != string(s.w.vm.Ref) {
		return nil, fault.New(fault.NotFound, "no VM %s", ref)
	}
	vm := *s.w.vm
	vm.Disks = append([]inventory.Disk(nil), s.w.vm.Disks...)
	return &vm, nil
}

func (s fakeSource) PowerOff(ctx context.Context, _ inventory.MoRef, _ time.Duration, _ bool) error {
	if err := s.w.operation(ctx, "power off"); err != nil {
		return err
	}
	s.w.vm.Power = inventory.PoweredOff
	return nil
}

// fakeTransport reads the world's disks.
type fakeTransport struct{ w *world }

func (fakeTransport) Name() string { return "fake" }
func (fakeTransport) Close() error { return nil }

func (t fakeTransport) Probe(ctx context.Context, _ transport.Disk) (transport.Offer, error) {
	return transport.Offer{Usable: true}, t.w.operation(ctx, "probe")
}

func (t fakeTransport) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	return transport.Pull(ctx, func(_ context.Context, d transport.Disk) (disk.Source, error) {
		data, err := t.w.readableData(d)
		return &memSource{w: t.w, key: d.Disk.Key, data: data, count: true}, err
	}, job)
}

// memSource reads a disk of the VM, or an image.
type memSource struct {
	w     *world
	key   int32
	data  []byte
	count bool        // records the reads as transfers
	mu    *sync.Mutex // mutex of an image that may be written at the same time; may be nil
}

func (s *memSource) Size() int64       { return int64(len(s.data)) }
func (s *memSource) Hints() disk.Hints { return disk.Hints{Span: mib, Streams: 2} }
func (s *memSource) Close() error      { return nil }

func (s *memSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := disk.CheckRange(s.Size(), r); err != nil {
		return err
	}
	if s.count {
		if err := s.w.operation(ctx, "read"); err != nil {
			return err
		}
		s.w.mu.Lock()
		s.w.reads[s.key] = append(s.w.reads[s.key], r)
		s.w.mu.Unlock()
	}
	if s.mu != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	copy(p, s.data[off:])
	return ctx.Err()
}

func (s *memSource) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r, Kind: disk.Data}}, nil
}

// memTarget keeps images in memory. powerCut drops the data that was not synced, as on a disk. Manifests are
// real files in dir.
type memTarget struct {
	w   *world
	dir string
}

type memImage struct {
	mu       sync.Mutex
	now      []byte // data that a read returns
	medium   []byte // data that survives a power failure
	finished bool
}

func (t memTarget) LockImages(context.Context, *inventory.VM) (func() error, error) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if t.w.locked {
		return nil, fault.New(fault.Transient, "another decamp process uses them")
	}
	t.w.locked = true
	return func() error {
		t.w.mu.Lock()
		defer t.w.mu.Unlock()
		t.w.locked = false
		return nil
	}, nil
}

func (t memTarget) Plan(ctx context.Context, vm *inventory.VM) ([]targets.Image, error) {
	if err := t.w.operation(ctx, "plan"); err != nil {
		return nil, err
	}
	if t.w.published != nil {
		return nil, fault.New(fault.Conflict, "web01 exists")
	}
	var images []targets.Image
	for _, d := range vm.Disks {
		path := filepath.Join(t.dir, fmt.Sprint(d.Key))
		images = append(images, targets.Image{Key: d.Key, Path: path, Final: path + ".raw", Manifest: path + ".manifest", Format: targets.Raw, Size: d.Capacity})
	}
	return images, nil
}

func (t memTarget) Open(ctx context.Context, img targets.Image) (disk.Target, bool, error) {
	if err := t.w.operation(ctx, "open image"); err != nil {
		return nil, false, err
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	m, there := t.w.images[img.Path]
	if !there {
		m = &memImage{now: make([]byte, img.Size), medium: make([]byte, img.Size)}
		t.w.images[img.Path] = m
	}
	m.finished = false
	return &openImage{memImage: m, w: t.w}, !there, nil
}

// Grow is durable when it returns, and has no durable effect before.
func (t memTarget) Grow(ctx context.Context, img targets.Image, least int64) error {
	if err := t.w.operation(ctx, "grow image"); err != nil {
		return err
	}
	if err := t.growImage(img, least); err != nil {
		return err
	}
	return t.w.operation(ctx, "image grown")
}

func (t memTarget) growImage(img targets.Image, least int64) error {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	m, there := t.w.images[img.Path]
	if !there {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	had := int64(len(m.now))
	if had < least || had > img.Size {
		return fault.New(fault.Conflict, "image %s has %d bytes, not %d to %d", img.Path, had, least, img.Size)
	}
	if had < img.Size {
		more := make([]byte, img.Size-had)
		m.now, m.medium, m.finished = append(m.now, more...), append(m.medium, more...), false
	}
	return nil
}

// Read accepts finished images only, like a target that writes its tables in Finish.
func (t memTarget) Read(_ context.Context, img targets.Image) (disk.Source, error) {
	return t.readImage(img, true)
}

func (t memTarget) ReadUnfinished(_ context.Context, img targets.Image) (disk.Source, error) {
	return t.readImage(img, false)
}

func (t memTarget) readImage(img targets.Image, finished bool) (disk.Source, error) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	m, ok := t.w.images[img.Path]
	switch {
	case !ok:
		return nil, fault.New(fault.NotFound, "no image %s", img.Path)
	case m.finished != finished:
		return nil, fault.New(fault.Corrupt, "image %s: finished is %v", img.Path, m.finished)
	}
	return &memSource{w: t.w, key: img.Key, data: m.now, mu: &m.mu}, nil
}

// Domain returns a text with the current paths of the images.
func (t memTarget) Domain(def targets.Definition) (string, error) {
	domain := "domain of " + def.VM.Name
	for _, img := range def.Images {
		domain += " with " + img.Path
	}
	if def.AgentChannel() {
		domain += " and an agent"
	}
	return domain, nil
}

func (t memTarget) Publish(ctx context.Context, def targets.Definition) error {
	if err := t.w.operation(ctx, "publish"); err != nil {
		return err
	}
	def.Progress = nil // a function cannot be compared
	t.w.published = &def
	return t.w.operation(ctx, "published")
}

func (memTarget) CanStart() error { return nil }

func (t memTarget) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	if err := t.w.operation(ctx, "start"); err != nil {
		return targets.Started{}, err
	}
	if t.w.published == nil || t.w.published.VM.Name != def.VM.Name {
		return targets.Started{}, fault.New(fault.NotFound, "no VM %s", def.VM.Name)
	}
	t.w.started = true
	return targets.Started{Console: "look at web01"}, t.w.operation(ctx, "started")
}

func (t memTarget) Withdraw(ctx context.Context, _ *inventory.VM) error {
	if err := t.w.operation(ctx, "withdraw"); err != nil {
		return err
	}
	if t.w.started {
		return fault.New(fault.Conflict, "web01 runs")
	}
	t.w.published = nil
	return nil
}

func (t memTarget) Discard(ctx context.Context, _ *inventory.VM, images []targets.Image) error {
	if err := t.w.operation(ctx, "discard"); err != nil {
		return err
	}
	for _, img := range images {
		delete(t.w.images, img.Path)
	}
	return nil
}

// openImage is a memImage open for writing.
type openImage struct {
	*memImage
	w *world
}

func (o *openImage) Size() int64       { return int64(len(o.now)) }
func (o *openImage) Hints() disk.Hints { return disk.Hints{} }
func (o *openImage) Close() error      { return nil }

func (o *openImage) WriteAt(ctx context.Context, p []byte, off int64) error {
	if err := o.w.operation(ctx, "write"); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := copy(o.now[off:], p); n != len(p) {
		return errors.New("write outside the image")
	}
	o.w.written.Add(1)
	return nil
}

func (o *openImage) Zero(ctx context.Context, r disk.Range) error {
	if err := o.w.operation(ctx, "zero"); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.now[r.Off:r.End()])
	o.w.written.Add(1)
	return nil
}

func (o *openImage) Sync(ctx context.Context) error {
	if err := o.w.operation(ctx, "sync"); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	copy(o.medium, o.now)
	return nil
}

func (o *openImage) Finish(ctx context.Context) error {
	if err := o.w.operation(ctx, "finish"); err != nil {
		return err
	}
	if err := o.Sync(ctx); err != nil {
		return err
	}
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	o.finished = true
	return nil
}

// powerCut drops the data that was not synced.
func (w *world) powerCut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.images {
		m.now = bytes.Clone(m.medium)
	}
}

// newEnvironment returns the environment of a run in this world.
func (w *world) newEnvironment(t *testing.T, dir string) migrate.Environment {
	t.Helper()
	to := targets.Target(memTarget{w, dir})
	if w.wrap != nil {
		to = w.wrap(to)
	}
	return migrate.Environment{Source: fakeSource{w}, Transport: fakeTransport{w}, Target: to, RequestSlot: w.slots.requestFunc(), Epoch: w.epoch, Convert: w.convert, V2V: w.runV2V,
		Open: func(_ context.Context, d transport.Disk) (disk.Source, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.shareDisk(d.Disk.Key)
			return &memSource{w: w, key: d.Disk.Key, data: w.disks[d.Disk.Key]}, nil
		},
		Reread: func(_ context.Context, d transport.Disk) (disk.Source, string, error) {
			data, err := w.readableData(d)
			if w.wrongReread && len(data) > 0 {
				data = bytes.Clone(data)
				data[0] ^= 1
			}
			return &memSource{w: w, key: d.Disk.Key, data: data}, "fake", err
		}}
}
