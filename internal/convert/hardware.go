package convert

import (
	"path"
	"strings"
)

// unbindCards changes files that select network cards by driver or bus address. They then select by a
// property that does not change: the MAC, or the virtio driver if all cards are meant.
func (c *conversion) unbindCards() error {
	// Each kind of file has its own syntax, and so its own function.
	for _, kind := range []struct {
		folder, pattern string
		rewrite         func(file, text string) string
	}{
		{"etc/systemd/network", "*.network", c.unbindUnit}, {"etc/systemd/network", "*.link", c.unbindUnit},
		{"etc/NetworkManager/system-connections", "*", c.unbindKeyfile},
		{"etc/udev/rules.d", "*.rules", c.unbindRules},
		{"etc/netplan", "*.y*ml", c.unbindNetplan},
	} {
		for _, name := range c.tree.listNames(kind.folder) {
			if !matchGlob(kind.pattern, name) {
				continue
			}
			if err := c.unbindFile(kind.folder+"/"+name, kind.rewrite); err != nil {
				return err
			}
		}
	}
	return nil
}

// unbindFile replaces one file by the result of rewrite.
func (c *conversion) unbindFile(file string, rewrite func(file, text string) string) error {
	text, there, err := c.tree.readText(file)
	if err != nil || !there {
		return err
	}
	next := rewrite(file, text)
	if next == text {
		return nil
	}
	if path.Ext(file) == ".link" { // udev in the initramfs reads it, too
		c.links[file] = next
	}
	return c.putFile(file, next, "it selects its card by the MAC or by the driver of virtio")
}

// rewriteUntilStable applies rewrite until the text does not change. A MAC at the end of a file may
// resolve earlier conditions.
func rewriteUntilStable(text string, rewrite func(string) string) string {
	for range 3 {
		next := rewrite(text)
		if next == text {
			break
		}
		text = next
	}
	return text
}

// unbindUnit rewrites the section [Match] of a file of systemd.
func (c *conversion) unbindUnit(file, text string) string {
	return rewriteUntilStable(text, func(text string) string { return c.unbindUnitOnce(file, text) })
}

// unbindUnitOnce does one pass of unbindUnit.
func (c *conversion) unbindUnitOnce(file, text string) string {
	byMAC := hasKey(text, "match", "macaddress", "permanentmacaddress")
	return mapLines(text, func(section, key, value, line string) string {
		a, ok := c.replaceCondition(file, section+"."+key, value, byMAC)
		switch {
		case !ok:
			return line
		case a.driver != "":
			return "Driver=" + a.driver + "\n"
		case a.mac != "":
			byMAC = true
			return "MACAddress=" + a.mac + "\n"
		}
		return ""
	})
}

// unbindKeyfile rewrites the section [match] of a NetworkManager connection. Lists end in a semicolon.
func (c *conversion) unbindKeyfile(file, text string) string {
	return rewriteUntilStable(text, func(text string) string { return c.unbindKeyfileOnce(file, text) })
}

// unbindKeyfileOnce does one pass of unbindKeyfile.
func (c *conversion) unbindKeyfileOnce(file, text string) string {
	byMAC, mac := hasKey(text, "ethernet", "mac-address") || hasKey(text, "802-3-ethernet", "mac-address"), ""
	next := mapLines(text, func(section, key, value, line string) string {
		a, ok := c.replaceCondition(file, section+"."+key, strings.Trim(value, "; "), byMAC || mac != "")
		switch {
		case !ok:
			return line
		case a.driver != "":
			return "driver=" + a.driver + ";\n"
		}
		// After the first MAC, further conditions are only removed.
		mac += a.mac
		return ""
	})
	if mac == "" {
		return next
	}
	return withMAC(next, mac)
}

// replaceCondition returns the replacement for a line of [match]. ok is false if the line must stay: it
// has no hardware condition, one that virtio satisfies, or one that matches no known card.
func (c *conversion) replaceCondition(file, key, value string, byMAC bool) (a replacement, ok bool) {
	w := condition{byMAC: byMAC}
	switch key {
	case "match.driver":
		w.driver = value
	case "match.path":
		w.path = value
	default:
		return a, false
	}
	// A second run must not change the result of the first.
	if w.matchesVirtio() {
		return a, false
	}
	if a, ok = c.findReplacement(w); !ok {
		c.noteUnresolved(file, w)
	}
	return a, ok
}

// withMAC adds a MAC to the ethernet section of a keyfile. It adds the section if it does not exist.
func withMAC(text, mac string) string {
	entry := "mac-address=" + strings.ToUpper(mac) + "\n"
	for _, head := range []string{"[ethernet]\n", "[802-3-ethernet]\n"} {
		if at := strings.Index("\n"+text, "\n"+head); at >= 0 {
			return text[:at+len(head)] + entry + text[at+len(head):]
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "\n[ethernet]\n" + entry
}

// mapLines replaces each assignment of an INI file by the result of to. Other lines stay.
func mapLines(text string, to func(section, key, value, line string) string) string {
	var out strings.Builder
	section := ""
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		if strings.HasPrefix(bare, "[") && strings.HasSuffix(bare, "]") {
			section = strings.ToLower(bare[1 : len(bare)-1])
		}
		key, value, ok := strings.Cut(bare, "=")
		if ok && !strings.HasPrefix(bare, "#") && !strings.HasPrefix(bare, ";") && section != "" {
			line = to(section, strings.ToLower(strings.TrimSpace(key)), strings.Trim(strings.TrimSpace(value), `"`), line)
		}
		out.WriteString(line)
	}
	return out.String()
}

// hasKey reports whether a section has one of the keys, with a value. Section and keys are in lower
// case.
func hasKey(text, wanted string, keys ...string) (has bool) {
	mapLines(text, func(section, key, value, line string) string {
		for _, k := range keys {
			has = has || section == wanted && key == k && value != ""
		}
		return line
	})
	return has
}
