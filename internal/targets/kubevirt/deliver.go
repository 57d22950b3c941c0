package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/kubevirt/kube"
	"github.com/decamp/decamp/internal/targets/platform"
)

// state is what is looked at of an object of any kind.
type state struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		RunStrategy string `json:"runStrategy"` // of a VirtualMachine
	} `json:"spec"`
	Status struct {
		Created    bool        `json:"created"`         // of a VirtualMachine: it runs, or begins or ends to
		Printable  string      `json:"printableStatus"` // of a VirtualMachine: what it is at, for people
		Phase      string      `json:"phase"`           // of a DataVolume
		Restarts   int         `json:"restartCount"`
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

// why is what the cluster says about an object that gets nowhere.
func (s *state) why() string {
	said := ""
	for _, c := range s.Status.Conditions {
		if amiss := (c.Status == "True") == (c.Type == "Failure"); amiss && c.Message != "" {
			said = fmt.Sprintf("%s, %s: %s", said, c.Type, c.Message)
		}
	}
	return said
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message"`
}

// undoTimeout bounds what is done after an error, also after somebody asked to stop.
const undoTimeout = 5 * time.Minute

// Deliver sends the images one after the other, and makes the VM last: a VirtualMachine that is there has
// all its disks. After a crash it finds what it made by name and identity. What an earlier delivery
// finished stays as it is, also if this one fails.
func (c *Cluster) Deliver(ctx context.Context, d platform.Delivery) (platform.Receipt, error) {
	o, err := objects(d.Definition, c.opts)
	if err != nil {
		return platform.Receipt{}, err
	}
	receipt := platform.Receipt{
		Place: c.String(), ID: o.vm.Metadata.Namespace + "/" + o.vm.Metadata.Name, Name: o.vm.Metadata.Name, Warnings: o.warnings,
	}
	there, err := c.delivered(ctx, o, d.VM)
	if there || err != nil {
		return receipt, err
	}
	if err := c.deliver(ctx, o, d); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return platform.Receipt{}, errors.Join(err, c.Withdraw(undo, d.VM))
	}
	return receipt, nil
}

// delivered reports whether the VM is there with these disks. Others of its name, and other disks of its
// own, are fault.Conflict: they may be in use.
func (c *Cluster) delivered(ctx context.Context, o *Objects, vm *inventory.VM) (bool, error) {
	var there state
	err := c.client.Read(ctx, machines, c.opts.namespace(), o.vm.Metadata.Name, &there)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !made(there.Metadata.Annotations, vm) {
		return false, taken("VirtualMachine", o.vm.Metadata.Name, c.String(), vm)
	}
	for _, want := range o.disks {
		var have state
		err := c.client.Read(ctx, volumes, c.opts.namespace(), want.Metadata.Name, &have)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return false, err
		}
		if err != nil || have.Metadata.Annotations[rootNote] != want.Metadata.Annotations[rootNote] {
			return false, fault.New(fault.Conflict, "VM %s was delivered before, and its disk %s holds something else", vm.Name, want.Metadata.Name).
				WithHint("if that one is not needed: kubectl -n %s delete vm,dv -l %s=%s", c.opts.namespace(), sourceLabel, want.Metadata.Labels[sourceLabel])
		}
	}
	return true, nil
}

func (c *Cluster) deliver(ctx context.Context, o *Objects, d platform.Delivery) error {
	p, err := c.uploadProxy(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	progress := platform.NewProgress(d)
	for i, want := range o.disks {
		img := o.images[i]
		u := &upload{Cluster: c, proxy: p, want: want, vm: d.VM, progress: progress}
		u.open = func(ctx context.Context) (*stream, error) { return openStream(ctx, d, img) }
		if err := u.run(ctx); err != nil {
			return fmt.Errorf("disk %s: %w", want.Metadata.Name, err)
		}
		progress.Finish(img.Size)
	}
	err = c.retry(ctx, func() error { return c.client.Create(ctx, machines, c.opts.namespace(), o.vm, nil) })
	if fault.Is(err, fault.Conflict) { // it was not there before
		var there state
		if c.client.Read(ctx, machines, c.opts.namespace(), o.vm.Metadata.Name, &there) == nil && made(there.Metadata.Annotations, d.VM) {
			return nil // the answer to an earlier try was lost
		}
		return taken("VirtualMachine", o.vm.Metadata.Name, c.String(), d.VM)
	}
	return err
}

// Withdraw deletes the VirtualMachine and then its disks. It returns once they are gone. A VM that runs is
// fault.Conflict, also one that is started just now.
func (c *Cluster) Withdraw(ctx context.Context, vm *inventory.VM) error {
	for _, k := range []kube.Kind{machines, volumes} {
		if err := c.remove(ctx, k, vm); err != nil {
			return fmt.Errorf("remove %s of VM %s: %w", k.Plural, vm.Name, err)
		}
	}
	return nil
}

// remove deletes the objects of a kind that were made of vm, until none is left.
func (c *Cluster) remove(ctx context.Context, k kube.Kind, vm *inventory.VM) error {
	deadline := c.now().Add(c.patience)
	for {
		found, err := c.find(ctx, k, vm)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, s := range found {
			if err := c.drop(ctx, k, s); err != nil {
				return err
			}
		}
		if c.now().After(deadline) {
			name := found[0].Metadata.Name
			return fault.New(fault.Transient, "%s does not go away", name).
				WithHint("see what holds it: kubectl -n %s get %s %s -o yaml", c.opts.namespace(), k.Plural, name)
		}
		if err := pause(ctx, c.poll); err != nil {
			return err
		}
	}
}

// find lists the objects of a kind that were made of vm.
func (c *Cluster) find(ctx context.Context, k kube.Kind, vm *inventory.VM) ([]state, error) {
	var found struct {
		Items []state `json:"items"`
	}
	selector := sourceLabel + "=" + labels(vm)[sourceLabel]
	err := c.retry(ctx, func() error { return c.client.List(ctx, k, c.opts.namespace(), selector, &found) })
	return slices.DeleteFunc(found.Items, func(s state) bool { return !made(s.Metadata.Annotations, vm) }), err
}

// drop asks for an object to be deleted. One that is another by now, or changed, is looked at again by
// whoever called.
func (c *Cluster) drop(ctx context.Context, k kube.Kind, s state) error {
	only := kube.Only{UID: s.Metadata.UID}
	if k == machines {
		if s.Status.Created || s.Spec.RunStrategy != "Halted" {
			return fault.New(fault.Conflict, "%s runs, or is to", s.Metadata.Name).
				WithHint("shut it down first: virtctl -n %s stop %s", c.opts.namespace(), s.Metadata.Name)
		}
		only.ResourceVersion = s.Metadata.ResourceVersion // nobody started it since
	}
	err := c.retry(ctx, func() error { return c.client.Delete(ctx, k, c.opts.namespace(), s.Metadata.Name, only) })
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// pause waits, unless somebody asks to stop.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
