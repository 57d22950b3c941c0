package boot

import (
	"slices"
	"testing"
	"time"
)

const completeMarker = "DECAMP-MARKER boot=ok n=3 root=/dev/sda1 disk=sda,vmw_pvscsi net=eth0=00:50:56:ab:cd:01/vmxnet3,eth1=00:50:56:ab:cd:02/e1000 uuid=564d1234-0000-1111-2222-333344445555 fw=bios up=3.86"

func TestParseMarker(t *testing.T) {
	m, ok, err := ParseMarker("[    2.4] " + completeMarker + "\r\n")
	if !ok || err != nil {
		t.Fatalf("ok %v, err %v", ok, err)
	}
	if m.Boots != 3 || m.Root != "/dev/sda1" || m.Driver != "vmw_pvscsi" || m.Uptime != 3860*time.Millisecond {
		t.Errorf("marker %+v", m)
	}
	if len(m.Cards) != 2 || m.Cards[1] != (Card{"eth1", "00:50:56:ab:cd:02", "e1000"}) {
		t.Errorf("cards %+v", m.Cards)
	}
}

func TestParseMarkerOfARealGuest(t *testing.T) {
	m, ok, err := ParseMarker(completeMarker + " by=UUID=5d3b1c0e ip=192.0.2.11/24@ens192/00:50:56:ab:cd:01,10.0.0.5/8@ens224/00:50:56:ab:cd:02")
	want := []IP{{"192.0.2.11/24", "ens192", "00:50:56:ab:cd:01"}, {"10.0.0.5/8", "ens224", "00:50:56:ab:cd:02"}}
	if !ok || err != nil || m.By != "UUID=5d3b1c0e" || !slices.Equal(m.IPs, want) {
		t.Errorf("%+v, ok %v, err %v", m, ok, err)
	}
	if m, _, err := ParseMarker(completeMarker + " ip=none"); err != nil || m.IPs != nil {
		t.Errorf("no address: %+v, %v", m, err)
	}
}

func TestParseMarkerErrors(t *testing.T) {
	for _, line := range []string{
		"DECAMP-MARKER boot=failed no root device /dev/sda1",
		"DECAMP-MARKER boot=ok n=3",
		"DECAMP-MARKER boot=ok n=x root=/dev/sda1 disk=sda,d net=none uuid=u fw=bios up=3",
		"DECAMP-MARKER boot=ok n=1 root=/dev/sda1 disk=sda,d net=eth0 uuid=u fw=bios up=3",
		completeMarker + " ip=192.0.2.11/24",
	} {
		if _, ok, err := ParseMarker(line); !ok || err == nil {
			t.Errorf("%q: ok %v, err %v", line, ok, err)
		}
	}
	if _, ok, err := ParseMarker("SeaBIOS (version 1.16)"); ok || err != nil {
		t.Errorf("a line without a marker: ok %v, err %v", ok, err)
	}
}

func FuzzParseMarker(f *testing.F) {
	f.Add(completeMarker)
	f.Add("DECAMP-MARKER boot=ok n=1 root=r disk=d net=a=b/c,, uuid=u fw=efi up=1e9")
	f.Fuzz(func(t *testing.T, line string) {
		m, ok, err := ParseMarker(line)
		if ok && err == nil && (m.Root == "" || m.UUID == "" || m.Firmware == "") {
			t.Errorf("%q: no error for the incomplete marker %+v", line, m)
		}
	})
}
