package planfile

import (
	"strings"
	"testing"
)

func TestDestinations(t *testing.T) {
	for _, v := range []struct{ text, stage, kind, folder, address string }{
		{"dir:/srv/vm/", "", "dir", "/srv/vm", "/srv/vm"},
		{"dir:/srv/what?staging=x", "/st", "dir", "/srv/what?staging=x", "/srv/what?staging=x"},
		{"kubevirt:/srv//vm?namespace=vms", "", "kubevirt", "/srv/vm", "/srv/vm?namespace=vms"},
		{"libvirt:qemu:///system?pool=default&staging=/st", "", "libvirt", "/st", "qemu:///system?pool=default"},
		{"libvirt:qemu:///system?pool=default", "/st", "libvirt", "/st", "qemu:///system?pool=default"},
		{"libvirt:qemu+ssh://root@kvm1/system", "/st&x y/", "libvirt", "/st&x y", "qemu+ssh://root@kvm1/system"},
		{"openstack:mycloud?network=lan&staging=%2Fst", "/other", "openstack", "/st", "mycloud?network=lan"},
		{"openstack:", "/other", "openstack", "/other", ""},
		{"place:rack1", "/st", "place", "/st", "rack1"},
		{"place:rack1?staging=%2Fst%2Fa", "", "place", "/st/a", "rack1"},
		{"proxmox:https://pve1:8006/pve1?staging=%2Fst%2Fa&storage=local-lvm", "/other", "proxmox", "/st/a", "https://pve1:8006/pve1?storage=local-lvm"},
	} {
		d, err := ParseDestination(v.text, LocalDefaults{Staging: v.stage})
		if err != nil {
			t.Errorf("%s: %v", v.text, err)
			continue
		}
		if d.Kind() != v.kind || d.Folder() != v.folder || d.Address() != v.address {
			t.Errorf("%s: got kind %q, folder %q, address %q", v.text, d.Kind(), d.Folder(), d.Address())
		}
		if again, err := ParseDestination(string(d), LocalDefaults{}); again != d || err != nil {
			t.Errorf("%s: parsed again: got %s, %v", d, again, err)
		}
	}
}

func TestInvalidDestinationsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "is not a destination",
		"dir":                                    "is not an absolute path",
		"dir:":                                   "is not an absolute path",
		"/srv/vm":                                "is not a destination",
		"dir:a/b":                                "is not an absolute path",
		"dir:/a\nb":                              "is not a destination",
		"hyperv:https://x":                       "is not a destination",
		"libvirt:":                               "is not a destination",
		"libvirt:qemu:///system":                 "the staging folder of this machine is missing",
		"proxmox:https://h?staging":              "the staging folder of this machine is missing",
		"proxmox:https://h?staging=relative/one": "is not an absolute path",
		"kubevirt:vm?namespace=x":                "is not an absolute path",
		"place:rack1":                            "the staging folder of this machine is missing",
		"place:rack1?staging=/st&token=/x":       "has only a name",
		"place:rack1?staging=/st&staging=/other": "has only a name",
		"place:rack1?staging=%2Fst%3Ftoken%3D/x": "has only a name",
		"place:/etc?staging=/st":                 "has only a name",
		"place:?staging=/st":                     "has only a name",
	} {
		if d, err := ParseDestination(text, LocalDefaults{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v; want error %s", text, d, err, want)
		}
	}
}

// A relative path is relative to the folder of the user. Parameters are not paths.
func TestRelativeDestinations(t *testing.T) {
	here := LocalDefaults{Folder: "/home/op", Staging: "stage"}
	for text, want := range map[string]string{
		"dir:vm": "dir:/home/op/vm",
		"dir:.":  "dir:/home/op",
		"kubevirt:vm?uploadProxy=https://cdi.example/..&kubeconfig=../k": "kubevirt:/home/op/vm?uploadProxy=https://cdi.example/..&kubeconfig=../k",
		"libvirt:qemu:///system": "libvirt:qemu:///system?staging=%2Fhome%2Fop%2Fstage",
	} {
		if d, err := ParseDestination(text, here); string(d) != want || err != nil {
			t.Errorf("%s: got %s, %v; want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"dir:", "kubevirt:?namespace=vms"} {
		if d, err := ParseDestination(text, here); err == nil {
			t.Errorf("%s: got %s, want an error", text, d)
		}
	}
}
