package vsphere

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
)

// sendListing sends a page of links: to datacenters, to the datastores of one, or to the entries of a
// folder.
func (e *endpoint) sendListing(w http.ResponseWriter, r *http.Request, p folderTarget) error {
	entries, err := e.listEntries(p)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	title := html.EscapeString("Index of " + strings.Trim(p.title(), " "))
	fmt.Fprintf(w, "<html><head><title>%s</title></head><body><h1>%s</h1><table>\n", title, title)
	for _, entry := range entries {
		fmt.Fprintf(w, "<tr><td><a href=\"%s\">%s</a></td></tr>\n", html.EscapeString(entry.href), html.EscapeString(entry.name))
	}
	_, err = fmt.Fprint(w, "</table></body></html>\n")
	return err
}

// An entry is one link of a listing.
type entry struct{ name, href string }

// title returns the heading of the listing.
func (p folderTarget) title() string {
	if p.ds != nil {
		return datastorePath(p.ds.spec.Name, "", p.path)
	}
	if p.dc != nil {
		return "datastores"
	}
	return "datacenters"
}

// listEntries returns the links of a listing.
func (e *endpoint) listEntries(p folderTarget) (all []entry, err error) {
	switch {
	case p.dc == nil:
		for _, dc := range e.dcs {
			all = append(all, entry{dc.path, "/folder?dcPath=" + url.QueryEscape(dc.path)})
		}
	case p.ds == nil:
		for _, ds := range p.dc.datastores {
			all = append(all, entry{ds.spec.Name, "/folder" + p.queryString(ds)})
		}
	default:
		return p.listFiles()
	}
	return all, nil
}

// listFiles returns the real files of a folder and the data files, which exist only in memory, sorted
// by name.
func (p folderTarget) listFiles() (all []entry, err error) {
	dir := p.path
	if dir == "" {
		dir = "."
	}
	names, err := readNames(p.ds.root, dir)
	if err != nil {
		return nil, err
	}
	for _, file := range p.ds.filePaths() {
		if path.Dir(file) == dir {
			names = append(names, path.Base(file))
		}
	}
	slices.Sort(names)
	for _, name := range names {
		href := (&url.URL{Path: path.Join("/folder", p.path) + "/" + name}).EscapedPath()
		all = append(all, entry{name, href + p.queryString(p.ds)})
	}
	return all, nil
}

// readNames returns the names in a folder; names of folders end in a slash.
func readNames(root *os.Root, dir string) (names []string, err error) {
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return names, err
}

// queryString returns the query of a link to ds.
func (p folderTarget) queryString(ds *datastore) string {
	return "?" + url.Values{"dcPath": {p.dc.path}, "dsName": {ds.spec.Name}}.Encode()
}
