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

// An httpError is an error with a status and the text of an HTML page, as hosts send them.
type httpError struct {
	status int    // HTTP status
	text   string // heading of the page
}

// Error returns status and text.
func (r *httpError) Error() string { return fmt.Sprintf("%d %s", r.status, r.text) }

var (
	// Limits.MaxRequests is reached
	errBusy   = &httpError{http.StatusServiceUnavailable, "The service is currently unavailable"}
	errDenied = &httpError{http.StatusUnauthorized, "You are not authorized to view this page"}    // no valid login
	errMethod = &httpError{http.StatusMethodNotAllowed, "The emulator's datastores are read-only"} // neither GET nor HEAD
	errDotDot = &httpError{http.StatusBadRequest, "The request path is not allowed"}               // a path with ".."
	// no such file, datastore or datacenter
	errAbsent = &httpError{http.StatusNotFound, "The requested object was not found"}
	// errLocked is the answer to every request for a file that a running VM has open (reports from
	// vCenter 8.0.3 and ESXi 8 on VMFS6).
	errLocked = &httpError{http.StatusInternalServerError, "Unable to access file since it is locked"}
)

// serveFolder answers requests for files and folders of datastores.
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

// answerFolder serves the request, or returns the error to send.
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
	where, err := e.findTarget(r)
	if err != nil {
		return err
	}
	return e.sendTarget(w, r, where, f)
}

// A folderTarget is the object that a /folder URL names.
type folderTarget struct {
	dc   *datacenter // datacenter; nil for the list of datacenters
	ds   *datastore  // datastore; nil for the list of datastores
	path string      // path in the datastore, without slashes at the ends
}

// findTarget returns the target of a request. An ESXi host assumes ha-datacenter; a vCenter finds a
// datastore only in the datacenter of the query.
func (e *endpoint) findTarget(r *http.Request) (folderTarget, error) {
	query := r.URL.Query()
	p := folderTarget{path: strings.Trim(strings.TrimPrefix(r.URL.Path, "/folder"), "/")}
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

// datacenterAt returns the datacenter with this inventory path, or nil.
func (e *endpoint) datacenterAt(path string) *datacenter {
	i := slices.IndexFunc(e.dcs, func(dc *datacenter) bool { return matchesName(path, dc.path) })
	if i < 0 {
		return nil
	}
	return e.dcs[i]
}

// datastoreNamed returns the datastore with this name, or nil.
func (dc *datacenter) datastoreNamed(name string) *datastore {
	i := slices.IndexFunc(dc.datastores, func(ds *datastore) bool { return matchesName(name, ds.spec.Name) })
	if i < 0 {
		return nil
	}
	return dc.datastores[i]
}

// needsDatacenter reports whether a request must name a datacenter.
func (e *endpoint) needsDatacenter() bool { return e == e.lab.main && e.lab.cfg.VCenter }

// matchesName compares a query value with a name. Clients based on libvirt encode dcPath and dsName
// twice, so the value may still be encoded.
func matchesName(value, name string) bool {
	if value == name {
		return true
	}
	decoded, err := url.PathUnescape(value)
	return err == nil && strings.Trim(decoded, "/") == name
}

// sendTarget sends the file or the listing. A data file of a running VM is refused.
func (e *endpoint) sendTarget(w *recorder, r *http.Request, p folderTarget, f *injected) error {
	if p.ds == nil { // a list of datacenters or datastores
		return e.sendListing(w, r, p)
	}
	if d := p.ds.findFile(p.path); d != nil {
		if e.lab.isLocked(d) {
			return errLocked
		}
		d.disk.served.Add(1) // an NFC session must not open the disk meanwhile
		defer d.disk.served.Add(-1)
		return e.sendBody(w, r, fileBody{ReaderAt: d.content, size: d.content.Size(), ds: p.ds}, f)
	}
	return e.serveSmall(w, r, p, f)
}

// serveSmall serves a real file of the datastore's folder, such as a descriptor, a .vmx file or a log.
func (e *endpoint) serveSmall(w *recorder, r *http.Request, p folderTarget, f *injected) error {
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
	return e.sendBody(w, r, fileBody{ReaderAt: file, size: info.Size(), ds: p.ds}, f)
}

// isActive reports whether the file belongs to the link to which its VM writes.
func (f *dataFile) isActive() bool {
	links := f.disk.currentLinks()
	return links[len(links)-1].name == f.link
}

// writeError sends a status and a short HTML page, as hosts do. If the client has disconnected, it
// aborts the handler.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	var page *httpError
	switch {
	case errors.As(err, &page): // an error with a status
	case errors.Is(err, errLogin):
		page = errDenied
	case errors.Is(err, errSessions):
		page = errBusy
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client has disconnected, or the emulator stops
	default:
		page = &httpError{http.StatusInternalServerError, err.Error()}
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

// A fileBody is the file that a request reads.
type fileBody struct {
	io.ReaderAt
	size int64      // length in bytes
	ds   *datastore // datastore, whose rate limit applies
}

// A recorder is a ResponseWriter that records the status.
type recorder struct {
	http.ResponseWriter
	status int // HTTP status; 0 before WriteHeader
}

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
