package path

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/doctor/path/firewall"
	"github.com/decamp/decamp/internal/fault"
)

// firewallTests contains firewall rules of this machine and the expected finding about a connection of a host.
var firewallTests = []struct {
	name, tool, rules string
	status            doctor.Status // status of port 2049
	found             string
}{
	{"no rules", "nft", "", doctor.OK, "accepted by the rules of "},
	{"a policy of nft", "nft", `table inet filter {
		chain input { type filter hook input priority 0; policy drop; ct state established,related accept; iif lo accept; tcp dport { 22, 443 } accept; }
	}`, doctor.Failure, "the policy of chain input of nft's table inet filter"},
	{"sets, ranges and maps", "nft", `table inet filter {
		set esx { type ipv4_addr; flags interval; elements = { 10.1.0.0/30, 10.9.0.1 }; }
		chain input { type filter hook input priority 0; policy drop;
			ct state vmap { established : accept, invalid : drop }
			iifname "way*" ip saddr @esx tcp dport 2000-2100 counter accept
			meta l4proto tcp ip saddr . tcp dport vmap { 10.1.0.2 . 111 : goto open }
			reject with icmpx type admin-prohibited
		}
		chain open { ip protocol tcp log accept; }
	}`, doctor.OK, "accepted by the rules of "},
	{"another network", "nft", `table ip filter {
		chain input { type filter hook input priority 0; ip saddr != 10.2.0.0/16 tcp dport { 111, 2049 } jump deny; }
		chain deny { udp dport 1-65535 return; tcp flags & (fin|syn|rst|ack) == syn reject with tcp reset; }
	}`, doctor.Failure, "rule "},
	{"accepted by one table, dropped by another", "nft", `table inet a { chain input { type filter hook input priority -10; policy accept; tcp dport 2049 accept; }; }
	table inet b { chain input { type filter hook input priority 10; meta nfproto ipv4 tcp dport 2049 drop; }; }`, doctor.Failure, "table inet b"},
	{"dropped before it is routed", "nft", `table inet raw { chain pre { type filter hook prerouting priority -300; iifname "way0" ip daddr 10.1.0.1 tcp dport >= 2049 drop; }; }`,
		doctor.Failure, "chain pre of nft's table inet raw"},
	{"a rule about marks", "nft", `table inet filter { chain input { type filter hook input priority 0; policy drop; meta mark 0 accept; }; }`, doctor.Unknown, "unsupported rules: may be dropped by "},
	{"a policy of iptables", "iptables-nft", `-P INPUT DROP
		-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
		-A INPUT -p tcp -m tcp --dport 22 -m comment --comment "for -j ACCEPT" -j ACCEPT`, doctor.Failure, "the policy of chain INPUT of iptables-nft's table filter"},
	{"a last rule of iptables", "iptables-nft", `-A INPUT -s 10.1.0.0/24 -p tcp -m multiport --dports 22,111,443 -j ACCEPT
		-A INPUT ! -i lo -j REJECT --reject-with icmp-host-prohibited`, doctor.Failure, "the rule -A INPUT ! -i lo -j REJECT"},
	{"chains of iptables", "iptables-nft", `-P INPUT DROP
		-N hosts
		-N tcp
		-A INPUT -p tcp -g tcp
		-A tcp ! -d 10.3.0.1/32 -m state --state NEW -j hosts
		-A tcp -j DROP
		-A hosts -p udp -j DROP
		-A hosts -i way+ -s 10.1.0.2/32 -p tcp --syn --dport 2000:2049 -j ACCEPT`, doctor.OK, "accepted by the rules of "},
	{"legacy iptables", "iptables-legacy", `-A INPUT -p tcp -m tcp --dport 2049 -m addrtype --dst-type LOCAL -j DROP`, doctor.Failure, "iptables-legacy"},
	{"a rate limit of iptables", "iptables-legacy", `-A INPUT -p tcp -m limit --limit 1000/sec --limit-burst 1000 -j ACCEPT
		-A INPUT -j DROP`, doctor.Unknown, "the rule -A INPUT -j DROP"},
}

// The findings agree with real connections of the host. After the remedy ran, the host can connect.
func TestFirewallHere(t *testing.T) {
	for _, tool := range []string{"nft", "iptables-nft", "iptables-legacy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	if !runInNamespaces(t) {
		return
	}
	connectHost(t, 1500, 1500)
	for _, port := range []string{"111", "2049"} {
		l, err := net.Listen("tcp4", "10.1.0.1:"+port)
		must(t, err)
		defer l.Close()
	}
	for _, tt := range firewallTests {
		t.Run(tt.name, func(t *testing.T) {
			setRules(t, tt.tool, tt.rules)
			defer runShell(t, "nft flush ruleset; iptables-legacy -P INPUT ACCEPT; iptables-legacy -F")
			found := checkIncoming(t)
			f := found[1]
			if f.Status != tt.status || !strings.Contains(f.Found, tt.found) {
				t.Errorf("got %v: %s; want %v: %s", f.Status, f.Found, tt.status, tt.found)
			}
			for i, port := range []int{111, 2049} {
				if in := canConnect(t, port, found[i].Status == doctor.OK); found[i].Status != doctor.Unknown && in != (found[i].Status == doctor.OK) {
					t.Errorf("port %d: connected %v, got finding %+v", port, in, found[i])
				}
				if found[i].Status != doctor.OK {
					runShell(t, found[i].Remedy)
				}
			}
			for i, f := range checkIncoming(t) {
				if port := []int{111, 2049}[i]; !canConnect(t, port, true) || f.Status != doctor.OK {
					t.Errorf("after the remedy: port %d cannot be reached or is not OK: %+v", port, f)
				}
			}
		})
	}
}

// setRules sets firewall rules: a file of nft, or lines of iptables arguments.
func setRules(t *testing.T, tool, rules string) {
	t.Helper()
	if tool == "nft" {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
		return
	}
	for line := range strings.Lines(rules) {
		runShell(t, tool+" "+line)
	}
}

// runShell runs commands in a shell.
func runShell(t *testing.T, commands string) {
	t.Helper()
	if out, err := exec.Command("sh", "-e", "-c", commands).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", commands, err, out)
	}
}

// canConnect reports whether the host can connect to a port of this machine. It waits briefly if the port should be
// closed, because a firewall may drop the packets.
func canConnect(t *testing.T, port int, open bool) (in bool) {
	t.Helper()
	limit := time.Second
	if open {
		limit = 30 * time.Second
	}
	runInHostNetwork(t, func() {
		c, err := net.DialTimeout("tcp4", fmt.Sprintf("10.1.0.1:%d", port), limit)
		if in = err == nil; in {
			must(t, c.Close())
		}
	})
	return in
}

func checkIncoming(t *testing.T) []doctor.Finding {
	t.Helper()
	e := &examiner{Options: Options{Host: "10.1.0.2", Transport: Landing}.withDefaults()}
	found := e.checkInward(t.Context())
	if len(found) != 2 {
		t.Fatalf("got findings %+v, want 2", found)
	}
	return found
}

// ReadRules returns an error if it cannot read the rules.
func TestFirewallRulesCannotBeRead(t *testing.T) {
	for want, err := range map[string]error{
		"neither nft nor iptables-save is installed": exec.ErrNotFound,
		"Operation not permitted":                    fmt.Errorf("Operation not permitted (you must be root)"),
	} {
		_, got := firewall.ReadRules(t.Context(), func(context.Context, string, ...string) ([]byte, error) { return nil, err }, false)
		if got == nil || !strings.Contains(got.Error(), want) || fault.HintOf(got) == "" {
			t.Errorf("got %v (remedy %q), want %s", got, fault.HintOf(got), want)
		}
	}
}
