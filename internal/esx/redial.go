package esx

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/decamp/decamp/internal/fault"
)

// redialTransport sends a request again on a new connection if the first connection was
// dead. Hosts close idle connections, and all connections when their agents restart.
// net/http repeats some requests itself, but not POST, which API calls use. A request
// may therefore reach the server twice. That is harmless for reads and for power-off.
// Logins use another transport.
type redialTransport struct{ base *http.Transport }

// RoundTrip is part of http.RoundTripper. It reads the whole body of req into memory.
// API calls are small.
func (d redialTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := takeBody(req)
	if err != nil {
		return nil, err
	}
	res, err := d.base.RoundTrip(withBody(req, body))
	if err == nil || req.Context().Err() != nil || !isLostConnection(err) {
		return res, err
	}
	// Other idle connections are probably dead as well.
	d.base.CloseIdleConnections()
	return d.base.RoundTrip(withBody(req, body))
}

// isLostConnection reports whether err is the loss of an established connection.
// Timeouts are not, because the server may still work on the request. A certificate
// that does not match the pin is not, because a new connection has the same.
func isLostConnection(err error) bool {
	var known *fault.Error // a certificate that is not the pinned one
	var op *net.OpError
	var network net.Error
	switch {
	case errors.As(err, &known), errors.As(err, &op) && op.Op == "dial":
		return false
	case errors.As(err, &network) && network.Timeout():
		return false
	}
	return true
}

// takeBody reads and closes the body of a request. It returns nil without a body.
func takeBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

// withBody returns a copy of req with a body that has not been read.
func withBody(req *http.Request, body []byte) *http.Request {
	req = req.Clone(req.Context())
	if body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return req
}
