// Package firewall determines from this machine's rules whether an incoming connection
// is permitted: rules of nftables, as nft -j lists them, and of iptables, as
// iptables-save lists them.
//
// # Evaluation
//
// It evaluates the first packet of a TCP connection in the chains of the hooks
// prerouting and input. All base chains must let it pass; a single drop or reject stops
// it.
//
// # Unknown rules
//
// A condition is met, not met, or unknown: matches by marks, rates and similar ones
// depend on other traffic, and there are more kinds than this package supports. Both
// results are followed then. A verdict is Passed or Stopped only if no unknown rule
// affects it, and Unsure otherwise.
//
// Parsers are bounded by the length of a listing, and by the number of rules that a
// packet passes.
package firewall

import (
	"fmt"
	"net/netip"
)

// Packet is the first packet of a TCP connection to this machine.
type Packet struct {
	From, To  netip.Addr // source and destination address
	Port      uint16     // destination port
	Interface string     // name of the interface on which it arrives
}

// Verdict is the result for a packet.
type Verdict uint8

// The worse, the higher.
const (
	Passed  Verdict = iota // all base chains accept it
	Unsure                 // the result depends on a rule that is not understood
	Stopped                // a base chain drops or rejects it
)

// A Stop is a base chain that stops a packet, or may stop it.
type Stop struct {
	Verdict Verdict // Stopped or Unsure
	By      string  // rule or policy, for messages
	Chain   Chain   // chain that contains it
}

// Chain names a base chain.
type Chain struct {
	Tool   string // tool that lists and changes it: nft, iptables, ip6tables, iptables-legacy …
	Family string // family of nft: ip, ip6, inet
	Table  string // table that contains it
	Name   string // name within the table
	Keeper string // program that manages it: ufw or firewalld; empty if unknown
}

// String returns the name of the chain for messages.
func (c Chain) String() string {
	if c.Family == "" {
		return fmt.Sprintf("chain %s of %s's table %s", c.Name, c.Tool, c.Table)
	}
	return fmt.Sprintf("chain %s of %s's table %s %s", c.Name, c.Tool, c.Family, c.Table)
}

// Rules contains the chains of one listing. It is read-only after it was parsed, except
// that Judge sets Keeper.
type Rules struct {
	base   []*chain           // base chains for incoming packets, in the order of the listing
	chains map[chainID]*chain // all chains
}

// Judge returns the base chains that stop a packet, or may stop it. An empty result
// means that it passes.
func (r *Rules) Judge(p Packet) (stops []Stop) {
	for _, c := range r.base {
		c.Keeper = r.keeperOf(c)
		w := evaluation{packet: p, rules: r, left: mostSteps}
		// The policy applies to packets that leave the base chain at its end.
		o := w.evaluateChain(c, 0)
		if o.falls {
			o = o.or(c.policyOutcome())
		}
		switch {
		case o.stops == "":
		case o.passes || w.left <= 0:
			stops = append(stops, Stop{Unsure, o.stops, c.Chain})
		default:
			stops = append(stops, Stop{Stopped, o.stops, c.Chain})
		}
	}
	return stops
}

// keeperOf returns the program that manages a table, by the names of its chains, or ""
// if it is unknown.
func (r *Rules) keeperOf(c *chain) string {
	has := func(name string) bool { return r.chains[chainID{c.Family, c.Table, name}] != nil }
	switch {
	case has("ufw-user-input") || has("ufw6-user-input"):
		return "ufw"
	case c.Family != "" && c.Table == "firewalld" || has("INPUT_ZONES"):
		return "firewalld"
	}
	return ""
}

// Remedy returns the commands that let a packet pass at this rule, for the program that
// manages the rules.
func (s Stop) Remedy(p Packet) string {
	family := "ip"
	if p.From.Is6() {
		family = "ip6"
	}
	switch c := s.Chain; {
	case c.Keeper == "ufw":
		return fmt.Sprintf("ufw allow proto tcp from %s to any port %d", p.From, p.Port)
	case c.Keeper == "firewalld":
		return fmt.Sprintf(`zone=$(firewall-cmd --get-zone-of-interface=%s || firewall-cmd --get-default-zone)
rule='rule family="%s" source address="%s" port port="%d" protocol="tcp" accept'
firewall-cmd --zone="$zone" --add-rich-rule="$rule" && firewall-cmd --permanent --zone="$zone" --add-rich-rule="$rule"`,
			p.Interface, map[string]string{"ip": "ipv4", "ip6": "ipv6"}[family], p.From, p.Port)
	case c.Tool == "nft":
		return fmt.Sprintf("nft insert rule %s %s %s %s saddr %s tcp dport %d accept\n# to keep the rule, add it to /etc/nftables.conf",
			c.Family, c.Table, c.Name, family, p.From, p.Port)
	default:
		return fmt.Sprintf("%s -t %s -I %s -s %s -p tcp --dport %d -j ACCEPT\n# to keep the rule: netfilter-persistent save, or service iptables save",
			c.Tool, c.Table, c.Name, p.From, p.Port)
	}
}
