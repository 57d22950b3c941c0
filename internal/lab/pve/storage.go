package pve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Storage contains volumes. A storage of type dir contains files and may contain uploads; all other
// types count as block devices, which contain raw images only.
type Storage struct {
	ID      string   // name of the storage: the part before the colon of a volume's name
	Type    string   // type in storage.cfg, such as dir, lvm or lvmthin
	Content []string // kinds of content, such as images and import
	Size    int64    // capacity in bytes; volumes count by their allocated bytes
	Format  string   // default format of new volumes; raw if empty, qcow2 if storage.cfg sets it
	Lazy    bool     // whether volumes are invisible to programs until the node's library activates them
	Remote  bool     // whether volumes are not files of the node; their paths are for QEMU only, as with RBD
}

// extent is the unit of block storages, in bytes: sizes are rounded up to it, as by LVM.
const extent = 4 << 20

// hasFiles reports whether volumes are files rather than block devices.
func (st Storage) hasFiles() bool { return st.Type == "dir" }

// findStorage returns a storage by name, or Proxmox's error if none exists.
func (s *Server) findStorage(id string) (Storage, error) {
	for _, st := range s.config.Storages {
		if st.ID == id {
			return st, nil
		}
	}
	return Storage{}, serverError("storage '%s' does not exist", id)
}

// usedBytes returns the allocated bytes of all files of the storage.
func (s *Server) usedBytes(st Storage) int64 {
	var sum int64
	_ = filepath.WalkDir(filepath.Join(s.config.Dir, st.ID), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			sum += allocatedBytes(path)
		}
		return nil // files come and go
	})
	return sum
}

// listStorages lists the storages that the caller may audit or allocate on, with their free space.
func listStorages(c *call) (any, error) {
	list := []map[string]any{}
	for _, st := range c.config.Storages {
		if c.token.requireAny("/storage/"+st.ID, "Datastore.Audit", "Datastore.AllocateSpace") != nil {
			continue
		}
		used := c.usedBytes(st)
		list = append(list, map[string]any{
			"storage": st.ID, "type": st.Type, "content": strings.Join(st.Content, ","), "active": 1, "enabled": 1, "shared": 0,
			"total": st.Size, "used": used, "avail": max(st.Size-used, 0),
		})
	}
	return list, nil
}

// listVolumes lists the uploads and the volumes of guests on a storage, filtered by the parameter
// content.
func listVolumes(c *call) (any, error) {
	st, err := c.findStorage(c.args[0])
	if err == nil {
		err = c.token.requireAny("/storage/"+st.ID, "Datastore.Audit", "Datastore.AllocateSpace")
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(c.config.Dir, st.ID, "import"))
	if err != nil {
		return nil, err
	}
	list := []map[string]any{}
	if content := c.form.Get("content"); content == "" || content == "images" {
		list = append(list, c.listImages(st)...)
	}
	if content := c.form.Get("content"); content != "" && content != "import" {
		return list, nil
	}
	for _, e := range entries {
		list = append(list, map[string]any{
			"volid": st.ID + ":import/" + e.Name(), "content": "import", "format": strings.TrimPrefix(filepath.Ext(e.Name()), "."),
		})
	}
	return list, nil
}

// ownerOf matches the VMID in the name of a volume.
var ownerOf = regexp.MustCompile(`(?:^|/)vm-(\d+)-`)

// listImages lists the volumes of guests on st that the caller may see: all with Datastore.Allocate,
// otherwise those of guests whose disks the caller may configure.
func (c *call) listImages(st Storage) (list []map[string]any) {
	root := filepath.Join(c.config.Dir, st.ID, "images")
	for _, path := range c.Volumes() {
		name, err := filepath.Rel(root, path)
		m := ownerOf.FindStringSubmatch(name)
		if err != nil || strings.HasPrefix(name, "..") || m == nil {
			continue
		}
		if !c.token.hasPrivilege("/storage/"+st.ID, "Datastore.Allocate") && !c.token.hasPrivilege("/vms/"+m[1], "VM.Config.Disk") {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		vmid, _ := strconv.Atoi(m[1])
		list = append(list, map[string]any{"volid": st.ID + ":" + name, "content": "images", "format": "raw", "size": info.Size(), "vmid": vmid})
	}
	return list
}

// volumeName matches the name of a new volume, without the storage.
var volumeName = regexp.MustCompile(`^vm-(\d+)-[A-Za-z0-9._-]+$`)

// newVolume creates a volume before it responds, with a size in KiB. A new volume of LVM has the
// content of an earlier one.
func newVolume(c *call) (any, error) {
	st, err := c.findStorage(c.args[0])
	if err == nil {
		err = c.token.requireAll("/storage/"+st.ID, "Datastore.AllocateSpace")
	}
	if err != nil {
		return nil, err
	}
	name, vmid := c.form.Get("filename"), c.form.Get("vmid")
	kib, err := strconv.ParseInt(c.form.Get("size"), 10, 64)
	if err != nil {
		return nil, refuseParameter("size", "value does not match the regex pattern")
	}
	if m := volumeName.FindStringSubmatch(name); m == nil || m[1] != vmid {
		return nil, serverError("illegal name '%s' - should be 'vm-%s-*'", name, vmid)
	}
	if st.hasFiles() {
		if !strings.HasSuffix(name, "."+c.form.Get("format")) {
			return nil, serverError("illegal name '%s' - wrong extension for format", name)
		}
		name = vmid + "/" + name
	}
	size := kib << 10 // bytes
	if !st.hasFiles() {
		size = (size + extent - 1) / extent * extent
	}
	if st.Type == "lvm" && size > st.Size-c.usedBytes(st) {
		return nil, serverError("not enough free space (%d < %d)", st.Size-c.usedBytes(st), size)
	}
	path, err := c.volumePath(st.ID + ":" + name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return st.ID + ":" + name, makeVolume(path, size, st.Type == "lvm")
}

// makeVolume creates a sparse file of size bytes. If used is set, it is filled with data of an earlier
// volume. It fails if the file exists.
func makeVolume(path string, size int64, used bool) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return serverError("disk image '%s' already exists", path)
	}
	defer f.Close()
	garbage := bytes.Repeat([]byte("old tenant's secret. "), 50000)
	for off := int64(0); used && off < size; off += int64(len(garbage)) {
		if _, err := f.WriteAt(garbage[:min(int64(len(garbage)), size-off)], off); err != nil {
			return err
		}
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// removeVolume removes a volume in a task. It requires Datastore.Allocate, a privilege that no other
// call requires.
func removeVolume(c *call) (any, error) {
	st, err := c.findStorage(c.args[0])
	if err == nil {
		err = c.token.requireAll("/storage/"+st.ID, "Datastore.Allocate")
	}
	if err != nil {
		return nil, err
	}
	path, err := c.volumePath(c.args[1])
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); err != nil {
		return nil, serverError("volume '%s' does not exist", c.args[1])
	}
	return c.startTask("imgdel", c.args[1], func(context.Context, *task) error { return os.Remove(path) }), nil
}

// volumePath returns the file of a volume, which need not exist. It fails for an unknown storage and
// for names with "..".
func (s *Server) volumePath(volid string) (string, error) {
	id, name, ok := strings.Cut(volid, ":")
	st, err := s.findStorage(id)
	if err != nil {
		return "", err
	}
	if !ok || slices.Contains(strings.Split(name, "/"), "..") {
		return "", serverError("unable to parse volume ID '%s'", volid)
	}
	if strings.HasPrefix(name, "import/") {
		return filepath.Join(s.config.Dir, st.ID, name), nil
	}
	return filepath.Join(s.config.Dir, st.ID, "images", name), nil
}

// allocateVolume creates an empty volume with the first free name vm-VMID-disk-N. The storage must
// accept images, and the format must fit its type.
func (s *Server) allocateVolume(st Storage, vmid int, format string) (volid string, err error) {
	if !slices.Contains(st.Content, "images") {
		return "", serverError("storage '%s' does not support content-type 'images'", st.ID)
	}
	if !st.hasFiles() && format != "raw" {
		return "", serverError("unsupported format '%s'", format)
	}
	for n := range 100 { // the first free number
		name := fmt.Sprintf("vm-%d-disk-%d", vmid, n)
		if st.hasFiles() {
			name = fmt.Sprintf("%d/%s.%s", vmid, name, format)
		}
		path, err := s.volumePath(st.ID + ":" + name)
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err == nil {
			return st.ID + ":" + name, f.Close()
		}
	}
	return "", serverError("unable to allocate an image name for VM %d in storage '%s'", vmid, st.ID)
}

// checkSpace returns qemu-img's error if the storage has less than need bytes free.
func (s *Server) checkSpace(st Storage, need int64) error {
	if have := st.Size - s.usedBytes(st); need > have {
		return newRefusal(http.StatusInternalServerError, "qemu-img: error while writing: No space left on device")
	}
	return nil
}

// Volumes lists the files of all volumes of guests, including those that no guest refers to.
func (s *Server) Volumes() []string {
	var files []string
	for _, st := range s.config.Storages {
		_ = filepath.WalkDir(filepath.Join(s.config.Dir, st.ID, "images"), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				files = append(files, path)
			}
			return nil
		})
	}
	return files
}

// Read returns the content of the disk in the volume of a disk option. qcow2 volumes are converted by
// qemu-img.
func (s *Server) Read(ctx context.Context, option string) ([]byte, error) {
	path, err := s.volumePath(parseDrive(option).volume)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(path, ".qcow2") {
		return os.ReadFile(path)
	}
	raw := filepath.Join(s.config.Dir, "tmp", "read-"+filepath.Base(path))
	defer os.Remove(raw)
	if err := runTool(ctx, "qemu-img", "convert", "-O", "raw", path, raw); err != nil {
		return nil, err
	}
	return os.ReadFile(raw)
}

// Compare returns an error unless the volume of a disk option has the same content as an image,
// according to qemu-img compare.
func (s *Server) Compare(ctx context.Context, option, image, format string) error {
	path, err := s.volumePath(parseDrive(option).volume)
	if err != nil {
		return err
	}
	kind := "raw"
	if strings.HasSuffix(path, ".qcow2") {
		kind = "qcow2"
	}
	return runTool(ctx, "qemu-img", "compare", "-s", "-f", format, "-F", kind, image, path)
}
