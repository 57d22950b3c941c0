package libvirt

import (
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	tests := map[string]address{
		"qemu:///system":                             {driver: "qemu:///system", transport: "unix", pool: "default"},
		"qemu:///session?pool=vms":                   {driver: "qemu:///session", transport: "unix", pool: "vms"},
		"qemu+unix:///system?socket=/run/x/sock":     {driver: "qemu:///system", transport: "unix", pool: "default", socket: "/run/x/sock"},
		"qemu://kvm1/system":                         {driver: "qemu:///system", transport: "tls", host: "kvm1", pool: "default"},
		"qemu+tls://kvm1/system?pkipath=/etc/x":      {driver: "qemu:///system", transport: "tls", host: "kvm1", pool: "default", pki: "/etc/x"},
		"qemu+tcp://[::1]:16599/system":              {driver: "qemu:///system", transport: "tcp", host: "::1", port: "16599", pool: "default"},
		"qemu+ssh://root@kvm1:22/system?keyfile=/k":  {driver: "qemu:///system", transport: "ssh", user: "root", host: "kvm1", port: "22", pool: "default", keyFile: "/k"},
		"qemu+ssh://kvm1/system?pool=a%20b&socket=s": {driver: "qemu:///system", transport: "ssh", host: "kvm1", pool: "a b", socket: "s"},
	}
	for text, want := range tests {
		if got, err := parseAddress(text); err != nil || got != want {
			t.Errorf("parseAddress(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestInvalidAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "qemu", "xen:///system", "qemu:///", "qemu:///embed", "qemu+libssh2://kvm1/system", "qemu+ssh:///system", "qemu+unix://kvm1/system",
		"qemu:///system?pol=default", "qemu:///system?pool=", "qemu:///system?pool=a;b", "qemu+ssh://-oProxyCommand=reboot/system", "qemu+ssh://-l@kvm1/system",
		"qemu+ssh://root:secret@kvm1/system", "qemu://kvm1:port/system", "qemu://:0/system", "qemu://root@/system", "\x00",
	} {
		if a, err := parseAddress(text); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("parseAddress(%q) = %+v, %v; want an invalid address with a hint", text, a, err)
		}
	}
}

// An address cannot add an option of ssh or a second command on the remote machine.
func TestSSHArguments(t *testing.T) {
	t.Parallel()
	a, err := parseAddress("qemu+ssh://root@kvm1:2222/system?socket=/run/it%27s%3Breboot&keyfile=/k")
	if err != nil {
		t.Fatal(err)
	}
	args := sshLogin(a).Arguments(remoteCommand(a))
	end := slices.Index(args, "--")
	if want := []string{"kvm1", `exec nc -U '/run/it'\''s;reboot'`}; end < 0 || !slices.Equal(args[end+1:], want) {
		t.Errorf("got ssh arguments %q, want %q at the end", args, want)
	}
	if options := strings.Join(args[:end], " "); !strings.Contains(options, "BatchMode=yes") || !strings.HasSuffix(options, "-p 2222 -l root -i /k -o IdentitiesOnly=yes") {
		t.Errorf("got ssh options %s", options)
	}
}

func FuzzAddress(f *testing.F) {
	f.Add("qemu+ssh://root@kvm1:22/system?pool=default&socket=/x&keyfile=/k&pkipath=/p")
	f.Add("qemu+tcp://[::1]:16599/system")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err != nil {
			return
		}
		again, err := parseAddress(a.String())
		if err != nil || again.host != a.host || again.driver != a.driver || again.user != a.user || again.port != a.port {
			t.Errorf("%q formats as %q, which parses as %+v, %v", text, a, again, err)
		}
		if strings.HasPrefix(a.host, "-") || a.pool == "" {
			t.Errorf("parseAddress(%q) = %+v", text, a)
		}
	})
}
