package convert

// keepFromCloudInit keeps cloud-init from writing the network's configuration anew. Elsewhere it
// finds another source of data than VMware's, or none, takes the guest for a new instance, and
// asks by DHCP. That only loses something where an address is static.
func (c *conversion) keepFromCloudInit() error {
	for _, n := range c.nics {
		if n.Maker != "cloud-init" || len(n.Addresses) == 0 || !c.tree.has("etc/cloud") || c.tree.has("etc/cloud/cloud-init.disabled") {
			continue
		}
		const file = "etc/cloud/cloud.cfg.d/99-decamp-network.cfg"
		return c.put(file, "# Keeps the network as it was on other hardware.\nnetwork: {config: disabled}\n",
			"cloud-init leaves the static addresses in "+n.File+" alone")
	}
	return nil
}
