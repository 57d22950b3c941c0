package kubevirt

import (
	"cmp"
	"context"
	"errors"
	"path"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets/kubevirt/kube"
	"github.com/decamp/decamp/internal/targets/platform"
)

var (
	_ platform.Examiner    = (*Cluster)(nil)
	_ platform.ValueLister = (*Cluster)(nil)
)

// ListValues implements platform.ValueLister for storageClass, network and namespace.
func (c *Cluster) ListValues(ctx context.Context, parameter string) ([]string, error) {
	switch parameter {
	case "storageClass":
		return c.listNames(ctx, classes, "")
	case "namespace":
		return c.listNames(ctx, namespaces, "")
	case "network":
		every := attachments
		every.Cluster = true // in all namespaces
		names, err := c.listNames(ctx, every, multusPrefix)
		if fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin) {
			names, err = c.listNames(ctx, attachments, multusPrefix)
		}
		if fault.Is(err, fault.NotFound) { // a cluster without Multus
			err = nil
		}
		return append(names, Pod), err
	}
	return nil, nil
}

// listNames returns the names of the objects of a kind after a prefix, with the namespaces of objects that
// have one.
func (c *Cluster) listNames(ctx context.Context, k kube.Kind, prefix string) (names []string, err error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"metadata"`
		} `json:"items"`
	}
	err = c.client.List(ctx, k, c.opts.namespaceName(), "", &list)
	for _, o := range list.Items {
		names = append(names, prefix+path.Join(o.Metadata.Namespace, o.Metadata.Name))
	}
	return names, err
}

// Examine performs the checks of Check by aspect. The dry run of objects requires a VM and is omitted.
// A
// NetworkAttachmentDefinition is not checked, because the account may not be able to read its
// namespace.
func (c *Cluster) Examine(ctx context.Context, a platform.Aspect) []platform.AspectResult {
	switch a {
	case platform.Login:
		return []platform.AspectResult{platform.NewResult("", "the API server accepts the credentials, and the namespace exists", c.checkNamespace(ctx))}
	case platform.Parts:
		return []platform.AspectResult{platform.NewResult("", "KubeVirt and CDI are installed", c.checkAPIs(ctx))}
	case platform.Storage:
		return append(c.seeClasses(ctx), platform.NewResult("upload proxy", "reachable", c.checkProxy(ctx)))
	case platform.Rights:
		return []platform.AspectResult{platform.NewResult("", "the account has the privileges to create and remove VMs and their disks", c.checkRights(ctx)), c.seeStart(ctx)}
	}
	return nil
}

// seeStart checks the permission to start VMs. Its absence does not prevent a delivery.
func (c *Cluster) seeStart(ctx context.Context) platform.AspectResult {
	may, err := c.client.May(ctx, "patch", machines, c.opts.namespaceName())
	if err == nil && !may {
		err = c.mayNotStart(nil)
	}
	look := platform.NewResult("start", "the account has the privilege to start VMs", err)
	look.WarningOnly = fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin)
	return look
}

// seeClasses checks all storage classes that the options and the map name.
func (c *Cluster) seeClasses(ctx context.Context) (looks []platform.AspectResult) {
	seen := map[string]bool{"": true} // the cluster's default has no name in the options
	for _, d := range platform.PlaceholderVM(c.opts.Maps).Disks {
		name, err := c.opts.storageClass(namemap.Datastore(d))
		if err == nil && seen[name] {
			continue
		}
		if seen[name] = true; err == nil {
			err = c.checkClass(ctx, name)
		}
		looks = append(looks, platform.NewResult("storage class "+cmp.Or(name, namemap.Datastore(d)), "", err))
	}
	return looks
}
