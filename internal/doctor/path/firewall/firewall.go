// Package firewall judges by this machine's own rules whether a connection that comes in is let in:
// those of nftables, as nft -j lists them, and those of iptables, as iptables-save does.
//
// # What is judged
//
// The first packet of a TCP connection, on its way through the chains of the hooks prerouting and
// input. All base chains have to let it pass, whatever the others say; drop and reject end it.
//
// # What is not understood
//
// A rule is met, not met, or nobody knows: matches by marks, rates and the like depend on what else
// goes on, and there are more kinds than are known here. Both ways are followed then. So a verdict is
// Passed or Stopped only where no rule that is not understood has a say in it, and Unsure otherwise.
//
// Parsers are bounded: by the length of a listing, and by the rules that a packet passes.
package firewall

import (
	"fmt"
	"net/netip"
)

// Packet opens a TCP connection to this machine.
type Packet struct {
	From, To  netip.Addr
	Port      uint16
	Interface string // that it comes in by
}

// Verdict is what becomes of a packet.
type Verdict uint8

// The worse, the higher.
const (
	Passed Verdict = iota
	Unsure
	Stopped
)

// A Stop is a base chain that lets a packet not pass, or may not.
type Stop struct {
	Verdict Verdict // Stopped or Unsure
	By      string  // the rule, or the policy, in words
	Chain   Chain
}

// Chain names a base chain, and whose it is.
type Chain struct {
	Tool   string // that it is listed and changed by: nft, iptables, ip6tables, iptables-legacy …
	Family string // of nft: ip, ip6, inet
	Table  string
	Name   string
	Keeper string // who writes it: ufw or firewalld; empty: a person, or nobody knows
}

func (c Chain) String() string {
	if c.Family == "" {
		return fmt.Sprintf("chain %s of %s's table %s", c.Name, c.Tool, c.Table)
	}
	return fmt.Sprintf("chain %s of %s's table %s %s", c.Name, c.Tool, c.Family, c.Table)
}

// Rules are what one listing says.
type Rules struct {
	base   []*chain
	chains map[chainID]*chain
}

// Judge returns the base chains that stop a packet, or may. None lets it in.
func (r *Rules) Judge(p Packet) (stops []Stop) {
	for _, c := range r.base {
		c.Keeper = r.keeper(c)
		w := walk{packet: p, rules: r, left: mostSteps}
		o := w.chain(c, 0)
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

// keeper knows who writes a table by the chains that are theirs.
func (r *Rules) keeper(c *chain) string {
	has := func(name string) bool { return r.chains[chainID{c.Family, c.Table, name}] != nil }
	switch {
	case has("ufw-user-input") || has("ufw6-user-input"):
		return "ufw"
	case c.Family != "" && c.Table == "firewalld" || has("INPUT_ZONES"):
		return "firewalld"
	}
	return ""
}

// Remedy are the commands that let a packet pass where it is stopped, in the words of whoever keeps
// the rules.
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
		return fmt.Sprintf("nft insert rule %s %s %s %s saddr %s tcp dport %d accept\n# to keep it, write it into /etc/nftables.conf, too",
			c.Family, c.Table, c.Name, family, p.From, p.Port)
	default:
		return fmt.Sprintf("%s -t %s -I %s -s %s -p tcp --dport %d -j ACCEPT\n# to keep it: netfilter-persistent save, or service iptables save",
			c.Tool, c.Table, c.Name, p.From, p.Port)
	}
}
