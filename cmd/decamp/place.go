package main

import (
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/target/kubevirt"
	"github.com/decamp/decamp/internal/target/libvirt"
	"github.com/decamp/decamp/internal/target/proxmox"
	"github.com/decamp/decamp/internal/target/staged"
)

// openPlace opens what takes whole VMs; nil for a folder, which is where they live. It says whether
// images are to stay on the stage.
func openPlace(to planfile.Destination, o migrateOptions) (place staged.Place, keep bool, err error) {
	switch to.Kind() {
	case planfile.KubeVirt:
		return kubevirt.New(to.Address(), o.networks)
	case planfile.Libvirt:
		p, err := libvirt.New(to.Address(), libvirt.Options{Stage: to.Folder(), Type: o.domainType})
		if err != nil { // not a nil *libvirt.Place in the interface
			return nil, false, err
		}
		return p, false, nil
	case planfile.Proxmox:
		p, err := proxmox.New(to.Address(), proxmox.Options{Networks: o.networks})
		if err != nil {
			return nil, false, err
		}
		return p, false, nil
	}
	return nil, false, nil
}
