package main

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/targets/kubevirt"
	"github.com/decamp/decamp/internal/targets/libvirt"
	"github.com/decamp/decamp/internal/targets/openstack"
	"github.com/decamp/decamp/internal/targets/proxmox"
)

// unclassifiedFields counts the keys of the plan schema and the parameters of
// destinations that have no entry in the table of the roles that may set them.
func unclassifiedFields(_ context.Context, b *bench) error {
	missing, parameters := planfile.Unclassified(), 0
	for kind, names := range map[string][]string{
		planfile.KubeVirt: kubevirt.Parameters(), planfile.Libvirt: libvirt.Parameters(), planfile.OpenStack: openstack.Parameters(), planfile.Proxmox: proxmox.Parameters(),
	} {
		parameters += len(names)
		missing = append(missing, planfile.UnclassifiedParameters(kind, names)...)
	}
	b.atMost(0, Row{Figure: "unclassified fields of submitted plans", Value: float64(len(missing)),
		Note: fmt.Sprintf("all keys of the schema, and %d parameters of destinations%s", parameters, joinNames(missing))})
	return nil
}

// joinNames returns the names for the note of a row, or "".
func joinNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; without a class: %v", names)
}
