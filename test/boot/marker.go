package boot

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Marker is the report of a test guest about its hardware.
type Marker struct {
	Boots    int           // number of boots of this disk
	Root     string        // device of the root file system: "/dev/sda1"
	Disk     string        // disk that contains Root: "sda"
	Driver   string        // driver of that disk's controller: "vmw_pvscsi"
	Cards    []Card        // network cards, in the kernel's order
	UUID     string        // SMBIOS system UUID, lower case
	By       string        // root parameter of the kernel, "UUID=…"; empty if the guest does not report it
	IPs      []IP          // fixed addresses; nil if the guest does not report them
	Firmware string        // "bios" or "efi"
	Uptime   time.Duration // time since the kernel started
}

// A Card is a network card as its guest reports it.
type Card struct {
	Name   string // name of the interface: "eth0"
	MAC    string // lower case, with colons
	Driver string // kernel driver: "vmxnet3"
}

// An IP is an address of a guest on a card.
type IP struct {
	Address string // address with prefix: "192.0.2.11/24"
	Name    string // name of the card: "ens192"
	MAC     string // MAC address of the card
}

// markerWord begins a marker, anywhere in a line.
const markerWord = "DECAMP-MARKER "

// ParseMarker parses a line of the serial port. ok is false if the line contains no marker. err is not
// nil if the marker reports a failure or is damaged.
func ParseMarker(line string) (m Marker, ok bool, err error) {
	_, text, found := strings.Cut(strings.TrimRight(line, "\r\n"), markerWord)
	if !found { // an ordinary line of the console
		return Marker{}, false, nil
	}
	if why, failed := strings.CutPrefix(text, "boot=failed"); failed { // the marker of a failure
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

// fromWords converts the key=value pairs of a marker. The keys by and ip are optional.
func fromWords(words map[string]string) (m Marker, err error) {
	for _, key := range []string{"boot", "n", "root", "disk", "net", "uuid", "fw", "up"} {
		if words[key] == "" {
			return m, fmt.Errorf("no %s", key)
		}
	}
	m.Root, m.By, m.UUID, m.Firmware = words["root"], words["by"], words["uuid"], words["fw"]
	m.Disk, m.Driver, _ = strings.Cut(words["disk"], ",") // the driver is empty without a comma
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

// parseIPs parses a list of ADDRESS@NAME/MAC, separated by commas. Some guests report none.
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

// parseCards parses a list of NAME=MAC/DRIVER, separated by commas.
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
