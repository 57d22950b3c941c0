//go:build slow

package proxmox

import (
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
)

// A guest that was written over SSH boots from its volume.
func TestDirectGuestBoots(t *testing.T) {
	t.Parallel()
	path := tinyguest.Image(t, tinyguest.NoVirtio)
	s, d := startSSHServer(t, pve.Config{})
	p := newDirectPlatform(t, s, d, Options{})
	vm := tinyVM(inventory.PVSCSI, inventory.BIOS)
	def := targets.Definition{VM: vm, Images: []targets.Image{
		{Key: 2000, Path: path, Manifest: t.TempDir() + "/m", Format: targets.Raw, Size: tinyguest.Size, Root: "aa55"},
	}}
	receipt, err := p.Deliver(t.Context(), platform.Delivery{Open: openImage, Definition: def})
	if err != nil {
		t.Fatal(err)
	}
	m := bootGuest(t, s, p, def, receipt.ID)
	card := boot.Card{Name: "eth0", MAC: vm.NICs[0].MAC, Driver: "vmxnet3"}
	if m.Driver != "vmw_pvscsi" || m.UUID != vm.UUID || len(m.Cards) != 1 || m.Cards[0] != card {
		t.Errorf("the guest sees %+v", m)
	}
}
