package testboot

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"libvirt.org/go/libvirtxml"
)

// A lingering is a watch of a guest with an agent's channel, second by second, and who is in it.
type lingering struct {
	*observer
	k    *talk
	told events
}

func newLingering(t *testing.T, answers func(*fakeAgent, string) bool, o Options) *lingering {
	k := newTalk(t, answers)
	o = o.withDefaults()
	o.Now = func() time.Time { return k.clock }
	mac := &libvirtxml.DomainInterfaceMAC{Address: "00:50:56:AB:CD:01"}
	d := &libvirtxml.Domain{Devices: &libvirtxml.DomainDeviceList{Interfaces: []libvirtxml.DomainInterface{{MAC: mac}}}}
	w := &observer{q: &qemu{}, m: &machine{domain: d, accel: KVM}, opts: o, agent: k.agentQueries, began: k.clock}
	return &lingering{observer: w, k: k}
}

// until lets seconds pass in which the guest shows a text, until there is a verdict. It returns how many.
func (l *lingering) until(t *testing.T, text func(second int) string) (Report, int) {
	t.Helper()
	for n := range 2000 {
		l.k.second(l.told.agent)
		if r := l.verdictOrWait(text(n), l.told, l.k.clock); r.Verdict != "" {
			l.addAgentAnswers(&r)
			return r, n
		}
	}
	t.Fatal("there is no verdict")
	return Report{}, 0
}

func always(text string) func(int) string { return func(int) string { return text } }

const login = "Debian GNU/Linux 12 web01 ttyS0\n\nweb01 login: "

// An agent that answers is a guest that is up; and one that is up by another sign is waited for, as
// its agent may begin later, but not for long.
func TestAgentIsASign(t *testing.T) {
	t.Parallel()
	open := events{agent: true}
	for name, c := range map[string]struct {
		answers func(*fakeAgent, string) bool
		told    events
		text    string
		want    Verdict
		why     string
		agent   bool
		least   int // seconds
		most    int
	}{
		"it answers":                        {nil, open, "loading", Booted, "its agent answers: " + allTold, true, 0, 3},
		"it makes up for a failure":         {nil, open, "Gave up waiting for root file system device.\n(initramfs) ", Booted, "its agent answers: " + allTold, true, 0, 3},
		"but not for emergency mode":        {nil, open, "You are in emergency mode. After logging in", Emergency, "You are in emergency mode", true, 10, 12},
		"beside a login":                    {nil, open, login, Booted, "web01 login:", true, 0, 3},
		"it never opens the channel":        {nil, events{}, login, Booted, "web01 login:", false, 10, 12},
		"it opens it and never answers":     {func(*fakeAgent, string) bool { return true }, open, login, Booted, "web01 login:", false, 20, 22},
		"it powered itself off after that":  {nil, events{stopped: true}, login, Booted, "web01 login:", false, 0, 1},
		"no agent, and no other sign":       {func(*fakeAgent, string) bool { return true }, open, "loading", Unclear, "no sign of success or failure after 5m0s", false, 299, 301},
		"no agent, and it is not up":        {nil, events{}, "error: no such device\ngrub rescue> ", BootLoader, "grub rescue>", false, 10, 12},
		"it does not say what it is called": {instead("guest-get-host-name", ""), open, login, Booted, "web01 login:", true, 18, 24},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLingering(t, c.answers, Options{})
			l.told = c.told
			r, n := l.until(t, always(c.text))
			if r.Verdict != c.want || !strings.Contains(r.Reason, c.why) || (r.Agent != nil) != c.agent || n < c.least || n > c.most {
				t.Errorf("%+v after %d s, agent %v; want %s by %q in %d to %d s", r, n, r.Agent, c.want, c.why, c.least, c.most)
			}
		})
	}
}

// An address that comes late is there, one that does not come is missing: that is known once the guest's
// console rests, or the guest's time is over.
func TestAddressesAreWaitedFor(t *testing.T) {
	t.Parallel()
	static := []Static{{"00:50:56:ab:cd:01", []netip.Addr{netip.MustParseAddr("192.0.2.10")}}}
	none := instead("guest-network-get-interfaces", `{"return": [{"name": "eth0", "hardware-address": "00:50:56:ab:cd:01"}]}`+"\n")
	for name, c := range map[string]struct {
		comes    int // second of the address
		rests    int // of the console
		missing  bool
		from, to int
	}{
		"at once":                    {0, 0, false, 0, 3},
		"late":                       {8, 0, false, 8, 12},
		"late, of a slow guest":      {100, 100, false, 100, 104},
		"never":                      {5000, 0, true, 10, 14},
		"never, of a slow guest":     {5000, 100, true, 109, 112},
		"never, and it goes on":      {5000, 5000, true, 299, 301},
		"after anybody waits for it": {30, 5, true, 14, 18},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLingering(t, none, Options{Static: static})
			l.told.agent = true
			r, n := l.until(t, func(n int) string {
				if n >= c.comes {
					l.k.f.answers = nil
				}
				return strings.Repeat("starting\n", min(n, c.rests))
			})
			if !r.Booted() || (r.Missing != nil) != c.missing || n < c.from || n > c.to {
				t.Errorf("%+v after %d s, missing %v; want %v after %d to %d", r, n, r.Missing, c.missing, c.from, c.to)
			}
		})
	}
}

// An agent that may not tell of its cards loses none of its guest's addresses.
func TestUntoldCardsAreNotMissing(t *testing.T) {
	t.Parallel()
	l := newLingering(t, instead("guest-network-get-interfaces", unknown+"\n"), Options{Static: []Static{{"", []netip.Addr{netip.MustParseAddr("10.0.0.5")}}}})
	l.told.agent = true
	if r, n := l.until(t, always("")); !r.Booted() || r.Missing != nil || n > 3 {
		t.Errorf("%+v after %d s", r, n)
	}
}

// A VM has the channel if its domain does, with a controller, and else no device that it will not have.
func TestChannelIsTheDomains(t *testing.T) {
	t.Parallel()
	const channel = `<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>`
	for name, c := range map[string]struct {
		devices     string
		agent       bool
		controllers int
	}{
		"none":                   {"", false, 0},
		"somebody else's":        {`<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>`, false, 0},
		"the agent's":            {channel, true, 1},
		"on a controller":        {`<controller type='virtio-serial' index='0'/>` + channel, true, 1},
		"a controller for other": {`<controller type='virtio-serial' index='0'/>`, false, 1},
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
			t.Errorf("%s: %q", name, m.args)
		}
	}
}
