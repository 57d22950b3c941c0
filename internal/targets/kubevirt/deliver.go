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

// state contains the fields of an object, of any kind, that decamp reads.
type state struct {
	Metadata meta `json:"metadata"` // name, identity and version
	Spec     struct {
		RunStrategy string `json:"runStrategy"` // "Halted", "Always" or another strategy; set in VirtualMachines
	} `json:"spec"`
	Status struct {
		Created    bool        `json:"created"`         // the VirtualMachine has an instance: it starts, runs or stops
		Printable  string      `json:"printableStatus"` // status of a VirtualMachine for users, such as "Running"
		Phase      string      `json:"phase"`           // phase of a DataVolume, such as "UploadReady"
		Restarts   int         `json:"restartCount"`
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

// failureText returns the messages of conditions that report a problem, or "". It begins with a comma.
func (s *state) failureText() string {
	said := ""
	for _, c := range s.Status.Conditions {
		if amiss := (c.Status == "True") == (c.Type == "Failure"); amiss && c.Message != "" {
			said = fmt.Sprintf("%s, %s: %s", said, c.Type, c.Message)
		}
	}
	return said
}

// condition is a condition in an object's status.
type condition struct {
	Type    string `json:"type"`    // such as "Ready" or "Failure"
	Status  string `json:"status"`  // "True", "False" or "Unknown"
	Message string `json:"message"` // text for users
}

// undoTimeout limits the cleanup after a failed delivery, which also runs after a cancellation.
const undoTimeout = 5 * time.Minute

// Deliver uploads the images one after the other and creates the VirtualMachine last, so that an
// existing one has all
// its disks. After a crash it finds its objects by name and identity. If this call fails, a VM that an
// earlier
// call completed is left unchanged.
func (c *Cluster) Deliver(ctx context.Context, d platform.Delivery) (platform.Receipt, error) {
	o, err := newObjects(d.Definition, c.opts)
	if err != nil {
		return platform.Receipt{}, err
	}
	receipt := platform.Receipt{
		Platform: c.String(), ID: o.vm.Metadata.Namespace + "/" + o.vm.Metadata.Name, Name: o.vm.Metadata.Name, Warnings: o.warnings,
	}
	there, err := c.isDelivered(ctx, o, d.VM)
	if there || err != nil {
		return receipt, err
	}
	if err := c.createObjects(ctx, o, d); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return platform.Receipt{}, errors.Join(err, c.Withdraw(undo, d.VM))
	}
	return receipt, nil
}

// isDelivered reports whether the VM exists with these disks. Another VM with its name, or other disks,
// are
// fault.Conflict, because they may be in use.
func (c *Cluster) isDelivered(ctx context.Context, o *Objects, vm *inventory.VM) (bool, error) {
	var there state
	err := c.client.Read(ctx, machines, c.opts.namespaceName(), o.vm.Metadata.Name, &there)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !isMadeOf(there.Metadata.Annotations, vm) {
		return false, conflictError("VirtualMachine", o.vm.Metadata.Name, c.String(), vm)
	}
	for _, want := range o.disks {
		var have state
		err := c.client.Read(ctx, volumes, c.opts.namespaceName(), want.Metadata.Name, &have)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return false, err
		}
		if err != nil || have.Metadata.Annotations[rootNote] != want.Metadata.Annotations[rootNote] {
			return false, fault.New(fault.Conflict, "VM %s was delivered before, and its disk %s contains another image", vm.Name, want.Metadata.Name).
				WithHint("if the old VM is not needed: kubectl -n %s delete vm,dv -l %s=%s", c.opts.namespaceName(), sourceLabel, want.Metadata.Labels[sourceLabel])
		}
	}
	return true, nil
}

// createObjects uploads the disks and creates the VirtualMachine.
func (c *Cluster) createObjects(ctx context.Context, o *Objects, d platform.Delivery) error {
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
	err = c.retryTransient(ctx, func() error { return c.client.Create(ctx, machines, c.opts.namespaceName(), o.vm, nil) })
	if fault.Is(err, fault.Conflict) { // isDelivered has not found it
		var there state
		if c.client.Read(ctx, machines, c.opts.namespaceName(), o.vm.Metadata.Name, &there) == nil && isMadeOf(there.Metadata.Annotations, d.VM) {
			return nil // the answer to an earlier try was lost
		}
		return conflictError("VirtualMachine", o.vm.Metadata.Name, c.String(), d.VM)
	}
	return err
}

// Withdraw deletes the VirtualMachine and then its disks, and waits until they are gone. A VM that
// runs, or starts
// during the call, is fault.Conflict.
func (c *Cluster) Withdraw(ctx context.Context, vm *inventory.VM) error {
	for _, k := range []kube.Kind{machines, volumes} {
		if err := c.deleteAll(ctx, k, vm); err != nil {
			return fmt.Errorf("remove %s of VM %s: %w", k.Plural, vm.Name, err)
		}
	}
	return nil
}

// deleteAll deletes the objects of a kind that were created for vm, and waits until none is left.
func (c *Cluster) deleteAll(ctx context.Context, k kube.Kind, vm *inventory.VM) error {
	deadline := c.now().Add(c.patience)
	for {
		found, err := c.listOwn(ctx, k, vm)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, s := range found {
			if err := c.deleteObject(ctx, k, s); err != nil {
				return err
			}
		}
		if c.now().After(deadline) {
			name := found[0].Metadata.Name
			return fault.New(fault.Transient, "%s still exists after its deletion", name).
				WithHint("check its finalizers: kubectl -n %s get %s %s -o yaml", c.opts.namespaceName(), k.Plural, name)
		}
		if err := waitFor(ctx, c.poll); err != nil {
			return err
		}
	}
}

// listOwn lists the objects of a kind that were created for vm.
func (c *Cluster) listOwn(ctx context.Context, k kube.Kind, vm *inventory.VM) ([]state, error) {
	var found struct {
		Items []state `json:"items"`
	}
	selector := sourceLabel + "=" + sourceLabels(vm)[sourceLabel]
	err := c.retryTransient(ctx, func() error { return c.client.List(ctx, k, c.opts.namespaceName(), selector, &found) })
	return slices.DeleteFunc(found.Items, func(s state) bool { return !isMadeOf(s.Metadata.Annotations, vm) }), err
}

// deleteObject requests the deletion of an object in the state s. If the object has been replaced or
// changed since, it
// returns nil, and the caller must read it again.
func (c *Cluster) deleteObject(ctx context.Context, k kube.Kind, s state) error {
	only := kube.Only{UID: s.Metadata.UID}
	if k == machines {
		if s.Status.Created || s.Spec.RunStrategy != "Halted" {
			return fault.New(fault.Conflict, "%s is running or starting", s.Metadata.Name).
				WithHint("shut it down first: virtctl -n %s stop %s", c.opts.namespaceName(), s.Metadata.Name)
		}
		only.ResourceVersion = s.Metadata.ResourceVersion // fails if it was started since
	}
	err := c.retryTransient(ctx, func() error { return c.client.Delete(ctx, k, c.opts.namespaceName(), s.Metadata.Name, only) })
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// waitFor waits for d. If ctx ends first, it returns the cause.
func waitFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
