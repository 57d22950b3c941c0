package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/linux"
)

// A Card is a network card and what the guest calls it.
type Card struct {
	MAC  string // "00:50:56:ab:cd:01"
	Name string // "ens192"
}

// linkPrefix is how our files for systemd's udev begin. They come before the distribution's.
const (
	linkPrefix = "etc/systemd/network/10-decamp-"
	linkFiles  = "etc/systemd/network/*.link"
)

var (
	macForm  = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
	nameForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)

	// kernelName is one that the kernel gives by counting.
	kernelName = regexp.MustCompile(`^eth\d+$`)
)

// pinCards has each card keep its name, whatever slot it will be in. Names that the kernel
// counts stay by themselves, as the cards keep their order; udev cannot swap them.
func (c *conversion) pinCards(cards []Card) error {
	for _, card := range cards {
		mac := strings.ToLower(card.MAC)
		if !macForm.MatchString(mac) || !nameForm.MatchString(card.Name) {
			return fault.New(fault.Invalid, "a network card %q with MAC %q", card.Name, card.MAC)
		}
		if kernelName.MatchString(card.Name) {
			continue
		}
		if err := c.pin(card.Name, mac); err != nil {
			return err
		}
	}
	return nil
}

// pin writes the file that names one card: for systemd, or as a rule for udev if the guest has no
// systemd.
func (c *conversion) pin(name, mac string) error {
	if !c.hasSystemd() {
		return c.pinByRule(name, mac)
	}
	file := linkPrefix + name + ".link"
	text := fmt.Sprintf("# Keeps the name of this card on other hardware.\n[Match]\nMACAddress=%s\n\n[Link]\nName=%s\n", mac, name)
	c.links[file] = text
	return c.put(file, text, "the card with MAC "+mac+" stays "+name)
}

func (c *conversion) pinByRule(name, mac string) error {
	const file = "etc/udev/rules.d/70-persistent-net.rules"
	old, _, err := c.tree.text(file)
	if err != nil || strings.Contains(strings.ToLower(old), mac) {
		return err // the guest's own rule
	}
	rule := fmt.Sprintf(`SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*", ATTR{address}=="%s", ATTR{type}=="1", NAME="%s"`, mac, name)
	return c.put(file, withLines(old, []string{rule}), "the card with MAC "+mac+" stays "+name)
}

// strangers notes files that name a card by a MAC which the VM does not have.
func (c *conversion) strangers() error {
	for _, n := range c.nics {
		known := slices.ContainsFunc(c.seats, func(s Seat) bool { return strings.EqualFold(s.MAC, n.MAC) })
		if n.By == linux.ByMAC && n.MAC != "" && len(c.seats) > 0 && !known {
			c.note("%s is for a card with MAC %s, which the VM does not have: it finds none, as at the source", n.File, n.MAC)
		}
	}
	return nil
}

func (c *conversion) hasSystemd() bool {
	return c.tree.has("lib/systemd/systemd") || c.tree.has("usr/lib/systemd/systemd")
}

// put gives a file that text, if it has another.
func (c *conversion) put(file, text, why string) error {
	old, there, err := c.tree.text(file)
	if err != nil || there && old == text {
		return err
	}
	if err := c.tree.write(file, text); err != nil {
		return err
	}
	c.change(file, "%s", why)
	return nil
}
