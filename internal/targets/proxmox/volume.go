package proxmox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// A volume is one of ours, of a guest that is being made. Its name says of which VM and disk it is, and
// has a random part: so a name that is on record means what is recorded of it, and no later volume.
type volume struct {
	ID   string `json:"volid"`
	Size int64  `json:"size"` // bytes
	vmid int
	key  int32 // of the disk
	on   string
}

// ownVolume matches what comes after the storage: dir has the VMID for a folder, and a suffix.
var ownVolume = regexp.MustCompile(`^(?:\d+/)?vm-(\d{1,9})-decamp-([0-9a-f]{16})-(\d{1,9})-[0-9a-f]{8}(?:\.raw)?$`)

// newVolumeName names a volume for a disk of vm.
func newVolumeName(vm *inventory.VM, vmid int, img targets.Image, files bool) string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // it cannot fail
	name := fmt.Sprintf("vm-%d-decamp-%s-%d-%s", vmid, identity(vm), img.Key, hex.EncodeToString(random[:]))
	if files {
		name += ".raw"
	}
	return name
}

// parseVolume reads the name of a volume, and reports whether it is one of vm's.
func parseVolume(id string, vm *inventory.VM) (volume, bool) {
	on, name, _ := strings.Cut(id, ":")
	m := ownVolume.FindStringSubmatch(name)
	if m == nil || m[2] != identity(vm) || !isName(on) {
		return volume{}, false
	}
	vmid, errID := strconv.Atoi(m[1])
	key, errKey := strconv.ParseInt(m[3], 10, 32)
	return volume{ID: id, vmid: vmid, key: int32(key), on: on}, errID == nil && errKey == nil
}

// A volumeClient lists, allocates and removes the volumes that decamp fills by SSH. It has no state but the connection and
// is safe for concurrent use.
type volumeClient struct {
	api      *client
	node     string
	storages storageClient
	guests   guestClient
}

// list returns those of vm on a storage.
func (c volumeClient) list(ctx context.Context, vm *inventory.VM, storage string) ([]volume, error) {
	var list, ours []volume
	err := c.api.get(ctx, "/nodes/"+c.node+"/storage/"+storage+"/content", url.Values{"content": {"images"}}, &list)
	for _, each := range list {
		if v, ok := parseVolume(each.ID, vm); ok && v.on == storage {
			v.Size = each.Size
			ours = append(ours, v)
		}
	}
	return ours, err
}

// allocate makes a volume. An answer that was lost may have been a yes: so the storage is looked at before
// it is tried again.
func (c volumeClient) allocate(ctx context.Context, vm *inventory.VM, vmid int, img targets.Image, on storage) (string, error) {
	name := newVolumeName(vm, vmid, img, on.files())
	params := []Param{
		{"vmid", fmt.Sprint(vmid)}, {"filename", name}, {"format", "raw"}, {"size", fmt.Sprint((img.Size + 1023) >> 10)},
	}
	for try := 1; ; try++ {
		var made string
		err := c.api.change(ctx, http.MethodPost, "/nodes/"+c.node+"/storage/"+on.ID+"/content", params, &made)
		if err == nil && strings.HasSuffix(made, name) && strings.HasPrefix(made, on.ID+":") {
			return made, nil
		}
		if err == nil {
			return "", fault.New(fault.Corrupt, "Proxmox made a volume %q, and was asked for %s", fault.Line(made), name)
		}
		if !passes(err) && !fault.Is(err, fault.Conflict) {
			return "", fmt.Errorf("make volume %s: %w", name, err)
		}
		list, listErr := c.list(ctx, vm, on.ID)
		if listErr != nil {
			return "", listErr
		}
		for _, v := range list {
			if strings.HasSuffix(v.ID, name) {
				return v.ID, nil
			}
		}
		if try == diskTries {
			return "", fmt.Errorf("make volume %s: %w", name, err)
		}
	}
}

// removeAll deletes the volumes of vm that no guest has. One that a guest names is that guest's,
// whoever it is: its mark may have been edited away so that it is kept.
func (c volumeClient) removeAll(ctx context.Context, vm *inventory.VM) error {
	list, err := c.storages.list(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		if !s.keeps("images") || s.Active != 1 || !isName(s.ID) {
			continue
		}
		volumes, err := c.list(ctx, vm, s.ID)
		errs = append(errs, err)
		for _, v := range volumes {
			errs = append(errs, c.remove(ctx, v))
		}
	}
	return errors.Join(errs...)
}

// remove deletes a volume unless a guest has it.
func (c volumeClient) remove(ctx context.Context, v volume) error {
	taken, err := c.inUse(ctx, v)
	if err != nil || taken {
		return err
	}
	if err := c.storages.removeContent(ctx, v.ID, v.on); err != nil {
		return fmt.Errorf("remove volume %s: %w", v.ID, err)
	}
	return nil
}

// inUse reports whether a guest has the volume, or may have it and nobody lets us see.
func (c volumeClient) inUse(ctx context.Context, v volume) (bool, error) {
	list, err := c.guests.list(ctx)
	if err != nil {
		return false, err
	}
	for _, r := range list {
		if r.VMID != v.vmid || r.Type != "qemu" {
			continue
		}
		config, err := c.guests.config(ctx, r.Node, r.VMID)
		if fault.Is(err, fault.NotFound) {
			break
		}
		for _, value := range config {
			if strings.HasPrefix(value, v.ID) {
				return true, nil
			}
		}
		return false, err
	}
	var free loose
	err = c.api.get(ctx, "/cluster/nextid", url.Values{"vmid": {fmt.Sprint(v.vmid)}}, &free)
	if fault.Is(err, fault.Invalid) { // it exists
		return true, nil
	}
	return false, err
}

// size returns the sum of vm's volumes on a storage, in bytes.
func (c volumeClient) size(ctx context.Context, vm *inventory.VM, storage string) (n int64, err error) {
	volumes, err := c.list(ctx, vm, storage)
	for _, v := range volumes {
		n += max(v.Size, 0)
	}
	return n, err
}
