package esx

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// ReadFile returns the contents of a small datastore file, such as a descriptor. A file
// larger than limit bytes is fault.Unsupported, because it is not a descriptor.
func (s *fileReader) ReadFile(ctx context.Context, datacenter string, p inventory.Path, limit int64) ([]byte, error) {
	at := datastoreKey{datacenter, p.Datastore}
	twice := s.encoded.get(at)
	data, err := s.readFile(ctx, at, p.File, twice, limit)
	if !twice && s.maybeTwice(at, err) {
		if again, err := s.readFile(ctx, at, p.File, true, limit); err == nil {
			s.encoded.set(at)
			return again, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p, classify(err))
	}
	return data, nil
}

// maybeTwice reports whether a request may have failed because a vCenter decodes names
// twice. The answer is false if the names contain no characters to encode.
func (s *fileReader) maybeTwice(at datastoreKey, err error) bool {
	encodes := percentEncode(at.datacenter) != at.datacenter || percentEncode(at.datastore) != at.datastore
	return s.about.VCenter && encodes &&
		(isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusBadRequest) || isStatus(err, http.StatusInternalServerError))
}

// readFile reads a file with datacenter and datastore encoded once or twice.
func (s *fileReader) readFile(ctx context.Context, at datastoreKey, file string, twice bool, limit int64) ([]byte, error) {
	uri, err := folderURI(at, file, twice)
	if err != nil {
		return nil, err
	}
	res, err := s.sendRequest(ctx, http.MethodGet, uri)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, &statusError{res.StatusCode}
	}
	return readAtMost(res, limit)
}

// sendRequest sends a request for uri with the session cookie. If the server refuses
// the cookie, it renews the cookie and sends the request once more. A response with
// another status is no error. The caller must close the body of the response.
func (s *fileReader) sendRequest(ctx context.Context, method, uri string) (*http.Response, error) {
	cookie, err := s.Cookie(ctx, "")
	if err != nil {
		return nil, err
	}
	res, err := s.sendWithCookie(ctx, method, uri, cookie)
	if err != nil || res.StatusCode != http.StatusUnauthorized {
		return res, err
	}
	res.Body.Close()
	if cookie, err = s.Cookie(ctx, cookie); err != nil {
		return nil, err
	}
	return s.sendWithCookie(ctx, method, uri, cookie)
}

// sendWithCookie sends one request. A response with any status is no error.
func (s *fileReader) sendWithCookie(ctx context.Context, method, uri, cookie string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+s.end.addr+uri, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Cookie", cookie)
	return s.web.Do(req)
}

// readAtMost reads the body of a response, or returns fault.Unsupported if it is larger
// than limit bytes.
func readAtMost(res *http.Response, limit int64) ([]byte, error) {
	if res.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(limit)
	}
	return data, nil
}

// tooLarge returns the error for a file larger than limit bytes.
func tooLarge(limit int64) error {
	return fault.New(fault.Unsupported, "it is larger than %d bytes", limit).
		WithHint("a descriptor is small; this is data, or a file in a format that is not known")
}
