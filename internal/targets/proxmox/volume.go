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

// volume is a volume of an unfinished guest. Its name contains the VM and the disk, and a random part.
// So a name in a record
// never refers to a later volume.
type volume struct {
	ID   string `json:"volid"` // volume ID: STORAGE:NAME
	Size int64  `json:"size"`  // size in bytes
	vmid int    // VMID in its name
	key  int32  // device key of the source disk
	on   string // storage
}

// ownVolume matches the name after the storage. Storages of type dir add the VMID as a folder, and a
// suffix.
var ownVolume = regexp.MustCompile(`^(?:\d+/)?vm-(\d{1,9})-decamp-([0-9a-f]{16})-(\d{1,9})-[0-9a-f]{8}(?:\.raw)?$`)

// newVolumeName returns a new name for the volume of an image. files reports whether the storage stores
// files.
func newVolumeName(vm *inventory.VM, vmid int, img targets.Image, files bool) string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // it cannot fail
	name := fmt.Sprintf("vm-%d-decamp-%s-%d-%s", vmid, sourceID(vm), img.Key, hex.EncodeToString(random[:]))
	if files {
		name += ".raw"
	}
	return name
}

// parseVolume parses a volume ID, and reports whether the volume is vm's.
func parseVolume(id string, vm *inventory.VM) (volume, bool) {
	on, name, _ := strings.Cut(id, ":")
	m := ownVolume.FindStringSubmatch(name)
	if m == nil || m[2] != sourceID(vm) || !isName(on) {
		return volume{}, false
	}
	vmid, errID := strconv.Atoi(m[1])
	key, errKey := strconv.ParseInt(m[3], 10, 32)
	return volume{ID: id, vmid: vmid, key: int32(key), on: on}, errID == nil && errKey == nil
}

// volumeClient lists, allocates and removes volumes that are filled over SSH. It is safe for concurrent
// use.
type volumeClient struct {
	api      *client       // client of the node
	node     string        // node whose storages are used
	storages storageClient // removes volumes
	guests   guestClient   // finds guests that use a volume
}

// listOwn returns the volumes of vm on a storage.
func (c volumeClient) listOwn(ctx context.Context, vm *inventory.VM, storage string) ([]volume, error) {
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

// allocateVolume creates a volume and returns its ID. The size is rounded up to whole KiB, the unit of
// the API. After a
// lost answer it reads the storage before it tries again.
func (c volumeClient) allocateVolume(ctx context.Context, vm *inventory.VM, vmid int, img targets.Image, on storage) (string, error) {
	name := newVolumeName(vm, vmid, img, on.storesFiles())
	params := []Param{
		{"vmid", fmt.Sprint(vmid)}, {"filename", name}, {"format", "raw"}, {"size", fmt.Sprint((img.Size + 1023) >> 10)},
	}
	for try := 1; ; try++ {
		var made string
		err := c.api.sendParams(ctx, http.MethodPost, "/nodes/"+c.node+"/storage/"+on.ID+"/content", params, &made)
		if err == nil && strings.HasSuffix(made, name) && strings.HasPrefix(made, on.ID+":") {
			return made, nil
		}
		if err == nil {
			return "", fault.New(fault.Corrupt, "Proxmox created volume %q instead of %s", fault.Line(made), name)
		}
		if !isTemporary(err) && !fault.Is(err, fault.Conflict) {
			return "", fmt.Errorf("create volume %s: %w", name, err)
		}
		list, listErr := c.listOwn(ctx, vm, on.ID)
		if listErr != nil {
			return "", listErr
		}
		for _, v := range list {
			if strings.HasSuffix(v.ID, name) {
				return v.ID, nil
			}
		}
		if try == diskTries {
			return "", fmt.Errorf("create volume %s: %w", name, err)
		}
	}
}

// removeAll deletes the volumes of vm that no guest uses. A volume in a guest's options stays, also if
// the guest has no mark:
// a user may have removed the mark to keep the guest.
func (c volumeClient) removeAll(ctx context.Context, vm *inventory.VM) error {
	list, err := c.storages.list(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		if !s.hasContent("images") || s.Active != 1 || !isName(s.ID) {
			continue
		}
		volumes, err := c.listOwn(ctx, vm, s.ID)
		errs = append(errs, err)
		for _, v := range volumes {
			errs = append(errs, c.removeVolume(ctx, v))
		}
	}
	return errors.Join(errs...)
}

// removeVolume deletes a volume unless a guest uses it.
func (c volumeClient) removeVolume(ctx context.Context, v volume) error {
	taken, err := c.inUse(ctx, v)
	if err != nil || taken {
		return err
	}
	if err := c.storages.removeContent(ctx, v.ID, v.on); err != nil {
		return fmt.Errorf("remove volume %s: %w", v.ID, err)
	}
	return nil
}

// inUse reports whether a guest uses the volume. It returns true if the guest exists and the token may
// not read it.
func (c volumeClient) inUse(ctx context.Context, v volume) (bool, error) {
	list, err := c.guests.listGuests(ctx)
	if err != nil {
		return false, err
	}
	for _, r := range list {
		if r.VMID != v.vmid || r.Type != "qemu" {
			continue
		}
		config, err := c.guests.readConfig(ctx, r.Node, r.VMID)
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
	var free rawValue
	err = c.api.get(ctx, "/cluster/nextid", url.Values{"vmid": {fmt.Sprint(v.vmid)}}, &free)
	if fault.Is(err, fault.Invalid) { // it exists
		return true, nil
	}
	return false, err
}

// ownSize returns the size of vm's volumes on a storage in bytes.
func (c volumeClient) ownSize(ctx context.Context, vm *inventory.VM, storage string) (n int64, err error) {
	volumes, err := c.listOwn(ctx, vm, storage)
	for _, v := range volumes {
		n += max(v.Size, 0)
	}
	return n, err
}
