package vsphere

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// serveSDK passes a request to the simulator and applies the rules for sessions: the simulator never
// sees the cookie of an expired session, and the cookie of a new session has the form of real hosts.
func (e *endpoint) serveSDK(w http.ResponseWriter, r *http.Request) {
	e.lab.stats.countRequest(r)
	if c, err := r.Cookie(sessionCookie); err == nil && !e.auth.touchSession(c.Value) {
		r.Header.Del("Cookie")
	}
	defer e.watchWait(r)()
	e.sdk.ServeHTTP(&cookieWriter{ResponseWriter: w, auth: e.auth}, r)
}

// A cookieWriter is a ResponseWriter that registers the sessions that the simulator opens.
type cookieWriter struct {
	http.ResponseWriter
	auth *authState // sessions of the endpoint
	done bool       // whether the head of the response was examined
}

// WriteHeader implements http.ResponseWriter.
func (w *cookieWriter) WriteHeader(status int) {
	w.learnSession()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *cookieWriter) Write(p []byte) (int, error) {
	w.learnSession()
	return w.ResponseWriter.Write(p)
}

// learnSession registers the session of the response, if it opens one, and replaces its cookie.
func (w *cookieWriter) learnSession() {
	if w.done {
		return
	}
	w.done = true
	if id := sessionOf(w.Header()); id != "" {
		w.auth.addSession(id)
		w.Header().Del("Set-Cookie")
		http.SetCookie(w.ResponseWriter, newCookie(id))
	}
}

// sessionOf returns the session ID in the cookies of a response; empty if it opens no session.
func sessionOf(h http.Header) string {
	for _, c := range (&http.Response{Header: h}).Cookies() {
		if c.Name == sessionCookie {
			return c.Value
		}
	}
	return ""
}

// openSession logs in to the simulator for a Basic login, so that its cookie is also valid for SOAP
// calls. It returns the session ID.
func (e *endpoint) openSession() (string, error) {
	if e.sdk == nil {
		return newID(), nil
	}
	var user, pass bytes.Buffer
	if err := errors.Join(xml.EscapeText(&user, []byte(e.lab.cfg.User)), xml.EscapeText(&pass, []byte(e.lab.cfg.Password))); err != nil {
		return "", err
	}
	manager := e.lab.model.ServiceContent.SessionManager.Value
	body := fmt.Sprintf(`<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><Login xmlns="urn:vim25">`+
		`<_this type="SessionManager">%s</_this><userName>%s</userName><password>%s</password></Login></Body></Envelope>`, manager, &user, &pass)
	r, err := http.NewRequest(http.MethodPost, "/sdk", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	w := headerWriter{}
	e.sdk.ServeHTTP(w, r)
	if id := sessionOf(http.Header(w)); id != "" {
		return id, nil
	}
	return "", errLogin
}

// A headerWriter is a ResponseWriter that keeps only the header.
type headerWriter http.Header

// Header implements http.ResponseWriter.
func (w headerWriter) Header() http.Header { return http.Header(w) }

// Write drops p.
func (w headerWriter) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader drops the status.
func (w headerWriter) WriteHeader(int) {}

// A vimAPI connects the simulator's SOAP handlers with the emulator's rules.
type vimAPI struct{ lab *Lab }

// serveModel installs the emulator's objects and hooks in the simulator.
func (a *vimAPI) serveModel() {
	svc := a.lab.model.Service
	svc.Listen = &url.URL{Scheme: "https", Host: a.lab.main.addr, Path: "/sdk", User: url.UserPassword(a.lab.cfg.User, a.lab.cfg.Password)}
	reg := a.lab.model.Map()
	reg.Handler = a.hookCall
	sm := reg.SessionManager()
	sm.ServiceHostName = a.lab.main.addr
	sm.ValidLogin = func(req *types.Login) bool { return a.lab.main.auth.checkPassword(req.UserName, req.Password) }
	a.setLicence(reg)
	svc.RegisterSDK(reg, reg.Path+"/vimService")
	pc := &collector{}
	pc.Self = a.lab.model.ServiceContent.PropertyCollector
	reg.Put(pc)
	reg.Put(&nfcService{Self: nfcServiceRef(a.lab.cfg.VCenter), lab: a.lab})
	svc.ServeMux.HandleFunc(reg.Path+"/vimServiceVersions.xml", svc.ServiceVersions)
	a.lab.main.sdk, a.lab.main.dcs = svc.ServeMux, a.lab.datacenters
	for _, dc := range a.lab.datacenters {
		asHost := &datacenter{path: "ha-datacenter", datastores: dc.datastores}
		for _, host := range dc.spec.Hosts {
			if e := a.lab.hosts[host]; e != nil {
				e.dcs = []*datacenter{asHost}
			}
		}
	}
}

// hookCall is called for every SOAP call before the simulator executes it. It may reject the call, or
// return another object that executes it.
//
// The returned object replaces the real one for this session only. In the global registry it would make
// the simulator's tasks panic on a type assertion; without registration in the session, the session's
// view of the real object would take precedence.
func (a *vimAPI) hookCall(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	a.lab.stats.countSOAP(method.Name)
	if ctx.Session == nil {
		return a.overrideFor(ctx, method), a.checkLogin(method)
	}
	if a.lab.cfg.ReadOnlyLicence && needsLicence(method.Name) {
		return nil, &types.RestrictedVersion{}
	}
	if fault := a.deniedFault(method); fault != nil {
		return nil, fault
	}
	a.followSessions(ctx, method)
	a.lab.waits.addWait(ctx, method)
	obj := a.overrideFor(ctx, method)
	if obj == nil {
		return nil, removedFault(ctx, method.This)
	}
	ctx.Session.Registry.Put(obj)
	return obj, nil
}

// removedFault returns ManagedObjectNotFound for a removed snapshot. The simulator looks objects up before the
// hook, so it may still have this one. It also removes the override that an earlier call left in the session.
func removedFault(ctx *simulator.Context, ref types.ManagedObjectReference) types.BaseMethodFault {
	if ref.Type != "VirtualMachineSnapshot" || ctx.Map.Get(ref) != nil {
		return nil
	}
	ctx.Session.Registry.Remove(ctx, ref)
	return &types.ManagedObjectNotFound{Obj: ref}
}

// checkLogin rejects a login above the limit of sessions. The answer of a real host to SOAP is not
// documented; the emulator returns a system error.
func (a *vimAPI) checkLogin(method *simulator.Method) types.BaseMethodFault {
	if method.Name == "Login" && a.lab.main.auth.isFull() {
		return &types.SystemError{Reason: errSessions.Error()}
	}
	return nil
}

// followSessions ends the sessions that a call ends.
func (a *vimAPI) followSessions(ctx *simulator.Context, method *simulator.Method) {
	switch req := method.Body.(type) {
	case *types.Logout:
		a.lab.main.auth.removeSession(ctx.Session.Key)
	case *types.TerminateSession:
		for _, id := range req.SessionId {
			a.lab.main.auth.removeSession(id)
		}
	}
}

// overrideFor returns the object for a method that the emulator implements, or nil.
func (a *vimAPI) overrideFor(ctx *simulator.Context, method *simulator.Method) mo.Reference {
	switch method.Name {
	case "QueryChangedDiskAreas", "ShutdownGuest", "CreateSnapshot_Task", "CreateSnapshotEx_Task", "RemoveAllSnapshots_Task", "ConsolidateVMDisks_Task":
		if vm, ok := ctx.Map.Get(method.This).(*simulator.VirtualMachine); ok {
			return &virtualMachine{VirtualMachine: vm, lab: a.lab, machine: a.lab.machines[vm.Self]}
		}
	case "RemoveSnapshot_Task":
		if s, ok := ctx.Map.Get(method.This).(*simulator.VirtualMachineSnapshot); ok && a.lab.machines[s.Vm] != nil {
			return &vmSnapshot{VirtualMachineSnapshot: s, lab: a.lab, machine: a.lab.machines[s.Vm]}
		}
	case "CreateNasDatastore", "RemoveDatastore":
		if dss, ok := ctx.Map.Get(method.This).(*simulator.HostDatastoreSystem); ok {
			return &datastoreSystem{HostDatastoreSystem: dss, lab: a.lab}
		}
	case "DestroyDatastore", "Destroy_Task":
		if ds, ok := ctx.Map.Get(method.This).(*simulator.Datastore); ok {
			return &nasDatastore{Datastore: ds, lab: a.lab}
		}
	case "CopyVirtualDisk_Task":
		if vdm, ok := ctx.Map.Get(method.This).(*simulator.VirtualDiskManager); ok {
			return &diskManager{VirtualDiskManager: vdm, lab: a.lab}
		}
	case "RetrieveInternalContent":
		if si, ok := ctx.Map.Get(method.This).(*simulator.ServiceInstance); ok {
			return &serviceInstance{ServiceInstance: si, lab: a.lab}
		}
	case "HasPrivilegeOnEntities":
		if m, ok := ctx.Map.Get(method.This).(*simulator.AuthorizationManager); ok {
			return &authorizationManager{AuthorizationManager: m, lab: a.lab}
		}
	case "AcquireGenericServiceTicket":
		return &sessionManager{SessionManager: ctx.Map.SessionManager(), lab: a.lab}
	}
	return nil
}

// A virtualMachine is a simulator's VM with the methods of the emulator.
type virtualMachine struct {
	*simulator.VirtualMachine
	lab     *Lab     // emulator with the machine
	machine *machine // machine of the configuration; nil for a VM that was created at run time
}

// readOnly are prefixes of the names of calls that change nothing on the host.
var readOnly = []string{
	"Retrieve", "Query", "Find", "Log", "Wait", "Check", "Continue", "Current", "Fetch", "Search", "Acquire", "Session", "Cancel",
	"CreateFilter", "CreatePropertyCollector", "CreateContainerView", "CreateListView", "CreateCollector", "CreateInventoryView",
	"Destroy", "List", "Read", "Rewind", "Refresh", "Terminate", "Validate", "Get", "Has", "Nfc", "SetCollectorPageSize",
}

// needsLicence reports whether the free licence forbids a call. DestroyView and similar calls remove
// objects of the session; two calls remove real objects.
func needsLicence(method string) bool {
	if method == "Destroy_Task" || method == "DestroyDatastore" {
		return true
	}
	return !slices.ContainsFunc(readOnly, func(p string) bool { return strings.HasPrefix(method, p) })
}

// parseTicketURL returns the ticket for a method and a URL.
func parseTicketURL(method, raw string) (ticket, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return ticket{}, fmt.Errorf("parse ticket URL: %w", err)
	}
	method = strings.ToUpper(strings.TrimPrefix(method, "http"))
	return ticket{method: method, path: u.Path, query: u.Query()}, nil
}
