package main

import (
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/target/kubevirt"
	"github.com/decamp/decamp/internal/target/staged"
)

// openPlace opens what takes whole VMs; nil for a folder, which is where they live. It says whether
// images are to stay on the stage.
func openPlace(to planfile.Destination, o migrateOptions) (place staged.Place, keep bool, err error) {
	switch to.Kind() {
	case planfile.KubeVirt:
		return kubevirt.New(to.Address(), o.networks)
	}
	return nil, false, nil
}
