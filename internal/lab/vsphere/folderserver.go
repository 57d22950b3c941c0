package vsphere

import (
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A reply is an error that is a status code and a page, as hosts send them.
type reply struct {
	status int
	text   string
}

func (r *reply) Error() string { return fmt.Sprintf("%d %s", r.status, r.text) }

var (
	errBusy   = &reply{http.StatusServiceUnavailable, "The service is currently unavailable"}
	errDenied = &reply{http.StatusUnauthorized, "You are not authorized to view this page"}
	errMethod = &reply{http.StatusMethodNotAllowed, "The lab's datastores are read-only"}
	errDotDot = &reply{http.StatusBadRequest, "The request path is not allowed"}
	errAbsent = &reply{http.StatusNotFound, "The requested object was not found"}
	// errLocked is the answer for a file that a running VM holds open, for every kind of request
	// (reports from vCenter 8.0.3 and ESXi 8 on VMFS6).
	errLocked = &reply{http.StatusInternalServerError, "Unable to access file since it is locked"}
)

// serveFolder answers GET and HEAD on datastores' files and folders.
func (e *endpoint) serveFolder(w http.ResponseWriter, r *http.Request) {
	defer e.slots.Add(-1)
	busy := e.slots.Add(1)
	rec := &recorder{ResponseWriter: w}
	e.lab.stats.countRequest(r)
	defer func() { e.lab.stats.countReply(rec.status) }()
	if limit := e.lab.currentLimits().MaxRequests; limit > 0 && busy > int64(limit) {
		writeError(rec, r, errBusy)
		return
	}
	f := e.lab.faults.takeFor(r)
	if err := e.answerFolder(rec, r, f); err != nil {
		writeError(rec, r, err)
	}
}

// answerFolder serves the request, or returns the reply to send in place of it.
func (e *endpoint) answerFolder(w *recorder, r *http.Request, f *injected) error {
	if err := f.beforeReply(r.Context()); err != nil {
		return err
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return errMethod
	}
	if slices.Contains(strings.Split(r.URL.Path, "/"), "..") {
		return errDotDot
	}
	if err := e.authenticate(w, r); err != nil {
		return err
	}
	if err := sleepContext(r.Context(), time.Duration(e.lab.currentLimits().Latency)); err != nil {
		return err
	}
	where, err := e.locatePlace(r)
	if err != nil {
		return err
	}
	return e.sendPlace(w, r, where, f)
}

// place is what a /folder URL names.
type place struct {
	dc   *datacenter
	ds   *datastore
	path string // inside the datastore, without slashes at the ends
}

// locatePlace finds the datacenter and datastore of a request. ESXi takes ha-datacenter for
// granted; vCenter knows a datastore only in its own datacenter.
func (e *endpoint) locatePlace(r *http.Request) (place, error) {
	query := r.URL.Query()
	p := place{path: strings.Trim(strings.TrimPrefix(r.URL.Path, "/folder"), "/")}
	dcPath, dsName := strings.Trim(query.Get("dcPath"), "/"), query.Get("dsName")
	if dcPath == "" && dsName != "" && !e.needsDatacenter() {
		dcPath = e.dcs[0].path
	}
	p.dc = e.datacenterAt(dcPath)
	if p.dc != nil {
		p.ds = p.dc.datastoreNamed(dsName)
	}
	unknown := p.dc == nil && dcPath != "" || p.ds == nil && dsName != ""
	if unknown || p.ds == nil && p.path != "" {
		return p, errAbsent
	}
	return p, nil
}

func (e *endpoint) datacenterAt(path string) *datacenter {
	i := slices.IndexFunc(e.dcs, func(dc *datacenter) bool { return matchesName(path, dc.path) })
	if i < 0 {
		return nil
	}
	return e.dcs[i]
}

func (dc *datacenter) datastoreNamed(name string) *datastore {
	i := slices.IndexFunc(dc.datastores, func(ds *datastore) bool { return matchesName(name, ds.spec.Name) })
	if i < 0 {
		return nil
	}
	return dc.datastores[i]
}

func (e *endpoint) needsDatacenter() bool { return e == e.lab.main && e.lab.cfg.VCenter }

// matchesName compares a query value with a name. Clients of libvirt's school encode dcPath and
// dsName twice, so the value may still be encoded.
func matchesName(value, name string) bool {
	if value == name {
		return true
	}
	decoded, err := url.PathUnescape(value)
	return err == nil && strings.Trim(decoded, "/") == name
}

// sendPlace sends the file or the listing.
func (e *endpoint) sendPlace(w *recorder, r *http.Request, p place, f *injected) error {
	if p.ds == nil {
		return e.sendListing(w, r, p)
	}
	if d := p.ds.findFile(p.path); d != nil {
		if e.lab.isLocked(d) {
			return errLocked
		}
		d.disk.served.Add(1)
		defer d.disk.served.Add(-1)
		return e.sendBody(w, r, body{ReaderAt: d.content, size: d.content.Size(), ds: p.ds}, f)
	}
	return e.serveSmall(w, r, p, f)
}

// serveSmall serves a real file of the datastore's folder: a descriptor, .vmx, log.
func (e *endpoint) serveSmall(w *recorder, r *http.Request, p place, f *injected) error {
	name := p.path
	if name == "" {
		name = "."
	}
	file, err := p.ds.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return errAbsent
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return e.sendListing(w, r, p)
	}
	return e.sendBody(w, r, body{ReaderAt: file, size: info.Size(), ds: p.ds}, f)
}

// isActive reports whether the file is of the link that its VM writes to.
func (f *dataFile) isActive() bool {
	links := f.disk.currentLinks()
	return links[len(links)-1].name == f.link
}

// writeError sends err as hosts do: a status and a short HTML page.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	var page *reply
	switch {
	case errors.As(err, &page):
	case errors.Is(err, errLogin):
		page = errDenied
	case errors.Is(err, errSessions):
		page = errBusy
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client has gone, or the lab stops
	default:
		page = &reply{http.StatusInternalServerError, err.Error()}
	}
	switch page.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="VMware HTTP server"`)
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", "GET, HEAD")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(page.status)
	_, _ = fmt.Fprintf(w, "<html><head><title>%d</title></head><body><h1>%s</h1></body></html>\n", page.status, html.EscapeString(page.text))
}

// body is what a request reads from.
type body struct {
	io.ReaderAt
	size int64
	ds   *datastore
}

// recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader is part of http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
