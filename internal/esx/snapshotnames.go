package esx

import (
	"context"
	"fmt"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// SnapshotNames returns the names of all snapshots of a VM.
func (s *Session) SnapshotNames(ctx context.Context, vm inventory.MoRef) ([]string, error) {
	var v mo.VirtualMachine
	if err := s.properties(ctx, reference("VirtualMachine", vm), &v, "snapshot"); err != nil {
		return nil, fmt.Errorf("list snapshots of VM %s: %w", vm, classify(err))
	}
	if v.Snapshot == nil {
		return nil, nil
	}
	return namesIn(v.Snapshot.RootSnapshotList), nil
}

func namesIn(tree []types.VirtualMachineSnapshotTree) (names []string) {
	for _, node := range tree {
		names = append(names, unescapeName(node.Name))
		names = append(names, namesIn(node.ChildSnapshotList)...)
	}
	return names
}
