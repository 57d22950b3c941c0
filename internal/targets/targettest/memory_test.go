package targettest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// memory is a platform with VMs in a map. bug selects an error in its implementation.
type memory struct {
	bug string
	vms map[string]*storedEntry // by name

	mu    sync.Mutex
	hook  func(int) Outcome
	calls int
}

type storedEntry struct {
	vm    *inventory.VM
	disks [][]byte
	ours  bool
	ready bool // all disks are written
}

var errCut = fault.New(fault.Transient, "connection reset").WithHint("run the same command again")

// call makes one call to the platform. change is its effect.
func (m *memory) call(ctx context.Context, change func()) error {
	m.mu.Lock()
	m.calls++
	outcome := Pass
	if m.hook != nil {
		outcome = m.hook(m.calls)
	}
	m.mu.Unlock()
	if outcome == Lost {
		return errCut
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	change()
	if outcome == Unanswered {
		return errCut
	}
	return nil
}

func (m *memory) name(vm *inventory.VM) string { return cmp.Or(strings.TrimSpace(vm.Name), "vm") }

// find returns vm, or a conflict if another VM has its name.
func (m *memory) find(ctx context.Context, vm *inventory.VM) (k *storedEntry, err error) {
	if err := m.call(ctx, func() { k = m.vms[m.name(vm)] }); err != nil {
		return nil, err
	}
	if k != nil && (!k.ours || k.vm.UUID != vm.UUID) && m.bug != "greedy" {
		return nil, fault.New(fault.Conflict, "%q is taken", vm.Name).WithHint("rename it")
	}
	return k, nil
}

func (m *memory) Check(ctx context.Context, vm *inventory.VM) error {
	for _, d := range vm.Disks {
		if d.Used > 1<<50 && m.bug != "endless" {
			return fault.New(fault.Full, "no room").WithHint("delete something")
		}
	}
	if m.bug == "eager" {
		m.vms["test"] = &storedEntry{vm: vm}
	}
	_, err := m.find(ctx, vm)
	return err
}

func (m *memory) Deliver(ctx context.Context, d platform.Delivery) (platform.Receipt, error) {
	r := platform.Receipt{Platform: "memory", ID: "id of " + m.name(d.VM), Name: m.name(d.VM)}
	k, err := m.find(ctx, d.VM)
	if err != nil || k != nil && k.ready {
		return r, err
	}
	err = m.store(ctx, d)
	if err != nil && m.bug != "untidy" {
		err = errors.Join(err, m.Withdraw(context.WithoutCancel(ctx), d.VM))
	}
	return r, err
}

func (m *memory) store(ctx context.Context, d platform.Delivery) error {
	k := &storedEntry{vm: d.VM, ours: true, ready: m.bug == "hasty"}
	err := m.call(ctx, func() { m.vms[m.name(d.VM)] = k })
	for _, img := range d.Images {
		var p []byte
		p, err = m.readImage(ctx, d, img, err)
		err = cmp.Or(err, m.call(ctx, func() { k.disks = append(k.disks, p) }))
	}
	return cmp.Or(err, m.call(ctx, func() { k.ready = true }))
}

func (m *memory) readImage(ctx context.Context, d platform.Delivery, img targets.Image, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	src, err := d.Open(ctx, img)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	p := make([]byte, src.Size())
	err = src.ReadAt(ctx, p, 0)
	if m.bug == "bitrot" {
		p[len(p)-1] ^= 1
	}
	return p, err
}

func (m *memory) Withdraw(ctx context.Context, vm *inventory.VM) error {
	k, err := m.find(ctx, vm)
	if fault.Is(err, fault.Conflict) || k == nil {
		if fault.Is(err, fault.Conflict) {
			return nil
		}
		return err
	}
	return m.call(ctx, func() { delete(m.vms, m.name(vm)) })
}

func (m *memory) setHook(hook func(int) Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook, m.calls = hook, 0
}

// isRead reports whether the n-th call only reads: the first one finds the VM.
func (m *memory) isRead(n int) bool { return n == 1 }

func (m *memory) objects(*testing.T) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m.vms)) {
		k := m.vms[name]
		sum := fnv.New64()
		for _, p := range k.disks {
			_, _ = sum.Write(p) // Write never fails
		}
		all = append(all, fmt.Sprintf("%s %s %x %v", name, k.vm.UUID, sum.Sum64(), k.ready))
	}
	return all
}

func (m *memory) storedVMs(*testing.T) []StoredVM {
	var all []StoredVM
	for name, k := range m.vms {
		s := StoredVM{
			ID: "id of " + name, Name: name, UUID: k.vm.UUID, CPUs: k.vm.CPUs, MemoryMiB: k.vm.MemoryMiB, Disks: k.disks,
			EFI: k.vm.Firmware == inventory.EFI, SecureBoot: k.vm.SecureBoot, TPM: k.vm.VTPM, Running: m.bug == "awake",
		}
		for _, n := range k.vm.NICs {
			s.MACs = append(s.MACs, n.MAC)
		}
		if m.bug != "forgetful" {
			s.Metadata = fmt.Sprint(k.vm.Annotation, k.vm.Tags, k.vm.Attributes)
		}
		all = append(all, s)
	}
	return all
}

func (m *memory) occupy(_ *testing.T, vm *inventory.VM) {
	foreign := newNamesake()
	m.vms[m.name(vm)] = &storedEntry{vm: foreign, ready: true}
}
