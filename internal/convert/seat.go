package convert

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Seat is where a network card was on the bus of the source, and which of the kernel's drivers
// it had there.
type Seat struct {
	MAC    string // "00:50:56:ab:cd:01"
	PCI    string // "0000:0b:00.0"; "" if it is not known
	Driver string // "vmxnet3"
}

// virtioNet is the driver that all cards will have.
const virtioNet = "virtio_net"

// A wish is a file's condition on the hardware of its card: driver and path.
type wish struct {
	driver, path string
	byMAC        bool // the file names a MAC, too
}

func (w wish) String() string {
	if w.driver != "" {
		return "driver " + w.driver
	}
	return "path " + w.path
}

// An answer is the condition that replaces it: another driver, or a MAC. It is empty if the file has a
// MAC already and a path as well: the path is removed.
type answer struct{ driver, mac string }

// answer finds the cards that match. ok is false without a match, or if several cards must be
// distinguished.
func (c *conversion) answer(w wish) (a answer, ok bool) {
	var meant []Seat
	for _, s := range c.seats {
		if w.driver != "" && glob(w.driver, s.Driver) || w.path != "" && s.PCI != "" && glob(w.path, "pci-"+s.PCI) {
			meant = append(meant, s)
		}
	}
	switch {
	case w.driver != "" && len(meant) > 0 && (w.byMAC || len(meant) == len(c.seats)):
		return answer{driver: virtioNet}, true
	case w.path != "" && w.byMAC && len(meant) > 0:
		return answer{}, true
	case len(meant) == 1:
		return answer{mac: strings.ToLower(meant[0].MAC)}, true
	}
	return answer{}, false
}

// glob matches as systemd, NetworkManager and udev do.
func glob(pattern, s string) bool {
	ok, err := path.Match(pattern, s)
	return err == nil && ok
}

// stays reports a wish that other hardware grants, too: one converted before, or any driver.
func (w wish) stays() bool {
	return w.path == "" && glob(w.driver, virtioNet)
}

// unmet notes a wish that is left in a file.
func (c *conversion) unmet(file string, w wish) {
	text := fmt.Sprintf("%s names a card by %s, and which of the VM's %d cards that is, is not known: it will find none", file, w, len(c.seats))
	if !slices.Contains(c.Notes, text) {
		c.note("%s", text)
	}
}
