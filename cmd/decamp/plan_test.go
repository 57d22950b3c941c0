package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/planfile"
)

func TestPlanNameIsOne(t *testing.T) {
	for url, want := range map[string]string{
		"esxi://root@esx1":                                 "esx1",
		"vcenter://a@b.local@vc1.example.com:8443":         "vc1.example.com",
		"esxi://root@[fe80::1]:443":                        "fe80-1",
		"esxi://root@[::]":                                 "plan",
		"esxi://root@" + strings.Repeat("long.", 30) + "x": strings.Repeat("long.", 13)[:longestPlanName],
	} {
		if got := planName(url); got != want || !planfile.IsName(got) {
			t.Errorf("a plan of %s is called %q, want %q", url, got, want)
		}
	}
}

// A VM's options of a plan are those that the flags with the same values are.
func TestOptionsOfAPlanAreThoseOfTheFlags(t *testing.T) {
	f, found := planfile.Parse([]byte(`{version: 1, name: p, source: {url: esxi://root@h}, vms: [{vm: a}], defaults: {to: [dir:/x], transport: nfc, mode: warm,
		connections: 3, nfc: {handles: 2, buffer: 128K, buffers: 5, network: vmk1, plain: true}, landing: {memory: 2G, advertise: 192.0.2.1, allow: [h1], copy: ssh}}}`))
	if len(found) > 0 {
		t.Fatal(found)
	}
	var flags migrateOptions
	cmd := &cobra.Command{}
	flags.register(cmd)
	err := cmd.ParseFlags(strings.Fields("--transport nfc --warm --connections 3 --nfc-handles 2 --nfc-buffer 128K --nfc-buffers 5 --network vmk1 --nfc-plain " +
		"--landing-memory 2G --advertise 192.0.2.1 --landing-allow h1 --landing-copy ssh"))
	if err != nil {
		t.Fatal(err)
	}
	got := (&planWorks{}).optionsOf(f.VMs[0].Options)
	if got.nfc != flags.nfc || got.transport != flags.transport || got.connections != flags.connections || got.format != flags.format ||
		got.domainType != flags.domainType || got.warm.on != flags.warm.on {
		t.Errorf("options %+v, flags %+v", got, flags)
	}
	a, b := got.landing, flags.landing
	if a.memory != b.memory || a.advertise != b.advertise || a.listen != b.listen || a.portmap != b.portmap || a.copy != b.copy || strings.Join(a.allow, " ") != strings.Join(b.allow, " ") {
		t.Errorf("landing %+v, flags %+v", a, b)
	}
}

// Without a key and without a flag the same holds.
func TestDefaultsOfAPlanAreThoseOfTheFlags(t *testing.T) {
	f, found := planfile.Parse([]byte(`{version: 1, name: p, source: {url: esxi://root@h}, vms: [{vm: a}], defaults: {to: [dir:/x]}}`))
	if len(found) > 0 {
		t.Fatal(found)
	}
	var flags migrateOptions
	flags.register(&cobra.Command{})
	o := f.VMs[0].Options
	got := (&planWorks{}).optionsOf(o)
	if got.nfc != flags.nfc || got.transport != flags.transport || got.connections != flags.connections || got.format != flags.format || got.domainType != flags.domainType {
		t.Errorf("options %+v, flags %+v", got, flags)
	}
	if a, b := got.landing, flags.landing; a.memory != b.memory || a.listen != b.listen || a.portmap != b.portmap || a.copy != b.copy {
		t.Errorf("landing %+v, flags %+v", a, b)
	}
	if int64(o.ShutdownWait) != int64(flags.shutdownWait) || int64(o.Warm.Interval) != int64(flags.warm.interval) || f.Source.SSH.Port != int(flags.landing.ssh.port) {
		t.Errorf("times %v %v and port %d, flags %v %v %d", o.ShutdownWait, o.Warm.Interval, f.Source.SSH.Port, flags.shutdownWait, flags.warm.interval, flags.landing.ssh.port)
	}
}
