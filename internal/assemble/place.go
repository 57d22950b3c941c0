package assemble

import (
	"context"
	"errors"

	placecheck "github.com/decamp/decamp/internal/doctor/place"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/targets/kubevirt"
	"github.com/decamp/decamp/internal/targets/libvirt"
	"github.com/decamp/decamp/internal/targets/openstack"
	"github.com/decamp/decamp/internal/targets/proxmox"
	"github.com/decamp/decamp/internal/targets/staged"
)

// openPlace opens what takes whole VMs; nil for a folder, which is where they live. It says whether
// images are to stay on the stage.
func openPlace(to planfile.Destination, m Move) (place staged.Place, keep bool, err error) {
	switch to.Kind() {
	case planfile.KubeVirt:
		return kubevirt.New(to.Address(), m.Maps)
	case planfile.Libvirt:
		return taker(libvirt.New(to.Address(), libvirt.Options{Stage: to.Folder(), Type: string(m.DomainType), Maps: m.Maps}))
	case planfile.Proxmox:
		return taker(proxmox.New(to.Address(), proxmox.Options{Maps: m.Maps}))
	case planfile.OpenStack:
		return taker(openstack.New(to.Address(), openstack.Options{Maps: m.Maps}))
	}
	return nil, false, nil
}

// answers is an error unless the place lets us in, if it is one that is logged in to.
func answers(ctx context.Context, place Resident) error {
	p, ok := place.(placecheck.Examined)
	if !ok {
		return nil
	}
	var errs []error
	for _, look := range p.Examine(ctx, staged.Login) {
		errs = append(errs, look.Err)
	}
	return errors.Join(errs...)
}

// taker is a place that takes the images away. It is no Place that holds a nil pointer.
func taker[P staged.Place](place P, err error) (staged.Place, bool, error) {
	if err != nil {
		return nil, false, err
	}
	return place, false, nil
}
