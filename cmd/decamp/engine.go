package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/appliance"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/planfile"
)

// engineOptions say what changes guests for virtio.
type engineOptions struct {
	name    string   // plan.Engine
	drivers string   // virtio-win
	keys    []string // of encrypted volumes: [ID=]PATH
	kernel  string   // image of the appliance's; "" has one looked for
}

// engineOf returns what changes the guest of a move.
func engineOf(m move) engineOptions {
	o := engineOptions{name: string(m.Engine), drivers: string(m.VirtioWin), kernel: string(m.Kernel)}
	for _, key := range m.KeyFiles {
		o.keys = append(o.keys, string(key))
	}
	return o.in(m.base)
}

// plan is the engine as plans have it, where the guest is changed at all.
func (o engineOptions) plan(hardware planfile.VMHardware) plan.Engine {
	if hardware == "compat" || o.name == string(plan.AutoEngine) {
		return ""
	}
	return plan.Engine(o.name)
}

// keyFiles are where the keys are.
func (o engineOptions) keyFiles() (keys []virtv2v.Key) {
	for _, text := range o.keys {
		keys = append(keys, virtv2v.ParseKey(text))
	}
	return keys
}

// in makes paths of a plan relative to its folder.
func (o engineOptions) in(folder string) engineOptions {
	if folder == "" {
		return o
	}
	under := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(folder, path)
	}
	o.drivers, o.kernel = under(o.drivers), under(o.kernel)
	var keys []string
	for _, k := range o.keyFiles() {
		k.File = under(k.File)
		keys = append(keys, k.String())
	}
	o.keys = keys
	return o
}

// appended changes a guest on overlays, with an appliance for what is not written from outside.
func (o engineOptions) appended(ctx context.Context, disks []convert.Disk, c convert.Options) (convert.Result, error) {
	c.Appliance = appliance.New(appliance.Options{Kernel: o.kernel})
	return convert.LinuxAppend(ctx, disks, c)
}

// prepared changes on overlays what virt-v2v leaves out.
func (o engineOptions) prepared(ctx context.Context, disks []convert.Disk, c convert.Options) (convert.Result, error) {
	c.Appliance = appliance.New(appliance.Options{Kernel: o.kernel})
	return convert.Prepare(ctx, disks, c)
}

// checkFiles looks at the keys and at the kernel that are named, by the words they were given with: to be
// missed now, not after hours of copying.
func (o engineOptions) checkFiles(keyWord, kernelWord string) error {
	if err := virtv2v.CheckKeys(o.keyFiles()); err != nil {
		return fmt.Errorf("%s: %w", keyWord, err)
	}
	if o.kernel == "" {
		return nil
	}
	if err := appliance.New(appliance.Options{Kernel: o.kernel}).Check(); err != nil {
		return fmt.Errorf("%s: %w", kernelWord, err)
	}
	return nil
}

// planKernel is the kernel as plans have it, where the guest is changed at all: it is found from
// everywhere.
func (o engineOptions) planKernel(hardware planfile.VMHardware) string {
	if hardware == "compat" || o.kernel == "" {
		return ""
	}
	path, err := filepath.Abs(o.kernel)
	if err != nil { // this process is nowhere
		return o.kernel
	}
	return path
}

// v2v runs virt-v2v; nil where it is neither asked for nor there, or no guest is to be changed.
func (w *works) v2v(ctx context.Context) func(context.Context, virtv2v.Job) (virtv2v.Report, error) {
	if h := w.to[0].plan.Hardware; h == "" || h == plan.Compat {
		return nil
	}
	e := virtv2v.New(virtv2v.Options{Drivers: w.conversion.drivers})
	if w.conversion.name != string(plan.VirtV2V) {
		if _, err := e.Find(ctx); err != nil {
			return nil
		}
	}
	return e.Convert
}

// checkEngine is that of a move, of a VM whose disks are looked into if it is off.
func (w *works) checkEngine(ctx context.Context, m move, vm *inventory.VM) error {
	return m.checkEngine(ctx, vm, func() []guest.Report { return w.glance(ctx, vm) })
}

// checkEngine refuses, before anything is copied, what is sure to be missed after hours: virt-v2v
// itself, the drivers of a Windows, the key of a volume. Where look finds nothing it goes by what VMware
// was told of the guest.
func (m move) checkEngine(ctx context.Context, vm *inventory.VM, look func() []guest.Report) error {
	engine := engineOf(m)
	if !m.changesGuest() || engine.name == string(plan.LinuxAppend) {
		return nil
	}
	e := virtv2v.New(virtv2v.Options{Drivers: engine.drivers})
	windows := strings.HasPrefix(strings.ToLower(vm.GuestID), "win")
	tool, err := e.Find(ctx)
	switch chosen := engine.name == string(plan.VirtV2V); {
	case err != nil && (chosen || windows && m.Hardware == "virtio"):
		return fault.New(fault.KindOf(err), "VM %s is to be converted by virt-v2v: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
	case err != nil, !chosen && !windows, !chosen && m.Hardware == "auto" && e.Drivers() == "":
		return nil
	}
	reports := look()
	drivers := migrate.WindowsOf(reports)
	if drivers == nil && windows {
		drivers = cmp.Or(virtv2v.WindowsOf(vm.GuestID), &virtv2v.Windows{})
	}
	if drivers != nil {
		if err := e.CheckDrivers(tool, drivers); err != nil {
			return fault.New(fault.KindOf(err), "VM %s is a Windows: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
		}
	}
	if err := migrate.TakenByV2V(reports, engine.keyFiles()); err != nil && m.Hardware == "virtio" {
		return fault.New(fault.KindOf(err), "VM %s: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
	}
	return nil
}

// glance looks into the disks of a VM that is off. What it does not find out is found out later.
func (w *works) glance(ctx context.Context, vm *inventory.VM) []guest.Report {
	if vm.Power != inventory.PoweredOff {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, beforehand)
	defer cancel()
	reports, err := w.look(ctx, vm)
	if err != nil {
		return nil
	}
	return reports
}
