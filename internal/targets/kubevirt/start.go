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

// Run strategies that Start sets or finds. Start changes Halted to Always, like virtctl start and web consoles.
// virtctl stop changes Always to Halted, so that Withdraw recognizes a VM that is off. With RerunOnFailure and
// Manual, a stop does not change the run strategy. The disadvantage of Always: KubeVirt restarts a guest that
// shuts itself down.
const (
	halted = "Halted" // the VM is off; set by virtctl stop
	always = "Always" // KubeVirt restarts the VM whenever it stops; set by virtctl start
)

// Start requests that KubeVirt runs the VM, and waits until it does. After an error the request
// remains, and KubeVirt
// continues to try.
func (c *Cluster) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	s := &starting{Cluster: c, vm: def.VM, name: c.opts.objectName(def.VM)}
	if err := s.waitUntilRunning(ctx); err != nil {
		return targets.Started{}, err
	}
	return targets.Started{Console: s.toolCommand("virtctl", "console "+s.name)}, nil
}

// starting is one call of Start. It depends only on the VM's state, so that another client can
// interfere.
type starting struct {
	*Cluster
	vm   *inventory.VM // the source VM
	name string        // name of the VirtualMachine

	requested bool      // this or another client has requested the start
	failing   time.Time // time when a cause of failure was first seen; zero if never
}

// waitUntilRunning reads the VM's state until it runs. Causes of failure can disappear: nodes are
// added, and image
// pulls are retried. A cause that alternates with retries counts from its first occurrence.
func (s *starting) waitUntilRunning(ctx context.Context) error {
	deadline, last := s.now().Add(s.patience), ""
	for {
		seen, err := s.readVM(ctx)
		if err != nil || seen.isRunning() {
			return err
		}
		if err := s.requestStart(ctx, seen); err != nil {
			return err
		}
		now, trouble := s.now(), s.startFailure(seen)
		if trouble != nil && s.failing.IsZero() {
			s.failing = now
		}
		if trouble != nil && now.After(s.failing.Add(s.startPatience)) {
			return trouble
		}
		if seen.Status.Printable != last {
			last, deadline = seen.Status.Printable, now.Add(s.patience)
		}
		if now.After(deadline) {
			return fault.New(fault.Conflict, "the VM's status has been %q for too long%s", last, seen.failureText()).WithHint("%s", s.toolCommand("kubectl", "describe vm,vmi "+s.name))
		}
		if err := waitFor(ctx, s.poll); err != nil {
			return err
		}
	}
}

// readVM reads the VirtualMachine. One that belongs to another VM is fault.Conflict.
func (s *starting) readVM(ctx context.Context) (*state, error) {
	var seen state
	err := s.retryTransient(ctx, func() error {
		seen = state{}
		return s.client.Read(ctx, machines, s.opts.namespaceName(), s.name, &seen)
	})
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, fault.New(fault.NotFound, "no VirtualMachine %s in %s: %w", s.name, s, err).WithHint("%s", s.toolCommand("kubectl", "get vm"))
	case err == nil && !isMadeOf(seen.Metadata.Annotations, s.vm):
		return nil, conflictError("VirtualMachine", s.name, s.String(), s.vm)
	}
	return &seen, err
}

// isRunning reports whether the VM runs and no stop was requested.
func (s *state) isRunning() bool {
	return s.Spec.RunStrategy != halted && (s.Status.Printable == "Running" || s.Status.Printable == "Migrating")
}

// requestStart sets the run strategy unless the start was already requested. If the VM has changed
// since seen was read,
// it returns nil, and the caller reads the VM again.
func (s *starting) requestStart(ctx context.Context, seen *state) error {
	strategy, at := seen.Spec.RunStrategy, seen.Status.Printable
	switch {
	case strategy == halted && s.requested:
		return fault.New(fault.Conflict, "another client stopped it during the start").WithHint("to start it: %s", s.toolCommand("virtctl", "start "+s.name))
	case at == "Paused":
		return fault.New(fault.Conflict, "it is paused%s", seen.failureText()).WithHint("%s", s.toolCommand("virtctl", "unpause vm "+s.name))
	case strategy != halted && strategy != always && at == "Stopped":
		return fault.New(fault.Conflict, "it is started manually only (runStrategy: %s)", fault.Line(strategy)).
			WithHint("%s", s.toolCommand("virtctl", "start "+s.name))
	case strategy != halted:
		s.requested = true
		return nil
	}
	run, version := map[string]any{"spec": map[string]any{"runStrategy": always}}, seen.Metadata.ResourceVersion
	err := s.retryTransient(ctx, func() error { return s.client.Merge(ctx, machines, s.opts.namespaceName(), s.name, version, run) })
	switch {
	case fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin):
		return s.mayNotStart(err)
	case fault.Is(err, fault.Conflict):
		return nil
	}
	s.requested = err == nil
	return err
}

// mayNotStart returns the error for a missing permission to start VMs. Check does not require this
// permission, because
// not all VMs are started. err may be nil.
func (c *Cluster) mayNotStart(err error) error {
	e := fault.New(fault.Denied, "the account may not start VMs: patch %s.%s", machines.Plural, machines.Group)
	if err != nil {
		e = fault.New(fault.Denied, "%s: %w", e, err)
	}
	return e.WithHint("kubectl -n %[1]s create role decamp-start --verb=patch --resource=%[2]s.%[3]s; "+
		"kubectl -n %[1]s create rolebinding decamp-start --role=decamp-start --user=NAME (or --serviceaccount=NAMESPACE:NAME)",
		c.opts.namespaceName(), machines.Plural, machines.Group)
}

// startFailure returns the cause that prevents the VM from running, or nil if KubeVirt reports none.
// Its kind is never
// Transient, because the caller has already waited.
func (s *starting) startFailure(seen *state) error {
	kind, remedy := fault.Conflict, s.toolCommand("kubectl", "describe vm,vmi "+s.name)
	switch at, said := seen.Status.Printable, seen.failureText(); {
	case at == "ErrorUnschedulable":
		kind, remedy = fault.Full, "no node has enough resources: add a node, free resources, or reduce the VM's: "+s.toolCommand("kubectl", "edit vm "+s.name)
	case at == "ErrImagePull", at == "ImagePullBackOff":
		remedy = "nodes cannot pull the images of KubeVirt's pods; find the image: " + s.toolCommand("kubectl", "get events")
	case at == "ErrorPvcNotFound":
		kind, remedy = fault.NotFound, "a volume of the VM was removed: "+s.toolCommand("kubectl", "get pvc,datavolume")
	case at == "DataVolumeError":
		remedy = s.toolCommand("kubectl", "describe datavolume -l "+sourceLabel+"="+sourceLabels(s.vm)[sourceLabel])
	case at == "CrashLoopBackOff":
		remedy = "its pod exits repeatedly; read its log: " + s.toolCommand("kubectl", "logs -c compute -l vm.kubevirt.io/name="+s.name)
	case strings.Contains(said, "exceeded quota"):
		kind, remedy = fault.Full, s.toolCommand("kubectl", "describe resourcequota")
	case !seen.hasFailure():
		return nil
	}
	return fault.New(kind, "the VM cannot start now, and KubeVirt continues to try: its status is %s%s", fault.Line(seen.Status.Printable), seen.failureText()).WithHint("%s", remedy)
}

// hasFailure reports whether the controller failed to create the VM's pod or instance.
func (s *state) hasFailure() bool {
	return slices.ContainsFunc(s.Status.Conditions, func(c condition) bool { return c.Type == "Failure" && c.Status == "True" })
}

// toolCommand returns a command of virtctl or kubectl, with the flags for the cluster and the
// namespace.
func (c *Cluster) toolCommand(tool, words string) string {
	return tool + c.flags + " -n " + c.opts.namespaceName() + " " + words
}
