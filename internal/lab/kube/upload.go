package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// issueUploadToken answers an UploadTokenRequest for an existing volume.
func (c *Cluster) issueUploadToken(w http.ResponseWriter, at address, in object) {
	name, _ := valueAt(in, "spec", "pvcName").(string)
	if c.objects["datavolumes/"+at.namespace+"/"+name] == nil {
		writeStatus(w, http.StatusInternalServerError, fmt.Sprintf("persistentvolumeclaims %q not found", name))
		return
	}
	c.serial++
	token := fmt.Sprintf("token-%d", c.serial)
	c.tokens[token] = at.namespace + "/" + name
	in["status"] = object{"token": token}
	writeJSON(w, http.StatusCreated, in)
}

// serveUploadProxy answers requests to CDI's upload proxy and the pods behind it.
func (c *Cluster) serveUploadProxy(w http.ResponseWriter, r *http.Request) {
	known := r.URL.Path == "/v1beta1/upload" || r.URL.Path == "/v1beta1/upload-async" && !c.config.NoAsync
	switch {
	case r.URL.Path == "/healthz":
		fmt.Fprint(w, "OK")
	case !known:
		http.Error(w, "404 page not found", http.StatusNotFound)
	default:
		c.receiveImage(w, r)
	}
}

// receiveImage receives one image. mu is not held during the transfer.
func (c *Cluster) receiveImage(w http.ResponseWriter, r *http.Request) {
	k, code, text := c.checkUpload(r)
	if k == nil || r.Method == http.MethodHead {
		http.Error(w, text, code)
		return
	}
	image, err := c.readImage(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		k.restarts++
		http.Error(w, "Saving stream failed: "+err.Error(), http.StatusInternalServerError)
	case int64(len(image)) > requestedBytes(k.object)-c.config.Small:
		http.Error(w, "Saving stream failed: effective image size is larger than the reported available storage", http.StatusBadRequest)
	case c.config.Lose > 0:
		c.config.Lose--
		k.restarts++
	default:
		k.image, k.taken, k.done = image, true, strings.HasSuffix(r.URL.Path, "/upload")
		k.looks = 1 // the upload is processed for a while
	}
}

// checkUpload returns the volume of an upload, or nil with the status and text of the response. For
// HEAD it checks only the token.
func (c *Cluster) checkUpload(r *http.Request) (*storedObject, int, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ") // empty without the header
	k := c.objects["datavolumes/"+c.tokens[token]]
	switch {
	case token == "": // CDI requires a token
		return nil, http.StatusBadRequest, ""
	case k == nil: // unknown or expired token
		return nil, http.StatusUnauthorized, ""
	case r.Method == http.MethodHead: // checks whether the proxy is ready
		return k, http.StatusOK, ""
	case r.Method != http.MethodPost:
		return nil, http.StatusNotFound, ""
	case c.config.TooOld > 0:
		c.config.TooOld--
		return nil, http.StatusUnauthorized, ""
	case k.looks < 3 && !k.taken: // the volume is not in UploadReady
		return nil, http.StatusServiceUnavailable, "the volume is not ready"
	case k.refused < c.config.NotReady:
		k.refused++
		return nil, http.StatusServiceUnavailable, "upload pod is not ready"
	case k.done: // a second upload
		return nil, http.StatusConflict, ""
	case k.taken: // the first upload is being processed
		return nil, http.StatusServiceUnavailable, ""
	}
	return k, http.StatusOK, ""
}

// readImage reads the whole image. With Config.Cut it breaks the connection after one MiB.
func (c *Cluster) readImage(r *http.Request) ([]byte, error) {
	c.mu.Lock()
	cut := c.config.Cut > 0
	if cut {
		c.config.Cut--
	}
	c.mu.Unlock()
	if r.ContentLength < 0 {
		return nil, errors.New("the length is missing")
	}
	if cut {
		_, _ = io.CopyN(io.Discard, r.Body, 1<<20) // discarded
		panic(http.ErrAbortHandler)
	}
	return io.ReadAll(r.Body)
}

// requestedBytes returns the requested capacity of a volume in bytes; 0 if it cannot be parsed.
func requestedBytes(o object) int64 {
	text, _ := valueAt(o, "spec", "storage", "resources", "requests", "storage").(string)
	unit := int64(1)
	for i, suffix := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = number, 1<<(10*(i+1))
		}
	}
	n, _ := strconv.ParseInt(text, 10, 64) // text without a number counts as 0
	return n * unit
}
