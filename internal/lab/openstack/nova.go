package openstack

import (
	"maps"
	"net/http"
	"slices"
)

// A server is a Nova server. Cloud.mu guards its fields.
type server struct {
	id, name, status string            // identifier, name and API status
	flavor           string            // ID of the flavor
	metadata         map[string]string // metadata of the client
	volumes, ports   []string          // IDs of attached volumes and ports, in the order of the request
	image            string            // ID of the image it boots from; empty for a boot from a volume
	bad, launched    bool              // whether the build ends in ERROR; whether the server was ever ACTIVE
	starting         bool              // whether a server in SHUTOFF becomes ACTIVE at the next request
	deletingFor      int               // requests until the deletion is complete; 0 if it is not being deleted
}

// apiObject returns the server as the API returns it. A server in ERROR has a fault.
func (s *server) apiObject() object {
	o := object{"id": s.id, "name": s.name, "status": s.status, "metadata": s.metadata, "flavor": object{"id": s.flavor}, "image": ""}
	if s.launched {
		o["OS-SRV-USG:launched_at"] = "2026-01-02T03:04:05.000000"
	}
	if s.status == "ERROR" {
		o["fault"] = object{"code": 500, "message": "No valid host was found. There are not enough hosts available."}
	}
	return o
}

// computeAPI is the compute API of Nova, version 2.1.
type computeAPI struct{ *Cloud }

// advanceState moves a server to its next status: a request is the unit of time.
func (c computeAPI) advanceState(s *server) {
	switch {
	case s.deletingFor > 1: // the deletion is in progress
		s.deletingFor--
	case s.deletingFor == 1: // the last request that sees the server
		c.removeServer(s)
	case s.status == "BUILD" && s.bad:
		s.status = "ERROR"
	case s.status == "BUILD":
		s.status, s.launched = "ACTIVE", true
	case s.starting:
		s.status, s.starting = "ACTIVE", false
	}
}

// removeServer removes a server and releases its volumes and ports.
func (c computeAPI) removeServer(s *server) {
	for _, id := range s.volumes {
		if v := c.volumes[id]; v != nil {
			v.server, v.status = "", "available" // volumes outlive their server
		}
	}
	for _, id := range s.ports {
		if p := c.ports[id]; p != nil {
			p.Device = ""
		}
	}
	delete(c.servers, s.id)
}

// serve answers a request. path begins after the version. Cloud.mu must be held.
func (c computeAPI) serve(w http.ResponseWriter, r *http.Request, path []string) {
	switch {
	case path[0] == "flavors": // GET flavors/detail
		all := []object{}
		for _, f := range c.config.Flavors {
			all = append(all, object{"id": f.ID, "name": f.Name, "vcpus": f.CPUs, "ram": f.RAM, "disk": f.Disk, "swap": ""})
		}
		writeJSON(w, http.StatusOK, object{"flavors": all})
	case path[0] == "limits": // GET limits: quota and use
		writeJSON(w, http.StatusOK, object{"limits": object{"rate": []object{}, "absolute": object{
			"maxTotalInstances": c.config.Servers, "totalInstancesUsed": len(c.servers), "maxTotalCores": 100, "maxTotalRAMSize": 1 << 20,
		}}})
	case path[0] == "os-availability-zone":
		writeJSON(w, http.StatusOK, object{"availabilityZoneInfo": []object{{"zoneName": "nova"}, {"zoneName": "compute-only"}}})
	case r.Method == http.MethodPost && len(path) == 3 && path[2] == "action": // POST servers/ID/action
		c.startServer(w, r, path[1])
	case r.Method == http.MethodPost: // POST servers
		c.createServer(w, r)
	case len(path) == 2 && path[1] == "detail": // GET servers/detail
		all := []object{}
		for _, id := range slices.Sorted(maps.Keys(c.servers)) {
			s := c.servers[id]
			if c.advanceState(s); c.servers[id] != nil {
				all = append(all, s.apiObject())
			}
		}
		writeJSON(w, http.StatusOK, object{"servers": all})
	default:
		c.serveServer(w, r, path[1])
	}
}

// serveServer answers GET and DELETE of one server. The deletion takes two further requests.
func (c computeAPI) serveServer(w http.ResponseWriter, r *http.Request, id string) {
	s := c.servers[id]
	if s == nil {
		writeError(w, http.StatusNotFound, "itemNotFound", "Instance "+id+" could not be found.")
		return
	}
	if r.Method == http.MethodDelete {
		if s.deletingFor == 0 {
			s.deletingFor = 2
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c.advanceState(s)
	writeJSON(w, http.StatusOK, object{"server": s.apiObject()})
}

// startServer handles the action os-start. A server that is not in SHUTOFF is an error 409.
func (c computeAPI) startServer(w http.ResponseWriter, r *http.Request, id string) {
	var asked object
	if !decodeBody(w, r, &asked) {
		return
	}
	s, found := c.servers[id]
	_, start := asked["os-start"]
	switch {
	case !found:
		writeError(w, http.StatusNotFound, "itemNotFound", "Instance "+id+" could not be found.")
	case !start: // no other action is emulated
		writeError(w, http.StatusBadRequest, "badRequest", "There is no such action.")
	case s.status != "SHUTOFF" || s.starting:
		writeError(w, http.StatusConflict, "conflictingRequest", "Cannot 'start' instance "+id+" while it is in vm_state active")
	default:
		s.starting = true
		w.WriteHeader(http.StatusAccepted)
	}
}

// maxMetadata is the default quota for metadata items of a server (Nova option quota.metadata_items).
const maxMetadata = 128

// A serverRequest is the body of a request to create a server.
type serverRequest struct {
	// name, ID of the flavor, ID of the image; ImageRef is empty for a boot from a volume
	Name, FlavorRef, ImageRef string
	Metadata                  map[string]string // metadata items
	Networks                  any               // list of ports, or a string such as "none"; nil is an error
	// volumes to attach; boot index 0 is the boot disk
	Devices []struct {
		UUID      string `json:"uuid"`
		BootIndex int    `json:"boot_index"`
	} `json:"block_device_mapping_v2"`
}

// createServer checks the request in Nova's order and begins to build the server. Quota errors have
// status 403, unlike Cinder's.
func (c computeAPI) createServer(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Server serverRequest }
	if !decodeBody(w, r, &asked) {
		return
	}
	o := asked.Server
	s := &server{id: c.newID(), name: o.Name, status: "BUILD", flavor: o.FlavorRef, metadata: o.Metadata, image: o.ImageRef}
	switch {
	case invalidMetadata(o.Metadata):
		writeError(w, http.StatusBadRequest, "badRequest", "Invalid input for field/attribute metadata.")
	case len(o.Metadata) > maxMetadata:
		writeError(w, http.StatusForbidden, "forbidden", "Maximum number of metadata items exceeds 128")
	case !c.attachDisks(s, o):
		writeError(w, http.StatusBadRequest, "badRequest", "Block Device Mapping is Invalid.")
	case o.Networks == nil || !slices.ContainsFunc(c.config.Flavors, func(f Flavor) bool { return f.ID == o.FlavorRef }):
		writeError(w, http.StatusBadRequest, "badRequest", "Invalid: flavor and networks are needed.")
	case len(c.servers) >= c.config.Servers:
		writeError(w, http.StatusForbidden, "forbidden", "Quota exceeded for instances: Requested 1, but already used all.")
	case !c.attachPorts(s, o):
		writeError(w, http.StatusConflict, "conflictingRequest", "A port is still in use.")
	default:
		c.registerServer(s)
		writeJSON(w, http.StatusAccepted, object{"server": object{"id": s.id}})
	}
}

// attachDisks records the volumes of a server. It returns false if a volume is not available or nothing
// is bootable.
func (c computeAPI) attachDisks(s *server, o serverRequest) bool {
	boots := o.ImageRef != "" && c.images[o.ImageRef] != nil // boot from an image
	for _, d := range o.Devices {
		v := c.volumes[d.UUID]
		if v == nil || v.status != "available" || d.BootIndex == 0 && !v.bootable {
			return false
		}
		boots = boots || d.BootIndex == 0
		s.volumes = append(s.volumes, d.UUID)
	}
	return boots
}

// attachPorts records the ports of a server. It returns false if a port is missing or another server
// uses it.
func (c computeAPI) attachPorts(s *server, o serverRequest) bool {
	list, _ := o.Networks.([]any) // "auto" and "none" name no ports
	for _, n := range list {
		id, _ := n.(object)["port"].(string)
		if c.ports[id] == nil || c.ports[id].Device != "" {
			return false
		}
		s.ports = append(s.ports, id)
	}
	return true
}

// registerServer adds a server to the cloud and marks its volumes and ports as used.
func (c computeAPI) registerServer(s *server) {
	for _, id := range s.volumes {
		c.volumes[id].server, c.volumes[id].status = s.id, "in-use"
	}
	for _, id := range s.ports {
		c.ports[id].Device = s.id
	}
	s.bad = consumeFault(&c.config.BadServers)
	c.servers[s.id] = s
}

// Server is a copy of a server, for assertions of tests.
type Server struct {
	ID, Name, Status, Flavor, Image string            // identifiers, name and API status
	Metadata                        map[string]string // metadata of the client
	Volumes, Ports                  []string          // IDs in the order of the request
}

// Servers returns all servers, oldest first.
func (c *Cloud) Servers() []Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Server
	for _, id := range slices.Sorted(maps.Keys(c.servers)) {
		s := c.servers[id]
		all = append(all, Server{ID: id, Name: s.name, Status: s.status, Flavor: s.flavor, Image: s.image, Metadata: maps.Clone(s.metadata), Volumes: s.volumes, Ports: s.ports})
	}
	return all
}

// AddServer creates an ACTIVE server of another user and returns its ID.
func (c *Cloud) AddServer(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &server{id: c.newID(), name: name, status: "ACTIVE"}
	c.servers[s.id] = s
	return s.id
}

// SetStatus changes the status of a server, for example to SHUTOFF.
func (c *Cloud) SetStatus(id, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[id].status = status
}
