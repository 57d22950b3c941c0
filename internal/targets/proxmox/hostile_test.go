package proxmox

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/inventory/inventorytest"
	"github.com/decamp/decamp/internal/targets"
)

// parseProperties parses a property string like PVE::JSONSchema::parse_property_string: words between commas, each
// key=value, or one value without a key.
func parseProperties(s, defaultKey string) (map[string]string, error) {
	all := map[string]string{}
	for _, word := range strings.Split(s, ",") {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			key, value = defaultKey, word
		}
		if _, twice := all[key]; twice || key == "" {
			return nil, fmt.Errorf("%q: key %q is duplicate or empty", s, key)
		}
		all[key] = value
	}
	return all, nil
}

// Formats that Proxmox accepts: pve-dns-name, pve-tag, the UUID of pve-qm-smbios1, a MAC address.
var (
	pveName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	pveTag  = regexp.MustCompile(`^[a-z0-9_][a-z0-9_+.-]*$`)
	pveUUID = regexp.MustCompile(`^[A-Fa-f0-9]{8}(?:-[A-Fa-f0-9]{4}){3}-[A-Fa-f0-9]{12}$`)
	pveMAC  = regexp.MustCompile(`^[0-9A-F]{2}(:[0-9A-F]{2}){5}$`)
)

// The parameters for hostile VMs are valid for Proxmox after they are encoded as a form.
func TestHostileInventoryInParameters(t *testing.T) {
	t.Parallel()
	r := inventorytest.New(9)
	for n := range inventorytest.Runs {
		vm := inventorytest.VM(r)
		vm.RemoveInvalid()
		m, err := Config(targets.Definition{VM: vm}, testOptions())
		if err != nil {
			t.Fatalf("%+v: %v", vm, err)
		}
		form := url.Values{}
		for _, p := range m.Base {
			form.Add(p.Key, p.Value)
		}
		form.Set("description", guestDescription(vm, n, guestStatus{ours: true, images: "x"}))
		form.Set("tags", tagList(vm, vmTags(vm)))
		back, err := url.ParseQuery(form.Encode())
		if err != nil {
			t.Fatal(err)
		}
		parsed := func(key, defaultKey string) map[string]string {
			if len(back[key]) != 1 {
				t.Fatalf("%s: %q", key, back[key])
			}
			p, err := parseProperties(back.Get(key), defaultKey)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if name := back.Get("name"); !pveName.MatchString(name) {
			t.Fatalf("name %q", name)
		}
		smbios := map[string]string{}
		if _, there := back["smbios1"]; there {
			smbios = parsed("smbios1", "")
		}
		serial, err := base64.StdEncoding.DecodeString(smbios["serial"])
		if err != nil || string(serial) != vm.Serial() || smbios["uuid"] != vm.UUID || vm.UUID != "" && !pveUUID.MatchString(smbios["uuid"]) {
			t.Fatalf("smbios1 %q for UUID %q", smbios, vm.UUID)
		}
		if _, there := smbios["uuid"]; there && vm.UUID == "" {
			t.Fatalf("smbios1 %q has an empty uuid", smbios)
		}
		for i, card := range vm.NICs {
			net := parsed(fmt.Sprintf("net%d", i), "model")
			mac := ""
			for _, model := range []string{"vmxnet3", "e1000"} {
				mac += net[model]
			}
			if net["bridge"] != "vmbr0" || !strings.EqualFold(mac, card.MAC) || card.MAC != "" && !pveMAC.MatchString(mac) || card.MAC == "" && net["model"] == "" || len(net) != 2 {
				t.Fatalf("card %q for MAC %q", net, card.MAC)
			}
		}
		for i, d := range m.Disks {
			p, err := parseProperties(d.On+":0"+d.Words, "file")
			if serial, there := p["serial"]; err != nil || there && serial != strings.ReplaceAll(vm.Disks[d.Source].UUID, "-", "") || there && len(vm.Disks[d.Source].UUID) == 0 {
				t.Fatalf("disk %d: %q, %v", i, p, err)
			}
		}
		for _, tag := range strings.Split(back.Get("tags"), ";") {
			if !pveTag.MatchString(tag) {
				t.Fatalf("tag %q in %q", tag, back.Get("tags"))
			}
		}
		text := back.Get("description")
		if len(text) > maxDescription || !utf8.ValidString(text) || !parseDescription(text, vm, n).ours {
			t.Fatalf("description %q", text)
		}
	}
}
