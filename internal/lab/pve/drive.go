package pve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A drive is the parsed value of a disk option: a volume, then comma-separated name=value pairs.
type drive struct {
	volume string            // volume name, STORAGE:GIB for a new volume, or "none" for an empty CD-ROM drive
	words  map[string]string // values of the pairs by name
	order  []string          // names of the pairs in the order of the option
}

// parseDrive parses the value of a disk option. It never fails: checkDrives rejects values that Proxmox
// would reject.
func parseDrive(value string) drive {
	d := drive{words: map[string]string{}}
	for i, word := range strings.Split(value, ",") {
		name, v, ok := strings.Cut(word, "=")
		if i == 0 && !ok { // the volume without file=
			d.volume = word
			continue
		}
		if name == "file" { // the long form: file=VOLUME
			d.volume = v
			continue
		}
		d.words[name] = v
		d.order = append(d.order, name)
	}
	return d
}

// configValue returns the value for the configuration file: the volume's final name, the pairs without
// import-from and format, and the size.
func (d drive) configValue(volid, size string) string {
	words := []string{volid}
	for _, name := range d.order {
		if name != "import-from" && name != "format" {
			words = append(words, name+"="+d.words[name])
		}
	}
	return strings.Join(append(words, "size="+size), ",")
}

var (
	driveKey = regexp.MustCompile(`^(scsi|sata|ide)\d+$|^efidisk0$|^tpmstate0$`) // options whose value is a drive
	// name of an existing volume; the group is the VMID of its owner
	oldDisk = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9\-_.]*:(?:\d+/)?vm-(\d+)-[A-Za-z0-9._-]+$`)
	// request for a new volume: storage and size in GiB
	newDisk = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9\-_.]*):(\d+(?:\.\d+)?)$`)
)

// checkDrives checks the drives of a request before a task starts. It returns a refusal if the caller
// lacks a privilege, or if an existing or imported volume is missing.
func (c *call) checkDrives(form url.Values) error {
	for name := range form {
		d := parseDrive(form.Get(name))
		if !driveKey.MatchString(name) || d.volume == "none" {
			continue
		}
		m := newDisk.FindStringSubmatch(d.volume)
		if m == nil && oldDisk.MatchString(d.volume) {
			if err := c.checkOwner(form.Get("vmid"), d.volume); err != nil {
				return err
			}
			continue
		}
		if m == nil {
			return refuseParameter(name, "invalid format - unable to parse volume ID '%s'", d.volume)
		}
		if err := c.token.requireAll("/storage/"+m[1], "Datastore.AllocateSpace"); err != nil {
			return err
		}
		from := d.words["import-from"]
		if from == "" { // no image to import
			continue
		}
		if strings.HasPrefix(from, "/") { // a path on the node
			return newRefusal(http.StatusForbidden, "Only root can pass arbitrary filesystem paths.")
		}
		source, _, _ := strings.Cut(from, ":") // storage of the image
		if err := c.token.requireAny("/storage/"+source, "Datastore.Audit", "Datastore.AllocateSpace"); err != nil {
			return err
		}
		path, err := c.volumePath(from)
		if err != nil {
			return err
		}
		if _, err := os.Stat(path); err != nil {
			return serverError("volume '%s' does not exist", from)
		}
	}
	return nil
}

// checkOwner returns an error if the volume is missing or its name contains the VMID of another guest.
// An empty vmid stands for the guest in the path.
func (c *call) checkOwner(vmid, volid string) error {
	if vmid == "" {
		vmid = c.args[0]
	}
	if owner := oldDisk.FindStringSubmatch(volid)[1]; owner != vmid {
		return newRefusal(http.StatusForbidden, "Permission check failed")
	}
	path, err := c.volumePath(volid)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return serverError("volume %s does not exist", volid)
	}
	return nil
}

// makeDrive creates the volume that a disk option requests and returns the value for the configuration.
// A volume that exists is used as it is; an empty CD-ROM drive needs none.
func (s *Server) makeDrive(ctx context.Context, t *task, vmid int, name, value string) (string, error) {
	d := parseDrive(value)
	m := newDisk.FindStringSubmatch(d.volume)
	if m == nil && oldDisk.MatchString(d.volume) {
		path, err := s.volumePath(d.volume)
		if err != nil {
			return "", err
		}
		info, err := os.Stat(path)
		if err != nil {
			return "", serverError("volume %s does not exist", d.volume)
		}
		return d.configValue(d.volume, fmt.Sprintf("%dK", info.Size()>>10)), nil
	}
	if m == nil {
		return value, nil // an empty CD-ROM
	}
	st, err := s.findStorage(m[1])
	if err != nil {
		return "", err
	}
	format := cmp.Or(d.words["format"], st.Format, "raw")
	if name == "tpmstate0" { // Proxmox ignores the requested format
		format = "raw"
	}
	volid, err := s.allocateVolume(st, vmid, format)
	if err != nil {
		return "", err
	}
	path, _ := s.volumePath(volid) // allocateVolume created it
	size, err := s.fillVolume(ctx, t, st, name, d, path, format)
	if err != nil {
		os.Remove(path)
		return "", err
	}
	return d.configValue(volid, size), nil
}

// fillVolume writes the content of a new volume: a variable store, a TPM state of 4 MiB, an imported
// image, or zeros. It returns the size for the option.
func (s *Server) fillVolume(ctx context.Context, t *task, st Storage, name string, d drive, path, format string) (size string, err error) {
	switch {
	case name == "efidisk0":
		return firmwareVariables(ctx, path, format, d.words["pre-enrolled-keys"] == "1", st.hasFiles())
	case name == "tpmstate0":
		return "4M", os.Truncate(path, 4<<20)
	case d.words["import-from"] != "":
		return s.importFrom(ctx, t, st, d.words["import-from"], path, format)
	}
	_, gib, _ := strings.Cut(d.volume, ":") // newDisk matched: STORAGE:GIB
	return gib + "G", runTool(ctx, "qemu-img", "create", "-q", "-f", format, path, gib+"G")
}

// importFrom converts an uploaded image into the volume at path. Uploads are untrusted: an image with a
// backing file could read any file of the node.
func (s *Server) importFrom(ctx context.Context, t *task, st Storage, from, path, format string) (string, error) {
	source, err := s.volumePath(from)
	if err != nil {
		return "", err
	}
	kind := strings.TrimPrefix(filepath.Ext(source), ".")
	size, err := checkUntrusted(ctx, source, kind) // before qemu-img convert reads it
	if err != nil {
		return "", err
	}
	if err := s.checkSpace(st, allocatedBytes(source)); err != nil {
		return "", err
	}
	t.logf("importing disk '%s' to storage '%s'", from, st.ID)
	if err := runTool(ctx, "qemu-img", "convert", "-f", kind, "-O", format, source, path); err != nil {
		return "", err
	}
	t.logf("transferred %d B of %d B (100.00%%)", size, size)
	return fmt.Sprintf("%dK", size>>10), nil
}

// checkUntrusted returns the virtual size of the image at path in bytes. It fails if the image is not of the
// declared format, or has a backing file. A raw image is any file.
func checkUntrusted(ctx context.Context, path, format string) (size int64, err error) {
	if format == "raw" {
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		return info.Size(), nil
	}
	info, err := imageInfo(ctx, path, format)
	if err != nil {
		return 0, err
	}
	if info.Backing != "" {
		return 0, fmt.Errorf("'%s' is not allowed to have a backing file", filepath.Base(path))
	}
	return info.Size, nil
}

// An image is the part of qemu-img's JSON output that the node reads.
type image struct {
	Size    int64  `json:"virtual-size"`     // virtual size in bytes
	Backing string `json:"backing-filename"` // backing file; empty if the image has none
}

// imageInfo runs qemu-img info. Its error is the output of qemu-img.
func imageInfo(ctx context.Context, path, format string) (image, error) {
	out, err := exec.CommandContext(ctx, "qemu-img", "info", "--output=json", "-f", format, path).CombinedOutput()
	if err != nil {
		return image{}, fmt.Errorf("%s", strings.TrimSpace(string(out)))
	}
	var info image
	return info, json.Unmarshal(out, &info)
}

// runTool runs a program. The error contains the program's output after the exit status.
func runTool(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}

// removeVolumeOf removes the volume of a disk option or of an unused entry. Other options and missing
// volumes are ignored.
func (s *Server) removeVolumeOf(key, value string) {
	if !driveKey.MatchString(key) && !strings.HasPrefix(key, "unused") {
		return
	}
	if path, err := s.volumePath(parseDrive(value).volume); err == nil {
		os.Remove(path)
	}
}

// sortedNames returns the names in ascending order, which is the order in which volumes are created.
func sortedNames(names []string) []string { return slices.Sorted(slices.Values(names)) }
