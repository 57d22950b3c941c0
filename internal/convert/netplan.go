package convert

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unbindNetplan rewrites the drivers that netplan's cards are matched by. Only that text is
// touched: a file keeps its comments and its form. What is written in a way that is not found
// again in the text is noted and left.
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

// maxMatches bounds the cards of one file.
const maxMatches = 64

// unbindNextMatch rewrites the first match that needs it. Places in the text are right for one
// change only.
func (c *conversion) unbindNextMatch(file, text string) (next string, done bool) {
	var doc struct {
		Network struct {
			Ethernets map[string]struct {
				Match yaml.Node `yaml:"match"`
			} `yaml:"ethernets"`
		} `yaml:"network"`
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		c.note("%s is not understood: it is left as it is", file)
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
			c.listed(file, driver)
			continue
		}
		w := wish{driver: driver.Value, byMAC: mac != nil}
		if w.stays() || c.left[file+" "+id] {
			continue
		}
		a, ok := c.answer(w)
		if ok {
			next, ok = replaceEntry(text, key, driver, a)
		}
		if ok {
			return next, false
		}
		c.left[file+" "+id] = true
		c.unmet(file, w)
	}
	return text, true
}

// listed notes a list of drivers that virtio's is not in.
func (c *conversion) listed(file string, list *yaml.Node) {
	ours := slices.ContainsFunc(list.Content, func(each *yaml.Node) bool { return wish{driver: each.Value}.stays() })
	if !ours && len(list.Content) > 0 {
		c.unmet(file, wish{driver: list.Content[0].Value})
	}
}

// entryOf returns an entry of a mapping, or nil.
func entryOf(m yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(m.Content) && m.Kind == yaml.MappingNode; i += 2 {
		if m.Content[i].Value == name {
			return m.Content[i], m.Content[i+1]
		}
	}
	return nil, nil
}

// replaceEntry replaces the text of an entry, if both stand as they are in one line.
func replaceEntry(text string, key, value *yaml.Node, a answer) (string, bool) {
	lines := strings.SplitAfter(text, "\n")
	if key.Line != value.Line || key.Line > len(lines) {
		return text, false
	}
	line := lines[key.Line-1]
	raw := quoted(line, value)
	if raw == "" || !strings.HasPrefix(line[min(key.Column-1, len(line)):], key.Value) {
		return text, false
	}
	with := line[key.Column-1:value.Column-1] + a.driver
	if a.mac != "" {
		with = `macaddress: "` + a.mac + `"`
	}
	lines[key.Line-1] = line[:key.Column-1] + with + line[value.Column-1+len(raw):]
	return strings.Join(lines, ""), true
}

// quoted is a scalar as it stands in its line, with its quotes; "" if it does not stand there.
func quoted(line string, value *yaml.Node) string {
	rest := line[min(value.Column-1, len(line)):]
	for _, quote := range []string{"", `"`, "'"} {
		if raw := quote + value.Value + quote; strings.HasPrefix(rest, raw) {
			return raw
		}
	}
	return ""
}

// keepFromCloudInit prevents cloud-init from replacing the network's configuration. At the target it
// finds another data source than VMware's, or none, treats the guest as a new instance, and configures
// DHCP. That is a loss only if an address is static.
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
