package convert

import (
	"regexp"
	"strings"
)

// hardwareOf matches the conditions of a udev rule on a card's hardware: bus address and driver.
var hardwareOf = regexp.MustCompile(`\b(KERNELS|ENV\{ID_PATH\}|DRIVERS)=="([^"]*)"`)

// unbindRules rewrites the rules that assign names to network cards.
func (c *conversion) unbindRules(file, text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") && strings.Contains(line, `SUBSYSTEM=="net"`) && strings.Contains(line, `NAME`) {
			line = rewriteUntilStable(line, func(line string) string { return c.unbindRule(file, line) })
		}
		out.WriteString(line)
	}
	return out.String()
}

// unbindRule rewrites the conditions of one rule.
func (c *conversion) unbindRule(file, line string) string {
	byMAC := strings.Contains(line, `ATTR{address}==`)
	return hardwareOf.ReplaceAllStringFunc(line, func(term string) string {
		part := hardwareOf.FindStringSubmatch(term)
		// KERNELS is a bus address, ID_PATH the same with a prefix.
		w := condition{byMAC: byMAC}
		switch part[1] {
		case "KERNELS":
			w.path = "pci-" + part[2]
		case "DRIVERS":
			w.driver = part[2]
		default:
			w.path = part[2]
		}
		a, ok := c.findReplacement(w)
		switch {
		case w.matchesVirtio(), part[2] == "?*":
			return term
		case !ok:
			c.noteUnresolved(file, w)
			return term
		case a.driver != "":
			return `DRIVERS=="` + a.driver + `"`
		case a.mac != "":
			byMAC = true
			return `ATTR{address}=="` + a.mac + `"`
		}
		return `SUBSYSTEM=="net"` // no further condition
	})
}
