package esx

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// longestListing limits the HTML page that lists a folder, in bytes. It has room for
// about 100,000 files.
const longestListing = 16 << 20

// Stat returns the size of a file, or that the path is a folder. It sends one HEAD
// request. ESXi sends each file as application/octet-stream and each folder as an HTML
// page. An HTML page that accepts ranges is a file. ESXi may refuse a locked file, with
// fault.Conflict.
func (s *fileReader) Stat(ctx context.Context, datacenter string, p inventory.Path) (inventory.File, error) {
	res, err := s.requestPath(ctx, http.MethodHead, datacenter, p)
	if err != nil {
		return inventory.File{}, fmt.Errorf("look at %s: %w", p, classify(err))
	}
	res.Body.Close()
	// A file whose name ends with .html also has the type text/html, but supports
	// ranges.
	page := strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") && res.Header.Get("Accept-Ranges") == ""
	if page {
		return inventory.File{Folder: true}, nil
	}
	if res.ContentLength < 0 {
		return inventory.File{}, fault.New(fault.Unsupported, "look at %s: the host does not say how long it is", p).
			WithHint("connect to the host directly, not through a proxy")
	}
	return inventory.File{Size: res.ContentLength}, nil
}

// List returns the names in a folder of a datastore, in the host's order and without
// sizes. File "" is the root of the datastore. A path that is a file is fault.Invalid.
func (s *fileReader) List(ctx context.Context, datacenter string, p inventory.Path) ([]inventory.File, error) {
	res, err := s.requestPath(ctx, http.MethodGet, datacenter, p)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", p, classify(err))
	}
	defer res.Body.Close()
	// The same test as in Stat: only the listing of a folder is HTML without ranges.
	if res.Header.Get("Accept-Ranges") != "" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		return nil, fault.New(fault.Invalid, "list %s: it is a file", p)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, longestListing))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", p, classify(err))
	}
	return parseListing(string(text)), nil
}

// requestPath requests a datastore path and returns a response with status 200. The
// caller must close its body. It tries both encodings of names with a vCenter, as
// ReadFile does.
func (s *fileReader) requestPath(ctx context.Context, method, datacenter string, p inventory.Path) (*http.Response, error) {
	at := datastoreKey{datacenter, p.Datastore}
	twice := s.encoded.get(at)
	res, err := s.requestPathAs(ctx, method, at, p.File, twice)
	// The second request only counts if it succeeds: otherwise the first error
	// describes the problem.
	if !twice && s.maybeTwice(at, err) {
		if again, err := s.requestPathAs(ctx, method, at, p.File, true); err == nil {
			s.encoded.set(at)
			return again, nil
		}
	}
	return res, err
}

// requestPathAs requests a path with datacenter and datastore encoded once or twice. A
// status other than 200 is a statusError.
func (s *fileReader) requestPathAs(ctx context.Context, method string, at datastoreKey, file string, twice bool) (*http.Response, error) {
	uri, err := browseURI(at, file, twice)
	if err != nil {
		return nil, err
	}
	res, err := s.sendRequest(ctx, method, uri)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, &statusError{res.StatusCode}
	}
	return res, nil
}

// browseURI is folderURI for files and folders. An empty file is the root of the
// datastore, which has no path in the URI.
func browseURI(at datastoreKey, file string, twice bool) (string, error) {
	if file != "" {
		return folderURI(at, file, twice)
	}
	uri, err := folderURI(at, "root", twice)
	return strings.Replace(uri, "/folder/root?", "/folder?", 1), err
}
