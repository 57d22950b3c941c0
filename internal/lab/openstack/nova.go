package openstack

import (
	"maps"
	"net/http"
	"slices"
)

// server is a server of Nova's.
type server struct {
	id, name, status string
	flavor           string
	metadata         map[string]string
	volumes, ports   []string
	image            string
	bad, launched    bool
	starting         bool // the server is off, and runs at the next request
	going            int  // looks until it is gone; 0: it is not being deleted
}

func (s *server) told() object {
	o := object{"id": s.id, "name": s.name, "status": s.status, "metadata": s.metadata, "flavor": object{"id": s.flavor}, "image": ""}
	if s.launched {
		o["OS-SRV-USG:launched_at"] = "2026-01-02T03:04:05.000000"
	}
	if s.status == "ERROR" {
		o["fault"] = object{"code": 500, "message": "No valid host was found. There are not enough hosts available."}
	}
	return o
}

// computeAPI is Nova: servers.
type computeAPI struct{ *Cloud }

// look has time go by for a server.
func (c computeAPI) look(s *server) {
	switch {
	case s.going > 1:
		s.going--
	case s.going == 1:
		c.drop(s)
	case s.status == "BUILD" && s.bad:
		s.status = "ERROR"
	case s.status == "BUILD":
		s.status, s.launched = "ACTIVE", true
	case s.starting:
		s.status, s.starting = "ACTIVE", false
	}
}

func (c computeAPI) drop(s *server) {
	for _, id := range s.volumes {
		if v := c.volumes[id]; v != nil {
			v.server, v.status = "", "available"
		}
	}
	for _, id := range s.ports {
		if p := c.ports[id]; p != nil {
			p.Device = ""
		}
	}
	delete(c.servers, s.id)
}

func (c computeAPI) serve(w http.ResponseWriter, r *http.Request, path []string) {
	switch {
	case path[0] == "flavors":
		all := []object{}
		for _, f := range c.config.Flavors {
			all = append(all, object{"id": f.ID, "name": f.Name, "vcpus": f.CPUs, "ram": f.RAM, "disk": f.Disk, "swap": ""})
		}
		tell(w, http.StatusOK, object{"flavors": all})
	case path[0] == "limits":
		tell(w, http.StatusOK, object{"limits": object{"rate": []object{}, "absolute": object{
			"maxTotalInstances": c.config.Servers, "totalInstancesUsed": len(c.servers), "maxTotalCores": 100, "maxTotalRAMSize": 1 << 20,
		}}})
	case path[0] == "os-availability-zone":
		tell(w, http.StatusOK, object{"availabilityZoneInfo": []object{{"zoneName": "nova"}, {"zoneName": "compute-only"}}})
	case r.Method == http.MethodPost && len(path) == 3 && path[2] == "action":
		c.power(w, r, path[1])
	case r.Method == http.MethodPost:
		c.createServer(w, r)
	case len(path) == 2 && path[1] == "detail":
		all := []object{}
		for _, id := range slices.Sorted(maps.Keys(c.servers)) {
			s := c.servers[id]
			if c.look(s); c.servers[id] != nil {
				all = append(all, s.told())
			}
		}
		tell(w, http.StatusOK, object{"servers": all})
	default:
		c.oneServer(w, r, path[1])
	}
}

func (c computeAPI) oneServer(w http.ResponseWriter, r *http.Request, id string) {
	s := c.servers[id]
	if s == nil {
		refuse(w, http.StatusNotFound, "itemNotFound", "Instance "+id+" could not be found.")
		return
	}
	if r.Method == http.MethodDelete {
		if s.going == 0 {
			s.going = 2
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c.look(s)
	tell(w, http.StatusOK, object{"server": s.told()})
}

// power handles actions on a server: it is started, if it is off.
func (c computeAPI) power(w http.ResponseWriter, r *http.Request, id string) {
	var asked object
	if !read(w, r, &asked) {
		return
	}
	s, found := c.servers[id]
	_, start := asked["os-start"]
	switch {
	case !found:
		refuse(w, http.StatusNotFound, "itemNotFound", "Instance "+id+" could not be found.")
	case !start:
		refuse(w, http.StatusBadRequest, "badRequest", "There is no such action.")
	case s.status != "SHUTOFF" || s.starting:
		refuse(w, http.StatusConflict, "conflictingRequest", "Cannot 'start' instance "+id+" while it is in vm_state active")
	default:
		s.starting = true
		w.WriteHeader(http.StatusAccepted)
	}
}

// maxMetadata is the usual quota for metadata_items.
const maxMetadata = 128

// wanted is what a server is asked for by.
type wanted struct {
	Name, FlavorRef, ImageRef string
	Metadata                  map[string]string
	Networks                  any
	Devices                   []struct {
		UUID      string `json:"uuid"`
		BootIndex int    `json:"boot_index"`
	} `json:"block_device_mapping_v2"`
}

func (c computeAPI) createServer(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Server wanted }
	if !read(w, r, &asked) {
		return
	}
	o := asked.Server
	s := &server{id: c.id(), name: o.Name, status: "BUILD", flavor: o.FlavorRef, metadata: o.Metadata, image: o.ImageRef}
	switch {
	case long(o.Metadata):
		refuse(w, http.StatusBadRequest, "badRequest", "Invalid input for field/attribute metadata.")
	case len(o.Metadata) > maxMetadata:
		refuse(w, http.StatusForbidden, "forbidden", "Maximum number of metadata items exceeds 128")
	case !c.disksFor(s, o):
		refuse(w, http.StatusBadRequest, "badRequest", "Block Device Mapping is Invalid.")
	case o.Networks == nil || !slices.ContainsFunc(c.config.Flavors, func(f Flavor) bool { return f.ID == o.FlavorRef }):
		refuse(w, http.StatusBadRequest, "badRequest", "Invalid: flavor and networks are needed.")
	case len(c.servers) >= c.config.Servers:
		refuse(w, http.StatusForbidden, "forbidden", "Quota exceeded for instances: Requested 1, but already used all.")
	case !c.portsFor(s, o):
		refuse(w, http.StatusConflict, "conflictingRequest", "A port is still in use.")
	default:
		c.build(s)
		tell(w, http.StatusAccepted, object{"server": object{"id": s.id}})
	}
}

// disksFor finds the volumes of a server, and something to boot from.
func (c computeAPI) disksFor(s *server, o wanted) bool {
	boots := o.ImageRef != "" && c.images[o.ImageRef] != nil
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

// portsFor finds the ports of a server, which no other server may use.
func (c computeAPI) portsFor(s *server, o wanted) bool {
	list, _ := o.Networks.([]any)
	for _, n := range list {
		id, _ := n.(object)["port"].(string)
		if c.ports[id] == nil || c.ports[id].Device != "" {
			return false
		}
		s.ports = append(s.ports, id)
	}
	return true
}

// build attaches a server's volumes and ports.
func (c computeAPI) build(s *server) {
	for _, id := range s.volumes {
		c.volumes[id].server, c.volumes[id].status = s.id, "in-use"
	}
	for _, id := range s.ports {
		c.ports[id].Device = s.id
	}
	s.bad = take(&c.config.BadServers)
	c.servers[s.id] = s
}

// Server is what Nova has, for tests.
type Server struct {
	ID, Name, Status, Flavor, Image string
	Metadata                        map[string]string
	Volumes, Ports                  []string // IDs, in the order in which they were given
}

// Servers lists them, in the order in which they were made.
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

// AddServer creates a running server of another user.
func (c *Cloud) AddServer(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &server{id: c.id(), name: name, status: "ACTIVE"}
	c.servers[s.id] = s
	return s.id
}

// SetStatus has a server be in another state, such as SHUTOFF.
func (c *Cloud) SetStatus(id, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[id].status = status
}
