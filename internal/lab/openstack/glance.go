package openstack

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"slices"
	"sort"
)

// An image is a Glance image. Cloud.mu guards its fields.
type image struct {
	fields object // properties as the API returns them; set by the client and by the upload
	sent   []byte // uploaded bytes; nil before the upload
	disk   []byte // content of the disk: sent itself, or decoded from qcow2
}

// id returns the identifier of the image.
func (i *image) id() string { return i.fields["id"].(string) }

// writeHTMLError writes an error as Glance does: a page of HTML, unlike the other services.
func writeHTMLError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<html><head><title>"+http.StatusText(status)+"</title></head><body><h1>"+http.StatusText(status)+"</h1>"+message+"<br/></body></html>")
}

// imageAPI is the image API of Glance, version 2.
type imageAPI struct{ *Cloud }

// serve answers a request. path begins with "images". Cloud.mu must be held.
func (c imageAPI) serve(w http.ResponseWriter, r *http.Request, path []string) {
	switch {
	case len(path) == 1 && r.Method == http.MethodPost: // POST images
		c.createImage(w, r)
	case len(path) == 1: // GET images
		c.listImages(w, r)
	default:
		i := c.images[path[1]]
		switch {
		case i == nil || i.fields["status"] == "deleted":
			writeHTMLError(w, http.StatusNotFound, "No image found with ID "+path[1])
		case len(path) == 3 && r.Method == http.MethodPut: // PUT images/ID/file
			c.uploadImage(w, r, i)
		case r.Method == http.MethodGet:
			writeJSON(w, http.StatusOK, i.fields)
		case r.Method == http.MethodPatch:
			patchImage(w, r, i)
		case r.Method == http.MethodDelete:
			c.deleteImage(w, i)
		}
	}
}

// createImage creates an image in status queued. The client may choose the ID; an ID stays reserved
// after its image is deleted.
func (c imageAPI) createImage(w http.ResponseWriter, r *http.Request) {
	var fields object
	if !decodeBody(w, r, &fields) {
		return
	}
	id, _ := fields["id"].(string)
	if id == "" {
		id = c.newID()
	}
	if c.images[id] != nil { // also one that was deleted: its row stays
		writeHTMLError(w, http.StatusConflict, "Image ID "+id+" already exists!")
		return
	}
	if len(fields) > maxMetadata {
		writeHTMLError(w, http.StatusRequestEntityTooLarge, "The limit has been exceeded on the number of allowed image properties.")
		return
	}
	for key, value := range fields {
		if s, ok := value.(string); ok && len([]rune(s)) > 255 {
			writeHTMLError(w, http.StatusBadRequest, "Property "+key+" is too long")
			return
		}
	}
	maps.Copy(fields, object{"id": id, "status": "queued", "owner": Project, "size": nil, "visibility": "private"})
	c.images[id] = &image{fields: fields}
	writeJSON(w, http.StatusCreated, fields)
}

// listImages lists the images that are not deleted, filtered by tag.
func (c imageAPI) listImages(w http.ResponseWriter, r *http.Request) {
	all := []object{}
	for _, id := range slices.Sorted(maps.Keys(c.images)) {
		i := c.images[id]
		tags, _ := i.fields["tags"].([]any)
		wanted := r.URL.Query().Get("tag")
		if i.fields["status"] == "deleted" || wanted != "" && !slices.Contains(tags, any(wanted)) {
			continue
		}
		all = append(all, i.fields)
	}
	writeJSON(w, http.StatusOK, object{"images": all})
}

// uploadImage reads the body without Cloud.mu, because a slow client would block all requests.
// EndUploads and CutUploads end the upload after 64 KiB.
func (c imageAPI) uploadImage(w http.ResponseWriter, r *http.Request, i *image) {
	if i.fields["status"] != "queued" {
		writeHTMLError(w, http.StatusConflict, "Image status transition from "+i.fields["status"].(string)+" to saving is not allowed")
		return
	}
	i.fields["status"] = "saving"
	end, cut := consumeFault(&c.config.EndUploads), consumeFault(&c.config.CutUploads)
	c.mu.Unlock()
	var body io.Reader = r.Body
	if end || cut { // the upload ends early
		body = io.LimitReader(r.Body, 64<<10)
	}
	sent, err := io.ReadAll(body)
	c.mu.Lock()
	switch {
	case cut:
		i.fields["status"] = "queued"
		panic(http.ErrAbortHandler) // breaks the connection
	case end:
		i.fields["status"] = "queued"
		c.keystoneError(w, http.StatusUnauthorized, "The request you have made requires authentication.")
		clear(c.tokens) // the client must log in again
		return
	case err != nil:
		i.fields["status"] = "queued"
		return
	}
	if consumeFault(&c.config.Damage) && len(sent) > 0 {
		sent[len(sent)/2] ^= 1 // Config.Damage
	}
	c.storeImage(w, i, sent)
}

// storeImage checks the format, stores the content and computes the hash. As in Glance, a body of
// another format is an error 415.
func (c imageAPI) storeImage(w http.ResponseWriter, i *image, sent []byte) {
	disk := sent
	if i.fields["disk_format"] == "qcow2" {
		var err error
		if disk, err = decodeQCOW2(sent); err != nil {
			i.fields["status"] = "queued"
			writeHTMLError(w, http.StatusUnsupportedMediaType, "Image format is not qcow2: "+err.Error())
			return
		}
	} else if bytes.HasPrefix(sent, []byte("QFI\xfb")) {
		writeHTMLError(w, http.StatusUnsupportedMediaType, "Image format is qcow2, and not raw")
		return
	}
	i.sent, i.disk = sent, disk
	var value string
	if c.config.Hash == "sha256" {
		sum := sha256.Sum256(sent)
		value = hex.EncodeToString(sum[:])
	} else {
		sum := sha512.Sum512(sent)
		value = hex.EncodeToString(sum[:])
	}
	maps.Copy(i.fields, object{"status": "active", "size": len(sent), "virtual_size": len(disk), "os_hash_algo": c.config.Hash, "os_hash_value": value})
	w.WriteHeader(http.StatusNoContent)
}

// consumeFault reports whether a counted fault occurs now, and decrements its counter.
func consumeFault(n *int) bool {
	if *n <= 0 {
		return false
	}
	*n--
	return true
}

// patchImage adds or replaces properties. Adding an existing one is an error 409.
func patchImage(w http.ResponseWriter, r *http.Request, i *image) {
	var changes []struct{ Op, Path, Value string }
	if !decodeBody(w, r, &changes) {
		return
	}
	for _, change := range changes {
		key := change.Path[1:] // JSON pointer with one element
		if _, there := i.fields[key]; there && change.Op == "add" {
			writeHTMLError(w, http.StatusConflict, "Property "+key+" already present.")
			return
		}
		i.fields[key] = change.Value
	}
	writeJSON(w, http.StatusOK, i.fields)
}

// deleteImage deletes an image, unless a volume is created from it. With Config.Clones, each volume of
// the image prevents the deletion.
func (c imageAPI) deleteImage(w http.ResponseWriter, i *image) {
	for _, v := range c.volumes {
		if v.image == i && v.status != "deleted" && (c.config.Clones || v.status == "creating" || v.status == "downloading") {
			writeHTMLError(w, http.StatusConflict, "Image "+i.id()+" could not be deleted because it is in use")
			return
		}
	}
	i.fields["status"], i.sent, i.disk = "deleted", nil, nil
	w.WriteHeader(http.StatusNoContent)
}

// Image is a copy of an image, for assertions of tests.
type Image struct {
	ID, Name, Status string         // identifier, name and API status
	Fields           map[string]any // all properties as the API returns them
	Data             []byte         // content of the disk in the image
}

// Images returns the images that are not deleted, sorted by name and ID.
func (c *Cloud) Images() []Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Image
	for id, i := range c.images {
		if i.fields["status"] != "deleted" {
			name, _ := i.fields["name"].(string)
			all = append(all, Image{ID: id, Name: name, Status: i.fields["status"].(string), Fields: maps.Clone(i.fields), Data: i.disk})
		}
	}
	sort.Slice(all, func(a, b int) bool { return all[a].Name+all[a].ID < all[b].Name+all[b].ID })
	return all
}
