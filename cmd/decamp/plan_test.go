package main

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/planfile"
)

func TestPlanName(t *testing.T) {
	for url, want := range map[string]string{
		"esxi://root@esx1":                                 "esx1",
		"vcenter://a@b.local@vc1.example.com:8443":         "vc1.example.com",
		"esxi://root@[fe80::1]:443":                        "fe80-1",
		"esxi://root@[::]":                                 "plan",
		"esxi://root@" + strings.Repeat("long.", 30) + "x": strings.Repeat("long.", 12) + "lon",
	} {
		if got := planName(url, ""); got != want || !planfile.IsName(got) {
			t.Errorf("the plan of %s has name %q, want %q", url, got, want)
		}
	}
	for selection, want := range map[string]string{
		"folder=prod && size<1TiB":         "esx1-folder-prod-size-1TiB",
		"!poweredOn":                       "esx1-poweredOn",
		`name~"` + strings.Repeat("x", 99): "esx1-name-" + strings.Repeat("x", maxPlanName-10),
	} {
		if got := planName("esxi://root@esx1", selection); got != want || !planfile.IsName(got) {
			t.Errorf("the plan of %s has name %q, want %q", selection, got, want)
		}
	}
}

// The options of a VM in a plan equal those of the flags with the same values.
func TestPlanOptionsEqualFlags(t *testing.T) {
	for text, flags := range map[string]string{
		"": "",
		`transport: nfc, mode: warm, powerOff: force, shutdownWait: 1m, connections: 3, nfc: {handles: 2, buffer: 128K, buffers: 5, network: vmk1, plain: true},
		warm: {interval: 30m, cutover: 2026-12-01T02:00Z, downtimeBudget: 2m, bootTime: 90s, paranoid: true}, spot: {first: 4M, ranges: 8}, sourceHash: true`: "--transport nfc --warm --force --shutdown-wait 1m --connections 3 " +
			"--nfc-handles 2 --nfc-buffer 128K --nfc-buffers 5 --network vmk1 --nfc-plain --interval 30m --cutover 2026-12-01T02:00Z --downtime-budget 2m --boot-time 90s --paranoid --spot 4M,8 --source-hash",
		`format: qcow2, domainType: qemu, hardware: virtio, engine: virt-v2v, virtioWin: /w.iso, keyFiles: [/k, id=/l], applianceKernel: /boot/k, guestAgent: true, powerOff: guest, trial: true, expect: ready,
		spot: {off: true}, transport: landing, landing: {memory: 2M, advertise: 192.0.2.1, listen: ":1", portmap: ":2", allow: [h1, h2], copy: ssh}`: "--format qcow2 --domain-type qemu --hardware virtio --engine virt-v2v --virtio-win /w.iso " +
			"--key-file /k --key-file id=/l --appliance-kernel /boot/k --guest-agent --power-off --trial --expect ready --spot 0 --transport landing " +
			"--landing-memory 2M --advertise 192.0.2.1 --landing-listen :1 --landing-portmap :2 --landing-allow h1 --landing-allow h2 --landing-copy ssh",
		"start: true": "--start",
	} {
		to := "dir:/x"
		if text == "start: true" {
			to = "libvirt:qemu:///system?staging=/x"
		}
		if text != "" {
			text = ", " + text
		}
		f, found := planfile.Parse(fmt.Appendf(nil, "{version: 1, name: p, source: {url: esxi://root@h}, vms: [{vm: a}], defaults: {to: [%q]%s}}", to, text))
		if len(found) > 0 {
			t.Fatal(found)
		}
		var o moveFlags
		cmd := &cobra.Command{}
		o.registerFlags(cmd)
		must(t, cmd.ParseFlags(append(strings.Fields(flags), "--to", to)))
		must(t, o.checkFlags(cmd))
		want := f.VMs[0].Options
		want.To = f.Defaults.To
		if !reflect.DeepEqual(o.Options, want) {
			t.Errorf("%s:\nflags %+v\nplan  %+v", flags, o.Options, want)
		}
		if int(o.SSH.Port) != f.Source.SSH.Port {
			t.Errorf("SSH port: flags %d, plan %d", o.SSH.Port, f.Source.SSH.Port)
		}
	}
}

// flagOfKey contains the keys of planfile.Options whose flag has another form, with the flag.
var flagOfKey = map[string]string{
	"to": "to", "powerOff": "power-off", "mode": "warm", "warm.cutover": "cutover", "warm.bootTime": "boot-time", "spot.first": "spot", "spot.ranges": "spot", "spot.off": "spot",
}

// Each key of a VM in a plan has a flag, except the keys that are only for plans.
func TestEveryKeyHasAFlag(t *testing.T) {
	onlyInPlans := regexp.MustCompile(`^(priority|hooks\..*|warm\.window\..*)$`)
	var o moveFlags
	cmd := &cobra.Command{}
	o.registerFlags(cmd)
	flags := maps.Clone(flagOfKey)
	for _, f := range o.Flags() {
		flags[f.Key] = f.Name
	}
	for _, key := range planfile.Keys() {
		name, has := flags[key]
		if has == onlyInPlans.MatchString(key) {
			t.Errorf("key %s: got flag %q", key, name)
		}
		if has && cmd.Flags().Lookup(name) == nil {
			t.Errorf("key %s: the flag --%s does not exist", key, name)
		}
	}
}
