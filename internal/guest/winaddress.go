package guest

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/decamp/decamp/internal/guest/hive"
)

// netClass is the class of network cards.
const netClass = "{4d36e972-e325-11ce-bfc1-08002be10318}"

// maxStatic bounds the addresses that are reported.
const maxStatic = 64

// addresses reads the interfaces whose IPv4 addresses do not come from DHCP. Those of
// IPv6 are kept in a form that nothing describes.
func (s *winSystem) addresses() {
	k := s.key(`Services\Tcpip\Parameters\Interfaces`)
	if k == nil {
		return
	}
	interfaces, err := k.Subkeys()
	s.warn(err)
	for _, i := range interfaces {
		a, ok := s.address(i)
		if ok && len(s.out.Static) < maxStatic {
			s.card(&a)
			s.out.Static = append(s.out.Static, a)
		}
	}
}

// address reads one interface; ok is false if it has no static address.
func (s *winSystem) address(k *hive.Key) (a StaticAddress, ok bool) {
	if s.number(k, "EnableDHCP", 0) != 0 {
		return a, false
	}
	masks := s.texts(k, "SubnetMask")
	for i, address := range s.texts(k, "IPAddress") {
		if ip, err := netip.ParseAddr(address); err != nil || ip.IsUnspecified() {
			continue
		}
		if i < len(masks) {
			address += prefix(masks[i])
		}
		a.Addresses = append(a.Addresses, address)
	}
	a.Interface, a.Gateways = k.Name, s.texts(k, "DefaultGateway")
	a.DNS = strings.FieldsFunc(s.text(k, "NameServer"), func(r rune) bool { return r == ',' || r == ' ' })
	return a, len(a.Addresses) > 0
}

func (s *winSystem) texts(k *hive.Key, name string) []string {
	v, err := k.Value(name)
	s.warn(err)
	return v.Texts()
}

// prefix returns the prefix length of a mask; empty if it is not contiguous.
func prefix(mask string) string {
	ip := net.ParseIP(mask).To4()
	if ones, bits := net.IPMask(ip).Size(); bits != 0 {
		return fmt.Sprintf("/%d", ones)
	}
	return ""
}

// card completes an address with its card: the connection's name, the driver's, the MAC.
func (s *winSystem) card(a *StaticAddress) {
	if k := s.key(`Control\Network\` + netClass + `\` + a.Interface + `\Connection`); k != nil {
		a.Name = s.text(k, "Name")
	}
	class := s.key(`Control\Class\` + netClass)
	if class == nil {
		return
	}
	instances, err := class.Subkeys()
	s.warn(err)
	for _, k := range instances {
		if id, err := k.Value("NetCfgInstanceId"); err != nil || !strings.EqualFold(id.Text(), a.Interface) {
			continue
		}
		a.Card = s.text(k, "DriverDesc")
		a.MAC = s.mac(k)
		return
	}
}

// mac finds the address of a card. A configured address takes precedence; otherwise it is in the serial
// number of VMware's cards, which is part of their device names in Windows.
func (s *winSystem) mac(instance *hive.Key) string {
	set := strings.NewReplacer("-", "", ":", "").Replace(s.text(instance, "NetworkAddress"))
	if b, err := hex.DecodeString(set); err == nil && len(b) == 6 {
		return net.HardwareAddr(b).String()
	}
	device := s.text(instance, "DeviceInstanceID")
	if device == "" {
		device = s.device(netClass + `\` + instance.Name)
	}
	return serialMAC(device)
}

// device finds the PCI device that a driver's instance belongs to.
func (s *winSystem) device(driver string) string {
	bus := s.key(`Enum\PCI`)
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
// Older cards have a name made of their bus address, without a MAC.
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
