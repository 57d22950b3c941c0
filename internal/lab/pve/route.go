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
	request *http.Request
	token   Token
	args    []string   // the parts of the path that the route names
	form    url.Values // parameters of query and body; empty for an upload
}

// A route is a method of the API.
type route struct {
	method string
	path   *regexp.Regexp
	answer func(*call) (any, error)
}

func newRoute(method, path string, answer func(*call) (any, error)) route {
	pattern := strings.NewReplacer("{node}", `[^/]+`, "{}", `([^/]+)`).Replace(path)
	return route{method, regexp.MustCompile("^" + pattern + "$"), answer}
}

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

// maxForm is the longest body that is no upload, in bytes, as pveproxy has it.
const maxForm = 512 << 10

// ServeHTTP answers a request.
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

func (s *Server) routeRequest(r *http.Request) (any, error) {
	if len(r.TransferEncoding) > 0 {
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
		if found == nil || each.method != r.Method {
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

// checkNode refuses requests for another node: Proxmox would forward them.
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

// readParameters takes the parameters, and keeps the request for tests.
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

func showVersion(c *call) (any, error) {
	release := c.config.Version
	if parts := strings.SplitN(release, ".", 3); len(parts) == 3 {
		release = parts[0] + "." + parts[1]
	}
	return map[string]string{"version": c.config.Version, "release": release, "repoid": "0000000000000000"}, nil
}

func listNodes(c *call) (any, error) {
	list := []map[string]any{{"node": c.config.Node, "status": "online", "type": "node", "id": "node/" + c.config.Node}}
	for _, down := range c.config.Offline {
		list = append(list, map[string]any{"node": down, "status": "offline", "type": "node", "id": "node/" + down})
	}
	return list, nil
}

// nextID names the lowest VMID that is free. It reserves nothing; Faults.Taken makes use of that.
func nextID(c *call) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked := c.form.Get("vmid"); asked != "" {
		if vmid, err := strconv.Atoi(asked); err != nil || c.guests[vmid] != nil {
			return nil, refuseParameter("vmid", "VM %s already exists", asked)
		}
		return asked, nil
	}
	id := cmp.Or(c.config.NextID, 100)
	for c.guests[id] != nil {
		id++
	}
	if c.faults.Taken > 0 {
		c.faults.Taken--
		c.guests[id] = newGuest(id, map[string]string{"name": "somebody-elses", "memory": "16"})
	}
	return strconv.Itoa(id), nil
}
