package openstack

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A volume is a Cinder volume. Cloud.mu guards its fields.
type volume struct {
	id, name, status string            // identifier, name, and status as the API reports it
	size             int               // GiB
	zone, kind       string            // availability zone and volume type of the request; empty if none
	description      string            // description of the request
	bootable         bool              // whether a server can boot from it
	metadata         map[string]string // metadata of the client
	imageMetadata    map[string]string // properties of the image, and those set by os-set_image_metadata
	image            *image            // source image; nil for an empty volume
	data             []byte            // content; nil until the image is downloaded, and for an empty volume
	created          time.Time         // creation time in the API, not the real time
	hiddenLists      int               // number of lists that still omit the volume
	server           string            // server that it is attached to; empty if none
	bad              bool              // whether the creation ends in status error
}

// apiObject returns the volume as the API returns it.
func (v *volume) apiObject() object {
	attachments := []object{}
	if v.server != "" {
		attachments = append(attachments, object{"server_id": v.server, "volume_id": v.id, "device": "/dev/vda"})
	}
	return object{
		"id": v.id, "name": v.name, "status": v.status, "size": v.size, "availability_zone": v.zone, "volume_type": v.kind,
		"bootable": fmt.Sprint(v.bootable), "metadata": v.metadata, "volume_image_metadata": v.imageMetadata, "attachments": attachments,
		"description": v.description, "created_at": v.created.UTC().Format("2006-01-02T15:04:05.000000"),
	}
}

// advanceState moves a volume to its next status: a request is the unit of time. It returns false if
// the volume has been deleted.
func (v *volume) advanceState() bool {
	switch v.status {
	case "creating": // a volume without an image skips the download
		v.status = "downloading"
		if v.image == nil {
			v.status = "available"
		}
		if v.bad {
			v.status = "error"
		}
	case "downloading": // content of the image
		v.status = "available"
		v.data = v.image.disk
	case "deleting":
		v.status = "deleted"
	case "deleted":
		return false
	}
	return true
}

// volumeAPI is the block storage API of Cinder, version 3.
type volumeAPI struct{ *Cloud }

// serve answers a request. path begins after the project. Cloud.mu must be held.
func (c volumeAPI) serve(w http.ResponseWriter, r *http.Request, path []string) {
	switch {
	case path[0] == "limits": // GET limits: quota and use
		used := 0
		for _, v := range c.volumes {
			used += v.size
		}
		writeJSON(w, http.StatusOK, object{"limits": object{"rate": []object{}, "absolute": object{
			"maxTotalVolumes": c.config.Volumes, "totalVolumesUsed": len(c.volumes),
			"maxTotalVolumeGigabytes": c.config.Gigabytes, "totalGigabytesUsed": used,
		}}})
	case path[0] == "types": // GET types
		writeJSON(w, http.StatusOK, object{"volume_types": []object{{"id": "t1", "name": "fast"}, {"id": "t2", "name": "slow"}}})
	case path[0] == "os-availability-zone": // GET os-availability-zone
		writeJSON(w, http.StatusOK, object{"availabilityZoneInfo": []object{{"zoneName": "nova", "zoneState": object{"available": true}}}})
	case len(path) == 1 && r.Method == http.MethodPost: // POST volumes
		c.createVolume(w, r)
	case len(path) == 2 && path[1] == "detail": // GET volumes/detail
		c.listVolumes(w, r)
	default:
		c.serveVolume(w, r, path)
	}
}

// createVolume creates a volume, from an image if one is named. It answers 400 for invalid input, and
// 413 with Retry-After if a quota is exceeded, as Cinder does.
func (c volumeAPI) createVolume(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Volume struct {
			Size              int
			Name, Description string
			ImageRef          string            `json:"imageRef"`
			Type              string            `json:"volume_type"`
			Zone              string            `json:"availability_zone"`
			Metadata          map[string]string `json:"metadata"`
		}
	}
	if !decodeBody(w, r, &asked) {
		return
	}
	o := asked.Volume
	img := c.images[o.ImageRef]
	used := 0
	for _, v := range c.volumes {
		used += v.size
	}
	switch {
	case o.Size < 1 || len([]rune(o.Name)) > 255 || len([]rune(o.Description)) > 255 || invalidMetadata(o.Metadata):
		writeError(w, http.StatusBadRequest, "badRequest", "Invalid input received")
	case o.ImageRef != "" && (img == nil || img.fields["status"] != "active"):
		writeError(w, http.StatusBadRequest, "badRequest", "Invalid image identifier or unable to access requested image.")
	case img != nil && o.Size<<30 < len(img.disk): // Size is in GiB
		writeError(w, http.StatusBadRequest, "badRequest", "Volume size cannot be smaller than the image")
	case c.config.Gigabytes >= 0 && used+o.Size > c.config.Gigabytes:
		w.Header().Set("Retry-After", "0")
		writeError(w, http.StatusRequestEntityTooLarge, "overLimit", "VolumeSizeExceedsAvailableQuota: Requested volume exceeds allowed gigabytes quota.")
	case len(c.volumes) >= c.config.Volumes:
		w.Header().Set("Retry-After", "0")
		writeError(w, http.StatusRequestEntityTooLarge, "overLimit", "VolumeLimitExceeded: Maximum number of volumes allowed exceeded for quota 'volumes'.")
	default:
		v := &volume{
			id: c.newID(), name: o.Name, description: o.Description, status: "creating", size: o.Size, zone: o.Zone, kind: o.Type, metadata: o.Metadata, image: img,
			created: time.Unix(1700000000+int64(c.serial), 0), hiddenLists: c.config.Late, bad: consumeFault(&c.config.BadVolumes),
		}
		if img != nil {
			v.bootable = !c.config.Forgetful // Cinder marks volumes of images as bootable
			v.imageMetadata = c.inheritedProperties(img)
		}
		c.volumes[v.id] = v
		writeJSON(w, http.StatusAccepted, object{"volume": v.apiObject()})
	}
}

// inheritedProperties returns the properties that Cinder copies from an image to its volume; it is
// empty with Config.Forgetful.
func (c volumeAPI) inheritedProperties(i *image) map[string]string {
	all := map[string]string{}
	for key, value := range i.fields {
		if s, ok := value.(string); ok && !c.config.Forgetful {
			all[key] = s
		}
	}
	return all
}

// metadataKey matches the keys that Nova and Cinder accept (api/validation/parameter_types).
var metadataKey = regexp.MustCompile(`^[a-zA-Z0-9\-_:. ]{1,255}$`)

// invalidMetadata reports whether a key has invalid characters, or a key or value is longer than 255
// characters.
func invalidMetadata(metadata map[string]string) bool {
	for key, value := range metadata {
		if !metadataKey.MatchString(key) || len([]rune(value)) > 255 {
			return true
		}
	}
	return false
}

// listVolumes lists the volumes that match the filters, and advances all of them. New volumes are
// omitted as often as Config.Late requires.
func (c volumeAPI) listVolumes(w http.ResponseWriter, r *http.Request) {
	all := []object{}
	for _, id := range slices.Sorted(maps.Keys(c.volumes)) {
		v := c.volumes[id]
		if v.hiddenLists > 0 { // Config.Late
			v.hiddenLists--
			continue
		}
		if !v.advanceState() {
			delete(c.volumes, id)
			continue
		}
		if v.status == "deleted" || !matchesFilters(v, r) {
			continue
		}
		all = append(all, v.apiObject())
	}
	writeJSON(w, http.StatusOK, object{"volumes": all})
}

// matchesFilters applies the filters name and metadata. As in Cinder, the value of metadata is a Python
// dictionary.
func matchesFilters(v *volume, r *http.Request) bool {
	q := r.URL.Query()
	if name := q.Get("name"); name != "" && name != v.name {
		return false
	}
	var wanted map[string]string
	_ = json.Unmarshal([]byte(strings.ReplaceAll(q.Get("metadata"), "'", `"`)), &wanted)
	for key, value := range wanted {
		if v.metadata[key] != value {
			return false
		}
	}
	return true
}

// serveVolume answers GET, PUT, DELETE and actions of one volume. A volume in use cannot be deleted.
func (c volumeAPI) serveVolume(w http.ResponseWriter, r *http.Request, path []string) {
	v := c.volumes[path[1]]
	if v == nil || !v.advanceState() || v.status == "deleted" {
		writeError(w, http.StatusNotFound, "itemNotFound", notFoundText("Volume", path[1]))
		return
	}
	switch {
	case len(path) == 3: // POST volumes/ID/action
		c.serveAction(w, r, v)
	case r.Method == http.MethodGet:
		writeJSON(w, http.StatusOK, object{"volume": v.apiObject()})
	case r.Method == http.MethodPut:
		var asked struct {
			Volume struct{ Metadata map[string]string }
		}
		if !decodeBody(w, r, &asked) {
			return
		}
		if invalidMetadata(asked.Volume.Metadata) {
			writeError(w, http.StatusBadRequest, "badRequest", "Invalid input for field/attribute metadata.")
		} else {
			v.metadata = asked.Volume.Metadata
			writeJSON(w, http.StatusOK, object{"volume": v.apiObject()})
		}
	case r.Method == http.MethodDelete:
		if v.server != "" || !slices.Contains([]string{"available", "error"}, v.status) {
			writeError(w, http.StatusBadRequest, "badRequest", "Invalid volume: Volume status must be available or error or error_restoring or error_extending or error_managing and must not be migrating, attached, belong to a group, have snapshots or be disassociated from snapshots after volume transfer.")
			return
		}
		v.status = "deleting" // the next request shows the deletion
		w.WriteHeader(http.StatusAccepted)
	}
}

// serveAction handles os-set_bootable and os-set_image_metadata.
func (c volumeAPI) serveAction(w http.ResponseWriter, r *http.Request, v *volume) {
	var asked struct {
		Bootable *struct{ Bootable bool }              `json:"os-set_bootable"`
		Metadata *struct{ Metadata map[string]string } `json:"os-set_image_metadata"`
	}
	if !decodeBody(w, r, &asked) {
		return
	}
	if asked.Bootable != nil {
		v.bootable = asked.Bootable.Bootable
		w.WriteHeader(http.StatusOK)
		return
	}
	if v.imageMetadata == nil {
		v.imageMetadata = map[string]string{}
	}
	maps.Copy(v.imageMetadata, asked.Metadata.Metadata)
	writeJSON(w, http.StatusOK, object{"metadata": v.imageMetadata})
}

// Volume is a copy of a volume, for assertions of tests.
type Volume struct {
	Description             string            // description of the request
	ID, Name, Status        string            // identifier, name and API status
	Size                    int               // GiB
	Type, Zone              string            // volume type and availability zone; empty if the request had none
	Bootable                bool              // whether a server can boot from it
	Metadata, ImageMetadata map[string]string // metadata of the client and properties of the image
	Data                    []byte            // written data; zeros follow
	Server                  string            // server that it is attached to; empty if none
}

// Volumes returns the volumes that are not deleted, oldest first.
func (c *Cloud) Volumes() []Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Volume
	for _, id := range slices.Sorted(maps.Keys(c.volumes)) {
		v := c.volumes[id]
		if v.status == "deleted" {
			continue
		}
		all = append(all, Volume{
			ID: id, Name: v.name, Status: v.status, Size: v.size, Type: v.kind, Zone: v.zone, Bootable: v.bootable,
			Description: v.description, Metadata: maps.Clone(v.metadata), ImageMetadata: maps.Clone(v.imageMetadata), Data: v.data, Server: v.server,
		})
	}
	return all
}

// AddVolume creates an available volume of 1 GiB as another user and returns its ID.
func (c *Cloud) AddVolume(name string, metadata map[string]string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &volume{id: c.newID(), name: name, status: "available", size: 1, metadata: metadata, created: time.Unix(1600000000, 0)}
	c.volumes[v.id] = v
	return v.id
}

// Attach attaches a volume to a server as another user. An empty server detaches it.
func (c *Cloud) Attach(id, server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.volumes[id]
	v.server, v.status = server, "in-use"
	if server == "" {
		v.status = "available"
	}
}
