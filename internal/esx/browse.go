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

// longestListing bounds the page of links that a folder is answered with, in bytes: about
// 100 000 files.
const longestListing = 16 << 20

// Stat returns what a datastore path is, by one HEAD. ESXi sends every file as
// application/octet-stream and every folder as a page of links; a page that can be read
// in ranges is a file all the same. Locked files may be refused with fault.Conflict.
func (s *fileReader) Stat(ctx context.Context, datacenter string, p inventory.Path) (inventory.File, error) {
	res, err := s.requestPath(ctx, http.MethodHead, datacenter, p)
	if err != nil {
		return inventory.File{}, fmt.Errorf("look at %s: %w", p, classify(err))
	}
	res.Body.Close()
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

// List returns the names in a folder of a datastore (File "" is its root), in the host's
// order, without sizes.
func (s *fileReader) List(ctx context.Context, datacenter string, p inventory.Path) ([]inventory.File, error) {
	res, err := s.requestPath(ctx, http.MethodGet, datacenter, p)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", p, classify(err))
	}
	defer res.Body.Close()
	if res.Header.Get("Accept-Ranges") != "" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		return nil, fault.New(fault.Invalid, "list %s: it is a file", p)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, longestListing))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", p, classify(err))
	}
	return parseListing(string(text)), nil
}

// requestPath asks for a path and returns an answer with status 200; the caller closes its
// body. It finds out how a vCenter wants names encoded, as ReadFile does.
func (s *fileReader) requestPath(ctx context.Context, method, datacenter string, p inventory.Path) (*http.Response, error) {
	at := datastoreKey{datacenter, p.Datastore}
	twice := s.encoded.get(at)
	res, err := s.requestPathAs(ctx, method, at, p.File, twice)
	if !twice && s.maybeTwice(at, err) {
		if again, err := s.requestPathAs(ctx, method, at, p.File, true); err == nil {
			s.encoded.set(at)
			return again, nil
		}
	}
	return res, err
}

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

// browseURI is folderURI for folders too: the datastore's root has no path.
func browseURI(at datastoreKey, file string, twice bool) (string, error) {
	if file != "" {
		return folderURI(at, file, twice)
	}
	uri, err := folderURI(at, "root", twice)
	return strings.Replace(uri, "/folder/root?", "/folder?", 1), err
}
