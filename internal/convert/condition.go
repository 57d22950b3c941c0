package convert

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A SourceNIC is a network card of the VM at the source, with its slot and driver.
type SourceNIC struct {
	MAC    string // "00:50:56:ab:cd:01"
	PCI    string // bus address: "0000:0b:00.0"; empty if unknown
	Driver string // kernel driver: "vmxnet3"
}

// virtioNet is the driver of all cards at the target.
const virtioNet = "virtio_net"

// A condition selects a card by its hardware, in a file of the guest.
type condition struct {
	driver, path string // pattern of the driver or of the bus address
	byMAC        bool   // the file selects by a MAC, too
}

// String returns the condition for messages.
func (w condition) String() string {
	if w.driver != "" {
		return "driver " + w.driver
	}
	return "path " + w.path
}

// A replacement is the condition that replaces another one: a driver or a MAC. It is empty if the
// condition must be removed, because the file selects by a MAC anyway.
type replacement struct{ driver, mac string }

// findReplacement returns the replacement for a condition. ok is false if no card matches, or if it
// would have to distinguish several cards.
func (c *conversion) findReplacement(w condition) (a replacement, ok bool) {
	var meant []SourceNIC
	for _, s := range c.seats {
		// ID_PATH of a PCI device is "pci-" and its address.
		if w.driver != "" && matchGlob(w.driver, s.Driver) || w.path != "" && s.PCI != "" && matchGlob(w.path, "pci-"+s.PCI) {
			meant = append(meant, s)
		}
	}
	switch {
	// All cards have the virtio driver at the target, so it selects the same cards if all were meant.
	case w.driver != "" && len(meant) > 0 && (w.byMAC || len(meant) == len(c.seats)):
		return replacement{driver: virtioNet}, true
	// The MAC alone selects the card.
	case w.path != "" && w.byMAC && len(meant) > 0:
		return replacement{}, true
	case len(meant) == 1:
		return replacement{mac: strings.ToLower(meant[0].MAC)}, true
	}
	return replacement{}, false
}

// matchGlob matches a pattern like systemd, NetworkManager and udev.
func matchGlob(pattern, s string) bool {
	ok, err := path.Match(pattern, s)
	return err == nil && ok
}

// matchesVirtio reports whether the condition is satisfied at the target: it was converted before, or
// it accepts any driver.
func (w condition) matchesVirtio() bool {
	return w.path == "" && matchGlob(w.driver, virtioNet)
}

// noteUnresolved adds a note for a condition that stays in a file.
func (c *conversion) noteUnresolved(file string, w condition) {
	text := fmt.Sprintf("%s selects a card by %s, which matches none of the VM's %d cards after the migration: configure that card in the guest", file, w, len(c.seats))
	if !slices.Contains(c.Notes, text) {
		c.addNote("%s", text)
	}
}
