package proxmox

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// leastMajor and leastMinor are the first release of Proxmox VE that accepts uploads of disks
// (libpve-storage-perl 8.3.6, April 2025).
const leastMajor, leastMinor = 8, 4

// readVersion returns the release of Proxmox VE. It is the first request of each check and is not
// repeated, so that a wrong
// host name fails at once.
func (c *client) readVersion(ctx context.Context) (string, error) {
	var v struct {
		Version string `json:"version"`
	}
	err := c.call(ctx, http.MethodGet, "/version", nil, &v)
	return v.Version, err
}

// checkVersion returns fault.Unsupported if the release does not accept uploads of disks. A version
// that it cannot parse
// is fault.Corrupt. It does nothing for a delivery over SSH.
func (c checker) checkVersion(version string) error {
	if c.opts.isDirect() {
		return nil
	}
	parts := strings.SplitN(version+"..", ".", 3)
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	if errMajor != nil || errMinor != nil {
		return fault.New(fault.Corrupt, "Proxmox %s returned %q as its version", c.api.host, fault.Line(version))
	}
	if major > leastMajor || major == leastMajor && minor >= leastMinor {
		return nil
	}
	return fault.New(fault.Unsupported, "Proxmox VE %s does not accept uploads of disks: %d.%d is the first release that does", fault.Line(version), leastMajor, leastMinor).
		WithHint("update the node (apt update && apt full-upgrade), or migrate into a folder with --to dir: and import with qm importdisk")
}

// checkOnline returns an error unless the cluster has the node and the node is online.
func (c checker) checkOnline(ctx context.Context) error {
	var nodes []struct {
		Node   string `json:"node"`
		Status string `json:"status"`
	}
	if err := c.api.get(ctx, "/nodes", nil, &nodes); err != nil {
		return err
	}
	var names []string
	for _, n := range nodes {
		if n.Node != c.node {
			names = append(names, fault.Line(n.Node))
			continue
		}
		if n.Status == "online" {
			return nil
		}
		return fault.New(fault.Unreachable, "node %s is %s", c.node, fault.Line(n.Status)).WithHint("find the cause on another node of the cluster: pvecm status")
	}
	return fault.New(fault.NotFound, "%s has no node %s; existing nodes: %s", c.api.host, c.node, strings.Join(names, ", ")).
		WithHint("set one of them: proxmox:https://%s/NODE", c.api.host)
}

// listBridges returns the kind of each network on the node that the token may use: bridge, OVSBridge or
// vnet.
func (c *client) listBridges(ctx context.Context, node string) (map[string]string, error) {
	var list []struct {
		Name string `json:"iface"`
		Kind string `json:"type"`
	}
	err := c.get(ctx, "/nodes/"+node+"/network", url.Values{"type": {"any_bridge"}}, &list)
	kinds := map[string]string{}
	for _, each := range list {
		kinds[each.Name] = each.Kind
	}
	return kinds, err
}
