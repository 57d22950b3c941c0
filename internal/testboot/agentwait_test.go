package testboot

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"libvirt.org/go/libvirtxml"
)

// agentWait observes a guest with the channel of an agent, second by second.
type agentWait struct {
	*observer
	k     *session
	state events
}

func newAgentWait(t *testing.T, answers func(*fakeAgent, string) bool, o Options) *agentWait {
	k := newSession(t, answers)
	o = o.withDefaults()
	o.Now = func() time.Time { return k.clock }
	mac := &libvirtxml.DomainInterfaceMAC{Address: "00:50:56:AB:CD:01"}
	d := &libvirtxml.Domain{Devices: &libvirtxml.DomainDeviceList{Interfaces: []libvirtxml.DomainInterface{{MAC: mac}}}}
	w := &observer{q: &qemu{}, m: &machine{domain: d, accel: KVM}, opts: o, agent: k.agentQueries, began: k.clock}
	return &agentWait{observer: w, k: k}
}

// untilVerdict runs seconds with the console text of the guest until there is a verdict. It returns the verdict and
// the number of seconds.
func (l *agentWait) untilVerdict(t *testing.T, text func(second int) string) (Report, int) {
	t.Helper()
	for n := range 2000 {
		l.k.runSecond(l.state.agent)
		if r := l.verdictOrWait(text(n), l.state, l.k.clock); r.Verdict != "" {
			l.addAgentAnswers(&r)
			return r, n
		}
	}
	t.Fatal("no verdict after 2000 seconds")
	return Report{}, 0
}

func constantText(text string) func(int) string { return func(int) string { return text } }

const loginPrompt = "Debian GNU/Linux 12 web01 ttyS0\n\nweb01 login: "

// If its agent answers, the guest has booted. If another sign shows that it has booted, the trial waits a short time
// for the agent, which may start later.
func TestAgentResponseMeansBooted(t *testing.T) {
	t.Parallel()
	open := events{agent: true}
	for name, c := range map[string]struct {
		answers func(*fakeAgent, string) bool
		state   events
		text    string
		want    Verdict
		reason  string
		agent   bool
		least   int // minimum seconds until the verdict
		most    int // maximum seconds until the verdict
	}{
		"it answers":                       {nil, open, "loading", Booted, "its agent answers: " + allAnswers, true, 0, 3},
		"it overrides a failure":           {nil, open, "Gave up waiting for root file system device.\n(initramfs) ", Booted, "its agent answers: " + allAnswers, true, 0, 3},
		"but not for emergency mode":       {nil, open, "You are in emergency mode. After logging in", Emergency, "You are in emergency mode", true, 10, 12},
		"and a login":                      {nil, open, loginPrompt, Booted, "web01 login:", true, 0, 3},
		"it never opens the channel":       {nil, events{}, loginPrompt, Booted, "web01 login:", false, 10, 12},
		"it opens it and never answers":    {func(*fakeAgent, string) bool { return true }, open, loginPrompt, Booted, "web01 login:", false, 20, 22},
		"it powered itself off afterwards": {nil, events{stopped: true}, loginPrompt, Booted, "web01 login:", false, 0, 1},
		"no agent, and no other sign":      {func(*fakeAgent, string) bool { return true }, open, "loading", Unclear, "no sign of success or failure after 5m0s", false, 299, 301},
		"no agent, and it is not up":       {nil, events{}, "error: no such device\ngrub rescue> ", BootLoader, "grub rescue>", false, 10, 12},
		"it does not report its host name": {answerWith("guest-get-host-name", ""), open, loginPrompt, Booted, "web01 login:", true, 18, 24},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newAgentWait(t, c.answers, Options{})
			l.state = c.state
			r, n := l.untilVerdict(t, constantText(c.text))
			if r.Verdict != c.want || !strings.Contains(r.Reason, c.reason) || (r.Agent != nil) != c.agent || n < c.least || n > c.most {
				t.Errorf("%+v after %d s, agent %v; want %s with reason %q after %d to %d s", r, n, r.Agent, c.want, c.reason, c.least, c.most)
			}
		})
	}
}

// The trial waits for late addresses. An address is missing if it does not appear until the console of the guest is
// idle or the deadline expires.
func TestTrialWaitsForLateAddresses(t *testing.T) {
	t.Parallel()
	static := []Static{{"00:50:56:ab:cd:01", []netip.Addr{netip.MustParseAddr("192.0.2.10")}}}
	none := answerWith("guest-network-get-interfaces", `{"return": [{"name": "eth0", "hardware-address": "00:50:56:ab:cd:01"}]}`+"\n")
	for name, c := range map[string]struct {
		appears  int // second in which the address appears
		idle     int // second from which the console is idle
		missing  bool
		from, to int // seconds until the verdict
	}{
		"at once":                   {0, 0, false, 0, 3},
		"late":                      {8, 0, false, 8, 12},
		"late, of a slow guest":     {100, 100, false, 100, 104},
		"never":                     {5000, 0, true, 10, 14},
		"never, of a slow guest":    {5000, 100, true, 109, 112},
		"never, console never idle": {5000, 5000, true, 299, 301},
		"after the wait":            {30, 5, true, 14, 18},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newAgentWait(t, none, Options{Static: static})
			l.state.agent = true
			r, n := l.untilVerdict(t, func(n int) string {
				if n >= c.appears {
					l.k.f.answers = nil
				}
				return strings.Repeat("starting\n", min(n, c.idle))
			})
			if !r.Booted() || (r.Missing != nil) != c.missing || n < c.from || n > c.to {
				t.Errorf("%+v after %d s, missing %v; want %v after %d to %d", r, n, r.Missing, c.missing, c.from, c.to)
			}
		})
	}
}

// If the agent may not report network cards, no address counts as missing.
func TestUnreportedCardsAreNotMissing(t *testing.T) {
	t.Parallel()
	l := newAgentWait(t, answerWith("guest-network-get-interfaces", unknownCommand+"\n"), Options{Static: []Static{{"", []netip.Addr{netip.MustParseAddr("10.0.0.5")}}}})
	l.state.agent = true
	if r, n := l.untilVerdict(t, constantText("")); !r.Booted() || r.Missing != nil || n > 3 {
		t.Errorf("%+v after %d s", r, n)
	}
}

// The VM of a trial has the agent channel and its controller only if the domain has the channel.
func TestAgentChannelRequiresDomainChannel(t *testing.T) {
	t.Parallel()
	const channel = `<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>`
	for name, c := range map[string]struct {
		devices     string
		agent       bool
		controllers int
	}{
		"none":                 {"", false, 0},
		"another channel":      {`<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>`, false, 0},
		"agent":                {channel, true, 1},
		"agent and controller": {`<controller type='virtio-serial' index='0'/>` + channel, true, 1},
		"only a controller":    {`<controller type='virtio-serial' index='0'/>`, false, 1},
	} {
		var d libvirtxml.Domain
		if err := d.Unmarshal(`<domain><memory>1</memory><os><type>hvm</type></os><devices>` + c.devices + `<interface type='network'><source network='a'/></interface></devices></domain>`); err != nil {
			t.Fatal(err)
		}
		m, err := newMachine(&d, t.TempDir(), TCG, Options{}.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		count := func(prefix string) (n int) {
			for _, a := range m.args {
				if strings.HasPrefix(a, prefix) {
					n++
				}
			}
			return n
		}
		port := slices.Contains(m.args, "virtserialport,id=agent,chardev=agent,name=org.qemu.guest_agent.0")
		if m.agent != c.agent || port != c.agent || slices.Contains(m.args, "socket,id=agent,fd=5") != c.agent || count("virtio-serial-pci") != c.controllers {
			t.Errorf("%s: agent %v, want %v, arguments %q", name, m.agent, c.agent, m.args)
		}
	}
}
