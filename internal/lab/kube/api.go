package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
)

// serveAPI answers all requests to the API server. It checks the token before the path, and
// Config.Denied before the object.
func (c *Cluster) serveAPI(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		return // the client is gone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+c.config.Password {
		writeStatus(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	var in object
	if len(body) > 0 && json.Unmarshal(body, &in) != nil {
		writeStatus(w, http.StatusBadRequest, "the body is no JSON")
		return
	}
	at := parsePath(r.URL.Path)
	switch {
	case at.plural == "": // discovery of an API group
		c.serveDiscovery(w, at)
	case at.plural == "selfsubjectaccessreviews": // always permitted
		c.serveAccessReview(w, in)
	case c.config.Denied[requestVerb(r, at)+" "+at.plural]:
		writeStatus(w, http.StatusForbidden, fmt.Sprintf("%s is forbidden", at.plural))
	case c.config.OwnNetworks && at.plural == "network-attachment-definitions" && at.namespace == "":
		writeStatus(w, http.StatusForbidden, fmt.Sprintf("%s is forbidden", at.plural))
	case at.plural == "uploadtokenrequests":
		c.issueUploadToken(w, at, in)
	case at.plural == "cdiconfigs", at.plural == "namespaces", at.plural == "storageclasses":
		c.serveFixed(w, at)
	case at.plural != "virtualmachines" && at.plural != "datavolumes" && (at.plural != "network-attachment-definitions" || c.config.NoMultus):
		writeStatus(w, http.StatusNotFound, "the server could not find the requested resource")
	case r.Method == http.MethodPost:
		c.createObject(w, r, at, in)
	case r.Method == http.MethodDelete:
		c.deleteObject(w, at, in)
	case r.Method == http.MethodPatch:
		c.patchObject(w, r, at, in)
	case r.Method == http.MethodGet && at.name == "":
		c.listObjects(w, r, at)
	case r.Method == http.MethodGet:
		c.readObject(w, at)
	default:
		writeStatus(w, http.StatusMethodNotAllowed, "the emulator does not support the method")
	}
}

// An address is a path of the API, split into its parts.
type address struct{ group, namespace, plural, name string }

// key returns the key of the object in Cluster.objects.
func (a address) key() string { return a.plural + "/" + a.namespace + "/" + a.name }

// parsePath splits a path of the API: /apis/GROUP/VERSION or /api/VERSION, then an optional namespace,
// a resource and a name.
func parsePath(path string) (a address) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "apis" && len(parts) >= 3 { // a named group; otherwise the core group /api/v1
		a.group, parts = parts[1], parts[3:]
	} else if len(parts) >= 2 {
		parts = parts[2:]
	}
	if len(parts) >= 3 && parts[0] == "namespaces" {
		a.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 0 {
		a.plural = parts[0]
	}
	if len(parts) > 1 {
		a.name = parts[1]
	}
	return a
}

// requestVerb returns the verb of a request as access reviews name it.
func requestVerb(r *http.Request, at address) string {
	switch {
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodDelete:
		return "delete"
	case r.Method == http.MethodPatch:
		return "patch"
	case at.name == "":
		return "list"
	}
	return "get"
}

// serveDiscovery answers discovery of an API group. A group that is not installed is an error 404.
func (c *Cluster) serveDiscovery(w http.ResponseWriter, at address) {
	if at.group == "kubevirt.io" && !c.config.NoKubeVirt || at.group == "cdi.kubevirt.io" && !c.config.NoCDI {
		writeJSON(w, http.StatusOK, object{"kind": "APIResourceList"})
		return
	}
	writeStatus(w, http.StatusNotFound, "the server could not find the requested resource")
}

// serveAccessReview answers a SelfSubjectAccessReview by Config.Denied.
func (c *Cluster) serveAccessReview(w http.ResponseWriter, in object) {
	about, _ := valueAt(in, "spec", "resourceAttributes").(object)
	what := fmt.Sprintf("%v %v", about["verb"], about["resource"])
	in["status"] = object{"allowed": !c.config.Denied[what]}
	writeJSON(w, http.StatusCreated, in)
}

// serveFixed answers requests for objects of the cluster itself: CDI's configuration, the namespace
// vms, and storage classes.
func (c *Cluster) serveFixed(w http.ResponseWriter, at address) {
	named := func(names ...string) object {
		items := []object{}
		for _, name := range names {
			items = append(items, object{"metadata": object{"name": name}})
		}
		return object{"items": items}
	}
	switch {
	case at.plural == "namespaces" && at.name == "":
		writeJSON(w, http.StatusOK, named("vms"))
	case at.plural == "storageclasses" && at.name == "":
		writeJSON(w, http.StatusOK, named(c.config.Classes...))
	case at.plural == "cdiconfigs" && at.name == "config":
		status := object{"uploadProxyCA": string(c.ca)}
		if !c.config.NoProxyURL {
			status["uploadProxyURL"] = strings.TrimPrefix(c.proxy.URL, "https://") // form of CDI
		}
		writeJSON(w, http.StatusOK, object{"status": status})
	case at.plural == "namespaces" && at.name == "vms":
		writeJSON(w, http.StatusOK, object{})
	case at.plural == "storageclasses" && strings.Contains(" "+strings.Join(c.config.Classes, " ")+" ", " "+at.name+" "):
		writeJSON(w, http.StatusOK, object{})
	default:
		writeStatus(w, http.StatusNotFound, fmt.Sprintf("%s %q not found", at.plural, at.name))
	}
}

// subdomain matches valid object names (RFC 1123 subdomains).
var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// createObject creates an object. It requires strict field validation, and checks name, existence and
// admission in the order of the real server. A dry run stores nothing.
func (c *Cluster) createObject(w http.ResponseWriter, r *http.Request, at address, in object) {
	at.name, _ = valueAt(in, "metadata", "name").(string)
	refusal := ""
	if c.config.Refuse != nil {
		refusal = c.config.Refuse(in)
	}
	switch {
	case r.URL.Query().Get("fieldValidation") != "Strict":
		writeStatus(w, http.StatusBadRequest, "the emulator requires fieldValidation=Strict")
	case !subdomain.MatchString(at.name):
		writeStatus(w, http.StatusUnprocessableEntity, fmt.Sprintf("metadata.name: Invalid value: %q: a lowercase RFC 1123 subdomain must consist of …", at.name))
	case c.objects[at.key()] != nil:
		writeStatus(w, http.StatusConflict, fmt.Sprintf("%s %q already exists", at.plural, at.name))
	case refusal != "":
		writeStatus(w, http.StatusUnprocessableEntity, "admission webhook denied the request: "+refusal)
	case r.URL.Query().Get("dryRun") != "": // nothing is stored
		writeJSON(w, http.StatusCreated, in)
	default:
		writeJSON(w, http.StatusCreated, c.addObject(at.plural, at.namespace, at.name, in).object)
	}
}

// addObject stores an object with a new UID and resource version. mu must be held.
func (c *Cluster) addObject(plural, namespace, name string, o object) *storedObject {
	c.serial++
	metadata, _ := o["metadata"].(object)
	if metadata == nil {
		metadata = object{}
	}
	metadata["name"], metadata["namespace"], metadata["uid"] = name, namespace, fmt.Sprintf("uid-%d", c.serial)
	metadata["resourceVersion"] = fmt.Sprint(c.serial)
	o["metadata"] = metadata
	k := &storedObject{object: o}
	c.objects[address{plural: plural, namespace: namespace, name: name}.key()] = k
	return k
}

// deleteObject begins to delete an object if the preconditions match. The object disappears at the
// second request after that, as its dependents are deleted first.
func (c *Cluster) deleteObject(w http.ResponseWriter, at address, in object) {
	k := c.objects[at.key()]
	other := func(what string) bool {
		want := valueAt(in, "preconditions", what)
		return want != nil && want != valueAt(k.object, "metadata", what)
	}
	switch {
	case k == nil:
		writeStatus(w, http.StatusNotFound, fmt.Sprintf("%s %q not found", at.plural, at.name))
	case other("uid") || other("resourceVersion"):
		writeStatus(w, http.StatusConflict, "the precondition does not hold")
	default:
		if k.gone == 0 {
			k.gone = 2 // dependents are deleted first
		}
		writeJSON(w, http.StatusOK, k.object)
	}
}

// listObjects lists the objects of a resource in one namespace or in all, filtered by one label.
func (c *Cluster) listObjects(w http.ResponseWriter, r *http.Request, at address) {
	label, value, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "=")
	items := []object{}
	for key, k := range c.objects {
		if !strings.HasPrefix(key, at.plural+"/"+at.namespace+"/") && (at.namespace != "" || !strings.HasPrefix(key, at.plural+"/")) {
			continue
		}
		if have := valueAt(k.object, "metadata", "labels", label); label != "" && have != value { // an empty selector matches all
			continue
		}
		if c.advanceObject(key, k) {
			items = append(items, k.object)
		}
	}
	writeJSON(w, http.StatusOK, object{"items": items})
}

// readObject answers with one object.
func (c *Cluster) readObject(w http.ResponseWriter, at address) {
	k := c.objects[at.key()]
	if k == nil || !c.advanceObject(at.key(), k) {
		writeStatus(w, http.StatusNotFound, fmt.Sprintf("%s %q not found", at.plural, at.name))
		return
	}
	writeJSON(w, http.StatusOK, k.object)
}

// advanceObject moves an object to its next state: a request is the unit of time. It returns false if
// the object has been deleted.
func (c *Cluster) advanceObject(key string, k *storedObject) bool {
	if k.gone > 0 {
		if k.gone--; k.gone == 0 {
			delete(c.objects, key)
			return false
		}
	}
	k.looks++
	if strings.HasPrefix(key, "datavolumes/") {
		k.object["status"] = c.volumeStatus(k)
	} else if strings.HasPrefix(key, "virtualmachines/") {
		c.advanceVM(k)
	}
	return true
}

// volumeStatus returns the status of a DataVolume: its phase in CDI depends on the number of requests
// and on the upload.
func (c *Cluster) volumeStatus(k *storedObject) object {
	phase, said := "Pending", "no volume yet"
	switch {
	case c.config.Stuck: // stays in Pending
	case c.config.GiveUp && k.looks > 1: // after one request in Pending
		phase, said = "Failed", "the volume plugin gave up"
	case k.done:
		phase, said = "Succeeded", ""
	case k.taken && k.looks > 1: // the image is processed by now
		k.done, phase, said = true, "Succeeded", ""
	case k.looks == 2: // the second request
		phase = "UploadScheduled"
	case k.looks > 2 || k.taken:
		phase, said = "UploadReady", "the pod runs"
	}
	return object{
		"phase": phase, "restartCount": k.restarts,
		"conditions": []object{{"type": "Running", "status": "False", "message": said}},
	}
}

// valueAt returns the value at a path of keys; nil if a key is missing.
func valueAt(v any, path ...string) any {
	for _, key := range path {
		o, _ := v.(object)
		v = o[key]
	}
	return v
}

// writeJSON writes a response with a body of JSON.
func writeJSON(w http.ResponseWriter, code int, o any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o) // a client that is gone needs no answer
}

// writeStatus writes an error as a Status object, as Kubernetes does.
func writeStatus(w http.ResponseWriter, code int, message string) {
	writeJSON(w, code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code})
}
