package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/appliance"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
)

// engineOptions say what changes guests for virtio.
type engineOptions struct {
	name    string // plan.Engine
	drivers string // virtio-win
	kernel  string // image of the appliance's; "" has one looked for
}

// engines are the words of --engine.
var engines = []string{string(plan.AutoEngine), string(plan.LinuxAppend), string(plan.VirtV2V)}

func (o *engineOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.name, "engine", string(plan.AutoEngine), "what changes a guest for virtio, by `NAME`: auto, linux-append or virt-v2v; auto is linux-append, and virt-v2v where that does not take the guest and it is installed")
	f.StringVar(&o.drivers, "virtio-win", "", "`PATH` of the drivers that virt-v2v gives a Windows: the ISO image virtio-win, or a folder with what is in it; $VIRTIO_WIN else")
	f.StringVar(&o.kernel, "appliance-kernel", "", "image `FILE` of the kernel that mounts XFS and btrfs of guests for --hardware virtio; its modules in lib/modules there (default the newest in /boot)")
}

// plan is the engine as plans have it, where the guest is changed at all.
func (o engineOptions) plan(hardware string) plan.Engine {
	if hardware == string(plan.Compat) || o.name == string(plan.AutoEngine) {
		return ""
	}
	return plan.Engine(o.name)
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

// checkKernel looks at the kernel that is named, if one is.
func (o engineOptions) checkKernel() error {
	if o.kernel == "" {
		return nil
	}
	return appliance.New(appliance.Options{Kernel: o.kernel}).Check()
}

// planKernel is the kernel as plans have it, where the guest is changed at all: it is found from
// everywhere.
func (o engineOptions) planKernel(hardware string) string {
	if hardware == string(plan.Compat) || o.kernel == "" {
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

// checkEngine refuses, before anything is copied, what is sure to be missed after hours: virt-v2v
// itself, and the drivers of a Windows.
func checkEngine(ctx context.Context, o migrateOptions, vm *inventory.VM) error {
	if o.hardware == string(plan.Compat) || o.engine.name == string(plan.LinuxAppend) {
		return nil
	}
	e := virtv2v.New(virtv2v.Options{Drivers: o.engine.drivers})
	windows := strings.HasPrefix(strings.ToLower(vm.GuestID), "win")
	_, err := e.Find(ctx)
	switch chosen := o.engine.name == string(plan.VirtV2V); {
	case err != nil && (chosen || windows && o.hardware == string(plan.Virtio)):
		return fault.New(fault.KindOf(err), "VM %s is to be converted by virt-v2v: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
	case err != nil, !windows, !chosen && o.hardware == string(plan.AutoHardware) && e.Drivers() == "":
		return nil
	}
	if err := e.CheckDrivers(nil); err != nil {
		return fault.New(fault.KindOf(err), "VM %s is a Windows: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
	}
	return nil
}
