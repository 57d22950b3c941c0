package kubevirt

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/kubevirt/kube"
	"github.com/decamp/decamp/internal/targets/platform"
)

// The kinds of objects that are made, and that are asked for.
var (
	machines   = kube.Kind{Group: "kubevirt.io", Version: "v1", Plural: "virtualmachines"}
	volumes    = kube.Kind{Group: "cdi.kubevirt.io", Version: "v1beta1", Plural: "datavolumes"}
	tokens     = kube.Kind{Group: "upload.cdi.kubevirt.io", Version: "v1beta1", Plural: "uploadtokenrequests"}
	cdiConfigs = kube.Kind{Group: "cdi.kubevirt.io", Version: "v1beta1", Plural: "cdiconfigs", Cluster: true}
	namespaces = kube.Kind{Version: "v1", Plural: "namespaces", Cluster: true}
	classes    = kube.Kind{Group: "storage.k8s.io", Version: "v1", Plural: "storageclasses", Cluster: true}
)

// Cluster takes VMs into a namespace of a Kubernetes cluster. It satisfies platform.Place.
type Cluster struct {
	client *kube.Client
	opts   Options
	proxy  string // URL of CDI's upload proxy, where the user named one
	flags  string // by which virtctl finds the cluster, with a blank before each

	poll     time.Duration    // between looks at what the cluster is doing
	patience time.Duration    // with a cluster that is getting nowhere
	hope     time.Duration    // that a VM which cannot start will, as soon as there is a node for it
	now      func() time.Time // replaced by tests
}

var _ platform.Place = (*Cluster)(nil)

// The cluster's pace: pods are scheduled, pull images and attach volumes.
const (
	defaultPoll     = 2 * time.Second
	defaultPatience = 30 * time.Minute
	defaultHope     = 5 * time.Minute
)

// newCluster returns the place that an address with a kubeconfig names. It reads that, and asks nobody.
func newCluster(a address) (*Cluster, error) {
	config, err := kube.Load(a.kubeconfig, a.context, a.Plugins)
	if err != nil {
		return nil, err
	}
	a.Namespace = cmp.Or(a.Namespace, config.Namespace)
	return &Cluster{
		client: kube.New(config), opts: a.Options, proxy: a.uploadProxy, flags: a.flags(),
		poll: defaultPoll, patience: defaultPatience, hope: defaultHope, now: time.Now,
	}, nil
}

// flags name the kubeconfig and the context to the tools of Kubernetes. A home directory is the shell's to find.
func (a address) flags() string {
	flags := " --kubeconfig=" + fault.Quote(a.kubeconfig)
	if rest, ok := strings.CutPrefix(a.kubeconfig, "~/"); ok {
		flags = ` --kubeconfig="$HOME"/` + fault.Quote(rest)
	}
	if a.context != "" {
		flags += " --context=" + fault.Quote(a.context)
	}
	return flags
}

// String names the place as people do.
func (c *Cluster) String() string { return fmt.Sprintf("kubevirt %s %s", c.client.Host(), c.opts) }

// Close gives connections back.
func (c *Cluster) Close() error {
	c.client.Close()
	return nil
}

// Check asks the cluster for all that Deliver needs: KubeVirt and CDI, rights, the storage class, the
// upload proxy. It has the cluster judge the objects without making them, so that what its own versions
// of KubeVirt and CDI refuse is known before anything is copied.
func (c *Cluster) Check(ctx context.Context, vm *inventory.VM) error {
	o, err := objects(undelivered(vm), c.opts)
	if err != nil {
		return err
	}
	checkClasses := func(ctx context.Context) error { return c.checkClasses(ctx, o) }
	for _, step := range []func(context.Context) error{c.checkAPIs, c.checkNamespace, c.checkRights, checkClasses, c.checkProxy} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return c.checkObjects(ctx, o, vm)
}

// undelivered is what vm would be defined by, before it has images.
func undelivered(vm *inventory.VM) targets.Definition {
	def := targets.Definition{VM: vm}
	for _, d := range vm.Disks {
		def.Images = append(def.Images, targets.Image{Key: d.Key, Size: d.Capacity})
	}
	return def
}

func (c *Cluster) checkAPIs(ctx context.Context) error {
	for _, need := range []struct {
		kube.Kind
		name, see string
	}{
		{machines, "KubeVirt", "https://kubevirt.io/user-guide/cluster_admin/installation"},
		{volumes, "CDI", "https://kubevirt.io/user-guide/storage/containerized_data_importer"},
	} {
		there, err := c.client.Serves(ctx, need.Group, need.Version)
		if err != nil {
			return err
		}
		if !there {
			return fault.New(fault.Unsupported, "there is no %s in the cluster", need.name).WithHint("install it: %s", need.see)
		}
	}
	return nil
}

func (c *Cluster) checkNamespace(ctx context.Context) error {
	err := c.client.Read(ctx, namespaces, "", c.opts.namespace(), nil)
	switch {
	case fault.Is(err, fault.NotFound):
		return fault.New(fault.NotFound, "there is no such namespace").WithHint("kubectl create namespace %s", c.opts.namespace())
	case fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin):
		return nil // accounts of a namespace need not see namespaces
	}
	return err
}

// rights are the verbs that a delivery needs.
var rights = []struct {
	kube.Kind
	verbs []string
}{
	{volumes, []string{"get", "list", "create", "delete"}},
	{machines, []string{"get", "list", "create", "delete"}},
	{tokens, []string{"create"}},
}

func (c *Cluster) checkRights(ctx context.Context) error {
	for _, need := range rights {
		for _, verb := range need.verbs {
			may, err := c.client.May(ctx, verb, need.Kind, c.opts.namespace())
			if err != nil {
				return err
			}
			if !may {
				return fault.New(fault.Denied, "the account may not %s %s.%s", verb, need.Plural, need.Group).
					WithHint("kubectl -n %s create rolebinding decamp --clusterrole=edit --user=NAME (or --serviceaccount=NAMESPACE:NAME)", c.opts.namespace())
			}
		}
	}
	return nil
}

// checkClasses asks for each storage class that disks name.
func (c *Cluster) checkClasses(ctx context.Context, o *Objects) error {
	asked := map[string]bool{"": true}
	for _, d := range o.disks {
		class := d.Spec.Storage.Class
		if asked[class] {
			continue
		}
		asked[class] = true
		if err := c.checkClass(ctx, class); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) checkClass(ctx context.Context, name string) error {
	err := c.client.Read(ctx, classes, "", name, nil)
	switch {
	case fault.Is(err, fault.NotFound):
		return fault.New(fault.NotFound, "there is no storage class %s", name).WithHint("kubectl get storageclass")
	case fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin):
		return nil
	}
	return err
}

func (c *Cluster) checkProxy(ctx context.Context) error {
	p, err := c.uploadProxy(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	return p.reach(ctx)
}

// uploadProxy is the one the user named, or else the one that CDI tells of. CDI tells whose certificate it has, too.
func (c *Cluster) uploadProxy(ctx context.Context) (*proxy, error) {
	var config struct {
		Status struct {
			URL string `json:"uploadProxyURL"`
			CA  string `json:"uploadProxyCA"`
		} `json:"status"`
	}
	err := c.client.Read(ctx, cdiConfigs, "", "config", &config)
	if err != nil && c.proxy == "" {
		return nil, fmt.Errorf("find the upload proxy: %w", err)
	}
	address := cmp.Or(c.proxy, config.Status.URL)
	if address == "" {
		return nil, fault.New(fault.NotFound, "CDI tells of no upload proxy that is reached from outside").
			WithHint("kubectl -n cdi port-forward service/cdi-uploadproxy 8443:443, and add uploadProxy=https://localhost:8443")
	}
	if !strings.Contains(address, "://") { // CDI tells the host alone
		address = "https://" + address
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM([]byte(config.Status.CA)) // one that is none is not trusted
	return newProxy(address, c.client.Config().TLS, roots)
}

// checkObjects has the cluster judge what is not there yet, and refuses what is there and not vm's.
func (c *Cluster) checkObjects(ctx context.Context, o *Objects, vm *inventory.VM) error {
	try := func(k kube.Kind, what, name string, object any) error {
		var there state
		err := c.client.Read(ctx, k, c.opts.namespace(), name, &there)
		switch {
		case err == nil && !made(there.Metadata.Annotations, vm):
			return taken(what, name, c.String(), vm)
		case err == nil:
			return nil // of an earlier Deliver
		case fault.Is(err, fault.NotFound):
			err = c.client.Try(ctx, k, c.opts.namespace(), object)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, name, err)
		}
		return nil
	}
	for _, d := range o.disks {
		if err := try(volumes, "DataVolume", d.Metadata.Name, d); err != nil {
			return err
		}
	}
	return try(machines, "VirtualMachine", o.vm.Metadata.Name, o.vm)
}
