package boot

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Marker is what a test guest found around itself.
type Marker struct {
	Boots    int           // how often this disk was booted
	Root     string        // "/dev/sda1"
	Disk     string        // "sda", the disk that holds Root
	Driver   string        // driver of that disk's controller: "vmw_pvscsi"
	Cards    []Card        // network cards, in the kernel's order
	UUID     string        // SMBIOS system UUID, lower case
	By       string        // root parameter of the kernel, if the guest reports it: "UUID=…"
	IPs      []IP          // fixed addresses, if the guest reports them
	Firmware string        // "bios" or "efi"
	Uptime   time.Duration // since the kernel started
}

// A Card is a network card as its guest sees it.
type Card struct {
	Name   string // "eth0"
	MAC    string // lower case, colons
	Driver string // "vmxnet3"
}

// An IP is an address that a guest has on a card.
type IP struct {
	Address string // "192.0.2.11/24"
	Name    string // name of the card: "ens192"
	MAC     string
}

const markerWord = "DECAMP-MARKER "

// ParseMarker finds a marker in a line from the serial port. ok is false if the line has no marker. err
// is not nil if the marker reports a failure or is damaged.
func ParseMarker(line string) (m Marker, ok bool, err error) {
	_, text, found := strings.Cut(strings.TrimRight(line, "\r\n"), markerWord)
	if !found {
		return Marker{}, false, nil
	}
	if why, failed := strings.CutPrefix(text, "boot=failed"); failed {
		return Marker{}, true, fmt.Errorf("the guest could not boot:%s", why)
	}
	words := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		words[key] = value
	}
	m, err = fromWords(words)
	if err != nil {
		err = fmt.Errorf("marker %q: %w", text, err)
	}
	return m, true, err
}

func fromWords(words map[string]string) (m Marker, err error) {
	for _, key := range []string{"boot", "n", "root", "disk", "net", "uuid", "fw", "up"} {
		if words[key] == "" {
			return m, fmt.Errorf("no %s", key)
		}
	}
	m.Root, m.By, m.UUID, m.Firmware = words["root"], words["by"], words["uuid"], words["fw"]
	m.Disk, m.Driver, _ = strings.Cut(words["disk"], ",")
	if m.Boots, err = strconv.Atoi(words["n"]); err != nil {
		return m, err
	}
	if m.Uptime, err = time.ParseDuration(words["up"] + "s"); err != nil {
		return m, err
	}
	if m.Cards, err = parseCards(words["net"]); err != nil {
		return m, err
	}
	m.IPs, err = parseIPs(words["ip"])
	return m, err
}

// parseIPs reads ADDRESS@NAME/MAC, comma separated. Not all guests tell.
func parseIPs(list string) ([]IP, error) {
	if list == "" || list == "none" {
		return nil, nil
	}
	var ips []IP
	for item := range strings.SplitSeq(list, ",") {
		address, card, on := strings.Cut(item, "@")
		name, mac, known := strings.Cut(card, "/")
		if !on || !known {
			return nil, fmt.Errorf("address %q", item)
		}
		ips = append(ips, IP{Address: address, Name: name, MAC: mac})
	}
	return ips, nil
}

func parseCards(list string) ([]Card, error) {
	if list == "none" {
		return nil, nil
	}
	var cards []Card
	for item := range strings.SplitSeq(list, ",") {
		name, rest, named := strings.Cut(item, "=")
		mac, driver, driven := strings.Cut(rest, "/")
		if !named || !driven {
			return nil, fmt.Errorf("network card %q", item)
		}
		cards = append(cards, Card{Name: name, MAC: mac, Driver: driver})
	}
	return cards, nil
}
