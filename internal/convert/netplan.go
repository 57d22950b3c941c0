package convert

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unbindNetplan rewrites the drivers by which netplan selects cards. It changes only that text: a file
// keeps its comments and its form. A condition that it cannot locate in the text stays and adds a note.
func (c *conversion) unbindNetplan(file, text string) string {
	for range maxMatches {
		next, done := c.unbindNextMatch(file, text)
		if done {
			return next
		}
		text = next
	}
	return text
}

// maxMatches limits the changes to one file.
const maxMatches = 64

// unbindNextMatch rewrites the first condition that requires it. Positions in the text are valid for
// one change only.
func (c *conversion) unbindNextMatch(file, text string) (next string, done bool) {
	var doc struct {
		Network struct {
			Ethernets map[string]struct {
				Match yaml.Node `yaml:"match"`
			} `yaml:"ethernets"`
		} `yaml:"network"`
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		c.addNote("%s is not valid YAML, so it is not changed", file)
		return text, true
	}
	for _, id := range slices.Sorted(maps.Keys(doc.Network.Ethernets)) {
		match := doc.Network.Ethernets[id].Match
		key, driver := entryOf(match, "driver")
		mac, _ := entryOf(match, "macaddress")
		switch {
		case driver == nil:
			continue
		case driver.Kind != yaml.ScalarNode:
			c.noteDriverList(file, driver)
			continue
		}
		// A match by MAC and driver keeps the MAC; only the driver must change.
		w := condition{driver: driver.Value, byMAC: mac != nil}
		if w.matchesVirtio() || c.skippedNICs[file+" "+id] {
			continue
		}
		a, ok := c.findReplacement(w)
		if ok {
			next, ok = replaceEntry(text, key, driver, a)
		}
		if ok {
			return next, false
		}
		c.skippedNICs[file+" "+id] = true
		c.noteUnresolved(file, w)
	}
	return text, true
}

// noteDriverList adds a note for a list of drivers without virtio's driver.
func (c *conversion) noteDriverList(file string, list *yaml.Node) {
	ours := slices.ContainsFunc(list.Content, func(each *yaml.Node) bool { return condition{driver: each.Value}.matchesVirtio() })
	if !ours && len(list.Content) > 0 {
		c.noteUnresolved(file, condition{driver: list.Content[0].Value})
	}
}

// entryOf returns the entry of a mapping with the name; nil if none exists.
func entryOf(m yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(m.Content) && m.Kind == yaml.MappingNode; i += 2 {
		if m.Content[i].Value == name {
			return m.Content[i], m.Content[i+1]
		}
	}
	return nil, nil
}

// replaceEntry replaces the text of an entry by the replacement. It returns false if key and value are
// not literally in one line.
func replaceEntry(text string, key, value *yaml.Node, a replacement) (string, bool) {
	lines := strings.SplitAfter(text, "\n")
	if key.Line != value.Line || key.Line > len(lines) {
		return text, false
	}
	line := lines[key.Line-1]
	raw := quotedScalar(line, value)
	if raw == "" || !strings.HasPrefix(line[min(key.Column-1, len(line)):], key.Value) {
		return text, false
	}
	// Columns count from 1.
	with := line[key.Column-1:value.Column-1] + a.driver
	if a.mac != "" {
		with = `macaddress: "` + a.mac + `"`
	}
	lines[key.Line-1] = line[:key.Column-1] + with + line[value.Column-1+len(raw):]
	return strings.Join(lines, ""), true
}

// quotedScalar returns a scalar as written in its line, with quotes; empty if it is not there.
func quotedScalar(line string, value *yaml.Node) string {
	rest := line[min(value.Column-1, len(line)):]
	for _, quote := range []string{"", `"`, "'"} {
		if raw := quote + value.Value + quote; strings.HasPrefix(rest, raw) {
			return raw
		}
	}
	return ""
}

// keepFromCloudInit prevents cloud-init from replacing the network configuration. At the target it
// finds another data source than VMware's, or none, treats the guest as a new instance, and configures
// DHCP. This matters only for static addresses.
func (c *conversion) keepFromCloudInit() error {
	for _, n := range c.nics {
		if n.Maker != "cloud-init" || len(n.Addresses) == 0 || !c.tree.hasPath("etc/cloud") || c.tree.hasPath("etc/cloud/cloud-init.disabled") {
			continue
		}
		const file = "etc/cloud/cloud.cfg.d/99-decamp-network.cfg"
		return c.putFile(file, "# Keeps the network as it was on other hardware.\nnetwork: {config: disabled}\n",
			"cloud-init keeps the static addresses in "+n.File+" alone")
	}
	return nil
}
