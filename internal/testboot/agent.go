package testboot

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// Agent contains the answers of QEMU's guest agent. The guest controls all of them.
type Agent struct {
	OS       string      `json:"os,omitempty"`       // name of the operating system, such as "Debian GNU/Linux 12 (bookworm)"
	Kernel   string      `json:"kernel,omitempty"`   // version of the kernel; of Windows the build
	HostName string      `json:"hostName,omitempty"` // host name of the guest
	Cards    []AgentCard `json:"cards,omitempty"`    // network cards; nil if it does not report them
}

// AgentCard is a network interface of the guest: a card, or an interface built on one,
// which has its MAC.
type AgentCard struct {
	Name      string         `json:"name"`                // name in the guest
	MAC       string         `json:"mac,omitempty"`       // lower case
	Addresses []netip.Prefix `json:"addresses,omitempty"` // addresses with prefix lengths
}

// String lists operating system, kernel, host name and addresses, without link-local
// ones.
func (a Agent) String() string {
	var words []string
	add := func(before, text string) {
		if text != "" {
			words = append(words, before+text)
		}
	}
	add("", a.OS)
	add("kernel ", a.Kernel)
	add("host name ", a.HostName)
	for _, c := range a.Cards {
		for _, p := range c.Addresses {
			if !p.Addr().IsLinkLocalUnicast() {
				add(c.Name+" ", p.Addr().String())
			}
		}
	}
	return strings.Join(words, ", ")
}

// agentAnswers is the start of the description of a guest whose agent answers.
const agentAnswers = "its agent answers"

// describe returns the answers for messages.
func (a Agent) describe() string {
	if told := a.String(); told != "" {
		return agentAnswers + ": " + told
	}
	return agentAnswers
}

// What is kept of an agent's word: a guest may have a thousand containers, or lie.
const (
	maxCards     = 64 // limit of interfaces; a guest may have a thousand containers, or may lie
	maxAddresses = 16 // limit of addresses per interface
)

// takeOS parses the result of guest-get-osinfo. Invalid JSON is ignored.
func (a *Agent) takeOS(text json.RawMessage) {
	var os struct {
		Pretty  string `json:"pretty-name"`
		Name    string `json:"name"`
		Version string `json:"version"`
		Kernel  string `json:"kernel-release"` // Windows': its build
	}
	if json.Unmarshal(text, &os) != nil {
		return
	}
	if os.Pretty == "" {
		os.Pretty = os.Name + " " + os.Version
	}
	a.OS, a.Kernel = fault.Line(os.Pretty), fault.Line(os.Kernel)
}

// takeName parses the result of guest-get-host-name. Invalid JSON is ignored.
func (a *Agent) takeName(text json.RawMessage) {
	var host struct {
		Name string `json:"host-name"`
	}
	if json.Unmarshal(text, &host) == nil {
		a.HostName = fault.Line(host.Name)
	}
}

// takeCards parses the result of guest-network-get-interfaces, without the loopback
// interface. Invalid JSON is ignored.
func (a *Agent) takeCards(text json.RawMessage) {
	var all []struct {
		Name string `json:"name"`
		MAC  string `json:"hardware-address"`
		IPs  []struct {
			IP     string `json:"ip-address"`
			Prefix int    `json:"prefix"`
		} `json:"ip-addresses"`
	}
	if json.Unmarshal(text, &all) != nil {
		return
	}
	a.Cards = []AgentCard{}
	for _, one := range all {
		c := AgentCard{Name: fault.Line(one.Name), MAC: strings.ToLower(fault.Line(one.MAC))}
		// Windows has no interface "lo"; its loopback is detected by the address.
		loop := c.Name == "lo"
		for _, ip := range one.IPs {
			addr, err := netip.ParseAddr(ip.IP)
			p := netip.PrefixFrom(addr.Unmap().WithZone(""), ip.Prefix) // Windows has zones in link-local ones
			loop = loop || addr.IsLoopback()
			if err == nil && p.IsValid() && len(c.Addresses) < maxAddresses {
				c.Addresses = append(c.Addresses, p)
			}
		}
		if !loop && len(a.Cards) < maxCards {
			a.Cards = append(a.Cards, c)
		}
	}
}
