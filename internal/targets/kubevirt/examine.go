package kubevirt

import (
	"cmp"
	"context"
	"errors"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets/platform"
)

var _ platform.Examiner = (*Cluster)(nil)

// Examine is Check by aspects. What the cluster says of the objects of a VM is known once there is one. A
// network that a NetworkAttachmentDefinition names is not asked after: its namespace may be another's.
func (c *Cluster) Examine(ctx context.Context, a platform.Aspect) []platform.Look {
	switch a {
	case platform.Login:
		return []platform.Look{platform.See("", "it answers, knows us, and has the namespace", c.checkNamespace(ctx))}
	case platform.Parts:
		return []platform.Look{platform.See("", "KubeVirt and CDI are there", c.checkAPIs(ctx))}
	case platform.Storage:
		return append(c.seeClasses(ctx), platform.See("upload proxy", "it answers", c.checkProxy(ctx)))
	case platform.Rights:
		return []platform.Look{platform.See("", "the account may make and remove VMs and their disks", c.checkRights(ctx)), c.seeStart(ctx)}
	}
	return nil
}

// seeStart is no reason to refuse a VM: it is for those who have decamp start it.
func (c *Cluster) seeStart(ctx context.Context) platform.Look {
	may, err := c.client.May(ctx, "patch", machines, c.opts.namespace())
	if err == nil && !may {
		err = c.mayNotStart(nil)
	}
	look := platform.See("start", "the account may start VMs", err)
	look.Mild = fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin)
	return look
}

func (c *Cluster) seeClasses(ctx context.Context) (looks []platform.Look) {
	seen := map[string]bool{"": true} // the cluster's default has no name here
	for _, d := range platform.StandIn(c.opts.Maps).Disks {
		name, err := c.opts.class(namemap.Datastore(d))
		if err == nil && seen[name] {
			continue
		}
		if seen[name] = true; err == nil {
			err = c.checkClass(ctx, name)
		}
		looks = append(looks, platform.See("storage class "+cmp.Or(name, namemap.Datastore(d)), "", err))
	}
	return looks
}
