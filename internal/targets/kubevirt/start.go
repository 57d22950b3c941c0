package kubevirt

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

var _ platform.Starter = (*Cluster)(nil)

// The run strategies that count here. Halted becomes Always, which is what virtctl start and consoles make of
// it: virtctl stop then makes it Halted again, by which Withdraw knows a VM that is off. Of RerunOnFailure and
// Manual a stop leaves no trace in what the VM is to do. The price is that a guest which shuts itself down is
// started again.
const (
	halted = "Halted"
	always = "Always"
)

// Start has KubeVirt run the VM, and returns once it does. What was made to start before stays so, whatever
// comes of it: KubeVirt goes on trying when we are gone.
func (c *Cluster) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	s := &starting{Cluster: c, vm: def.VM, name: c.opts.name(def.VM)}
	if err := s.run(ctx); err != nil {
		return targets.Started{}, err
	}
	return targets.Started{Console: s.command("virtctl", "console "+s.name)}, nil
}

// A starting is a VM on its way to run. It does what its state calls for, whoever brought it there.
type starting struct {
	*Cluster
	vm   *inventory.VM
	name string

	ordered bool      // by us, or it was before us
	failing time.Time // since when there is something that keeps it from running; zero: there never was
}

// run looks at the VM until it runs. What keeps it from that may pass: nodes are added, images are pulled
// again. One that fails and is tried again by turns is failing all the while.
func (s *starting) run(ctx context.Context) error {
	deadline, last := s.now().Add(s.patience), ""
	for {
		seen, err := s.look(ctx)
		if err != nil || seen.runs() {
			return err
		}
		if err := s.order(ctx, seen); err != nil {
			return err
		}
		now, trouble := s.now(), s.trouble(seen)
		if trouble != nil && s.failing.IsZero() {
			s.failing = now
		}
		if trouble != nil && now.After(s.failing.Add(s.hope)) {
			return trouble
		}
		if seen.Status.Printable != last {
			last, deadline = seen.Status.Printable, now.Add(s.patience)
		}
		if now.After(deadline) {
			return fault.New(fault.Conflict, "the VM is at %q and gets nowhere%s", last, seen.why()).WithHint("%s", s.command("kubectl", "describe vm,vmi "+s.name))
		}
		if err := pause(ctx, s.poll); err != nil {
			return err
		}
	}
}

// look reads the VirtualMachine. One that is not of this VM is fault.Conflict.
func (s *starting) look(ctx context.Context) (*state, error) {
	var seen state
	err := s.retry(ctx, func() error {
		seen = state{}
		return s.client.Read(ctx, machines, s.opts.namespace(), s.name, &seen)
	})
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, fault.New(fault.NotFound, "there is no VirtualMachine %s in %s: %w", s.name, s, err).WithHint("%s", s.command("kubectl", "get vm"))
	case err == nil && !made(seen.Metadata.Annotations, s.vm):
		return nil, taken("VirtualMachine", s.name, s.String(), s.vm)
	}
	return &seen, err
}

// runs reports whether it does, and is to.
func (s *state) runs() bool {
	return s.Spec.RunStrategy != halted && (s.Status.Printable == "Running" || s.Status.Printable == "Migrating")
}

// order says that the VM is to run, if nobody said so yet. A VM that changed since it was seen is looked at again.
func (s *starting) order(ctx context.Context, seen *state) error {
	strategy, at := seen.Spec.RunStrategy, seen.Status.Printable
	switch {
	case strategy == halted && s.ordered:
		return fault.New(fault.Conflict, "somebody stopped it while it was started").WithHint("if it is to run: %s", s.command("virtctl", "start "+s.name))
	case at == "Paused":
		return fault.New(fault.Conflict, "it is paused%s", seen.why()).WithHint("%s", s.command("virtctl", "unpause vm "+s.name))
	case strategy != halted && strategy != always && at == "Stopped":
		return fault.New(fault.Conflict, "somebody made it start by order only (runStrategy: %s)", fault.Line(strategy)).
			WithHint("%s", s.command("virtctl", "start "+s.name))
	case strategy != halted:
		s.ordered = true
		return nil
	}
	run, version := map[string]any{"spec": map[string]any{"runStrategy": always}}, seen.Metadata.ResourceVersion
	err := s.retry(ctx, func() error { return s.client.Merge(ctx, machines, s.opts.namespace(), s.name, version, run) })
	switch {
	case fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin):
		return s.mayNotStart(err)
	case fault.Is(err, fault.Conflict):
		return nil
	}
	s.ordered = err == nil
	return err
}

// mayNotStart says which right lacks. Of those that Check asks for it is none: not all VMs are started.
func (c *Cluster) mayNotStart(err error) error {
	e := fault.New(fault.Denied, "the account may not start VMs: patch %s.%s", machines.Plural, machines.Group)
	if err != nil {
		e = fault.New(fault.Denied, "%s: %w", e, err)
	}
	return e.WithHint("kubectl -n %[1]s create role decamp-start --verb=patch --resource=%[2]s.%[3]s; "+
		"kubectl -n %[1]s create rolebinding decamp-start --role=decamp-start --user=NAME (or --serviceaccount=NAMESPACE:NAME)",
		c.opts.namespace(), machines.Plural, machines.Group)
}

// trouble is what keeps the VM from running, by what KubeVirt says of it; nil if there is nothing but time. It is
// never Transient: it was given time to pass, and who tried again would wait as long once more.
func (s *starting) trouble(seen *state) error {
	kind, remedy := fault.Conflict, s.command("kubectl", "describe vm,vmi "+s.name)
	switch at, said := seen.Status.Printable, seen.why(); {
	case at == "ErrorUnschedulable":
		kind, remedy = fault.Full, "no node takes it: add one, or make room, or give the VM less: "+s.command("kubectl", "edit vm "+s.name)
	case at == "ErrImagePull", at == "ImagePullBackOff":
		remedy = "nodes do not get the images of KubeVirt's own pods; see which: " + s.command("kubectl", "get events")
	case at == "ErrorPvcNotFound":
		kind, remedy = fault.NotFound, "a volume of the VM was removed: "+s.command("kubectl", "get pvc,datavolume")
	case at == "DataVolumeError":
		remedy = s.command("kubectl", "describe datavolume -l "+sourceLabel+"="+labels(s.vm)[sourceLabel])
	case at == "CrashLoopBackOff":
		remedy = "its pod ends at once, again and again; see why: " + s.command("kubectl", "logs -c compute -l vm.kubevirt.io/name="+s.name)
	case strings.Contains(said, "exceeded quota"):
		kind, remedy = fault.Full, s.command("kubectl", "describe resourcequota")
	case !seen.failed():
		return nil
	}
	return fault.New(kind, "the VM cannot start now, and KubeVirt goes on trying: it is at %s%s", fault.Line(seen.Status.Printable), seen.why()).WithHint("%s", remedy)
}

// failed reports whether the controller could not even make what the VM runs in.
func (s *state) failed() bool {
	return slices.ContainsFunc(s.Status.Conditions, func(c condition) bool { return c.Type == "Failure" && c.Status == "True" })
}

// command is one to be typed, of virtctl or kubectl, for the cluster and the namespace.
func (c *Cluster) command(tool, words string) string {
	return tool + c.flags + " -n " + c.opts.namespace() + " " + words
}
