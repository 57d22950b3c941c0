package pve

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A call is one authenticated request.
type call struct {
	*Server
	request *http.Request // the HTTP request; its body is consumed unless it is an upload
	token   Token         // token of the caller
	args    []string      // the parts of the path that the route names
	form    url.Values    // parameters of query and body; empty for an upload
}

// A route maps a method and a path of the API to a function.
type route struct {
	method string                   // HTTP method
	path   *regexp.Regexp           // matches the escaped path below /api2/json; its groups become call.args
	answer func(*call) (any, error) // returns the value of "data" in the response
}

// newRoute compiles a path in which {node} matches the node's name and {} an argument.
func newRoute(method, path string, answer func(*call) (any, error)) route {
	pattern := strings.NewReplacer("{node}", `[^/]+`, "{}", `([^/]+)`).Replace(path)
	return route{method, regexp.MustCompile("^" + pattern + "$"), answer}
}

// routes are the methods of the API that decamp uses.
var routes = []route{
	newRoute("GET", "/version", showVersion),
	newRoute("GET", "/access/permissions", showPermissions),
	newRoute("GET", "/nodes", listNodes),
	newRoute("GET", "/cluster/nextid", nextID),
	newRoute("GET", "/cluster/resources", listResources),
	newRoute("GET", "/nodes/{node}/network", listNetworks),
	newRoute("GET", "/nodes/{node}/storage", listStorages),
	newRoute("GET", "/nodes/{node}/storage/{}/content", listVolumes),
	newRoute("POST", "/nodes/{node}/storage/{}/content", newVolume),
	newRoute("DELETE", "/nodes/{node}/storage/{}/content/{}", removeVolume),
	newRoute("POST", "/nodes/{node}/storage/{}/upload", uploadFile),
	newRoute("POST", "/nodes/{node}/qemu", createGuest),
	newRoute("DELETE", "/nodes/{node}/qemu/{}", destroyGuest),
	newRoute("GET", "/nodes/{node}/qemu/{}/config", showGuest),
	newRoute("PUT", "/nodes/{node}/qemu/{}/config", changeGuest),
	newRoute("POST", "/nodes/{node}/qemu/{}/config", changeGuestLater),
	newRoute("GET", "/nodes/{node}/qemu/{}/status/current", guestStatus),
	newRoute("POST", "/nodes/{node}/qemu/{}/status/start", startGuest),
	newRoute("POST", "/nodes/{node}/qemu/{}/status/stop", stopGuest),
	newRoute("GET", "/nodes/{node}/tasks", listTasks),
	newRoute("DELETE", "/nodes/{node}/tasks/{}", stopTask),
	newRoute("GET", "/nodes/{node}/tasks/{}/status", taskStatus),
	newRoute("GET", "/nodes/{node}/tasks/{}/log", taskLog),
}

// maxForm is pveproxy's limit on bodies that are not uploads, in bytes.
const maxForm = 512 << 10

// ServeHTTP implements http.Handler. The Date header includes Config.Skew.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.dropsRequest() {
		panic(http.ErrAbortHandler) // closes the connection
	}
	w.Header().Set("Date", time.Now().Add(s.config.Skew).UTC().Format(http.TimeFormat))
	data, err := s.routeRequest(r)
	if err != nil {
		writeRefusal(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data}) // the client may have gone
}

// routeRequest authenticates a request, finds its route and returns the value of "data". It refuses
// chunked bodies with 501, as pveproxy does.
func (s *Server) routeRequest(r *http.Request) (any, error) {
	if len(r.TransferEncoding) > 0 { // pveproxy accepts only bodies with a length
		return nil, newRefusal(http.StatusNotImplemented, "chunked transfer encoding not supported")
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api2/json")
	if !ok {
		return nil, newRefusal(http.StatusNotFound, "no such file")
	}
	token, err := s.authenticate(r)
	if err != nil {
		return nil, err
	}
	for _, each := range routes {
		found := each.path.FindStringSubmatch(path)
		if found == nil || each.method != r.Method { // another route may match
			continue
		}
		if err := s.checkNode(path); err != nil {
			return nil, err
		}
		c := &call{Server: s, request: r, token: token}
		for _, arg := range found[1:] {
			plain, err := url.PathUnescape(arg)
			if err != nil {
				return nil, newRefusal(http.StatusBadRequest, "invalid path")
			}
			c.args = append(c.args, plain)
		}
		if err := c.readParameters(path); err != nil {
			return nil, err
		}
		return each.answer(c)
	}
	return nil, newRefusal(http.StatusNotImplemented, "Method '%s %s' not implemented", r.Method, path)
}

// checkNode refuses requests for another node, which Proxmox would forward: 595 if that node is down,
// 500 if its name is unknown.
func (s *Server) checkNode(path string) error {
	rest, ok := strings.CutPrefix(path, "/nodes/")
	name, _, _ := strings.Cut(rest, "/")
	if !ok || name == s.config.Node {
		return nil
	}
	for _, down := range s.config.Offline {
		if name == down {
			return newRefusal(595, "No route to host")
		}
	}
	return serverError("hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name)
}

// readParameters reads the parameters of query and body into form, and records the request for tests.
// Parameters of the body take precedence.
func (c *call) readParameters(path string) error {
	c.form = c.request.URL.Query()
	isUpload := strings.HasPrefix(c.request.Header.Get("Content-Type"), "multipart/")
	if !isUpload && c.request.Body != nil {
		body, err := io.ReadAll(io.LimitReader(c.request.Body, maxForm+1))
		if err != nil {
			return newRefusal(http.StatusBadRequest, "cannot read the body")
		}
		if len(body) > maxForm {
			return newRefusal(http.StatusNotImplemented, "for data too large")
		}
		values, err := url.ParseQuery(string(body))
		if err != nil {
			return newRefusal(http.StatusBadRequest, "cannot parse the body")
		}
		for k, v := range values {
			c.form[k] = v
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, Request{c.request.Method, path, c.form})
	return nil
}

// showVersion returns the version and its first two components as release.
func showVersion(c *call) (any, error) {
	release := c.config.Version
	if parts := strings.SplitN(release, ".", 3); len(parts) == 3 {
		release = parts[0] + "." + parts[1]
	}
	return map[string]string{"version": c.config.Version, "release": release, "repoid": "0000000000000000"}, nil
}

// listNodes lists this node as online and those of Config.Offline as offline.
func listNodes(c *call) (any, error) {
	list := []map[string]any{{"node": c.config.Node, "status": "online", "type": "node", "id": "node/" + c.config.Node}}
	for _, down := range c.config.Offline {
		list = append(list, map[string]any{"node": down, "status": "offline", "type": "node", "id": "node/" + down})
	}
	return list, nil
}

// nextID returns the lowest free VMID, or checks the requested one. It reserves nothing: Faults.Taken
// creates another guest with the returned VMID.
func nextID(c *call) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked := c.form.Get("vmid"); asked != "" {
		if vmid, err := strconv.Atoi(asked); err != nil || c.guests[vmid] != nil {
			return nil, refuseParameter("vmid", "VM %s already exists", asked)
		}
		return asked, nil
	}
	id := cmp.Or(c.config.NextID, 100) // Proxmox's lowest VMID
	for c.guests[id] != nil {
		id++
	}
	if c.faults.Taken > 0 { // another client takes the VMID before the caller
		c.faults.Taken--
		c.guests[id] = newGuest(id, map[string]string{"name": "somebody-elses", "memory": "16"})
	}
	return strconv.Itoa(id), nil
}
