package proxmox

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// leastMajor and leastMinor are the first release of Proxmox VE that takes uploads of disks
// (libpve-storage-perl 8.3.6, April 2025).
const leastMajor, leastMinor = 8, 4

// version asks what is installed. It is the first that is asked: who mistyped a name is not to wait.
func (p *Place) version(ctx context.Context) (string, error) {
	var v struct {
		Version string `json:"version"`
	}
	err := p.api.call(ctx, http.MethodGet, "/version", nil, &v)
	return v.Version, err
}

// checkVersion refuses a release that takes no uploads, where there are to be some.
func (p *Place) checkVersion(version string) error {
	if p.direct() {
		return nil
	}
	parts := strings.SplitN(version+"..", ".", 3)
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	if errMajor != nil || errMinor != nil {
		return fault.New(fault.Corrupt, "Proxmox %s says that its version is %q", p.api.host, fault.Line(version))
	}
	if major > leastMajor || major == leastMajor && minor >= leastMinor {
		return nil
	}
	return fault.New(fault.Unsupported, "Proxmox VE %s takes no uploads of disks: %d.%d is the first that does", fault.Line(version), leastMajor, leastMinor).
		WithHint("update the node (apt update && apt full-upgrade), or migrate into a folder with --to dir: and import with qm importdisk")
}

func (p *Place) checkOnline(ctx context.Context) error {
	var nodes []struct {
		Node   string `json:"node"`
		Status string `json:"status"`
	}
	if err := p.api.get(ctx, "/nodes", nil, &nodes); err != nil {
		return err
	}
	var names []string
	for _, n := range nodes {
		if n.Node != p.node {
			names = append(names, fault.Line(n.Node))
			continue
		}
		if n.Status == "online" {
			return nil
		}
		return fault.New(fault.Unreachable, "node %s is %s", p.node, fault.Line(n.Status)).WithHint("on another node of the cluster: pvecm status")
	}
	return fault.New(fault.NotFound, "%s has no node %s; there are: %s", p.api.host, p.node, strings.Join(names, ", ")).
		WithHint("name one of them: proxmox:https://%s/NODE", p.api.host)
}
