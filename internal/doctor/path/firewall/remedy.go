package firewall

import "fmt"

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
