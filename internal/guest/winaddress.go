package guest

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/decamp/decamp/internal/guest/hive"
)

// netClass is the device class of network cards.
const netClass = "{4d36e972-e325-11ce-bfc1-08002be10318}"

// maxStatic limits the interfaces with static addresses that are reported.
const maxStatic = 64

// readAddresses collects the interfaces whose IPv4 addresses are not from DHCP. Windows stores IPv6
// addresses in an undocumented format.
func (s *winSystem) readAddresses() {
	k := s.controlKey(`Services\Tcpip\Parameters\Interfaces`)
	if k == nil {
		return
	}
	interfaces, err := k.Subkeys()
	s.warn(err)
	for _, i := range interfaces {
		a, ok := s.readInterface(i)
		if ok && len(s.out.Static) < maxStatic {
			s.addCard(&a)
			s.out.Static = append(s.out.Static, a)
		}
	}
}

// readInterface reads the key of one interface; ok is false if it has no static address.
func (s *winSystem) readInterface(k *hive.Key) (a StaticAddress, ok bool) {
	if s.readNumber(k, "EnableDHCP", 0) != 0 {
		return a, false
	}
	// Both values are lists; an address and its mask have the same index.
	masks := s.readTexts(k, "SubnetMask")
	for i, address := range s.readTexts(k, "IPAddress") {
		if ip, err := netip.ParseAddr(address); err != nil || ip.IsUnspecified() {
			continue
		}
		if i < len(masks) {
			address += prefixLength(masks[i])
		}
		a.Addresses = append(a.Addresses, address)
	}
	a.Interface, a.Gateways = k.Name, s.readTexts(k, "DefaultGateway")
	a.DNS = strings.FieldsFunc(s.readText(k, "NameServer"), func(r rune) bool { return r == ',' || r == ' ' })
	return a, len(a.Addresses) > 0
}

// readTexts returns the texts of a value; nil if it does not exist.
func (s *winSystem) readTexts(k *hive.Key, name string) []string {
	v, err := k.Value(name)
	s.warn(err)
	return v.Texts()
}

// prefixLength returns the prefix length of a mask as "/24"; empty if the mask is not contiguous.
func prefixLength(mask string) string {
	ip := net.ParseIP(mask).To4()
	if ones, bits := net.IPMask(ip).Size(); bits != 0 {
		return fmt.Sprintf("/%d", ones)
	}
	return ""
}

// addCard adds the card of an interface to its address: the connection's name, the driver's description
// and the MAC.
func (s *winSystem) addCard(a *StaticAddress) {
	if k := s.controlKey(`Control\Network\` + netClass + `\` + a.Interface + `\Connection`); k != nil {
		a.Name = s.readText(k, "Name")
	}
	class := s.controlKey(`Control\Class\` + netClass)
	if class == nil {
		return
	}
	instances, err := class.Subkeys()
	s.warn(err)
	for _, k := range instances {
		// The driver's instance refers to the interface by its GUID.
		if id, err := k.Value("NetCfgInstanceId"); err != nil || !strings.EqualFold(id.Text(), a.Interface) {
			continue
		}
		a.Card = s.readText(k, "DriverDesc")
		a.MAC = s.findMAC(k)
		return
	}
}

// findMAC returns the MAC of a card. A configured address takes precedence. Otherwise it is part of the
// serial number of VMware's cards, which is part of their device names in Windows.
func (s *winSystem) findMAC(instance *hive.Key) string {
	set := strings.NewReplacer("-", "", ":", "").Replace(s.readText(instance, "NetworkAddress"))
	if b, err := hex.DecodeString(set); err == nil && len(b) == 6 {
		return net.HardwareAddr(b).String()
	}
	device := s.readText(instance, "DeviceInstanceID")
	if device == "" {
		device = s.findDevice(netClass + `\` + instance.Name)
	}
	return serialMAC(device)
}

// findDevice returns the PCI device of a driver's instance; empty if none exists.
func (s *winSystem) findDevice(driver string) string {
	bus := s.controlKey(`Enum\PCI`)
	if bus == nil {
		return ""
	}
	models, err := bus.Subkeys()
	s.warn(err)
	for _, model := range models {
		places, err := model.Subkeys()
		s.warn(err)
		for _, place := range places {
			if v, err := place.Value("Driver"); err == nil && strings.EqualFold(v.Text(), driver) {
				return `PCI\` + model.Name + `\` + place.Name
			}
		}
	}
	return ""
}

// serialMAC extracts the MAC from the name of a device, whose last part is the serial number of PCI
// Express: eight bytes, and a zero. Examples are
// PCI\VEN_15AD&DEV_07B0&SUBSYS_07B015AD&REV_01\FF565000BB0895FE00 (vmxnet3, 00:50:56:95:08:bb) and
// PCI\VEN_8086&DEV_10D3&SUBSYS_07D015AD&REV_00\000C29FFFF66A80700 (e1000e, 00:0c:29:66:a8:07).
//
// Older cards have a device name derived from their bus address, without a MAC.
func serialMAC(device string) string {
	b, err := hex.DecodeString(device[strings.LastIndex(device, `\`)+1:])
	if err != nil || len(b) != 9 {
		return ""
	}
	switch {
	case strings.Contains(strings.ToUpper(device), "VEN_15AD&DEV_07B0") && b[0] == 0xff && b[7] == 0xfe:
		return net.HardwareAddr{b[3], b[2], b[1], b[6], b[5], b[4]}.String()
	case b[3] == 0xff && b[4] == 0xff:
		return net.HardwareAddr{b[0], b[1], b[2], b[5], b[6], b[7]}.String()
	}
	return ""
}
