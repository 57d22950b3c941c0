package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/linux"
)

// A Card is a network card with its name in the guest.
type Card struct {
	MAC  string // "00:50:56:ab:cd:01"
	Name string // "ens192"
}

// Files for systemd's udev.
const (
	// prefix of our files for systemd's udev, which are before the distribution's in the order of names
	linkPrefix = "etc/systemd/network/10-decamp-"
	linkFiles  = "etc/systemd/network/*.link" // pattern of all such files
)

var (
	macForm  = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)     // a MAC in lower case
	nameForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`) // a valid interface name

	// kernelName matches names that the kernel assigns by counting.
	kernelName = regexp.MustCompile(`^eth\d+$`)
)

// pinCards binds the name of each card to its MAC, so that it does not depend on the slot. Names that
// the kernel counts need no file, because the cards keep their order; udev cannot swap them.
func (c *conversion) pinCards(cards []Card) error {
	for _, card := range cards {
		mac := strings.ToLower(card.MAC)
		if !macForm.MatchString(mac) || !nameForm.MatchString(card.Name) {
			return fault.New(fault.Invalid, "network card %q with MAC %q is invalid", card.Name, card.MAC)
		}
		if kernelName.MatchString(card.Name) {
			continue
		}
		if err := c.pinCard(card.Name, mac); err != nil {
			return err
		}
	}
	return nil
}

// pinCard writes the file that binds one name to a MAC: a link file of systemd, or a rule of udev if
// the guest has no systemd.
func (c *conversion) pinCard(name, mac string) error {
	if !c.hasSystemd() {
		return c.pinByRule(name, mac)
	}
	file := linkPrefix + name + ".link"
	text := fmt.Sprintf("# Keeps the name of this card on other hardware.\n[Match]\nMACAddress=%s\n\n[Link]\nName=%s\n", mac, name)
	// udev in the initramfs may rename cards before the root is mounted, so it needs the file, too.
	c.links[file] = text
	return c.putFile(file, text, "the card with MAC "+mac+" keeps the name "+name)
}

// pinByRule adds a udev rule, unless a rule for the MAC exists.
func (c *conversion) pinByRule(name, mac string) error {
	const file = "etc/udev/rules.d/70-persistent-net.rules"
	old, _, err := c.tree.readText(file)
	// The guest's own rule takes precedence.
	if err != nil || strings.Contains(strings.ToLower(old), mac) {
		return err // the guest's own rule
	}
	rule := fmt.Sprintf(`SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*", ATTR{address}=="%s", ATTR{type}=="1", NAME="%s"`, mac, name)
	return c.putFile(file, withLines(old, []string{rule}), "the card with MAC "+mac+" keeps the name "+name)
}

// noteUnknownCards adds a note for each configuration of a MAC that the VM does not have.
func (c *conversion) noteUnknownCards() error {
	for _, n := range c.nics {
		// Without the cards at the source nothing is known about them.
		known := slices.ContainsFunc(c.seats, func(s SourceNIC) bool { return strings.EqualFold(s.MAC, n.MAC) })
		if n.By == linux.ByMAC && n.MAC != "" && len(c.seats) > 0 && !known {
			c.addNote("%s configures a card with MAC %s, which the VM does not have: it has no effect, as at the source", n.File, n.MAC)
		}
	}
	return nil
}

// hasSystemd reports whether the guest has systemd.
func (c *conversion) hasSystemd() bool {
	return c.tree.hasPath("lib/systemd/systemd") || c.tree.hasPath("usr/lib/systemd/systemd")
}

// putFile sets the content of a file and records the change with its reason. It does nothing if the
// file has that content.
func (c *conversion) putFile(file, text, why string) error {
	old, there, err := c.tree.readText(file)
	if err != nil || there && old == text {
		return err
	}
	if err := c.tree.writeFile(file, text); err != nil {
		return err
	}
	c.addChange(file, "%s", why)
	return nil
}
