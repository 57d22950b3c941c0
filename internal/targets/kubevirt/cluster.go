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

// Kinds of objects that decamp creates or reads.
var (
	machines = kube.Kind{Group: "kubevirt.io", Version: "v1", Plural: "virtualmachines"}      // VirtualMachine
	volumes  = kube.Kind{Group: "cdi.kubevirt.io", Version: "v1beta1", Plural: "datavolumes"} // DataVolume
	// UploadTokenRequest
	tokens = kube.Kind{Group: "upload.cdi.kubevirt.io", Version: "v1beta1", Plural: "uploadtokenrequests"}
	// CDIConfig, whose only object is named "config"
	cdiConfigs = kube.Kind{Group: "cdi.kubevirt.io", Version: "v1beta1", Plural: "cdiconfigs", Cluster: true}
	namespaces = kube.Kind{Version: "v1", Plural: "namespaces", Cluster: true} // Namespace
	// NetworkAttachmentDefinition
	attachments = kube.Kind{Group: "k8s.cni.cncf.io", Version: "v1", Plural: "network-attachment-definitions"}
	// StorageClass
	classes = kube.Kind{Group: "storage.k8s.io", Version: "v1", Plural: "storageclasses", Cluster: true}
)

// Cluster implements platform.Platform for a namespace of a Kubernetes cluster.
type Cluster struct {
	client *kube.Client // connection to the API server
	opts   Options      // fixed after newCluster
	proxy  string       // URL of CDI's upload proxy; empty to use the URL that CDI publishes
	flags  string       // flags for virtctl and kubectl in remedies, with a leading space

	poll     time.Duration // interval between queries of an object's state
	patience time.Duration // maximum time without any change of state
	// time that a VM may fail to start before Start returns an error; a new node may solve the problem
	startPatience time.Duration
	now           func() time.Time // time.Now; replaced by tests
}

var _ platform.Platform = (*Cluster)(nil)

// Default times of a Cluster.
const (
	defaultPoll          = 2 * time.Second  // pods are scheduled, pull images and attach volumes, which takes seconds
	defaultPatience      = 30 * time.Minute // default of Cluster.patience
	defaultStartPatience = 5 * time.Minute  // default of Cluster.startPatience
)

// newCluster returns the platform at an address with a kubeconfig. It reads the kubeconfig and sends no
// request.
func newCluster(a address) (*Cluster, error) {
	config, err := kube.Load(a.kubeconfig, a.context, a.Plugins)
	if err != nil {
		return nil, err
	}
	a.Namespace = cmp.Or(a.Namespace, config.Namespace)
	return &Cluster{
		client: kube.New(config), opts: a.Options, proxy: a.uploadProxy, flags: a.kubeFlags(),
		poll: defaultPoll, patience: defaultPatience, startPatience: defaultStartPatience, now: time.Now,
	}, nil
}

// kubeFlags returns the flags that select the kubeconfig and the context. The user's shell expands
// "$HOME".
func (a address) kubeFlags() string {
	flags := " --kubeconfig=" + fault.Quote(a.kubeconfig)
	if rest, ok := strings.CutPrefix(a.kubeconfig, "~/"); ok {
		flags = ` --kubeconfig="$HOME"/` + fault.Quote(rest)
	}
	if a.context != "" {
		flags += " --context=" + fault.Quote(a.context)
	}
	return flags
}

// String returns the platform's name for receipts and messages.
func (c *Cluster) String() string { return fmt.Sprintf("kubevirt %s %s", c.client.Host(), c.opts) }

// Close closes idle connections.
func (c *Cluster) Close() error {
	c.client.Close()
	return nil
}

// Check verifies what Deliver needs: KubeVirt and CDI, permissions, storage classes, the upload proxy.
// It then sends
// the objects as a dry run, so that objects that the cluster's versions reject are found before the
// copy.
func (c *Cluster) Check(ctx context.Context, vm *inventory.VM) error {
	o, err := newObjects(definitionOf(vm), c.opts)
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

// definitionOf returns a definition of vm without image files, for checks.
func definitionOf(vm *inventory.VM) targets.Definition {
	def := targets.Definition{VM: vm}
	for _, d := range vm.Disks {
		def.Images = append(def.Images, targets.Image{Key: d.Key, Size: d.Capacity})
	}
	return def
}

// checkAPIs returns fault.Unsupported if KubeVirt or CDI is not installed.
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
			return fault.New(fault.Unsupported, "the cluster has no %s", need.name).WithHint("install it: %s", need.see)
		}
	}
	return nil
}

// checkNamespace returns fault.NotFound if the namespace does not exist. An account may lack the
// permission to read
// namespaces; then it returns nil.
func (c *Cluster) checkNamespace(ctx context.Context) error {
	err := c.client.Read(ctx, namespaces, "", c.opts.namespaceName(), nil)
	switch {
	case fault.Is(err, fault.NotFound):
		return fault.New(fault.NotFound, "the namespace does not exist").WithHint("create it: kubectl create namespace %s", c.opts.namespaceName())
	case fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin):
		return nil // the account may have permissions in the namespace only
	}
	return err
}

// rights are the permissions that a delivery requires.
var rights = []struct {
	kube.Kind
	verbs []string
}{
	{volumes, []string{"get", "list", "create", "delete"}},
	{machines, []string{"get", "list", "create", "delete"}},
	{tokens, []string{"create"}},
}

// checkRights returns fault.Denied for the first permission that the account lacks.
func (c *Cluster) checkRights(ctx context.Context) error {
	for _, need := range rights {
		for _, verb := range need.verbs {
			may, err := c.client.May(ctx, verb, need.Kind, c.opts.namespaceName())
			if err != nil {
				return err
			}
			if !may {
				return fault.New(fault.Denied, "the account may not %s %s.%s", verb, need.Plural, need.Group).
					WithHint("grant it: kubectl -n %s create rolebinding decamp --clusterrole=edit --user=NAME (or --serviceaccount=NAMESPACE:NAME)", c.opts.namespaceName())
			}
		}
	}
	return nil
}

// checkClasses checks each storage class that disks name.
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

// checkClass returns fault.NotFound if the storage class does not exist. An account may lack the
// permission to read
// storage classes; then it returns nil.
func (c *Cluster) checkClass(ctx context.Context, name string) error {
	err := c.client.Read(ctx, classes, "", name, nil)
	switch {
	case fault.Is(err, fault.NotFound):
		return fault.New(fault.NotFound, "storage class %s does not exist", name).WithHint("set an existing one: kubectl get storageclass")
	case fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin):
		return nil
	}
	return err
}

// checkProxy checks that the upload proxy answers.
func (c *Cluster) checkProxy(ctx context.Context) error {
	p, err := c.uploadProxy(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	return p.checkHealth(ctx)
}

// uploadProxy returns the proxy at the user's URL, or at the URL that CDI publishes. CDI also publishes
// the
// certificate of the proxy's CA. The caller closes the proxy.
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
		return nil, fault.New(fault.NotFound, "CDI publishes no URL of its upload proxy").
			WithHint("forward its port: kubectl -n cdi port-forward service/cdi-uploadproxy 8443:443, and add uploadProxy=https://localhost:8443")
	}
	if !strings.Contains(address, "://") { // CDI publishes only the host
		address = "https://" + address
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM([]byte(config.Status.CA)) // malformed certificates are ignored
	return newProxy(address, c.client.Config().TLS, roots)
}

// checkObjects validates the objects that do not exist by a dry run. An existing object of another VM
// is
// fault.Conflict.
func (c *Cluster) checkObjects(ctx context.Context, o *Objects, vm *inventory.VM) error {
	try := func(k kube.Kind, what, name string, object any) error {
		var there state
		err := c.client.Read(ctx, k, c.opts.namespaceName(), name, &there)
		switch {
		case err == nil && !isMadeOf(there.Metadata.Annotations, vm):
			return conflictError(what, name, c.String(), vm)
		case err == nil:
			return nil // an earlier Deliver created it
		case fault.Is(err, fault.NotFound):
			err = c.client.Try(ctx, k, c.opts.namespaceName(), object)
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
