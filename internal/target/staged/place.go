// Package staged has the targets that take whole VMs: images are copied, tried and verified in a
// staging folder, and delivered at commit.
package staged

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/target"
)

// A Place takes whole VMs.
type Place interface {
	// Check says before anything is copied whether vm could be delivered: reachable, rights,
	// room, its name free. It creates nothing.
	Check(ctx context.Context, vm *inventory.VM) error

	// Deliver makes the VM there, powered off. It may run again after a crash at any point, and
	// then goes on with what it made or finds all done; after an error nothing of the VM is left
	// there. It may take image files away (rename them) out of the staging folder.
	Deliver(ctx context.Context, d Delivery) (Receipt, error)

	// Withdraw removes what Deliver made of vm, and only that. Nothing there is no error.
	Withdraw(ctx context.Context, vm *inventory.VM) error
}

// A Delivery is a VM with its images, all of them proven.
type Delivery struct {
	target.Definition

	// Domain is the VM as a libvirt domain, with the images by their present paths.
	Domain string

	// Open opens the logical content of an image, with its extents.
	Open func(ctx context.Context, img target.Image) (disk.Source, error)

	// Progress is told bytes; it may be nil.
	Progress func(done, total int64)
}

// A Receipt says what a VM has become.
type Receipt struct {
	Place    string              `json:"place"` // such as "proxmox pve1"
	ID       string              `json:"id"`    // there, such as "103"
	Name     string              `json:"name"`
	Warnings []inventory.Warning `json:"warnings,omitempty"`
}
